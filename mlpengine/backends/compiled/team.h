/* A team of THREADS, the caller among them: persistent, meeting at barriers inside a step.  Who
   waits looks for a few microseconds and then sleeps: a thread that spins while others need its
   core would cost them a time slice. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define LOOKS 4000

struct job {
  void *const *table;
  char *workspace;
  double *numbers;
};

static struct {
  pthread_mutex_t busy, lock;
  pthread_cond_t moved;
  atomic_int arrived, round, sleepers;
  struct job job;
  long status;
  pid_t owner; /* a forked child has no helpers and starts its own */
} team = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER,
          0, 0, 0, {0}, 0, 0};

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

static long part(const struct job job, const long thread);

static void *help(void *number) {
  flush_denormals();
  for (;;) {
    meet();
    part(team.job, (long)(intptr_t)number);
    meet();
  }
  return NULL;
}

/* Have the helpers started; returns whether they are there. */
static int gather_team(void) {
  if (team.owner == getpid()) return 1;
  atomic_store(&team.arrived, 0);
  atomic_store(&team.sleepers, 0);
  for (long t = 1; t < THREADS; t++) {
    pthread_t helper;
    if (pthread_create(&helper, NULL, help, (void *)(intptr_t)t)) return 0;
    pthread_detach(helper);
  }
  team.owner = getpid();
  return 1;
}

static long step(void *const *table, char *workspace, double *numbers) {
  if (!gather_team()) return 3;
  team.job = (struct job){table, workspace, numbers};
  meet();
  const long status = part(team.job, 0);
  meet();
  return status;
}

static void enter(void) { pthread_mutex_lock(&team.busy); }
static void leave(void) { pthread_mutex_unlock(&team.busy); }
