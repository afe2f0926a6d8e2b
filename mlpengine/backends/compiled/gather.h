/* Copies rows of a data set into the buffers of a batch: features, targets, sample weights.  Macros
   that must be defined: BUFFER_n (address) and ROW_BYTES_n for each buffer n, and EACH_BUFFER. */
#define GATHER(n)                                                                                \
  memcpy((char *)BUFFER_##n + i * ROW_BYTES_##n, data[n] + order[i] * ROW_BYTES_##n, ROW_BYTES_##n);
static void gather(void *const *table, const int64_t *order, const char *const *data,
                   const int64_t first, const int64_t last) {
  for (int64_t i = first; i < last; i++) {
    EACH_BUFFER(GATHER)
  }
}
