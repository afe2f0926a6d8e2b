/* A step calls the functions of the program.  Macros that must be defined: GATHERS if rows are copied
   from a data set; EACH_LOSS if there is a loss, LABEL_ERROR if it has labels; PARAMETERS, RANGES,
   GRADS, CHUNK_SUMS, SMALLEST_SUM, LARGEST_UPDATE, LARGEST_NORM and FLUSH_EVERY if there is an update. */

#ifdef PARAMETERS
/* Make step `number` of the optimizer for this thread's parameters, with gradients times `factor`. */
static void update_part(struct call *call, const int64_t number, const double lr,
                        const double factor, const struct part part) {
  void *const *table = call->table;
  char *const workspace = call->workspace;
  const int flushes = number > 1 && (number - 1) % FLUSH_EVERY == 0;
  (void)part;
  EACH_RANGE(first, last) {
    if (flushes) flush(table, workspace, first, last);
    update(table, workspace, call, (double)number, lr, factor, first, last);
  }
}

/* Compute the gradient norm, check loss and norm, clip, and make step `number` of the optimizer. */
static int64_t apply(struct call *call, const int64_t number, const double lr, const double loss,
                     const struct part part) {
  const double norm = gradient_norm(call, part);
  if (LEADS) call->norm = norm;
  if (!(isfinite(loss) && isfinite(norm))) return NOT_FINITE;
  if (norm > call->max_norm) return LARGE_NORM;
  const double limit = call->clip_norm;
  const double factor = norm + 1e-6 > limit ? limit / (norm + 1e-6) : 1;
  const double clipped = norm * factor;
  if (lr * clipped > LARGEST_UPDATE || clipped > LARGEST_NORM) return NOT_FINITE;
  if (LEADS) {
    call->clips += clipped < norm;
    call->clipped = clipped;
  }
  update_part(call, number, lr, factor, part);
  return FINISHED;
}
#endif

/* The work of one thread in a step. */
static int64_t step(struct call *call, const int64_t *order, const int64_t number, const double lr,
                    const struct part part) {
  void *const *table = call->table;
  char *const workspace = call->workspace;
  (void)table, (void)workspace, (void)order, (void)number, (void)lr;
#ifdef LABEL_ERROR
  if (LEADS) LABEL_ERROR[0] = 0;
#endif
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
    offer(part.index); /* for the next chunk; before a claim, there is another barrier */
  }
  double loss = 0;
#ifdef LABEL_ERROR
  if (LABEL_ERROR[0]) return BAD_LABEL;
#endif
#ifndef EACH_LOSS
  loss = call->loss; /* the caller has computed loss and gradients */
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
  return apply(call, number, lr, loss, part);
#else
  (void)loss;
  return FINISHED;
#endif
}
