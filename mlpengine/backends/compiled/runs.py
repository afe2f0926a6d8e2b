"""The loop over many steps: gather the rows of each batch, then make the step."""

from collections.abc import Sequence
from math import prod

from mlpengine.backends.compiled.layout import Layout
from mlpengine.spec import Array

RUN = """\
/* `count` steps, each on the next {batch} rows that `order` names; returns how many were made. */
long mlpengine_run(void *const *table, char *workspace, double *numbers, const long count,
                   const int64_t *order, const char *data_0, const char *data_1, const char *data_2,
                   const double *rates, double *losses, double *norms) {{
{declared}
  (void)data_0, (void)data_1, (void)data_2;
  enter();
  const unsigned long old = flush_denormals();
  long done = 0;
  for (; done < count; done++, order += {batch}) {{
    for (long i = 0; i < {batch}; i++) {{
{copies}
    }}
    numbers[2] = rates[done];
    const long status = step(table, workspace, numbers);
    losses[done] = numbers[0];
    norms[done] = numbers[1];
    numbers[6] = (double)status;
    if (status) break;
    numbers[3] += 1;
  }}
  restore_denormals(old);
  leave();
  return done;
}}
"""


def emit_run(layout: Layout, gathered: Sequence[Array | None], batch: int) -> str:
    """Return the function that makes many steps, filling the buffers `gathered` before each."""
    names, copies = [], []
    for number, buffer in enumerate(gathered):
        if buffer is None:
            continue
        name = f"batch_{number}"
        layout.external(name, buffer)
        names.append(name)
        size = prod(buffer.shape[1:]) * buffer.itemsize
        copies.append(
            f"      memcpy((char *){name} + i * {size}, data_{number} + order[i] * {size}, {size});"
        )
    body = "\n".join(copies)
    return RUN.format(batch=batch, declared=layout.declare(names, body), copies=body)
