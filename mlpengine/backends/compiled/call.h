/* A call of the program for one or many steps, and a thread's part of a step. */

/* The arguments and results of a call; `CallStruct` in executor.py has the same fields. */
struct call {
  void *const *table;   /* addresses of the caller's arrays */
  char *workspace;
  const int64_t *order; /* row indices into `data` for all steps; NULL if the buffers hold a batch */
  const char *data[8];  /* for each buffer of a batch, the array from which rows are copied */
  const double *rates;  /* learning rate of each step; NULL to use `lr` */
  double *losses, *norms; /* results of each step, or NULL */
  int64_t rows;         /* rows of a batch, up to BATCH */
  int64_t missing;      /* number of rows by which the last batch is shorter */
  int64_t count;        /* steps to make */
  int64_t done;         /* finished steps of this call */
  int64_t steps;        /* steps that the optimizer has made in total */
  int64_t status;       /* status of the last step */
  int64_t clips;        /* finished steps with clipped gradients */
  int64_t threads;      /* 1: the caller makes all steps; > 1: all threads; 0: whichever is faster */
  int64_t together;     /* finished steps that all threads made */
  double mean_rows;     /* rows over which the loss is a mean; a shard has fewer `rows` */
  double lr, weight_decay;
  double clip_norm;     /* maximum norm after clipping */
  double max_norm;      /* a step with a larger norm updates nothing */
  double loss, norm;    /* of the last step */
  double clipped;       /* norm after clipping, of the last finished step */
  double hyper[8];      /* hyper-parameters of the optimizer */
};

/* Status of a step. */
enum { FINISHED, NOT_FINITE, BAD_LABEL, LARGE_NORM };

/* The part of thread number `index` of `count` threads.  Threads always divide the BATCH rows of a
   full batch, so that tiles are the same for a short batch, which has only the first `rows` rows. */
struct part {
  int64_t index, count, rows;
  double mean_rows;
  int trains; /* 0 for predictions */
};

/* Whether this thread writes the results of a call. */
#define LEADS (part.index == 0)

#if IN_UNIT(0)
static struct part thread_part(const struct call *call, const int64_t index, const int64_t count) {
  return (struct part){index, count, call->rows, call->mean_rows, .trains = 1};
}
#endif
