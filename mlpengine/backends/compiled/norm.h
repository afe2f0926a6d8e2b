typedef double doubles __attribute__((vector_size(8 * BYTES / sizeof(real)))); /* a vector's lanes */

/* The sum of squares of a vector by chunks: in the vector's type within a chunk, then in double. */

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

/* The norm if squares overflowed or underflowed: scaled by the largest entry, in double. */
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

/* The norm from the chunks' sums.  In a sum below `limit` squares may have underflowed. */
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

/* Store the losses of n rows: entry times share times weight, in double. */
INLINE void store_row_losses(double *restrict row_loss, const vec entry, const double share,
                             const vec weight, const int64_t n) {
  const doubles loss = __builtin_convertvector(entry, doubles) * share *
                       __builtin_convertvector(weight, doubles);
  for (int64_t i = 0; i < n; i++) row_loss[i] = loss[i];
}

/* The sum of the rows' losses in their order, which does not depend on the threads. */
INLINE double sum_in_order(const double *row_loss, int64_t n) {
  double part[4] = {0, 0, 0, 0};
  for (int64_t i = 0; i < n; i++) part[i & 3] += row_loss[i];
  return (part[0] + part[1]) + (part[2] + part[3]);
}
