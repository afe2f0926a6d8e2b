/* The global norm of the gradients.  Squares are summed in chunks of CHUNK entries: in the type of the
   gradients within a chunk, then in double.  The macros of step.h for an update must be defined. */

INLINE double chunk_squares(const real *x, int64_t n) {
  vec part[4] = {{0}, {0}, {0}, {0}};
  int64_t i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES) UNROLL for (int q = 0; q < 4; q++) {
    vec v = load(x + i + q * LANES);
    part[q] = multiply_add(v, v, part[q]);
  }
  double total = (double)sum_lanes((part[0] + part[1]) + (part[2] + part[3]));
  for (; i < n; i++) total += (double)x[i] * (double)x[i];
  return total;
}

/* The norm in double; entries are divided by the largest, so that no square over- or underflows. */
static double careful_norm(const real *x, int64_t n) {
  double largest = 0, total = 0;
  for (int64_t i = 0; i < n; i++) {
    double size = fabs((double)x[i]);
    if (!(size <= 1.7976931348623157e308)) return size;
    largest = MAX(largest, size);
  }
  if (largest == 0) return 0;
  for (int64_t i = 0; i < n; i++) total += ((double)x[i] / largest) * ((double)x[i] / largest);
  return largest * sqrt(total);
}

/* The norm from the sums of the chunks.  In a sum below `limit`, squares may have underflowed. */
static double norm_of(const real *x, int64_t n, const double *sums, double limit,
                      const struct part part) {
  double total = 0, smallest = INFINITY;
  for (int64_t c = 0; c * CHUNK < n; c++) {
    total += sums[c];
    smallest = MIN(smallest, sums[c]);
  }
  if (total < LARGEST_SUM && smallest > limit) return sqrt(total);
  const double norm = careful_norm(x, n);
  barrier(part); /* no thread may scale x while another reads it; all threads take this branch */
  return norm;
}

/* The norm of the gradients; all threads must call this function. */
static double gradient_norm(struct call *call, const struct part part) {
  void *const *table = call->table;
  char *const workspace = call->workspace;
  (void)table, (void)workspace;
  const real *restrict grads = GRADS;
  double *restrict chunk_sums = CHUNK_SUMS;
  EACH_RANGE(first, last) for (int64_t c = (first + CHUNK - 1) / CHUNK; c * CHUNK < last; c++)
    chunk_sums[c] = chunk_squares(grads + c * CHUNK, MIN(CHUNK, PARAMETERS - c * CHUNK));
  barrier(part);
  return norm_of(grads, PARAMETERS, chunk_sums, SMALLEST_SUM, part);
}
