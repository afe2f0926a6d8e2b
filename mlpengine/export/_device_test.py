"""The self-test of a file for a device: what Python computes for the same rows, in float64."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

import numpy as np

from mlpengine.backends.scalar.definitions import array
from mlpengine.core.errors import NumericalError
from mlpengine.core.spec import Array
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.categories import write_one_hots
from mlpengine.data.features.computed import finite_rows, with_columns
from mlpengine.data.tables import Column, Table
from mlpengine.export._device import DeviceStep
from mlpengine.models.model import Model
from mlpengine.models.task import Regression
from mlpengine.step.step import TrainingStep

TEST_STEPS = 100
"""Steps of the self-test."""

CLOSE = 3e-5, 1e-12
"""The largest difference of the first two steps from Python's, in float and in double."""

SEEDS = 50
"""Seeds of made-up rows that are tried."""

CURVE = 3e-2, 1e-9
"""The same of all losses: of their root mean square difference, relative to their own.

``benchmarks/device.py --bounds`` chose both in November 2026, with GCC 12 on x86-64: 230 random
networks and 18 trained models of penguins and diabetes differ by at most 3.7e-6 in the first two
steps (median 2e-7), and by at most 2.2e-3 in the losses (median 2e-7, all but three below 2e-5).
The bounds are about ten times the largest difference."""

GROWTH = 1e3
"""Training diverges where a loss is so many times the largest at the initial weights."""

TEST = """\
/* {name}_test.c, written by mlpengine: trains {steps} steps and compares them with what Python
   computed in double precision: two steps closely, with gradient, moments, parameters and
   prediction, and the losses of all within what roundings grow to: an optimizer such as Adam makes
   a whole step of a gradient near zero.  Exit code 0 if all agree; otherwise it prints the
   first difference and exits with 1. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "{name}.h"

#define STEPS {steps}
#define CLOSE_STEP {close_step} /* the second step with a finite loss */
#define CLOSE ({upper}_DOUBLE ? {close[1]} : {close[0]})
#define CURVE ({upper}_DOUBLE ? {curve[1]} : {curve[0]})
#ifndef FLIPS
#define FLIPS 100 /* bits of a saved state that are flipped, one at a time */
#endif

{arrays}
static {name}_state state, before;
static unsigned char saved[{upper}_SAVED_BYTES];
static uint32_t seed = {seed};
static {upper}_REAL curve[STEPS];
static double largest[2]; /* differences of the first steps, and of all losses */

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

/* Whether a vector is further from what is expected than the limit, by the root mean square of
   differences relative to scale, and prints it. */
static int differs(const char *what, size_t step, const {upper}_REAL *is, const double *expected,
                   size_t n, double scale, int all)
{{
  double sum = 0;
  for (size_t i = 0; i < n; i++) {{
    const double one = (double)is[i] - expected[i];
    if (!(isnan(is[i]) && isnan(expected[i]))) sum += one * one;
  }}
  const double size = n == 1 && fabs(expected[0]) > scale ? fabs(expected[0]) : scale;
  const double apart = sqrt(sum / (double)n) / size;
  if (apart > largest[all]) largest[all] = apart;
  if (apart <= (all ? CURVE : CLOSE)) return 0;
  printf("{name}: %s of step %lu differs by %.3g (%.9g, not %.9g)\\n", what,
         (unsigned long)step + 1, apart, (double)is[0], expected[0]);
  return 1;
}}

/* Damaged copies of a saved state must be refused, and change nothing. */
static int damage(void)
{{
  const uint32_t drawn = seed;
  for (uint32_t i = 0; i < FLIPS; i++) {{
    const uint32_t high = draw() << 16;
    const size_t place = (high | draw()) % ({upper}_SAVED_BYTES * 8);
    saved[place / 8] ^= (unsigned char)(1u << place % 8);
    if ({name}_load(&state, saved, sizeof saved)) return 1;
    saved[place / 8] ^= (unsigned char)(1u << place % 8);
    if ({name}_load(&state, saved, place / 8)) return 1;
  }}
  seed = drawn;
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
    if (step == STEPS / 2) {{
      const {upper}_REAL target = y[0];
      y[0] = ({upper}_REAL)NAN;
      if (isfinite({name}_train(&state, x, y)) || state.steps > STEPS / 2) {{
        printf("{name}: a step without a target changed the state\\n");
        return 1;
      }}
      y[0] = target;
      {name}_save(&state, saved);
      memcpy(&before, &state, sizeof state);
      {name}_train(&state, x, y);
      const int whole = {name}_load(&state, saved, sizeof saved);
      if (!whole || memcmp(&before, &state, sizeof state) != 0) {{
        printf("{name}: a saved state was refused, or not read whole\\n");
        return 1;
      }}
      if (damage() || memcmp(&before, &state, sizeof state) != 0) {{
        printf("{name}: a damaged state was read\\n");
        return 1;
      }}
    }}
    curve[step] = {name}_train(&state, x, y);
    if (step <= CLOSE_STEP &&
        differs("the loss", step, curve + step, losses + step, 1, {loss_scale}, 0)) return 1;
    if (step != CLOSE_STEP) continue;
    {name}_predict(&state, x, out);
{checks}  }}
  if (differs("the losses up to that", STEPS - 1, curve, losses, STEPS, {loss_scale}, 1)) return 1;
  printf("{name}: %d steps agree (two to %.1e, losses to %.1e)\\n", STEPS, largest[0], largest[1]);
  return 0;
}}
"""

CHECK = """\
    if (differs("{what}", step, {place}, {array}, {n}, {scale}, 0)) return 1;
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

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def draw(self) -> int:
        """Return 16 bits."""
        self._seed = (self._seed * 1664525 + 1013904223) % 2**32
        return self._seed >> 16


class Vector(NamedTuple):
    """Numbers that are compared after a step: what they are, their place in C, and their size."""

    what: str
    place: str
    values: Array
    scale: float


class Golden(NamedTuple):
    """The results of training on the rows of the self-test.

    `close_step` is the second step with a finite loss and gradient, or `TEST_STEPS`; `vectors` are
    compared after it.  In the first one moments are zero, and their decay changes nothing.
    """

    seed: int
    lr: float
    losses: Array
    norms: Array
    close_step: int
    vectors: Sequence[Vector]


def self_test(step: DeviceStep) -> str:
    """Return the C of the self-test."""
    draws, golden = golden_of(step)
    arrays = draws[0].arrays("x") + draws[1].arrays("y") + _doubles("losses", golden.losses)
    checks = ""
    for k, (what, place, values, scale) in enumerate(golden.vectors):
        arrays += _doubles(f"expected_{k}", values)
        checks += CHECK.format(
            what=what, place=place, array=f"expected_{k}", n=values.size, scale=repr(scale)
        )
    return TEST.format(
        name=step.name,
        upper=step.upper,
        steps=TEST_STEPS,
        seed=golden.seed,
        close_step=golden.close_step,
        close=CLOSE,
        curve=CURVE,
        rate=f"  state.lr = ({step.upper}_REAL){golden.lr!r};\n" * (golden.lr != step.optimizer.lr),
        arrays=arrays,
        loss_scale=repr(_scale(golden.losses)),
        checks=checks,
    )


def _doubles(name: str, values: Array) -> str:
    return array("double", name, (repr(v) if isfinite(v) else "NAN" for v in values.tolist()))


def _scale(values: Array) -> float:
    """Return the root mean square of the finite values, to which differences are relative."""
    known = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(np.square(known)))) if known.any() else 1.0


def golden_of(step: DeviceStep) -> tuple[tuple[Draws, Draws], Golden]:
    """Return the draws of the self-test and what Python computes in double precision.

    The gradients of the first two steps are no smaller than a tenth of the usual one: a gradient
    that is the rounding of a probability near 1 differs in float, and Adam steps as far by it.
    """
    for spread in (1.0, 0.25, 0.0):  # fewer rows in which a formula of columns is not finite
        draws = _x_draws(step, spread), _y_draws(step)
        start = _train(step, draws, 0.0, seed=1)
        known = start.losses[np.isfinite(start.losses)]
        if len(known) > TEST_STEPS // 2:
            break
    for seed in range(2, SEEDS):
        norms = start.norms[np.isfinite(start.norms)]
        if not norms.any() or norms[:2].min() > 0.1 * np.median(norms[norms > 0]):
            break
        start = _train(step, draws, 0.0, seed)
    known = start.losses[np.isfinite(start.losses)]
    limit = GROWTH * np.abs(known).max(initial=0)
    for factor in (1.0, 1e-2, 1e-4):
        golden = _train(step, draws, step.optimizer.lr * factor, start.seed)
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


def _train(step: DeviceStep, draws: tuple[Draws, Draws], lr: float, seed: int) -> Golden:
    """Train in double precision on rows that a device draws, too, one batch after another."""
    mlp = step.mlp.like(dtype="float64")
    mlp.params.flat[...] = step.mlp.params.flat
    mlp.freeze(step.frozen)
    rng, rows, drawn = Random(seed), [], []
    for _ in range(TEST_STEPS * step.batch):
        rows.append(draws[0].draw(rng, step.real))
        drawn.append(draws[1].draw(rng, step.real))
    features, usable = features_of(step.model, np.array(rows))
    targets = _learned(step, np.array(drawn))
    if step.target_spec.dtype.kind == "i":
        targets = targets[:, 0].astype(np.int64)
    optimizer = step.make_optimizer(mlp)
    optimizer.lr = lr
    train = TrainingStep(
        mlp, step.loss, optimizer, step.batch, clip_norm=step.clip_norm, backend="numpy"
    )
    losses, norms = np.full((2, TEST_STEPS), np.nan)
    close_step, vectors = TEST_STEPS, list[Vector]()
    for k in range(TEST_STEPS):
        batch = slice(k * step.batch, (k + 1) * step.batch)
        if not usable[batch].all():
            continue
        with suppress(NumericalError):
            train(features[batch], targets[batch])
        losses[k], norms[k] = train.loss_value, train.grad_norm
        if not vectors and np.isfinite(losses + norms).sum() == 2:
            close_step = k
            all_outputs = predicted_numbers(step.model, mlp.predict(features))
            outputs, scale = all_outputs[batch.start], _scale(all_outputs[usable])
            vectors = [*_after(step, train), Vector("the prediction", "out", outputs, scale)]
    return Golden(seed, lr, losses, norms, close_step, vectors)


def _after(step: DeviceStep, train: TrainingStep) -> Iterator[Vector]:
    """Yield the norm of a gradient, the moments and the parameters after a step."""
    norm = np.array([train.grad_norm])
    yield Vector("the norm of the gradient", "&state.norm", norm, _scale(norm))
    trained = step.trained_entries
    for name, moment in train.optimizer.moments.items():
        values = moment[trained].astype(np.float64)
        yield Vector(f"moment {name}", f"state.moment_{name}", values, _scale(values))
    values = train.mlp.params.flat[trained]
    yield Vector("the parameters", "state.params", values, _scale(values))


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
