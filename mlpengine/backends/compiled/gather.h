/* The rows of a batch from whole data sets: features, targets and sample weights.  Defined before
   this for each of them that there is: BUFFER_0 to BUFFER_2, its address, and its ROW_BYTES. */
static void gather(void *const *table, const int64_t *order, const char *const data[3],
                   const int64_t first, const int64_t last) {
  for (int64_t i = first; i < last; i++) {
#ifdef BUFFER_0
    memcpy((char *)BUFFER_0 + i * ROW_BYTES_0, data[0] + order[i] * ROW_BYTES_0, ROW_BYTES_0);
#endif
#ifdef BUFFER_1
    memcpy((char *)BUFFER_1 + i * ROW_BYTES_1, data[1] + order[i] * ROW_BYTES_1, ROW_BYTES_1);
#endif
#ifdef BUFFER_2
    memcpy((char *)BUFFER_2 + i * ROW_BYTES_2, data[2] + order[i] * ROW_BYTES_2, ROW_BYTES_2);
#endif
  }
}
