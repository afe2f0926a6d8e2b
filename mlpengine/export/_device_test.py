"""The self-test of a file for a device: what Python computes for the same rows, in float64."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

import numpy as np

from mlpengine.backends.scalar.text import array
from mlpengine.core.errors import NumericalError
from mlpengine.core.spec import Array
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.categories import write_one_hots
from mlpengine.data.features.computed import finite_rows, with_columns
from mlpengine.data.tables import Column, Table
from mlpengine.export._device import DeviceStep
from mlpengine.models.model import Model
from mlpengine.models.task import Regression
from mlpengine.nn import Mlp
from mlpengine.step.step import TrainingStep

TEST_STEPS = 100
"""Steps of the self-test."""

GROWTH = 1e3
"""Training diverges where a loss is so many times the largest at the initial weights."""

TEST = """\
/* {name}_test.c, written by mlpengine: trains {steps} steps and compares every loss, the
   final weights and a prediction with what Python computed in double precision.
   Exit code 0 if all agree; otherwise it prints the first difference and exits with 1. */
#include <math.h>
#include <stdio.h>

#include "{name}.h"

#define STEPS {steps}
#ifndef FLIPS
#define FLIPS 100 /* bits of a saved state that are flipped, one at a time */
#endif
#define TOLERANCE ({upper}_DOUBLE ? 1e-12 : 1e-5)

{arrays}
static {name}_state state;
static unsigned char saved[{upper}_SAVED_BYTES];
static uint32_t seed = 1;

static uint32_t draw(void)
{{
  seed = seed * 1664525u + 1013904223u;
  return seed >> 16;
}}

/* Fills a row with numbers that Python draws, too: exact multiples of powers of two, or codes. */
static void fill({upper}_REAL *row, size_t n, const int32_t *base, const double *step,
                 const unsigned short *codes, const unsigned char *gaps)
{{
  for (size_t i = 0; i < n; i++) {{
    const uint32_t r = draw();
    if (gaps[i] && r % 16 == 0) row[i] = ({upper}_REAL)NAN;
    else if (codes[i]) row[i] = ({upper}_REAL)(r / 16 % codes[i]);
    else row[i] = ({upper}_REAL)((double)(base[i] + (int32_t)(r / 16 % 513) - 256) * step[i]);
  }}
}}

static int differs(const char *what, size_t place, {upper}_REAL is, double expected, double scale)
{{
  const double size = fabs(expected) > scale ? fabs(expected) : scale;
  if (fabs((double)is - expected) <= TOLERANCE * size) return 0;
  if (isnan(is) && isnan(expected)) return 0;
  printf("{name}: %s %lu is %.9g, not %.9g\\n", what, (unsigned long)place, (double)is, expected);
  return 1;
}}

/* Damaged copies of a saved state must be refused, and change nothing. */
static int damage(void)
{{
  const uint32_t before = seed;
  for (uint32_t i = 0; i < FLIPS; i++) {{
    const uint32_t high = draw() << 16;
    const size_t place = (high | draw()) % ({upper}_SAVED_BYTES * 8);
    saved[place / 8] ^= (unsigned char)(1u << place % 8);
    if ({name}_load(&state, saved, sizeof saved)) return 1;
    saved[place / 8] ^= (unsigned char)(1u << place % 8);
    if ({name}_load(&state, saved, place / 8)) return 1;
  }}
  seed = before;
  return 0;
}}

int main(void)
{{
  static {upper}_REAL x[{upper}_BATCH * {upper}_INPUTS], y[{upper}_BATCH * {upper}_TARGETS];
  static {upper}_REAL out[{upper}_OUTPUTS];
  {name}_init(&state);
{rate}  for (size_t step = 0; step < STEPS; step++) {{
    for (size_t row = 0; row < {upper}_BATCH; row++) {{
      fill(x + row * {upper}_INPUTS, {upper}_INPUTS, x_base, x_step, x_codes, x_gaps);
      fill(y + row * {upper}_TARGETS, {upper}_TARGETS, y_base, y_step, y_codes, y_gaps);
    }}
    if (step == STEPS / 2) {{ /* what follows would show a state that was not restored */
      const {upper}_REAL target = y[0];
      y[0] = ({upper}_REAL)NAN;
      if (isfinite({name}_train(&state, x, y)) || state.steps > STEPS / 2) {{
        printf("{name}: a step without a target changed the state\\n");
        return 1;
      }}
      y[0] = target;
      {name}_save(&state, saved);
      {name}_train(&state, x, y);
      if (!{name}_load(&state, saved, sizeof saved) || damage()) {{
        printf("{name}: a saved state was refused, or a damaged one read\\n");
        return 1;
      }}
    }}
    const {upper}_REAL loss = {name}_train(&state, x, y);
    if (differs("the loss of step", step + 1, loss, losses[step], {loss_scale})) return 1;
  }}
  for (size_t i = 0; i < {upper}_PARAMETERS; i++)
    if (differs("parameter", i, state.params[i], params[i], {scale})) return 1;
  {name}_predict(&state, x, out);
  for (size_t i = 0; i < {upper}_OUTPUTS; i++)
    if (differs("output", i, out[i], outputs[i], {out_scale})) return 1;
  printf("{name}: %d steps agree\\n", STEPS);
  return 0;
}}
"""


@dataclass(frozen=True)
class Draws:
    """How the numbers of a row are drawn: (base + r) * step, or codes below `codes`."""

    base: Array
    step: Array
    codes: Array
    gaps: Array

    @classmethod
    def of(cls, columns: Sequence[tuple[float, float, int, bool]]) -> "Draws":
        """Take (center, spread, codes, gaps) of each column."""
        center, spread, codes, gaps = (np.array(c) for c in zip(*columns, strict=True))
        step = 2.0 ** np.round(np.log2(np.maximum(spread, 1e-30) * 1.5 / 256))
        step = np.maximum(step, 2.0 ** np.ceil(np.log2(np.abs(center) + 1e-30) - 29))
        return cls(np.round(center / step).astype(np.int64), step, codes, gaps)

    def arrays(self, name: str) -> str:
        """Return the C arrays."""
        return (
            array("int32_t", f"{name}_base", map(str, self.base.tolist()))
            + array("double", f"{name}_step", map(repr, self.step.tolist()))
            + array("unsigned short", f"{name}_codes", map(str, self.codes.tolist()))
            + array("unsigned char", f"{name}_gaps", map(str, self.gaps.astype(int).tolist()))
        )

    def draw(self, rng: "Random", real: str) -> Array:
        """Return a row as a device computes it."""
        r = np.array([rng.draw() for _ in self.base], np.int64)
        row = (self.base + r // 16 % 513 - 256) * self.step
        row = row.astype(np.float32).astype(np.float64) if real == "float" else row
        row = np.where(self.codes > 0, r // 16 % np.maximum(self.codes, 1), row)
        return np.where(self.gaps & (r % 16 == 0), np.nan, row)


class Random:
    """The generator of the self-test (Numerical Recipes 1992, section 7.1)."""

    def __init__(self) -> None:
        self._seed = 1

    def draw(self) -> int:
        """Return 16 bits."""
        self._seed = (self._seed * 1664525 + 1013904223) % 2**32
        return self._seed >> 16


@dataclass(frozen=True)
class Golden:
    """The rows of the self-test, and what training on them gives."""

    lr: float
    x: Array
    y: Array
    losses: Array
    norms: Array
    params: Array
    outputs: Array
    output_scale: float


def self_test(step: DeviceStep) -> str:
    """Return the C of the self-test."""
    draws, golden = golden_of(step)
    arrays = draws[0].arrays("x") + draws[1].arrays("y")
    for name in ("losses", "params", "outputs"):
        values = getattr(golden, name).tolist()
        arrays += array("double", name, (repr(v) if isfinite(v) else "NAN" for v in values))
    known = golden.losses[np.isfinite(golden.losses)]
    return TEST.format(
        name=step.name,
        upper=step.upper,
        steps=TEST_STEPS,
        rate=f"  state.lr = ({step.upper}_REAL){golden.lr!r};\n" * (golden.lr != step.optimizer.lr),
        arrays=arrays,
        scale=repr(_scale(golden.params)),
        loss_scale=repr(_scale(known)),
        out_scale=repr(golden.output_scale),
    )


def _scale(values: Array) -> float:
    """Return the root mean square: differences of smaller numbers are relative to it."""
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 1.0


def golden_of(step: DeviceStep, dtype: str = "float64") -> tuple[tuple[Draws, Draws], Golden]:
    """Return the draws of the self-test and what Python computes in `dtype`."""
    for spread in (1.0, 0.25, 0.0):  # fewer rows in which a formula of columns is not finite
        draws = _x_draws(step, spread), _y_draws(step)
        start = _train(step, draws, dtype, 0.0)
        known = start.losses[np.isfinite(start.losses)]
        if len(known) > TEST_STEPS // 2:
            break
    limit = GROWTH * np.abs(known).max(initial=0)
    for factor in (1.0, 1e-2, 1e-4):
        golden = _train(step, draws, dtype, step.optimizer.lr * factor)
        losses = golden.losses[np.isfinite(golden.losses)]
        if len(losses) == len(known) and losses.max(initial=0) <= limit:
            return draws, golden
    return draws, start


def _x_draws(step: DeviceStep, spread: float) -> Draws:
    if step.model is None:
        return Draws.of([(0.0, 1.0, 0, False)] * step.inputs)
    preprocessor = step.model.preprocessor
    columns, numbers = [], preprocessor.fitted_numbers
    known = {s.column: i for i, s in enumerate(numbers.sources) if not s.part and not s.minus}
    categories = {c.column: c for c in preprocessor.categories}
    for name in preprocessor.columns:
        if name in categories:
            category = categories[name]
            columns.append((0.0, 1.0, len(category.levels) + 1, not category.strict))
            continue
        operand, kind = preprocessor.operands.get(name), preprocessor.kinds.get(name)
        center, size = 0.0, 1.0
        if operand is not None:
            center, size, kind = operand.center, operand.spread * spread, operand.kind
        elif name in known:
            i = known[name]
            factor = float(numbers.factor[i])
            center = float(numbers.center[i] or numbers.fill[i])
            size = 1.0 / abs(factor) if factor not in (0.0, 1.0) else max(1.0, abs(center))
        codes = 2 if kind == "boolean" else 0
        columns.append((center, size, codes, not numbers.strict))
    return Draws.of(columns)


def _y_draws(step: DeviceStep) -> Draws:
    low, high = getattr(step.loss, "target_range", (-np.inf, np.inf))
    task = step.model.task if step.model else None
    if step.target_spec.dtype.kind == "i":
        return Draws.of([(0.0, 1.0, step.mlp.sizes[-1], False)])
    if isfinite(high):
        return Draws.of([(0.0, 1.0, 2, False)] * step.targets)
    if isfinite(low):  # from 0.5 to 3.5
        return Draws.of([(2.0, 1.0, 0, False)] * step.targets)
    if isinstance(task, Regression) and task.target.log:
        assert task.target.bounds is not None
        low, high = task.target.bounds
        middle, size = (low + high) / 2, (high - low) / 3  # from the lowest to the highest
    elif isinstance(task, Regression):
        middle, size = task.target.center, task.target.scale
    if isinstance(task, Regression):
        pairs = zip(middle.tolist(), size.tolist(), strict=True)
        return Draws.of([(center, scale, 0, False) for center, scale in pairs])
    return Draws.of([(0.0, 1.0, 0, False)] * step.targets)


def _train(step: DeviceStep, draws: tuple[Draws, Draws], dtype: str, lr: float) -> Golden:
    mlp = Mlp.from_dict({**step.mlp.to_dict(), "dtype": dtype})
    mlp.params.flat[...] = step.mlp.params.flat
    rng, rows, targets = Random(), [], []
    for _ in range(TEST_STEPS * step.batch):
        rows.append(draws[0].draw(rng, step.real))
        targets.append(draws[1].draw(rng, step.real))
    x, y = np.array(rows), np.array(targets)
    features, usable = features_of(step.model, x)
    learned = _learned(step, y)
    features, learned = features.astype(dtype), learned.astype(dtype)
    losses, norms = train_in_order(step, mlp, features, learned, usable, lr)
    all_outputs = predicted_numbers(step.model, mlp.predict(features))
    last = (TEST_STEPS - 1) * step.batch
    outputs = all_outputs[last] if usable[last] else np.full(step.outputs, np.nan)
    params, scale = step.layer_values(step.trained, mlp), _scale(all_outputs[usable])
    return Golden(lr, x, y, losses, norms, params, outputs, scale)


def train_in_order(
    step: DeviceStep, mlp: Mlp, features: Array, targets: Array, usable: Array, lr: float
) -> tuple[Array, Array]:
    """Train `mlp` on batches of rows one after another; return losses and gradient norms."""
    mlp.freeze(step.frozen)
    optimizer = step.make_optimizer(mlp)
    optimizer.lr = lr
    train = TrainingStep(
        mlp, step.loss, optimizer, step.batch, clip_norm=step.clip_norm, backend="numpy"
    )
    if step.target_spec.dtype.kind == "i":
        targets = targets[:, 0].astype(np.int64)
    losses, norms = [], []
    for start in range(0, len(features), step.batch):
        rows = slice(start, start + step.batch)
        if not usable[rows].all():
            losses.append(np.nan)
            norms.append(np.nan)
            continue
        with suppress(NumericalError):
            train(features[rows], targets[rows])
        losses.append(train.loss_value)
        norms.append(train.grad_norm)
    return np.array(losses), np.array(norms)


def features_of(model: Model | None, x: Array) -> tuple[Array, Array]:
    """Return float64 features of rows as a device reads them, and which rows can be used."""
    if model is None:
        return x, np.array(np.isfinite(x).all(axis=1))
    preprocessor = model.preprocessor
    numbers = preprocessor.fitted_numbers
    table = _table(preprocessor, x)
    whole = with_columns(table, preprocessor.computed, strict=False)
    usable = finite_rows(whole, preprocessor.computed)
    features = np.empty((len(x), preprocessor.n_features))
    numbers.encode(whole, features[:, : numbers.width])
    categories = preprocessor.categories
    write_one_hots(categories, [c.encode(whole) for c in categories], features[:, numbers.width :])
    return features, usable


def _table(preprocessor: Preprocessor, x: Array) -> Table:
    """Return rows as a device reads them as a table: codes become levels again."""
    columns, categories = {}, {c.column: c for c in preprocessor.categories}
    kinds = {name: operand.kind for name, operand in preprocessor.operands.items()}
    for name, values in zip(preprocessor.columns, x.T, strict=True):
        kind = preprocessor.kinds.get(name, kinds.get(name, "number"))
        if name not in categories:
            columns[name] = Column(values.copy(), "date" if kind == "date" else "number")
            continue
        levels = (*categories[name].levels, "(another)")
        codes = np.where(np.isnan(values), -1, np.minimum(values, len(levels) - 1))
        columns[name] = Column(codes.astype(np.int32), "text", levels)
    return Table(columns, "rows of the self-test")


def _learned(step: DeviceStep, y: Array) -> Array:
    """Return targets as the network learns them."""
    task = step.model.task if step.model else None
    if isinstance(task, Regression):
        return task.target.scaled(y)
    return y


def predicted_numbers(model: Model | None, outputs: Array) -> Array:
    """Return what the predictions of rows hold, in float64."""
    return outputs.astype(np.float64) if model is None else model.task.predicted_numbers(outputs)
