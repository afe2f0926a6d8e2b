/* A pool of THREADS threads, the caller among them.  They start with the first step, meet at
   barriers inside each, and end with the last user of the program.  A thread that waits spins for a
   few microseconds and then sleeps: one that spins while another needs its core would cost that one
   a time slice. */
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
  int core;                   /* that the workers keep off */
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

/* Wait until every thread of the pool is here, or the pool stops. */
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

/* End the workers, all or those that could be started; none is inside a step. */
static void stop_workers(void) {
  pthread_mutex_lock(&pool.lock);
  atomic_store(&pool.stopping, 1);
  pthread_cond_broadcast(&pool.moved);
  pthread_mutex_unlock(&pool.lock);
  for (; pool.started; pool.started--) pthread_join(pool.workers[pool.started], NULL);
  atomic_store(&pool.arrived, 0);
  atomic_store(&pool.stopping, 0);
}

/* Start all workers or none; returns whether they run. */
static int start_workers(void) {
  if (pool.started == THREADS - 1) return 1;
  if (!pool.forkable) return 0;
  sigset_t all, before; /* signals are for the threads of the caller */
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

/* A forked child has no workers, whatever they and their locks were doing. */
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

/* Keep the workers off the caller's core.  A system often wakes a thread where its waker runs; two
   that wait for one another there, each asleep half of the time, are never moved apart. */
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

/* A call by all threads.  Each step ends at a barrier, so that no worker is at work afterwards; a
   call of no steps has none and wakes nobody. */
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

/* A program is opened once for each user, and closed when that one is done with it. */
void mlpengine_open(void) { atomic_fetch_add(&pool.users, 1); }

void mlpengine_close(void) {
  if (atomic_fetch_sub(&pool.users, 1) > 1) return;
  enter();
  if (atomic_load(&pool.users) < 1) stop_workers();
  leave();
}
