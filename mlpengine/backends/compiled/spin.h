/* Waiting at a barrier of threads or ranks: spin for a time before sleeping, as the core may be
   needed. */
#include <time.h>

#define SPIN_NANOSECONDS 50000

INLINE void cpu_relax(void) {
#if defined(__SSE2__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}
