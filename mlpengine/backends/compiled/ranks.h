/* The update of a program on several ranks, processes of one machine: each makes a part of it, in
   whole chunks, as threads do.  The gradients, moments and chunk sums are in memory that all ranks
   map; the parameters are each rank's own, and are exchanged after the update, or at the beginning
   and the end of a call of several steps, which then work on one copy.  Defined before this: what
   step.h requires for an update, and CHUNK_SUMS_ALONE. */
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The state of a barrier, zero at first, in memory that all ranks map. */
struct barrier_state {
  atomic_int arrived, round, sleepers;
};

/* A shard of a rank: a program that gathers its rows and computes their gradient.  `ShardOfCall` in
   shared_update.py mirrors it. */
typedef int64_t entry(struct call *);
struct shard {
  entry *run;
  struct call *call;
  int64_t start; /* its first row of the batch */
};

/* The table of a program of this rank, of the update or of a shard; `TableOfCall` mirrors it. */
struct table {
  void **addresses;
  int64_t length;
};

/* What a rank knows; `RanksOfCall` in shared_update.py mirrors it. */
struct ranks {
  int64_t index, count, numbers;
  int64_t lost;                  /* whether a rank has ended */
  int64_t batch;                 /* rows of a whole one */
  int64_t shard_count, stride;   /* shards of this rank; entries of a row of partial sums */
  const struct shard *shards;
  int64_t *drawn;                /* seed, step and row of what dropout draws, or NULL */
  struct pollfd *processes;      /* of all ranks; they become readable when a process ends */
  struct barrier_state *barrier;
  const real *const *gradients;  /* of each rank, in memory that all map */
  const double *const *tails;    /* `numbers` of each rank, which are added, too */
  double *tail;                  /* their sum */
  double *chunk_sums;            /* mapped by all, as is the next */
  real *parameters;              /* the new ones, for the other ranks */
  int64_t shares;                /* whether the programs work on these parameters */
  int64_t table_count;
  const struct table *tables;    /* which may name parameters */
};

/* Indices of the numbers in a tail, as in shards.py. */
enum { TAIL_LOSS, TAIL_FAILURES, TAIL_STOPS };

#define FIRST(n) ((n) * part.index / part.count)
#define LAST(n) ((n) * (part.index + 1) / part.count)
#define CHUNKS ((PARAMETERS + CHUNK - 1) / CHUNK)
#define CHUNK_SUMS (part.count > 1 ? part.ranks->chunk_sums : CHUNK_SUMS_ALONE)

/* The chunks of a rank, one after the other. */
#define EACH_RANGE(from, to)                                                                    \
  for (int64_t chunk = FIRST(CHUNKS), from = chunk * CHUNK, to = MIN(from + CHUNK, PARAMETERS); \
       chunk < LAST(CHUNKS); chunk++, from += CHUNK, to = MIN(from + CHUNK, PARAMETERS))

static void futex(atomic_int *word, const int operation, const int value) {
  const struct timespec patience = {.tv_sec = 1}; /* of FUTEX_WAIT */
  syscall(SYS_futex, word, operation, value, &patience, NULL, 0);
}

/* Wait until all ranks have arrived.  A rank that waits for long sleeps, as its core may be needed,
   and wakes from time to time to look whether one has ended, for which it does not wait. */
static void wait_at_barrier(struct ranks *ranks) {
  struct barrier_state *state = ranks->barrier;
  const int round = atomic_load(&state->round), count = (int)ranks->count;
  if (ranks->lost) return;
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
  while (atomic_load(&state->round) == round && !ranks->lost) {
    futex(&state->round, FUTEX_WAIT, round);
    ranks->lost = poll(ranks->processes, (nfds_t)count, 0) > 0 && atomic_load(&state->round) == round;
  }
  atomic_fetch_sub(&state->sleepers, 1);
}

static void barrier(const struct part part) {
  if (part.count > 1) wait_at_barrier(part.ranks);
}

static struct part part_of(const struct call *call) {
  struct ranks *ranks = call->ranks;
  if (!ranks) return (struct part){.count = 1};
  return (struct part){ranks->index, ranks->count, ranks->batch, .ranks = ranks};
}

/* Set `sum` to the sum of the `length` numbers of each of `count` vectors; neighbors are added
   first. */
static void add_vectors(const real *const *vectors, const int64_t count, const int64_t first,
                        const int64_t length, real *sum) {
  enum { AT_ONCE = 1024 };
  real right[AT_ONCE];
  if (count == 2) {
    const real *a = vectors[0] + first, *b = vectors[1] + first;
    int64_t i = 0;
    for (; i + LANES <= length; i += LANES) store(sum + i, load(a + i) + load(b + i));
    for (; i < length; i++) sum[i] = a[i] + b[i];
    return;
  }
  for (int64_t start = 0; start < length; start += AT_ONCE) {
    const int64_t n = MIN(AT_ONCE, length - start);
    real *left = sum + start;
    add_vectors(vectors, count / 2, first + start, n, left);
    add_vectors(vectors + count / 2, count / 2, first + start, n, right);
    for (int64_t i = 0; i < n; i++) left[i] += right[i];
  }
}

static double add_numbers(const double *const *tails, const int64_t count, const int64_t place) {
  if (count == 1) return tails[0][place];
  return add_numbers(tails, count / 2, place) + add_numbers(tails + count / 2, count / 2, place);
}

/* Compute the gradients of this rank's shards, of the rows `order` of the data, and their sum.  Each
   goes to the row of partial sums that has as many ones in its number; two sums are added as soon as
   both are complete, so the last sum is in row 0. */
static void compute_shards(const struct call *call, const int64_t *order, const int64_t number,
                           const struct ranks *ranks) {
  real *const sums = (real *)ranks->gradients[ranks->index];
  double *const tail = (double *)ranks->tails[ranks->index];
  const int64_t tail_stride = ranks->stride * (int64_t)sizeof(real) / (int64_t)sizeof(double);
  int64_t status = FINISHED;
  for (int64_t k = 0; k < ranks->shard_count && !status; k++) {
    const struct shard *const shard = ranks->shards + k;
    memcpy(shard->call->data, call->data, sizeof call->data);
    shard->call->order = order + shard->start;
    if (ranks->drawn) ranks->drawn[1] = number - 1, ranks->drawn[2] = shard->start;
    status = shard->run(shard->call);
    shard->call->order = NULL;
    int64_t row = __builtin_popcountll((uint64_t)k);
    tail[row * tail_stride + TAIL_LOSS] = shard->call->loss;
    const uint64_t old = keep_denormals();
    for (int64_t bits = k; bits & 1; bits >>= 1, row--) {
      real *const left = sums + (row - 1) * ranks->stride;
      add_vectors((const real *[]){left, left + ranks->stride}, 2, 0, PARAMETERS, left);
      tail[(row - 1) * tail_stride + TAIL_LOSS] += tail[row * tail_stride + TAIL_LOSS];
    }
    restore_denormals(old);
  }
  if (ranks->drawn) ranks->drawn[2] = 0;
  tail[TAIL_FAILURES] = status != FINISHED;
  tail[TAIL_STOPS] = 0;
}

/* Give the new parameters first to last to the other ranks, unless all work on one copy. */
static void publish(const struct call *call, const int64_t first, const int64_t last,
                    const struct part part) {
  void *const *table = call->table;
  if (part.count == 1 || part.ranks->shares) return;
  memcpy(part.ranks->parameters + first, PARAMS + first, (size_t)(last - first) * sizeof(real));
}

/* Receive those of the other ranks. */
static void receive(const struct call *call, const struct part own) {
  void *const *table = call->table;
  if (own.count == 1 || own.ranks->shares) return;
  for (int64_t rank = 0; rank < own.count; rank++) {
    const struct part part = {.index = rank, .count = own.count, .ranks = own.ranks};
    if (rank != own.index) EACH_RANGE(first, last)
      memcpy(PARAMS + first, own.ranks->parameters + first, (size_t)(last - first) * sizeof(real));
  }
}
