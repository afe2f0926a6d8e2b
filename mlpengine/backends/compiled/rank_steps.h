/* The steps of a rank (ranks.h). */

/* Let all programs of this rank work on the parameters at `to` in place of those at `from`. */
static void move_parameters(const struct ranks *ranks, const real *from, real *to) {
  for (int64_t t = 0; t < ranks->table_count; t++) {
    for (int64_t i = 0; i < ranks->tables[t].length; i++) {
      void **const address = ranks->tables[t].addresses + i;
      const uintptr_t offset = (uintptr_t)*address - (uintptr_t)from;
      if (offset < PARAMETERS * sizeof(real)) *address = (char *)to + offset;
    }
  }
}

/* Make the steps of a call, several of them on one copy of the parameters, which is in the caches
   once.  It becomes each rank's own at the end, unless a rank has ended. */
static void run(struct call *call) {
  void *const *table = call->table;
  const struct part part = part_of(call);
  struct ranks *const ranks = part.ranks;
  if (part.count == 1 || !call->order || call->count == 1) {
    work(call, call->count, part);
    return;
  }
  real *const own = PARAMS;
  barrier(part); /* others may still read those of the last call */
  EACH_RANGE(first, last) publish(call, first, last, part);
  barrier(part);
  move_parameters(ranks, own, ranks->parameters);
  ranks->shares = 1;
  work(call, call->count, part);
  ranks->shares = 0;
  move_parameters(ranks, ranks->parameters, own);
  if (!ranks->lost) memcpy(own, ranks->parameters, PARAMETERS * sizeof(real));
}
