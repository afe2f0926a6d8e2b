/* Transposition of blocks, for packing and for narrow matrices (load_columns). */

#if BYTES >= 32 && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TRANSPOSE_BLOCKS
#define SHUFFLE __builtin_shufflevector
#define BLOCK (32 / (int)sizeof(real)) /* rows and columns of a block: 8 floats or 4 doubles */
typedef real block_row __attribute__((vector_size(32)));
typedef real half_row __attribute__((vector_size(16)));

/* Load a block from its rows and transpose it.  Each vector is loaded as halves of two rows: this saves
   permutations, which take longer than loads. */
INLINE void load_transposed(block_row to[BLOCK], const real *const row[BLOCK]) {
  block_row r[BLOCK];
  UNROLL for (int i = 0; i < BLOCK; i++) {
    half_row low, high;
    memcpy(&low, row[i % (BLOCK / 2)] + i / (BLOCK / 2) * (BLOCK / 2), 16);
    memcpy(&high, row[i % (BLOCK / 2) + BLOCK / 2] + i / (BLOCK / 2) * (BLOCK / 2), 16);
#ifdef REAL_IS_FLOAT
    r[i] = SHUFFLE(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    r[i] = SHUFFLE(low, high, 0, 1, 2, 3);
#endif
  }
#ifdef REAL_IS_FLOAT
  block_row s[8];
  UNROLL for (int i = 0; i < 8; i += 2) {
    s[i] = SHUFFLE(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[i + 1] = SHUFFLE(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  UNROLL for (int i = 0; i < 8; i += 4) UNROLL for (int h = 0; h < 2; h++) {
    to[i + 2 * h] = SHUFFLE(s[i + h], s[i + 2 + h], 0, 1, 8, 9, 4, 5, 12, 13);
    to[i + 2 * h + 1] = SHUFFLE(s[i + h], s[i + 2 + h], 2, 3, 10, 11, 6, 7, 14, 15);
  }
#else
  UNROLL for (int i = 0; i < 4; i += 2) {
    to[i] = SHUFFLE(r[i], r[i + 1], 0, 4, 2, 6);
    to[i + 1] = SHUFFLE(r[i], r[i + 1], 1, 5, 3, 7);
  }
#endif
}
#endif
#endif

#if defined(TRANSPOSE_BLOCKS) && defined(WITH_MASKS) && defined(REAL_IS_FLOAT)
#define TRANSPOSE_BY_SIXTEEN
/* Four entries from each quarter of two vectors; p, q, s, t are their indices in the first quarters. */
#define FROM_QUARTERS(a, b, p, q, s, t)                                                   \
  SHUFFLE(a, b, p, q, s, t, p + 4, q + 4, s + 4, t + 4, p + 8, q + 8, s + 8, t + 8, p + 12, \
          q + 12, s + 12, t + 12)
/* Quarters 0 and 2 of each of two vectors (p = 0), or quarters 1 and 3 (p = 4). */
#define TWO_QUARTERS(a, b, p)                                                             \
  SHUFFLE(a, b, p, p + 1, p + 2, p + 3, p + 8, p + 9, p + 10, p + 11, p + 16, p + 17, p + 18, \
          p + 19, p + 24, p + 25, p + 26, p + 27)

/* Transpose 16 rows: first the blocks of 4 by 4 entries, then the matrix of these blocks. */
INLINE void transpose_sixteen(vec r[16]) {
  vec s[16];
  UNROLL for (int i = 0; i < 16; i += 2) {
    s[i] = FROM_QUARTERS(r[i], r[i + 1], 0, 16, 1, 17);
    s[i + 1] = FROM_QUARTERS(r[i], r[i + 1], 2, 18, 3, 19);
  }
  UNROLL for (int i = 0; i < 16; i += 4) UNROLL for (int h = 0; h < 2; h++) {
    r[i + 2 * h] = FROM_QUARTERS(s[i + h], s[i + 2 + h], 0, 1, 16, 17);
    r[i + 2 * h + 1] = FROM_QUARTERS(s[i + h], s[i + 2 + h], 2, 3, 18, 19);
  }
  UNROLL for (int i = 0; i < 16; i += 8) UNROLL for (int c = i; c < i + 4; c++) {
    s[c] = TWO_QUARTERS(r[c], r[c + 4], 0);
    s[c + 4] = TWO_QUARTERS(r[c], r[c + 4], 4);
  }
  UNROLL for (int c = 0; c < 8; c++) {
    r[c] = TWO_QUARTERS(s[c], s[c + 8], 0);
    r[c + 8] = TWO_QUARTERS(s[c], s[c + 8], 4);
  }
}
#endif

/* Transpose the matrix with the rows r[0] to r[LANES - 1]. */
SHARED void transpose(vec r[LANES]) {
#ifdef TRANSPOSE_BY_SIXTEEN
  vec kept[16];
  UNROLL for (int i = 0; i < 16; i++) kept[i] = r[i];
  transpose_sixteen(kept);
  UNROLL for (int i = 0; i < 16; i++) r[i] = kept[i];
#elif defined(TRANSPOSE_BLOCKS)
  vec rows[LANES];
  memcpy(rows, r, sizeof rows);
  for (int64_t i = 0; i < LANES; i += BLOCK)
    for (int64_t j = 0; j < LANES; j += BLOCK) {
      block_row block[BLOCK];
      const real *row[BLOCK];
      UNROLL for (int b = 0; b < BLOCK; b++) row[b] = (const real *)&rows[i + b] + j;
      load_transposed(block, row);
      UNROLL for (int b = 0; b < BLOCK; b++) memcpy((real *)&r[j + b] + i, &block[b], 32);
    }
#else
  real rows[LANES][LANES];
  memcpy(rows, r, sizeof rows);
  for (int64_t j = 0; j < LANES; j++)
    for (int64_t i = 0; i < LANES; i++) ((real *)&r[j])[i] = rows[i][j];
#endif
}

/* Load the columns of up to LANES rows as vectors.  With fewer rows, the last lanes are zero. */
INLINE void load_columns(vec to[LANES], const real *from, const int64_t rows, const int64_t columns,
                         const int64_t ld) {
  for (int64_t i = 0; i < LANES; i++)
    to[i] = i < rows ? load_some(from + i * ld, columns) : (vec){0};
  transpose(to);
}
/* The inverse of load_columns: store columns as rows; `from` is overwritten. */
INLINE void store_columns(real *to, vec from[LANES], const int64_t rows, const int64_t columns,
                          const int64_t ld) {
  transpose(from);
  for (int64_t i = 0; i < rows; i++) store_some(to + i * ld, from[i], columns);
}

/* Return a vector: lane i < n is the sum over the lanes of v[i].  n is a compile-time constant. */
INLINE vec sums_of_lanes(const vec v[LANES], const int64_t n) {
#ifdef TRANSPOSE_BY_SIXTEEN
  vec pairs[8], fours[4], halves[2];
  UNROLL for (int i = 0; i < 8; i++) {
    const vec a = 2 * i < n ? v[2 * i] : (vec){0}, b = 2 * i + 1 < n ? v[2 * i + 1] : (vec){0};
    pairs[i] = FROM_QUARTERS(a, b, 0, 16, 1, 17) + FROM_QUARTERS(a, b, 2, 18, 3, 19);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    const vec a = pairs[2 * i], b = pairs[2 * i + 1];
    fours[i] = FROM_QUARTERS(a, b, 0, 1, 16, 17) + FROM_QUARTERS(a, b, 2, 3, 18, 19);
  }
  UNROLL for (int i = 0; i < 2; i++) {
    const vec a = fours[2 * i], b = fours[2 * i + 1];
    halves[i] = TWO_QUARTERS(a, b, 0) + TWO_QUARTERS(a, b, 4);
  }
  return TWO_QUARTERS(halves[0], halves[1], 0) + TWO_QUARTERS(halves[0], halves[1], 4);
#else
  real sums[LANES] = {0};
  for (int64_t i = 0; i < n; i++) sums[i] = sum_lanes(v[i]);
  return load(sums);
#endif
}
