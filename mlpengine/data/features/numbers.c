/* Numeric features of rows as `Numbers.write` in numbers.py computes them, operation by operation, so
 * that the bits are the same but for the sign of zeros.  Before this: prelude.h and rules.h, for vectors of double. */

/* The settings of a block of features; `Settings` in compiled.py mirrors it. */
struct numbers {
    int64_t count, tile;                   /* features, and rows that are computed together */
    const double *center, *factor, *fill;  /* of each feature, for every row of a tile */
    const int64_t *first_bin;              /* of each feature, and the number of all bins */
    const double *left, *low, *high, *width; /* of each bin */
    const int64_t *flagged;                /* features with an indicator */
    int64_t flags, strict, clip, single;   /* single: features are float32 */
    double limit, largest, bound, clip_at; /* of raw and scaled numbers; the constants of clipping */
};

/* Where the cells of each feature lie: its first row, bytes between rows, whether they are float64.
 * The cells of a row may be adjacent and of one type. */
struct cells {
    const char *const *first;
    const int64_t *strides, *is_double;
    int64_t adjacent;
};

typedef float half_vec __attribute__((vector_size(BYTES / 2)));

/* Copy n numbers from or to float32. */
static void widen(double *to, const float *from, const int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        half_vec v;
        memcpy(&v, from + i, sizeof v);
        store(to + i, __builtin_convertvector(v, vec));
    }
    for (; i < n; i++) to[i] = from[i];
}
static void narrow(float *to, const double *from, const int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const half_vec v = __builtin_convertvector(load(from + i), half_vec);
        memcpy(to + i, &v, sizeof v);
    }
    for (; i < n; i++) to[i] = (float)from[i];
}

/* Write n numbers from feature number `start` of a row on. */
INLINE void put(const struct numbers *own, char *row, const int64_t start, const double *from,
                const int64_t n) {
    if (own->single) narrow((float *)row + start, from, n);
    else memcpy((double *)row + start, from, (size_t)n * sizeof(double));
}

/* Read the cells of some rows, row by row. */
static void read_cells(double *tile, const struct cells *cells, const int64_t count,
                       const int64_t first, const int64_t rows) {
    if (cells->adjacent) {
        for (int64_t r = 0; r < rows; r++) {
            const char *from = cells->first[0] + (first + r) * cells->strides[0];
            if (cells->is_double[0]) memcpy(tile + r * count, from, (size_t)count * sizeof(double));
            else widen(tile + r * count, (const float *)from, count);
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t stride = cells->strides[i];
        const char *from = cells->first[i] + first * stride;
        if (cells->is_double[i])
            for (int64_t r = 0; r < rows; r++) tile[r * count + i] = *(const double *)(from + r * stride);
        else
            for (int64_t r = 0; r < rows; r++) tile[r * count + i] = *(const float *)(from + r * stride);
    }
}

/* How far each row is through the bins of each feature, after the features. */
static void write_bins(const struct numbers *own, const double *row, double *scratch, char *to) {
    for (int64_t i = 0; i < own->count; i++) {
        const vec x = splat(row[i]);
        const int64_t end = own->first_bin[i + 1];
        for (int64_t k = own->first_bin[i]; k < end; k += LANES) {
            const int64_t n = MIN(LANES, end - k);
            const vec past = x - load_some(own->left + k, n);
            const vec kept = vmin(vmax(load_some(own->low + k, n), past), load_some(own->high + k, n));
            store_some(scratch + k, kept / vselect(first_lanes(n), load_some(own->width + k, n), splat(1)), n);
        }
    }
    put(own, to, own->count, scratch, own->first_bin[own->count]);
}

/* Scale and clip `size` numbers of a tile; return whether the result fits. */
static int scale(const struct numbers *own, double *tile, const int64_t size) {
    ivec large = {0};
    for (int64_t k = 0; k < size; k += LANES) {
        const int64_t n = MIN(LANES, size - k);
        vec x = (load_some(tile + k, n) - load_some(own->center + k, n)) * load_some(own->factor + k, n);
        if (own->clip) {
            x = vmin(vmax(x, splat(-own->bound)), splat(own->bound));
            const vec part = x / splat(own->clip_at);
            x = x / v_sqrt(part * part + splat(1));
        } else large |= ~(v_abs(x) <= splat(own->largest));
        store_some(tile + k, x, n);
    }
    return !any_lane(large);
}

/* Fill the missing cells of a tile; return whether all others are within the limits. */
static int fill(const struct numbers *own, double *tile, const int64_t size) {
    ivec odd = {0};
    for (int64_t k = 0; k < size; k += LANES)
        odd |= ~(v_abs(load_some(tile + k, MIN(LANES, size - k))) <= splat(own->limit));
    if (!any_lane(odd)) return 1;
    if (own->strict) return 0;
    for (int64_t k = 0; k < size; k++) {
        if (tile[k] != tile[k]) tile[k] = own->fill[k];
        else if (!(fabs(tile[k]) <= own->limit)) return 0;
    }
    return 1;
}

/* Write the features of `rows` rows from row `first` on, `stride` bytes apart; `tile` has room for
 * the numbers of a tile and the bins of a row.  Return whether all cells could be used: if not, some
 * features are written. */
int64_t encode_numbers(const struct numbers *own, const struct cells *cells, int64_t first, int64_t rows,
                       char *out, const int64_t stride, double *tile) {
    const int64_t count = own->count, bins = own->first_bin[count];
    double *scratch = tile + own->tile * count;
    for (const int64_t stop = first + rows; first < stop; first += own->tile) {
        const int64_t height = MIN(own->tile, stop - first);
        read_cells(tile, cells, count, first, height);
        for (int64_t r = 0; r < height; r++)
            for (int64_t i = 0; i < own->flags; i++) {
                const double x = tile[r * count + own->flagged[i]], missing = x != x;
                put(own, out + r * stride, count + bins + i, &missing, 1);
            }
        if (!fill(own, tile, height * count)) return 0;
        for (int64_t r = 0; bins && r < height; r++)
            write_bins(own, tile + r * count, scratch, out + r * stride);
        if (!scale(own, tile, height * count)) return 0;
        for (int64_t r = 0; r < height; r++, out += stride) put(own, out, 0, tile + r * count, count);
    }
    return 1;
}

/* Of each column the smallest and the largest number and how many cells are missing, (3, columns). */
void measure_cells(const struct cells *cells, const int64_t count, const int64_t rows, double *results,
                   double *tile, const int64_t height) {
    double *low = results, *high = low + count, *missing = high + count;
    for (int64_t first = 0; first < rows; first += height) {
        const int64_t some = MIN(height, rows - first);
        read_cells(tile, cells, count, first, some);
        for (int64_t r = 0; r < some; r++)
            for (int64_t i = 0; i < count; i += LANES) {
                const int64_t n = MIN(LANES, count - i);
                const vec x = load_some(tile + r * count + i, n);
                store_some(low + i, vmin(load_some(low + i, n), x), n);
                store_some(high + i, vmax(load_some(high + i, n), x), n);
                store_some(missing + i, load_some(missing + i, n) + one_where(x != x), n);
            }
    }
}
