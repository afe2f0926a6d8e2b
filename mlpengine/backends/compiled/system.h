/* Clocks, threads, locks, conditions and cores, for Windows and POSIX. */
#if IN_UNIT(0)

/* Time for which a thread spins at a barrier before it sleeps and frees its core. */
#define SPIN_NANOSECONDS 50000

INLINE void cpu_relax(void) {
#if defined(__SSE2__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#ifdef _WIN32
/* <windows.h> would define names such as `near`, and takes long to read. */
#define IMPORTED __declspec(dllimport)
IMPORTED int QueryPerformanceCounter(int64_t *), QueryPerformanceFrequency(int64_t *);
IMPORTED void AcquireSRWLockExclusive(void **), ReleaseSRWLockExclusive(void **);
IMPORTED int SleepConditionVariableSRW(void **, void **, uint32_t milliseconds, uint32_t flags);
IMPORTED void WakeAllConditionVariable(void **);
IMPORTED void *CreateThread(void *, size_t, uint32_t (*)(void *), void *, uint32_t, uint32_t *);
IMPORTED uint32_t WaitForSingleObject(void *, uint32_t milliseconds);
IMPORTED int CloseHandle(void *);
#define FOREVER UINT32_MAX

/* Nanoseconds since a fixed time. */
static int64_t now(void) {
  int64_t ticks, each_second;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&each_second);
  const int64_t rest = ticks % each_second * INT64_C(1000000000) / each_second;
  return ticks / each_second * INT64_C(1000000000) + rest;
}

typedef void *lock, *condition, *thread;
typedef uint32_t thread_end; /* return type of a thread's function */

INLINE void make_lock(lock *one) { *one = NULL; }
INLINE void make_condition(condition *one) { *one = NULL; }
INLINE void acquire(lock *one) { AcquireSRWLockExclusive(one); }
INLINE void release(lock *one) { ReleaseSRWLockExclusive(one); }
INLINE void wait_for(condition *one, lock *held) {
  SleepConditionVariableSRW(one, held, FOREVER, 0);
}
INLINE void wake_all(condition *one) { WakeAllConditionVariable(one); }

/* Start a thread; return whether it runs. */
INLINE int start_thread(thread *one, thread_end function(void *), void *argument) {
  *one = CreateThread(NULL, 0, function, argument, 0, NULL);
  return *one != NULL;
}
INLINE void join_thread(thread one) {
  WaitForSingleObject(one, FOREVER);
  CloseHandle(one);
}

/* Register a function that forked child processes call first; return whether this succeeds. */
INLINE int call_in_forks(void function(void)) {
  (void)function; /* there are no forks */
  return 1;
}
#else
#include <pthread.h>
#include <signal.h>
#include <time.h>

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

typedef pthread_mutex_t lock;
typedef pthread_cond_t condition;
typedef pthread_t thread;
typedef void *thread_end;

INLINE void make_lock(lock *one) { pthread_mutex_init(one, NULL); }
INLINE void make_condition(condition *one) { pthread_cond_init(one, NULL); }
INLINE void acquire(lock *one) { pthread_mutex_lock(one); }
INLINE void release(lock *one) { pthread_mutex_unlock(one); }
INLINE void wait_for(condition *one, lock *held) { pthread_cond_wait(one, held); }
INLINE void wake_all(condition *one) { pthread_cond_broadcast(one); }

/* Start a thread that blocks all signals; return whether it runs. */
INLINE int start_thread(thread *one, thread_end function(void *), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(one, NULL, function, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return !failed;
}
INLINE void join_thread(thread one) { pthread_join(one, NULL); }

INLINE int call_in_forks(void function(void)) { return !pthread_atfork(NULL, NULL, function); }
#endif

#ifdef __linux__
#include <sched.h>

/* The number of the core on which this thread runs, or -1 if it is unknown. */
INLINE int this_core(void) { return sched_getcpu(); }

/* Let `count` threads use all cores of this thread except `core`; return 1.  If fewer than `count`
   cores remain, change nothing; return 0. */
INLINE int exclude_core(const int core, const thread *threads, const int count) {
  cpu_set_t others;
  if (pthread_getaffinity_np(pthread_self(), sizeof others, &others)) return 0;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) < count) return 0;
  for (int t = 0; t < count; t++) pthread_setaffinity_np(threads[t], sizeof others, &others);
  return 1;
}
#else
INLINE int this_core(void) { return -1; }
INLINE int exclude_core(const int core, const thread *threads, const int count) {
  (void)core, (void)threads, (void)count;
  return 0;
}
#endif
#endif
