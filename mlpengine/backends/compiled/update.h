/* Functions of all optimizers.  RANGES must be defined: ranges of the parameter vector, each with its
   start, a number of units and the length of a unit.  Threads divide the units of each range. */
#define EACH_RANGE(from, to)                                                               \
  for (int64_t range = 0; range < (int64_t)(sizeof RANGES / sizeof *RANGES); range++)      \
    for (int64_t from = RANGES[range][0] + FIRST(RANGES[range][1]) * RANGES[range][2],     \
              to = RANGES[range][0] + LAST(RANGES[range][1]) * RANGES[range][2], once = 1; \
         once; once = 0)

/* Set the entries first to last to zero if their absolute value is below `limit`. */
SHARED void zero_small(real *restrict x, const real limit, const int64_t first,
                       const int64_t last) {
  for (int64_t i = first; i < last; i += LANES) {
    const int64_t n = MIN(LANES, last - i);
    const vec old = load_first(x + i, n);
    store_first(x + i, vselect(v_abs(old) < splat(limit), splat(0), old), n);
  }
}

/* Raise the entries first to last to `lowest` if they are below. */
SHARED void raise_to(real *restrict x, const real lowest, const int64_t first, const int64_t last) {
  for (int64_t i = first; i < last; i += LANES) {
    const int64_t n = MIN(LANES, last - i);
    store_first(x + i, vmax(load_first(x + i, n), splat(lowest)), n);
  }
}
