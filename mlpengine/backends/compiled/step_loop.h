/* A call into the program: many steps, whoever shares them. */

/* What a call carries; `Call` in executor.py is the same in Python. */
struct call {
  void *const *table;   /* addresses of the caller's arrays */
  char *workspace;
  const int64_t *order; /* rows of the data for each step, or NULL where the buffers are filled */
  const char *data[3];
  const double *rates;  /* a learning rate for each step, or NULL for `lr` */
  double *losses, *norms; /* of each step, or NULL */
  int64_t count;        /* steps to make */
  int64_t done;         /* steps that were finished */
  int64_t steps;        /* updates that the optimizer has made */
  int64_t status;       /* how the last step ended */
  double lr, weight_decay, clip_norm;
  double max_norm;      /* a step whose norm exceeds it is not finished */
  double loss, norm;    /* of the last step */
  double hyper[8];      /* of the optimizer */
};

enum { FINISHED, NOT_FINITE, BAD_LABEL, NO_THREADS, LARGE_NORM }; /* how a step ended */

static void barrier(void);
static long step(struct call *call, const int64_t *order, const int64_t number, const double lr,
                 const long thread);

/* What one thread does of a call.  All threads see the same status, and none reads the call after
   the last barrier, when it is the caller's again. */
static void work(struct call *call, const long thread) {
  const int64_t count = call->count, before = call->steps;
  int64_t done = 0;
  long status = FINISHED;
  while (done < count && !status) {
    const int64_t *order = call->order ? call->order + done * BATCH : NULL;
    const double lr = call->rates ? call->rates[done] : call->lr;
    status = step(call, order, before + done + 1, lr, thread);
    if (thread == 0 && call->losses) {
      call->losses[done] = call->loss;
      call->norms[done] = call->norm;
    }
    barrier();
    done += !status;
  }
  if (thread) return;
  call->done = done;
  call->steps = before + done;
  call->status = status;
}
