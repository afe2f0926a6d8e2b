/* The steps of a pool of threads.  There are two modes: all threads make the steps, or the caller makes
   them alone.  On a busy machine, a barrier may wait for a thread that has no core.  So the pool
   measures steps, and uses all threads only if they are clearly faster. */

/* Duration of a burst.  A burst is the steps between two choices of the mode.  It may span several
   calls: a call of a few steps is too short to measure, because waking the workers takes longer. */
#define BURST_NANOSECONDS 1000000

/* Number of bursts of a trial of the other mode.  The first burst is not measured, because the workers
   wake and fetch data. */
#define TRIAL 2

/* Weight of the newest burst in the mean time of a step.  A single burst that the system interrupts for
   some milliseconds must not change the mode. */
#define RECENT (1.0 / 16)

/* Limits of `patience`.  After a trial of all threads, the next trial starts after `patience` times the
   duration of this trial.  `patience` doubles when a trial ends with the caller alone: if other
   programs run, half of the trials are fast by chance.  It halves when a trial of the caller alone is
   slower than all threads.  The caller is tried after MAX_PATIENCE bursts, or after slow bursts.
   If other programs run, trials thus take at most 1/32 of the time.  After the other programs end, the
   caller works alone for at most 32 times the last trial (a trial takes up to 20 ms). */
#define MIN_PATIENCE 8
#define MAX_PATIENCE 32

/* Factor by which all threads must be faster than the caller alone.  If other programs run, both modes
   are about equally fast, and measured ratios vary by this factor. */
#define WORTH 1.2

static thread_end worker_main(void *number) {
  flush_denormals();
  for (;;) {
    wait_at_barrier();
    if (atomic_load(&pool.stopping)) return 0;
    work(pool.call, pool.end, thread_part(pool.call, (int64_t)(intptr_t)number, THREADS));
  }
}

/* Stop and join the running workers; no worker may be inside a step. */
static void stop_workers(void) {
  acquire(&pool.round_lock);
  atomic_store(&pool.stopping, 1);
  wake_all(&pool.moved);
  release(&pool.round_lock);
  for (; pool.started; pool.started--) join_thread(pool.workers[pool.started]);
  atomic_store(&pool.arrived, 0);
  atomic_store(&pool.stopping, 0);
}

/* Start all workers or none; return whether they run. */
static int start_workers(void) {
  if (pool.started == THREADS - 1) return 1;
  if (!pool.forkable) return 0;
  int all = 1;
  while (pool.started < THREADS - 1 && all) {
    const int64_t next = pool.started + 1;
    all = start_thread(&pool.workers[next], worker_main, (void *)(intptr_t)next);
    pool.started += all;
  }
  pool.core = -1;
  if (!all) stop_workers();
  return all;
}

/* Reset the pool at the start, and in a forked child process.  There, no workers run, and locks may be
   held. */
static void reset(void) {
  make_lock(&pool.busy);
  make_lock(&pool.round_lock);
  make_condition(&pool.moved);
  atomic_store(&pool.arrived, 0);
  atomic_store(&pool.sleepers, 0);
  atomic_store(&pool.stopping, 0);
  pool.started = 0;
}

__attribute__((constructor)) static void make_pool(void) {
  reset();
  pool.patience = MIN_PATIENCE;
  pool.forkable = call_in_forks(reset);
}

/* Keep workers off the caller's core.  A scheduler often wakes a worker on the caller's core, and
   leaves it there, because the two threads alternate and each sleeps half of the time. */
static void set_affinity(void) {
  const int here = this_core();
  if (here != pool.core && exclude_core(here, pool.workers + 1, THREADS - 1)) pool.core = here;
}

/* Count `some` more steps that took `nanoseconds`; at the end of a burst, choose the next mode.  A slow
   burst of the caller alone does not start a trial, because all threads would also be slow. */
static void choose(const int64_t some, const int64_t nanoseconds) {
  const int64_t steps = pool.steps + some, spent = pool.spent + nanoseconds;
  const int is_over = spent >= BURST_NANOSECONDS;
  pool.steps = is_over ? 0 : steps;
  pool.spent = is_over ? 0 : spent;
  if (!is_over) return;
  const int alone = pool.alone, was_trial = pool.trial > 0;
  if (pool.trial == TRIAL) {
    pool.bursts[alone] = spent;
    pool.trial--;
    return;
  }
  double *mine = &pool.nanoseconds[alone];
  const double other = pool.nanoseconds[!alone], factor = alone ? 1 : WORTH;
  const double each = factor * (double)spent / (double)steps;
  *mine = was_trial || !*mine ? each : *mine + (each - *mine) * RECENT;
  pool.bursts[alone] = spent + (was_trial ? pool.bursts[alone] : 0);
  pool.trial = 0;
  const int is_slower = other > 0 && *mine > other;
  if (was_trial) {
    pool.alone = is_slower ? !alone : alone;
    if (pool.alone) pool.patience = MIN(2 * pool.patience, MAX_PATIENCE);
    else if (alone) pool.patience = MAX(pool.patience / 2, MIN_PATIENCE);
    pool.retry = now() + (pool.alone ? pool.patience : MAX_PATIENCE) * pool.bursts[!pool.alone];
  } else if ((is_slower && !alone) || now() >= pool.retry) {
    pool.alone = !alone;
    pool.trial = TRIAL;
  }
}

/* Return whether all threads make the next steps.  If threads cannot be started, the caller makes the
   steps alone, and tries again later. */
static int works_together(const struct call *call) {
  if (call->threads ? call->threads == 1 : pool.alone) return 0;
  if (start_workers()) return 1;
  pool.alone = 1;
  pool.trial = 0;
  pool.steps = pool.spent = 0;
  pool.retry = now() + MAX_PATIENCE * BURST_NANOSECONDS;
  return 0;
}

/* Run a call in bursts of steps, on all threads or on the caller alone.  Each step of all threads ends
   with a barrier, and no worker reads `call` after the last barrier. */
static void run(struct call *call) {
  while (call->done < call->count && !call->status) {
    const int together = works_together(call);
    const int64_t start = now(), before = call->done;
    const double left = (double)(BURST_NANOSECONDS - pool.spent), mean = pool.nanoseconds[!together];
    const double each = mean > 0 || !pool.steps ? mean : (double)pool.spent / (double)pool.steps;
    const int64_t burst = each > 0 ? MAX(1, (int64_t)(left / each)) : 1;
    const int64_t end = call->threads ? call->count : MIN(before + burst, call->count);
    if (together) {
      set_affinity();
      for (int64_t t = 0; t < THREADS; t++) offer(t);
      pool.call = call;
      pool.end = end;
      wait_at_barrier();
    }
    work(call, end, thread_part(call, 0, together ? THREADS : 1));
    if (!call->threads && call->done > before) choose(call->done - before, now() - start);
  }
}

static void enter(void) { acquire(&pool.busy); }
static void leave(void) { release(&pool.busy); }

/* Each user of the program opens it once and closes it after use. */
void mlpengine_open(void) { atomic_fetch_add(&pool.users, 1); }

void mlpengine_close(void) {
  if (atomic_fetch_sub(&pool.users, 1) > 1) return;
  enter();
  if (atomic_load(&pool.users) < 1) stop_workers();
  leave();
}
