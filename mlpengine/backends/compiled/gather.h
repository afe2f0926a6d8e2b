/* Copies of the rows of a batch from whole data sets: features, targets and sample weights.  Defined
   before this for each buffer: its address BUFFER_0 etc. and its ROW_BYTES_0 etc.; and EACH_BUFFER. */
#define GATHER(n)                                                                                \
  memcpy((char *)BUFFER_##n + i * ROW_BYTES_##n, data[n] + order[i] * ROW_BYTES_##n, ROW_BYTES_##n);
static void gather(void *const *table, const int64_t *order, const char *const *data,
                   const int64_t first, const int64_t last) {
  for (int64_t i = first; i < last; i++) {
    EACH_BUFFER(GATHER)
  }
}
