/* What differs between systems: the clock, threads and what they wait on, and cores. */
#if IN_UNIT(0)

/* How long a thread spins at a barrier before it sleeps, as its core may be needed. */
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

/* Nanoseconds since some time. */
static int64_t now(void) {
  int64_t ticks, each_second;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&each_second);
  const int64_t rest = ticks % each_second * INT64_C(1000000000) / each_second;
  return ticks / each_second * INT64_C(1000000000) + rest;
}

typedef void *lock, *condition, *thread;
typedef uint32_t thread_end; /* what the function of a thread returns */

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

/* Let a forked child call a function first; return whether it will. */
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

/* The thread blocks all signals. */
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
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number of the core on which this thread runs, or -1 where the system does not tell. */
INLINE int this_core(void) { return sched_getcpu(); }

/* Exclude a core from those that this thread may use, and give the others to some threads, if they
   are as many; return whether. */
INLINE int exclude_core(const int core, const thread *threads, const int count) {
  cpu_set_t others;
  if (pthread_getaffinity_np(pthread_self(), sizeof others, &others)) return 0;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) < count) return 0;
  for (int t = 0; t < count; t++) pthread_setaffinity_np(threads[t], sizeof others, &others);
  return 1;
}

/* Read the beginning of a file; return whether there is one. */
INLINE int read_start(const char *path, char *text, const size_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t count = read(file, text, size - 1);
  close(file);
  text[MAX(count, 0)] = 0;
  return count > 0;
}

/* Time of all cores since the system started, in ticks of 10 ms: all of it, what threads of normal
   priority and the system used, and this thread's part of that. */
struct usage {
  double total, used, own;
};

/* Read the usage from the text of /proc/stat; return whether it has one.  Time of threads with a low
   priority counts as used if this one has such a priority, too. */
INLINE int parse_usage(const char *text, const int is_low, struct usage *usage) {
  long long user, low, system, idle, waiting, interrupts, deferred, stolen;
  if (sscanf(text, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &user, &low, &system, &idle,
             &waiting, &interrupts, &deferred, &stolen) != 8)
    return 0;
  usage->used = (double)(user + (is_low ? low : 0) + system + interrupts + deferred + stolen);
  usage->total = usage->used + (double)((is_low ? 0 : low) + idle + waiting);
  return 1;
}

/* How many of the cores others of normal priority left to this thread between two times, rounded. */
INLINE int cores_left(const struct usage *from, const struct usage *to, const double cores) {
  const double others = (to->used - from->used) - (to->own - from->own);
  const double total = to->total - from->total;
  return total > 0 ? (int)(cores * (1 - others / total) + 0.5) : 0;
}

/* How long the use of cores is measured.  With fewer ticks it would be wrong by chance; and the text
   takes the system 10 microseconds on two cores, and more on many. */
#define USAGE_NANOSECONDS 100000000

/* The same since the last measurement, at least USAGE_NANOSECONDS ago, or the result of that. */
INLINE int measured_cores(const double cores) {
  static struct usage last;
  static int64_t retry;
  static int left;
  if (now() < retry) return left;
  retry = now() + USAGE_NANOSECONDS;
  char text[256];
  struct usage usage;
  struct timespec own;
  left = 0;
  if (!read_start("/proc/stat", text, sizeof text) ||
      !parse_usage(text, getpriority(PRIO_PROCESS, 0) > 0, &usage) ||
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own))
    return 0;
  usage.own = 100 * ((double)own.tv_sec + 1e-9 * (double)own.tv_nsec);
  if (last.total > 0) left = cores_left(&last, &usage, cores);
  last = usage;
  return left;
}

/* Whether there are cores for so many threads, this one included, or the system does not tell: cores
   that no other thread of all programs wants now, or has used of late with a normal priority. */
INLINE int has_cores(const int wanted) {
  char text[80];
  int runnable; /* with this thread */
  if (!read_start("/proc/loadavg", text, sizeof text) ||
      sscanf(text, "%*f %*f %*f %d", &runnable) != 1)
    return 1;
  const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  return cores - runnable + 1 >= wanted || measured_cores(cores) >= wanted;
}
#else
INLINE int this_core(void) { return -1; }
INLINE int exclude_core(const int core, const thread *threads, const int count) {
  (void)core, (void)threads, (void)count;
  return 0;
}
INLINE int has_cores(const int wanted) {
  (void)wanted;
  return 1;
}
#endif
#endif
