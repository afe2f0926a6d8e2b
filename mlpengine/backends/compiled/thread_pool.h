/* A pool of THREADS threads, including the caller.  The workers start with the first step and end
   with the last user of the program; barriers synchronize all threads within a step.  A waiting
   thread spins for a few microseconds and then sleeps, because a thread that spins on the core of
   another one delays it by a time slice. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#define SPINS 4000

static struct {
  pthread_mutex_t busy, lock;
  pthread_cond_t moved;
  atomic_int arrived, round, sleepers, stopping, users;
  struct call *call;
  pthread_t workers[THREADS]; /* the caller is number 0 */
  int started;                /* how many workers run */
  int forkable;               /* whether forks are handled */
  int core;                   /* excluded from the workers' affinity */
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
          .moved = PTHREAD_COND_INITIALIZER};

INLINE void cpu_relax(void) {
#if defined(__SSE2__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

INLINE int has_passed(const int round) {
  return atomic_load(&pool.round) != round || atomic_load(&pool.stopping);
}

/* Wait until every thread of the pool has arrived, or the pool stops. */
static void barrier(void) {
  const int round = atomic_load(&pool.round);
  if (atomic_fetch_add(&pool.arrived, 1) == THREADS - 1) {
    atomic_store(&pool.arrived, 0);
    atomic_store(&pool.round, round + 1);
    if (atomic_load(&pool.sleepers)) {
      pthread_mutex_lock(&pool.lock);
      pthread_cond_broadcast(&pool.moved);
      pthread_mutex_unlock(&pool.lock);
    }
    return;
  }
  for (int i = 0; i < SPINS; i++) {
    if (has_passed(round)) return;
    cpu_relax();
  }
  pthread_mutex_lock(&pool.lock);
  atomic_fetch_add(&pool.sleepers, 1);
  while (!has_passed(round)) pthread_cond_wait(&pool.moved, &pool.lock);
  atomic_fetch_sub(&pool.sleepers, 1);
  pthread_mutex_unlock(&pool.lock);
}

static void *worker_main(void *number) {
  flush_denormals();
  for (;;) {
    barrier();
    if (atomic_load(&pool.stopping)) return NULL;
    work(pool.call, (long)(intptr_t)number);
  }
}

/* Stop and join the workers that run; none may be inside a step. */
static void stop_workers(void) {
  pthread_mutex_lock(&pool.lock);
  atomic_store(&pool.stopping, 1);
  pthread_cond_broadcast(&pool.moved);
  pthread_mutex_unlock(&pool.lock);
  for (; pool.started; pool.started--) pthread_join(pool.workers[pool.started], NULL);
  atomic_store(&pool.arrived, 0);
  atomic_store(&pool.stopping, 0);
}

/* Start all workers or none; return whether they run. */
static int start_workers(void) {
  if (pool.started == THREADS - 1) return 1;
  if (!pool.forkable) return 0;
  sigset_t all, before; /* workers block all signals */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = 0;
  while (pool.started < THREADS - 1 && !failed) {
    const long next = pool.started + 1;
    failed = pthread_create(&pool.workers[next], NULL, worker_main, (void *)(intptr_t)next);
    pool.started += !failed;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pool.core = -1;
  if (failed) stop_workers();
  return !failed;
}

/* Reset the pool in a forked child, which has no workers and may inherit locked mutexes. */
static void reset_after_fork(void) {
  pthread_mutex_init(&pool.busy, NULL);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.moved, NULL);
  atomic_store(&pool.arrived, 0);
  atomic_store(&pool.sleepers, 0);
  atomic_store(&pool.stopping, 0);
  pool.started = 0;
}

__attribute__((constructor)) static void handle_forks(void) {
  pool.forkable = !pthread_atfork(NULL, NULL, reset_after_fork);
}

/* Exclude the caller's core from the workers' affinity.  Schedulers often wake a thread on the core
   of its waker; two threads that alternate there sleep half of the time and are never separated. */
static void set_affinity(void) {
#ifdef __linux__
  const int here = sched_getcpu();
  cpu_set_t others;
  if (here == pool.core || pthread_getaffinity_np(pthread_self(), sizeof others, &others)) return;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) < THREADS - 1) return;
  for (long t = 1; t < THREADS; t++)
    pthread_setaffinity_np(pool.workers[t], sizeof others, &others);
  pool.core = here;
#endif
}

/* Run a call on all threads.  Each step ends with a barrier, after which no worker uses the call; a
   call without steps does not wake the workers. */
static void run(struct call *call) {
  if (call->count > 0 && !start_workers()) {
    call->status = NO_THREADS;
    return;
  }
  if (call->count > 0) {
    set_affinity();
    pool.call = call;
    barrier();
  }
  work(call, 0);
}

static void enter(void) { pthread_mutex_lock(&pool.busy); }
static void leave(void) { pthread_mutex_unlock(&pool.busy); }

/* Every user opens the program once and closes it after use. */
void mlpengine_open(void) { atomic_fetch_add(&pool.users, 1); }

void mlpengine_close(void) {
  if (atomic_fetch_sub(&pool.users, 1) > 1) return;
  enter();
  if (atomic_load(&pool.users) < 1) stop_workers();
  leave();
}
