/* The thread pool of a program with one thread, the caller: there is no synchronization. */
#define FIRST(n) INT64_C(0)
#define LAST(n) (n)

#if IN_UNIT(0)
static void run(struct call *call) { work(call, call->count, thread_part(call, 0, 1)); }
static void offer(const int64_t thread) { (void)thread; }
static void barrier(const struct part part) { (void)part; }
static void enter(void) {}
static void leave(void) {}
void mlpengine_open(void) {}
void mlpengine_close(void) {}
#endif
