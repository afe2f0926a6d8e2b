/* A step, made of the program's functions, and the entry that Python calls.  Defined before this:
   GATHERS if rows are gathered; ROW_LOSS and LOSS_VALUE if there is a loss, LABEL_ERROR if it has
   labels; PARAMETERS, RANGES, GRADS, CHUNK_SUMS, SMALLEST_SUM, LARGEST_UPDATE and FLUSH_EVERY if
   there is an update. */

#ifdef PARAMETERS
/* Compute the norm, check that loss and norm are finite, clip, and apply update `number`. */
static long apply(struct call *call, const int64_t number, const double lr, const double decay,
                  const double loss, const struct part part) {
  void *const *table = call->table;
  char *const workspace = call->workspace;
  const double norm = gradient_norm(call, part);
  if (part.index == 0) call->norm = norm;
  if (!(isfinite(loss) && isfinite(norm))) return NOT_FINITE;
  if (norm > call->max_norm) return LARGE_NORM;
  const double clipped = clip_gradients(call, norm, part);
  if (lr * clipped > LARGEST_UPDATE) return NOT_FINITE;
  if (part.index == 0) {
    call->clips += clipped < norm;
    call->clipped = clipped;
  }
  const int flushes = number > 1 && (number - 1) % FLUSH_EVERY == 0;
  EACH_RANGE(first, last) {
    if (flushes) flush(table, workspace, first, last);
    update(table, workspace, call, (double)number, lr, decay, first, last);
  }
  return FINISHED;
}
#endif

/* The work of one thread in a step. */
static long step(struct call *call, const int64_t *order, const int64_t number, const double lr,
                 const double decay, const struct part part) {
  void *const *table = call->table;
  char *const workspace = call->workspace;
  (void)order, (void)number, (void)lr, (void)decay;
#ifdef LABEL_ERROR
  if (part.index == 0) LABEL_ERROR[0] = 0;
#endif
  prepare(table, workspace, part);
  for (long begin = 0; begin < BATCH; begin += CHUNK_ROWS) {
    const long end = MIN(begin + CHUNK_ROWS, BATCH), length = end - begin;
    const long first = begin + FIRST(length), last = begin + LAST(length);
#ifdef GATHERS
    if (order) gather(table, order, call->data, first, last);
#endif
    if (begin == 0) barrier(part);
    rows(table, workspace, part, first, last);
    barrier(part);
    reduce(table, workspace, part, begin, end);
    barrier(part);
  }
  double loss = 0;
#ifdef LABEL_ERROR
  if (LABEL_ERROR[0]) return BAD_LABEL;
#endif
#ifndef ROW_LOSS
  loss = call->loss; /* an update alone: of the gradients of this loss */
#else
  loss = sum_in_order(ROW_LOSS, BATCH);
  if (part.index == 0) call->loss = LOSS_VALUE[0] = loss;
#endif
#ifdef PARAMETERS
  return apply(call, number, lr, decay, loss, part);
#else
  (void)loss;
  return FINISHED;
#endif
}

/* Run the steps of a call; return the status of the last one. */
long mlpengine_run(struct call *call) {
  enter();
  const unsigned long old = flush_denormals();
  call->done = call->clips = call->together = 0;
  call->status = FINISHED;
  run(call);
  restore_denormals(old);
  leave();
  return call->status;
}
