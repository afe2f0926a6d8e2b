/* A team of THREADS, the caller among them: persistent, meeting at barriers inside a step.  Who
   waits looks for a few microseconds and then sleeps: a thread that spins while others need its
   core would cost them a time slice. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#define LOOKS 4000

static struct {
  pthread_mutex_t busy, lock;
  pthread_cond_t moved;
  atomic_int arrived, round, sleepers;
  struct job job;
  pthread_t helpers[THREADS];
  pid_t owner; /* a forked child has no helpers and starts its own */
  int core;    /* that the helpers keep off */
} team = {.busy = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
          .moved = PTHREAD_COND_INITIALIZER};

INLINE void look_again(void) {
#if defined(__SSE2__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Wait until every thread of the team is here. */
static void meet(void) {
  const int round = atomic_load(&team.round);
  if (atomic_fetch_add(&team.arrived, 1) == THREADS - 1) {
    atomic_store(&team.arrived, 0);
    atomic_store(&team.round, round + 1);
    if (atomic_load(&team.sleepers)) {
      pthread_mutex_lock(&team.lock);
      pthread_cond_broadcast(&team.moved);
      pthread_mutex_unlock(&team.lock);
    }
    return;
  }
  for (int i = 0; i < LOOKS; i++) {
    if (atomic_load(&team.round) != round) return;
    look_again();
  }
  pthread_mutex_lock(&team.lock);
  atomic_fetch_add(&team.sleepers, 1);
  while (atomic_load(&team.round) == round) pthread_cond_wait(&team.moved, &team.lock);
  atomic_fetch_sub(&team.sleepers, 1);
  pthread_mutex_unlock(&team.lock);
}

static void *help(void *number) {
  flush_denormals();
  for (;;) {
    meet();
    work(team.job, (long)(intptr_t)number);
  }
  return NULL;
}

/* Have the helpers started; returns whether they are there. */
static int gather_team(void) {
  if (team.owner == getpid()) return 1;
  atomic_store(&team.arrived, 0);
  atomic_store(&team.sleepers, 0);
  sigset_t all, before; /* signals are for the threads of the caller */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int started = 1;
  for (long t = 1; t < THREADS && started; t++) {
    started = !pthread_create(&team.helpers[t], NULL, help, (void *)(intptr_t)t);
    if (started) pthread_detach(team.helpers[t]);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (started) team.owner = getpid();
  team.core = -1;
  return started;
}

/* Keep the helpers off the caller's core.  A system often wakes a thread where its waker runs; two
   that wait for one another there, each asleep half of the time, are never moved apart. */
static void keep_apart(void) {
#ifdef __linux__
  const int here = sched_getcpu();
  cpu_set_t others;
  if (here == team.core || pthread_getaffinity_np(pthread_self(), sizeof others, &others)) return;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) < THREADS - 1) return;
  for (long t = 1; t < THREADS; t++)
    pthread_setaffinity_np(team.helpers[t], sizeof others, &others);
  team.core = here;
#endif
}

/* The job of all.  Steps end in a meeting, so that nobody is at work any more afterwards. */
static long run(const struct job job) {
  if (!gather_team()) {
    job.numbers[6] = NO_THREADS;
    return 0;
  }
  keep_apart();
  team.job = job;
  meet();
  return work(job, 0);
}

static void enter(void) { pthread_mutex_lock(&team.busy); }
static void leave(void) { pthread_mutex_unlock(&team.busy); }
