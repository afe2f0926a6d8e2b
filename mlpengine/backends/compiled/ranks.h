/* The update of a program on several ranks, processes of one machine: each makes a part of it, in
   whole chunks, as threads do.  The gradients, moments and chunk sums are in memory that all ranks
   map; the parameters are each rank's own, and are exchanged after the update.  Defined before
   this: what step.h requires for an update, and CHUNK_SUMS_ALONE. */
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The state of a barrier, zero at first, in memory that all ranks map. */
struct barrier_state {
  atomic_int arrived, round, sleepers;
};

/* What a rank knows; `RanksOfCall` in shared_update.py mirrors it. */
struct ranks {
  int64_t index, count, numbers;
  struct barrier_state *barrier;
  const real *const *gradients;  /* of each rank, in memory that all map */
  const double *const *tails;    /* `numbers` of each rank, which are added, too */
  double *tail;                  /* their sum */
  double *chunk_sums;            /* mapped by all, as is the next */
  real *parameters;              /* the new ones, for the other ranks */
};

#define FIRST(n) ((n) * part.index / part.count)
#define LAST(n) ((n) * (part.index + 1) / part.count)
#define CHUNKS ((PARAMETERS + CHUNK - 1) / CHUNK)
#define CHUNK_SUMS (part.count > 1 ? part.ranks->chunk_sums : CHUNK_SUMS_ALONE)

/* The chunks of a rank, one after the other. */
#define EACH_RANGE(from, to)                                                                   \
  for (long chunk = FIRST(CHUNKS), from = chunk * CHUNK, to = MIN(from + CHUNK, PARAMETERS);   \
       chunk < LAST(CHUNKS); chunk++, from += CHUNK, to = MIN(from + CHUNK, PARAMETERS))

static long futex(atomic_int *word, const int operation, const int value) {
  return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

/* Wait until all ranks have arrived; one that waits for long sleeps, as its core may be needed. */
static void wait_at_barrier(struct barrier_state *state, const int count) {
  const int round = atomic_load(&state->round);
  if (atomic_fetch_add(&state->arrived, 1) == count - 1) {
    atomic_store(&state->arrived, 0);
    atomic_store(&state->round, round + 1);
    if (atomic_load(&state->sleepers)) futex(&state->round, FUTEX_WAKE, INT_MAX);
    return;
  }
  const int64_t limit = now() + SPIN_NANOSECONDS;
  do {
    for (int i = 0; i < 16; i++) {
      if (atomic_load(&state->round) != round) return;
      cpu_relax();
    }
  } while (now() < limit);
  atomic_fetch_add(&state->sleepers, 1);
  while (atomic_load(&state->round) == round) futex(&state->round, FUTEX_WAIT, round);
  atomic_fetch_sub(&state->sleepers, 1);
}

static void barrier(const struct part part) {
  if (part.count > 1) wait_at_barrier(part.ranks->barrier, (int)part.count);
}

static struct part part_of(const struct call *call) {
  const struct ranks *ranks = call->ranks;
  if (!ranks) return (struct part){.count = 1};
  return (struct part){.index = ranks->index, .count = ranks->count, .ranks = ranks};
}

/* Set `sum` to the sum of the `length` numbers of each of `count` vectors; neighbors are added
   first. */
static void add_vectors(const real *const *vectors, const long count, const long first,
                        const long length, real *sum) {
  enum { AT_ONCE = 1024 };
  real right[AT_ONCE];
  if (count == 2) {
    const real *a = vectors[0] + first, *b = vectors[1] + first;
    long i = 0;
    for (; i + LANES <= length; i += LANES) store(sum + i, load(a + i) + load(b + i));
    for (; i < length; i++) sum[i] = a[i] + b[i];
    return;
  }
  for (long start = 0; start < length; start += AT_ONCE) {
    const long n = MIN(AT_ONCE, length - start);
    real *left = sum + start;
    add_vectors(vectors, count / 2, first + start, n, left);
    add_vectors(vectors + count / 2, count / 2, first + start, n, right);
    for (long i = 0; i < n; i++) left[i] += right[i];
  }
}

static double add_numbers(const double *const *tails, const long count, const long place) {
  if (count == 1) return tails[0][place];
  return add_numbers(tails, count / 2, place) + add_numbers(tails + count / 2, count / 2, place);
}

static void run(struct call *call) { work(call, call->count, part_of(call)); }
static void enter(void) {}
static void leave(void) {}
void mlpengine_open(void) {}
void mlpengine_close(void) {}
