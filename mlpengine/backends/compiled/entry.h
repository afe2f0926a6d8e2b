/* The functions that Python calls.  Macros that must be defined for mlpengine_forward: OUTPUT,
   OUTPUT_COLUMNS and OUTPUT_STRIDE. */

#if THREADS == 1
static void run(struct call *call) { work(call, call->count, thread_part(call, 0, 1)); }
static void enter(void) {}
static void leave(void) {}
void mlpengine_open(void) {}
void mlpengine_close(void) {}
#endif

#ifdef OUTPUT
/* Compute the outputs for `count` consecutive rows, batch by batch, on the calling thread.  If the
   dropout limits in the table are 0, nothing is dropped. */
void mlpengine_forward(void *const *table, char *workspace, const char *inputs, const int64_t count,
                       real *outputs) {
  enter();
  const uint64_t old = flush_denormals();
  for (int64_t done = 0; done < count; done += BATCH) {
    const struct part part = {.count = 1, .rows = MIN(BATCH, count - done)};
    memcpy((char *)BUFFER_0, inputs + done * ROW_BYTES_0, (size_t)(part.rows * ROW_BYTES_0));
    prepare(table, workspace, part);
    for (int64_t begin = 0; begin < part.rows; begin += CHUNK_ROWS) {
      const int64_t end = MIN(begin + CHUNK_ROWS, BATCH);
      rows(table, workspace, part, begin, end);
      for (int64_t i = begin; i < MIN(end, part.rows); i++)
        memcpy(outputs + (done + i) * OUTPUT_COLUMNS, OUTPUT + i * OUTPUT_STRIDE,
               OUTPUT_COLUMNS * sizeof(real));
    }
  }
  restore_denormals(old);
  leave();
}
#endif

/* Run the steps of a call; return the status of the last one. */
int64_t mlpengine_run(struct call *call) {
  enter();
  const uint64_t old = flush_denormals();
  call->done = call->clips = call->together = 0;
  call->status = FINISHED;
  run(call);
  restore_denormals(old);
  leave();
  return call->status;
}
