/* The work of one thread in the next steps of a call, up to step number `end`.  All threads compute the
   same status.  After the last barrier, no worker reads `call`: the caller may change it. */
static void work(struct call *call, const int64_t end, const struct part part) {
  int64_t done = call->done;
  const int64_t before = call->steps - done;
  int64_t status = FINISHED;
  while (done < end && !status) {
    const int64_t *order = call->order ? call->order + done * part.rows : NULL;
    struct part own = part;
    if (done == call->count - 1) own.rows -= call->missing, own.mean_rows -= (double)call->missing;
    const double lr = call->rates ? call->rates[done] : call->lr;
    status = step(call, order, before + done + 1, lr, own);
    if (LEADS && call->losses) {
      call->losses[done] = call->loss;
      call->norms[done] = call->norm;
    }
    barrier(part);
    done += !status;
  }
  if (!LEADS) return;
  if (part.count > 1) call->together += done - call->done;
  call->done = done;
  call->steps = before + done;
  call->status = status;
}
