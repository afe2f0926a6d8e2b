/* What a call asks for: `count` steps of `work`, whoever shares them. */
struct job {
  void *const *table;
  char *workspace;
  double *numbers;
  long count;
  const int64_t *order; /* rows of the data for each step, or NULL where the buffers are filled */
  const char *data[3];
  const double *rates;
  double *losses, *norms;
};

enum { FINISHED, NOT_FINITE, BAD_LABEL, NO_THREADS, LARGE_NORM }; /* how a step ended */

static void barrier(void);
static long part(const struct job *job, const long thread, const int64_t *order);

/* What one thread does of it; returns how many steps were finished.  All see the same status. */
static long work(const struct job job, const long thread) {
  long done = 0, status = FINISHED;
  for (; done < job.count && !status; done += !status) {
    if (thread == 0 && job.rates) job.numbers[2] = job.rates[done];
    status = part(&job, thread, job.order ? job.order + done * BATCH : NULL);
    if (thread == 0 && job.rates) {
      job.losses[done] = job.numbers[0];
      job.norms[done] = job.numbers[1];
    }
    barrier();
    if (thread == 0) job.numbers[3] += !status;
  }
  if (thread == 0) job.numbers[6] = (double)status;
  return done;
}
