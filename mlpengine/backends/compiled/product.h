/* Functions of matrix products: packing, tiles, padded copies, column sums. */

#define WIDE 2 /* vectors in a row of a panel */

/* The height of the next tile if `left` rows remain: `full` if tiles of `full` rows cover these rows
   exactly, otherwise one row less.  So tiles of a few rows at the end are rare. */
INLINE int64_t tile_height(const int64_t left, const int64_t full) {
  return left % full == 0 ? full : left < full ? left : full - 1;
}

/* Pack a panel: copy `width` columns of b from column j, row after row, padded with zeros. */
SHARED void pack_panel(real *restrict panel, const real *restrict b, const int64_t ld,
                       const int64_t depth, const int64_t columns, int64_t j, const int64_t width) {
  const int64_t whole = j + width <= columns;
  for (int64_t k = 0; k < depth; k++)
    for (int64_t v = 0; v < width; v += LANES) {
      const real *from = b + k * ld + j + v;
      store(panel + k * width + v,
            whole || j + v + LANES <= columns ? load(from)
                                              : load_some(from, MAX(0, columns - j - v)));
    }
}

/* Pack a panel of the transpose of `w`: a row of `w` becomes a column.  If there are fewer columns than
   lanes, the columns are repeated to fill the vector. */
INLINE void pack_transposed_inline(real *restrict panel, const real *restrict w, const int64_t ld,
                                   const int64_t depth, const int64_t columns, int64_t j,
                                   const int64_t width) {
  const int64_t repeats = columns < LANES && width == LANES;
#if defined(TRANSPOSE_BY_SIXTEEN)
  for (int64_t k = 0; k < depth; k += 16)
    for (int64_t v = 0; v < width; v += 16) { /* 16 columns of w at a time, for all rows in the panel */
      vec r[16], block[16];
      const real *from = w + (j + v) * ld + k;
      const int64_t rows = columns - j - v, n = MIN(16, depth - k);
      int64_t next = ld;
      if (rows < 16 || n < 16) { /* at an edge of w: pad the block with zeros */
        for (int64_t i = 0; i < 16; i++) {
          const int64_t row = repeats ? i % columns : i;
          block[i] = load_some(from + row * ld, row < rows ? n : 0);
        }
        from = (const real *)block, next = 16;
      }
      UNROLL for (int i = 0; i < 16; i++) r[i] = load(from + i * next);
      transpose_sixteen(r);
      UNROLL for (int i = 0; i < 16; i++)
        if (i < n) store(panel + (k + i) * width + v, r[i]);
    }
#elif defined(TRANSPOSE_BLOCKS)
  static const real zeros[BLOCK];
  real ends[BLOCK][BLOCK] = {{0}};
  int64_t k = 0;
  if (j < 0) __builtin_unreachable(); /* avoids a warning of GCC about negative columns */
  if (j + width <= columns) /* whole blocks */
    for (; k + BLOCK <= depth; k += BLOCK)
      for (int64_t v = 0; v < width; v += BLOCK) {
        block_row r[BLOCK];
        const real *const first = w + (j + v) * ld + k, *row[BLOCK];
        UNROLL for (int i = 0; i < BLOCK; i++) row[i] = first + i * ld;
        load_transposed(r, row);
        UNROLL for (int i = 0; i < BLOCK; i++) memcpy(panel + (k + i) * width + v, &r[i], 32);
      }
  for (; k < depth; k += BLOCK)
    for (int64_t v = 0; v < width; v += BLOCK) {
      block_row r[BLOCK];
      const real *row[BLOCK];
      const int64_t n = MIN(BLOCK, depth - k);
      UNROLL for (int i = 0; i < BLOCK; i++) {
        const int64_t column = repeats ? (v + i) % columns : j + v + i;
        row[i] = column < columns ? w + column * ld + k : zeros;
        if (n < BLOCK) row[i] = memcpy(ends[i], row[i], (size_t)n * sizeof(real));
      }
      load_transposed(r, row);
      UNROLL for (int i = 0; i < BLOCK; i++)
        if (i < n) memcpy(panel + (k + i) * width + v, &r[i], 32);
    }
#else
  for (int64_t v = 0; v < width; v++)
    for (int64_t k = 0; k < depth; k++) {
      const int64_t column = repeats ? v % columns : j + v;
      panel[k * width + v] = column < columns ? w[column * ld + k] : 0;
    }
#endif
}

SHARED void pack_transposed(real *restrict panel, const real *restrict w, const int64_t ld,
                            const int64_t depth, const int64_t columns, int64_t j,
                            const int64_t width) {
  pack_transposed_inline(panel, w, ld, depth, columns, j, width);
}

/* Fill each of `rows` vectors with copies of its first `columns` entries; `columns` divides LANES. */
SHARED void repeat_columns(real *restrict panel, const int64_t rows, const int64_t columns) {
  for (int64_t k = 0; k < rows; k++) {
    const vec first = load_some(panel + k * LANES, columns);
    for (int64_t v = columns; v < LANES; v += columns)
      store_some(panel + k * LANES + v, first, columns);
  }
}

/* Pack `rows` rows of `terms` entries of `a` for a tile, so that the entries of a term are contiguous.
   In `a`, rows are a_row entries apart, and terms a_term entries.  A store of a whole vector may also
   overwrite the start of the next term, which is packed later.  No store reaches beyond the tile. */
SHARED void pack_tile(real *restrict tile, const real *restrict a, const int64_t a_row,
                      const int64_t a_term, const int64_t rows, const int64_t terms) {
  int64_t k = 0;
  if (a_row == 1)
    for (; (k + 1) * rows + LANES <= terms * rows; k++)
      for (int64_t v = 0; v < rows; v += LANES)
        store(tile + k * rows + v, load(a + k * a_term + v));
#ifdef TRANSPOSE_BLOCKS
  else
    for (; (k + BLOCK) * rows + BLOCK <= terms * rows; k += BLOCK)
      for (int64_t v = (rows - 1) / BLOCK * BLOCK; v >= 0; v -= BLOCK) { /* the last one overlaps */
        block_row r[BLOCK];
        const real *row[BLOCK];
        UNROLL for (int i = 0; i < BLOCK; i++) row[i] = a + MIN(v + i, rows - 1) * a_row + k;
        load_transposed(r, row);
        UNROLL for (int i = 0; i < BLOCK; i++) memcpy(tile + (k + i) * rows + v, &r[i], 32);
      }
#endif
  for (; k < terms; k++)
    for (int64_t i = 0; i < rows; i++) tile[k * rows + i] = a[i * a_row + k * a_term];
}

/* Copy the rows first to last between matrices; rows are to_ld and from_ld entries apart. */
INLINE void copy_rows(real *restrict to, const int64_t to_ld, const real *restrict from,
                      const int64_t from_ld, const int64_t columns, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; i++)
    memcpy(to + i * to_ld, from + i * from_ld, (size_t)columns * sizeof(real));
}

/* Sum n columns of x (n <= LANES) over the rows begin to end.  If begin is 0, overwrite `sums`,
   otherwise add to `sums`. */
INLINE void sum_vector(real *restrict sums, const real *restrict x, const int64_t ld,
                       const int64_t n, int64_t begin, int64_t end) {
  vec part[4] = {{0}, {0}, {0}, {0}};
  const int64_t whole = begin + (end - begin) / 4 * 4;
  for (int64_t i = begin; i < whole; i += 4) UNROLL for (int q = 0; q < 4; q++)
    part[q] += load_first(x + (i + q) * ld, n);
  for (int64_t i = whole; i < end; i++) part[0] += load_first(x + i * ld, n);
  vec total = (part[0] + part[1]) + (part[2] + part[3]);
  if (begin) total += load_first(sums, n);
  store_first(sums, total, n);
}

/* sum_vector for the vectors first to last of the columns. */
SHARED void sum_columns(real *restrict sums, const real *restrict x, const int64_t ld,
                        const int64_t columns, int64_t first, int64_t last, int64_t begin,
                        int64_t end) {
  for (int64_t j = first; j < last; j++)
    sum_vector(sums + j * LANES, x + j * LANES, ld, MIN(LANES, columns - j * LANES), begin, end);
}

/* Tiles of more than 8 rows prefetch b this many terms ahead, from the second-level cache. */
#define PREFETCH_TERMS 12

/* Add `terms` products to each sum of a tile.  a_row, a_term and b_term are distances in memory of rows
   of `a`, terms of `a`, terms of `b`.  The last vector of a term of `b` has `lanes` entries. */
INLINE void add_products(vec sum[TILE_ROWS][WIDE], const int rows, const int wide,
                         const int64_t terms, const real *restrict a, const int64_t a_row,
                         const int64_t a_term, const real *restrict b, const int64_t b_term,
                         const int64_t lanes) {
  for (int64_t k = 0; k < terms; k++) {
    vec factors[WIDE];
    UNROLL for (int v = 0; v < wide; v++) {
      const real *at = b + k * b_term + v * LANES;
      if (rows > 8) __builtin_prefetch(at + PREFETCH_TERMS * b_term);
      factors[v] = load_first(at, v == wide - 1 ? lanes : LANES);
    }
    UNROLL for (int r = 0; r < rows; r++) {
      const vec factor = splat(a[r * a_row + k * a_term]);
      UNROLL for (int v = 0; v < wide; v++) sum[r][v] = multiply_add(factor, factors[v], sum[r][v]);
    }
  }
}

/* Set sum[r][0] to the dot products of row r of `a` with `columns` rows of `b` (columns <= LANES).
   Rows have `terms` entries, and are a_row and b_row entries apart. */
INLINE void dot_products(vec sum[TILE_ROWS][WIDE], const int rows, const int64_t columns,
                         const int64_t terms, const real *restrict a, const int64_t a_row,
                         const real *restrict b, const int64_t b_row) {
  const int64_t whole = terms / LANES * LANES, rest = terms - whole;
  vec part[2][LANES];
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int64_t j = 0; j < LANES; j++)
    part[r][j] = (vec){0};
  for (int64_t k = 0; k < whole; k += LANES) {
    vec row[2];
    UNROLL for (int r = 0; r < rows; r++) row[r] = load(a + r * a_row + k);
    UNROLL for (int64_t j = 0; j < columns; j++) {
      const vec factor = load(b + j * b_row + k);
      UNROLL for (int r = 0; r < rows; r++) part[r][j] = multiply_add(row[r], factor, part[r][j]);
    }
  }
  if (rest) UNROLL for (int64_t j = 0; j < columns; j++) {
    const vec factor = load_some(b + j * b_row + whole, rest);
    UNROLL for (int r = 0; r < rows; r++)
      part[r][j] = multiply_add(load_some(a + r * a_row + whole, rest), factor, part[r][j]);
  }
  UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sums_of_lanes(part[r], columns);
}

/* Join rows of a tile: each vector gets as many rows as fit.  A row has `columns` entries, repeated to
   fill a vector. */
INLINE void join_rows(vec sum[TILE_ROWS][WIDE], const int rows, const int columns) {
  const int each = (int)(LANES / columns);
  UNROLL for (int r = 0; r < rows; r++)
    sum[r / each][0] = r % each ? vselect(first_lanes(r % each * columns), sum[r / each][0], sum[r][0])
                                : sum[r][0];
}

#define EACH(count) UNROLL for (int r = 0; r < (count); r++) UNROLL for (int v = 0; v < wide; v++)
