/* A step, made of the program's functions.  Defined before this: GATHERS if rows are gathered;
   EACH_LOSS if there is a loss, LABEL_ERROR if it has labels; PARAMETERS, RANGES, GRADS,
   CHUNK_SUMS, SMALLEST_SUM, LARGEST_UPDATE and FLUSH_EVERY if there is an update, and RANKS and what
   ranks.h defines if ranks share it out. */

#ifdef RANKS
/* Add the gradients of all ranks in a chunk, first to last, and measure the sum.  Denormal numbers
   are added as numbers, as by NumPy. */
static void add_chunk(const struct call *call, const int64_t chunk, const int64_t first,
                      const int64_t last, const struct part part) {
  void *const *table = call->table;
  const uint64_t old = keep_denormals();
  add_vectors(part.ranks->gradients, part.count, first, last - first, GRADS + first);
  flush_denormals();
  part.ranks->chunk_sums[chunk] = chunk_squares(GRADS + first, last - first);
  restore_denormals(old);
}

/* Wait for all ranks, and add all numbers of their tails.  Return whether no rank has ended. */
static int meet(const struct part part) {
  const struct ranks *ranks = part.ranks;
  barrier(part);
  const uint64_t old = keep_denormals();
  for (int64_t i = 0; i < ranks->numbers; i++)
    ranks->tail[i] = add_numbers(ranks->tails, part.count, i);
  restore_denormals(old);
  return !ranks->lost;
}

/* Meet, and add this rank's part of the gradients. */
int64_t mlpengine_add(struct call *call) {
  const struct part part = part_of(call);
  const int all = meet(part);
  EACH_RANGE(first, last) add_chunk(call, chunk, first, last, part);
  return all;
}

/* Compute the gradients of this rank and the loss of a whole batch. */
static int64_t compute(struct call *call, const int64_t *order, const int64_t number,
                       const struct part part) {
  compute_shards(call, order, number, part.ranks);
  if (!meet(part)) return LOST;
  call->loss = part.ranks->tail[TAIL_LOSS];
  if (part.ranks->tail[TAIL_FAILURES] == 0) return FINISHED;
  barrier(part); /* others may still read the tail, which the next step overwrites */
  return FAILED;
}
#endif

#ifdef PARAMETERS
/* Apply update `number` to this part of the parameters, and multiply their gradients by `factor`. */
static int64_t update_part(struct call *call, const int64_t number, const double lr,
                           const double decay, const double factor, const struct part part) {
  void *const *table = call->table;
  char *const workspace = call->workspace;
  const int flushes = number > 1 && (number - 1) % FLUSH_EVERY == 0;
  (void)part;
  EACH_RANGE(first, last) {
    if (flushes) flush(table, workspace, first, last);
    update(table, workspace, call, (double)number, lr, decay, factor, first, last);
#ifdef RANKS
    publish(call, first, last, part);
#endif
  }
#ifdef RANKS
  if (FIRST(CHUNKS) > 0 || LAST(CHUNKS) == 0) /* `carried`, which is each rank's own */
    update(table, workspace, call, (double)number, lr, decay, factor, 0, 0);
  barrier(part);
  if (part.count > 1 && part.ranks->lost) return LOST;
  receive(call, part);
#endif
  return FINISHED;
}

/* Compute the norm, check that loss and norm are finite, clip, and apply update `number`. */
static int64_t apply(struct call *call, const int64_t number, const double lr, const double decay,
                     const double loss, const struct part part) {
#ifdef RANKS
  const int measured = part.count > 1; /* by mlpengine_add */
#else
  const int measured = 0;
#endif
  const double norm = gradient_norm(call, part, measured);
  if (LEADS) call->norm = norm;
#ifdef RANKS
  if (measured && part.ranks->lost) return LOST;
#endif
  if (!(isfinite(loss) && isfinite(norm))) return NOT_FINITE;
  if (norm > call->max_norm) return LARGE_NORM;
  double factor = 1;
  const double clipped = clip_gradients(call, norm, &factor, part);
  if (lr * clipped > LARGEST_UPDATE) return NOT_FINITE;
  if (LEADS) {
    call->clips += clipped < norm;
    call->clipped = clipped;
  }
  return update_part(call, number, lr, decay, factor, part);
}
#endif

/* The work of one thread in a step. */
static int64_t step(struct call *call, const int64_t *order, const int64_t number, const double lr,
                    const double decay, const struct part part) {
  void *const *table = call->table;
  char *const workspace = call->workspace;
  (void)table, (void)workspace, (void)order, (void)number, (void)lr, (void)decay;
#ifdef LABEL_ERROR
  if (LEADS) LABEL_ERROR[0] = 0;
#endif
#ifndef RANKS
  prepare(table, workspace, part);
  for (int64_t begin = 0; begin < part.rows; begin += CHUNK_ROWS) {
    const int64_t end = MIN(begin + CHUNK_ROWS, BATCH), length = end - begin;
    const int64_t first = begin + FIRST(length), last = begin + LAST(length);
#ifdef GATHERS
    if (order) gather(table, order, call->data, first, MIN(last, part.rows));
#endif
    if (begin == 0) barrier(part);
    rows(table, workspace, part, first, last);
    barrier(part);
    reduce(table, workspace, part, begin, MIN(end, part.rows));
    barrier(part);
    offer(part.index); /* for the next rows, before which there is another barrier */
  }
#endif
#ifdef RANKS
  if (order) {
    const int64_t status = compute(call, order, number, part);
    if (status) return status;
    EACH_RANGE(first, last) add_chunk(call, chunk, first, last, part);
  }
#endif
  double loss = 0;
#ifdef LABEL_ERROR
  if (LABEL_ERROR[0]) return BAD_LABEL;
#endif
#ifndef EACH_LOSS
  loss = call->loss; /* of the gradients, whether or not this call has computed them */
#else
#define ADD_LOSS(of_rows, total)                           \
  {                                                        \
    const double value = sum_in_order(of_rows, part.rows); \
    if (LEADS) (total)[0] = value;                         \
    loss += value;                                         \
  }
  EACH_LOSS(ADD_LOSS)
  if (LEADS) call->loss = loss;
#endif
#ifdef PARAMETERS
  return apply(call, number, lr, decay, loss, part);
#else
  (void)loss;
  return FINISHED;
#endif
}
