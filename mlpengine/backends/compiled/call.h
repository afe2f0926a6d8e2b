/* A call of the program for one or many steps, and the part of a thread in it. */

/* The arguments and results of a call; `CallStruct` in executor.py mirrors it. */
struct call {
  void *const *table;   /* addresses of the caller's arrays */
  char *workspace;
  const int64_t *order; /* rows of the data for each step, or NULL if the buffers are filled */
  const char *data[8];  /* the whole data set for each gathered buffer */
  const double *rates;  /* a learning rate for each step, or NULL for `lr` */
  double *losses, *norms; /* of each step, or NULL */
  int64_t rows;         /* of a batch, up to BATCH */
  int64_t missing;      /* number of rows by which the last batch is shorter */
  int64_t count;        /* steps to make */
  int64_t done;         /* steps that were finished */
  int64_t steps;        /* updates that the optimizer has made */
  int64_t status;       /* of the last step */
  int64_t clips;        /* finished steps with clipped gradients */
  int64_t threads;      /* 1: the caller alone makes steps; more: all threads; 0: either */
  int64_t together;     /* finished steps that all threads have made */
  double mean_rows;     /* rows over which the loss is a mean; `rows` may be fewer */
  double lr, weight_decay;
  double clip_norm;     /* largest norm after clipping */
  double max_norm;      /* a step with a larger norm is not finished */
  double loss, norm;    /* of the last step */
  double clipped;       /* norm after clipping, of the last finished step */
  double hyper[8];      /* of the optimizer */
};

/* Status of a step. */
enum { FINISHED, NOT_FINITE, BAD_LABEL, LARGE_NORM };

/* The part of thread number `index` of `count` threads.  Sums do not depend on the parts.  Threads
   divide the rows of a whole batch.  A short batch has the first `rows` of these rows, so that the
   tiles are the same. */
struct part {
  int64_t index, count, rows;
  double mean_rows;
  int trains; /* 0 to compute outputs only */
};

/* Whether `part` writes the results of a call. */
#define LEADS (part.index == 0)

#if IN_UNIT(0)
static struct part thread_part(const struct call *call, const int64_t index, const int64_t count) {
  return (struct part){index, count, call->rows, call->mean_rows, .trains = 1};
}
#endif
