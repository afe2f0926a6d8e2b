/* What every optimizer's update shares; its formulas are in the function that follows.  Defined
   before this: RANGES, parts of the parameter vector that threads divide, each with its start, its
   number of units and their length. */
#define EACH_RANGE(from, to)                                                               \
  for (int64_t range = 0; range < (int64_t)(sizeof RANGES / sizeof *RANGES); range++)      \
    for (int64_t from = RANGES[range][0] + FIRST(RANGES[range][1]) * RANGES[range][2],     \
              to = RANGES[range][0] + LAST(RANGES[range][1]) * RANGES[range][2], once = 1; \
         once; once = 0)

/* Set the entries first to last that are smaller than `limit` in size to zero. */
SHARED void zero_small(real *restrict x, const real limit, const int64_t first,
                       const int64_t last) {
  for (int64_t i = first; i < last; i += LANES) {
    const int64_t n = MIN(LANES, last - i);
    const vec old = load_first(x + i, n);
    store_first(x + i, vselect(v_abs(old) < splat(limit), splat(0), old), n);
  }
}

/* Raise the entries first to last to `lowest`. */
SHARED void raise_to(real *restrict x, const real lowest, const int64_t first, const int64_t last) {
  for (int64_t i = first; i < last; i += LANES) {
    const int64_t n = MIN(LANES, last - i);
    store_first(x + i, vmax(load_first(x + i, n), splat(lowest)), n);
  }
}
