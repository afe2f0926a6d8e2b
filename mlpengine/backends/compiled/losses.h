/* Stores the losses of rows as doubles, and adds them. */

typedef double doubles __attribute__((vector_size(8 * BYTES / sizeof(real)))); /* a double per lane */

/* Store the losses of n rows, a row in each lane: entry * share * weight, in double. */
INLINE void store_row_losses(double *restrict row_loss, const vec entry, const double share,
                             const vec weight, const int64_t n) {
  const doubles loss = __builtin_convertvector(entry, doubles) * share *
                       __builtin_convertvector(weight, doubles);
  for (int64_t i = 0; i < n; i++) row_loss[i] = loss[i];
}

/* Store the losses of `rows` rows that share the vector `entry`; each has `columns` entries. */
INLINE void store_shared_losses(double *restrict row_loss, const vec entry, const double mean,
                                const int64_t rows, const int64_t columns) {
  for (int64_t i = 0; i < rows; i++) {
    double row = 0;
    UNROLL for (int64_t j = 0; j < columns; j++) row += (double)entry[i * columns + j] * mean;
    row_loss[i] = row;
  }
}

/* The sum of the losses of n rows, in the same order for any number of threads. */
INLINE double sum_in_order(const double *row_loss, int64_t n) {
  double part[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) UNROLL for (int q = 0; q < 4; q++) part[q] += row_loss[i + q];
  for (; i < n; i++) part[i & 3] += row_loss[i];
  return (part[0] + part[1]) + (part[2] + part[3]);
}
