/* Clipping of the gradients.  Defined before this: PARAMS, TINY, what step.h requires for an
   update, CLIP, the rule, and its arrays: for PERCENTILE_CLIP CLIP_NORMS, CLIP_SORTED and
   CLIP_COUNTS, for UNIT_CLIP CLIP_UNITS.  `call->clip` holds the settings of the rule.

   clip_gradients() returns the norm of clipped gradients, and sets the factor by which the update
   multiplies all of them, which then are in the cache. */
#define NORM_CLIP 0
#define PERCENTILE_CLIP 1
#define UNIT_CLIP 2

#if CLIP == NORM_CLIP
/* Set the factor min(1, limit / (norm + 1e-6)). */
static double clip_gradients(const struct call *call, const double norm, double *factor,
                             const struct part part) {
  (void)part;
  const double limit = call->clip[0];
  if (norm + 1e-6 > limit) *factor = limit / (norm + 1e-6);
  return norm * *factor;
}

#elif CLIP == PERCENTILE_CLIP
/* The number of sorted values that are smaller than x, or with `equal` not larger. */
static int64_t rank_of(const double *sorted, const int64_t n, const double x, const int equal) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sorted[middle] < x || (equal && sorted[middle] == x)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Add a norm to the history and return the percentile of it, as PercentileClip does. */
static double next_limit(struct call *call, const double norm) {
  void *const *table = call->table;
  double *norms = CLIP_NORMS, *sorted = CLIP_SORTED;
  int64_t *counts = CLIP_COUNTS; /* norms in the history, and the place of the oldest */
  int64_t n = counts[0], place = (counts[1] + n) % CLIP_NORMS_LENGTH;
  if (n == CLIP_NORMS_LENGTH) {
    const int64_t i = rank_of(sorted, n, norms[place], 0);
    memmove(sorted + i, sorted + i + 1, (size_t)(--n - i) * sizeof(double));
    counts[1] = (place + 1) % CLIP_NORMS_LENGTH;
  }
  norms[place] = norm;
  const int64_t i = rank_of(sorted, n, norm, 1);
  memmove(sorted + i + 1, sorted + i, (size_t)(n++ - i) * sizeof(double));
  sorted[i] = norm;
  counts[0] = n;
  const double at = (double)(n - 1) * call->clip[0] / 100.0;
  const int64_t low = (int64_t)at, high = MIN(low + 1, n - 1);
  return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

static double clip_gradients(struct call *call, const double norm, double *factor,
                             const struct part part) {
  if (LEADS) call->limit = next_limit(call, norm);
  barrier(part);
  const double limit = call->limit;
  if (norm > limit) *factor = limit / norm;
  return norm * *factor;
}

#else
/* Multiply the gradient of each unit by min(1, ratio max(norm(w), eps) / norm(g)).  Squares of
   large gradients would overflow. */
static double clip_gradients(struct call *call, const double norm, double *all,
                             const struct part part) {
  (void)all;
  void *const *table = call->table;
  const double ratio = call->clip[0], eps = call->clip[1];
  const int large = !(norm < sqrt(LARGEST_SUM) / 2);
  const int64_t *units = CLIP_UNITS; /* for each view its start, its units and their length */
  for (int64_t v = 0; v < CLIP_UNITS_LENGTH / 3; v++, units += 3)
    for (int64_t u = FIRST(units[1]), end = LAST(units[1]); u < end; u++) {
      const int64_t n = units[2], at = units[0] + u * n;
      real *restrict g = GRADS + at;
      const real *restrict w = PARAMS + at;
      const double weights = large ? careful_norm(w, n) : sqrt(chunk_squares(w, n));
      const double gradient = large ? careful_norm(g, n) : sqrt(chunk_squares(g, n));
      const double factor = ratio * MAX(eps, weights) / MAX(sqrt(TINY), gradient);
      if (factor < 1) scale(g, (real)factor, 0, n);
    }
  barrier(part);
  return gradient_norm(call, part);
}
#endif
