/* A team of one: nothing to wait for. */
struct job {
  void *const *table;
  char *workspace;
  double *numbers;
};
static long part(const struct job job, const long thread);
static long step(void *const *table, char *workspace, double *numbers) {
  return part((struct job){table, workspace, numbers}, 0);
}
static void meet(void) {}
static void enter(void) {}
static void leave(void) {}
