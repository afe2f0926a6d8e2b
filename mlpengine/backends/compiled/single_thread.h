/* Used in place of thread_pool.h if the calling thread makes all steps. */
#define FIRST(n) INT64_C(0)
#define LAST(n) (n)

#if IN_UNIT(0)
static void offer(const int64_t thread) { (void)thread; }
static void barrier(const struct part part) { (void)part; }
#endif
