"""Gathering the rows of a batch, and the entry that makes many steps."""

from collections.abc import Sequence
from math import prod
from textwrap import indent

from mlpengine.backends.compiled.layout import Layout
from mlpengine.spec import Array

GATHER = """\
/* The rows first to last of a batch, from whole data sets. */
static void gather(void *const *table, char *workspace, const int64_t *order,
                   const char *const data[3], const long first, const long last) {{
{declared}\
  (void)table, (void)workspace, (void)data;
  for (long i = first; i < last; i++) {{
{copies}
  }}
}}
"""

RUN = """\
/* `count` steps, each on the next rows that `order` names; returns how many were finished. */
long mlpengine_run(void *const *table, char *workspace, double *numbers, const long count,
                   const int64_t *order, const char *data_0, const char *data_1, const char *data_2,
                   const double *rates, double *losses, double *norms) {
  const struct job job = {table, workspace, numbers, count, order, {data_0, data_1, data_2},
                          rates, losses, norms};
  return at_work(job);
}
"""


def emit_gather(layout: Layout, gathered: Sequence[Array | None]) -> str:
    """Return the function that fills the buffers `gathered`, each from a data set of its own."""
    names, copies = [], []
    for number, buffer in enumerate(gathered):
        if buffer is None:
            continue
        name = f"batch_{number}"
        layout.external(name, buffer)
        names.append(name)
        size = prod(buffer.shape[1:]) * buffer.itemsize
        copies.append(
            f"memcpy((char *){name} + i * {size}, data[{number}] + order[i] * {size}, {size});"
        )
    body = indent("\n".join(copies), "    ")
    return GATHER.format(declared=layout.declare(names, body), copies=body)
