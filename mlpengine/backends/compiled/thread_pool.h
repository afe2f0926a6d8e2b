/* A pool of THREADS threads: the caller and workers.  The workers start with the first step and end
   with the last user of the program.  Barriers synchronize all threads within a step.  A waiting
   thread spins for some microseconds and then sleeps, so that another thread can use its core. */
#define FIRST(n) ((n) * part.index / part.count)
#define LAST(n) ((n) * (part.index + 1) / part.count)

#if CLAIMS
ACROSS int claim(const struct part part, const int64_t list, int64_t *first, int64_t *last);
#endif

#if IN_UNIT(0)
#include <stdatomic.h>

#if CLAIMS
static const uint64_t claimable[CLAIMS] = CLAIMABLE;

/* The unclaimed units of each thread's share, for each list: the first unit in the upper 32 bits, the
   end in the lower 32 bits. */
static struct {
  _Alignas(64) _Atomic uint64_t left;
} claims[CLAIMS][THREADS];
#endif

static struct {
  lock busy, round_lock;
  condition moved;
  atomic_int arrived, round, sleepers, stopping, users;
  struct call *call;
  int64_t end;                /* number of the step at which the threads stop */
  int alone;                  /* whether the caller makes the next steps alone */
  int trial;                  /* remaining bursts of a trial (see thread_steps.h) */
  int64_t patience, retry;    /* see MIN_PATIENCE; time of the next trial */
  int64_t steps, spent;       /* steps and nanoseconds of this burst so far */
  int64_t bursts[2];          /* nanoseconds of the last burst or trial: all threads, caller alone */
  double nanoseconds[2];      /* mean time of a step: all threads (times WORTH), caller alone */
  thread workers[THREADS];    /* number 0, the caller, is not used */
  int started;                /* number of running workers */
  int forkable;               /* whether `reset` is called in forked child processes */
  int core;                   /* the core on which workers must not run, or -1 */
} pool = {.alone = 1};

INLINE int has_passed(const int round) {
  return atomic_load(&pool.round) != round || atomic_load(&pool.stopping);
}

/* Wait until every thread of the pool has arrived, or the pool stops. */
static void wait_at_barrier(void) {
  const int round = atomic_load(&pool.round);
  if (atomic_fetch_add(&pool.arrived, 1) == THREADS - 1) {
    atomic_store(&pool.arrived, 0);
    atomic_store(&pool.round, round + 1);
    if (atomic_load(&pool.sleepers)) {
      acquire(&pool.round_lock);
      wake_all(&pool.moved);
      release(&pool.round_lock);
    }
    return;
  }
  const int64_t limit = now() + SPIN_NANOSECONDS;
  do {
    for (int i = 0; i < 16; i++) {
      if (has_passed(round)) return;
      cpu_relax();
    }
  } while (now() < limit);
  acquire(&pool.round_lock);
  atomic_fetch_add(&pool.sleepers, 1);
  while (!has_passed(round)) wait_for(&pool.moved, &pool.round_lock);
  atomic_fetch_sub(&pool.sleepers, 1);
  release(&pool.round_lock);
}

static void barrier(const struct part part) {
  if (part.count > 1) wait_at_barrier();
}

/* Mark the units of a thread's share as unclaimed, in all lists. */
static void offer(const int64_t thread) {
  (void)thread;
#if CLAIMS
  for (int64_t i = 0; i < CLAIMS; i++) {
    const uint64_t n = claimable[i], t = (uint64_t)thread;
    atomic_store(&claims[i][thread].left, n * t / THREADS << 32 | n * (t + 1) / THREADS);
  }
#endif
}

#if CLAIMS
/* Claim units *first to *last of a list; return whether any were left.  A thread first claims its own
   share, a quarter of the rest at a time, then single units from the ends of other shares.  So faster
   cores do more, and no thread waits for a thread that has no core.  Sums do not depend on claims. */
ACROSS int claim(const struct part part, const int64_t list, int64_t *first, int64_t *last) {
  if (part.count == 1) { /* all units at once */
    const int64_t before = *last;
    *last = (int64_t)claimable[list];
    return before == 0;
  }
  for (int64_t t = 0; t < THREADS; t++) {
    _Atomic uint64_t *const share = &claims[list][(part.index + t) % THREADS].left;
    uint64_t left = atomic_load(share), rest;
    do {
      const int64_t from = (int64_t)(left >> 32), to = (int64_t)(left & UINT32_MAX);
      if (from == to) break;
      *first = t ? to - 1 : from;
      *last = t ? to : from + (to - from + 3) / 4;
      rest = (uint64_t)(t ? from : *last) << 32 | (uint64_t)(t ? *first : to);
    } while (!atomic_compare_exchange_weak(share, &left, rest));
    if (left >> 32 != (left & UINT32_MAX)) return 1;
  }
  return 0;
}
#endif
#endif
