"""Batch norm, split into parts: each part needs sums over all rows from the part before."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from mlpengine.backends.compiled.column_sum import ColumnSum
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel
from mlpengine.backends.compiled.maps import Map
from mlpengine.backends.compiled.moves import Entries, Move
from mlpengine.backends.compiled.strides import LoopAxis
from mlpengine.backends.compiled.sums import RowSums
from mlpengine.backends.values import MatrixValue, Values
from mlpengine.backends.vector_rules import VectorRule
from mlpengine.core.spec import Array, Call
from mlpengine.formula import Expr, sqrt, variable
from mlpengine.ops import BatchNorm, Mul, ScalarMul, Sub


@dataclass(frozen=True, eq=False, repr=False)
class BatchNormPart:
    """A part of a batch norm in training.

    `kind` is a name in `BATCH_NORM_PARTS`, or ``moved``: the update of running averages by NumPy.
    `reads` and `writes` are vectors with an entry for each feature, or matrices (rows, columns).
    An image has several columns for each feature: all pixels of a channel, side by side.
    """

    kind: str
    op: BatchNorm
    reads: tuple[Array | None, ...]
    writes: tuple[Array | None, ...]
    work: Mapping[str, Array] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    @property
    def text(self) -> str:
        """Description of the part for `TrainingStep.summary`."""
        return f"batch_norm: {self.kind}"


def parts_of(instruction: InstructionLike) -> list[BatchNormPart]:
    """Return the parts of a batch norm in training, or [] for another instruction."""
    op = instruction.op
    if not isinstance(op, BatchNorm) or not op.training:
        return []
    return [*(_backward if instruction.kind == "backward" else _forward)(op, instruction)]


def _forward(op: BatchNorm, instruction: InstructionLike) -> Iterator[BatchNormPart]:
    x, scale, bias = instruction.reads
    work = instruction.work
    xhat, y = _matrix(work["xhat"]), _matrix(instruction.writes[0])
    mean, rstd = (work[name].reshape(-1) for name in ("mean", "rstd"))
    yield BatchNormPart("mean", op, (_matrix(x),), (mean,))
    yield BatchNormPart("variance", op, (_matrix(x), mean), (xhat, rstd))
    if op.running is not None:
        count = xhat.size // len(mean)
        calls = tuple(op.running.update(mean, rstd, count, work["sums"][0]))
        yield BatchNormPart("moved", op, (mean, rstd), (), calls=calls)
    yield BatchNormPart("normalized", op, (xhat, rstd, scale, bias), (y,))


def _backward(op: BatchNorm, instruction: InstructionLike) -> Iterator[BatchNormPart]:
    (dy, scale), (dx, dscale, dbias) = instruction.reads, instruction.writes
    work = instruction.work
    dy, xhat, rstd = _matrix(dy), _matrix(work["xhat"]), work["rstd"].reshape(-1)
    dscale = work["dmean"].reshape(-1) if dscale is None else dscale
    dbias = work["dsums"].reshape(-1)[: len(rstd)] if dbias is None else dbias
    yield BatchNormPart("sums", op, (dy, xhat), (dscale, dbias))
    if dx is not None:
        yield BatchNormPart("gradient", op, (dy, xhat, rstd, scale, dscale, dbias), (_matrix(dx),))


def _matrix(array: Any) -> Array:
    matrix: Array = array.reshape(len(array), prod(array.shape[1:]))
    return matrix


class BatchNormRows(Map):
    """Batch norm with running averages, or a part of batch norm in training."""

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> list[Kernel] | None:
        op = instruction.op
        if isinstance(instruction, BatchNormPart) and instruction.kind in BATCH_NORM_PARTS:
            return [*BATCH_NORM_PARTS[instruction.kind](instruction, values)]
        if isinstance(op, BatchNorm) and instruction.kind == "forward" and not op.training:
            return [*_evaluated(op, instruction, values)]
        return None


def _mean(part: BatchNormPart, values: Values) -> Iterator[Kernel]:
    (x,), (mean,) = part.reads, part.writes
    yield from _column_means(values.read(_given(x)), _given(mean), values)


def _variance(part: BatchNormPart, values: Values) -> Iterator[Kernel]:
    (x, mean), (xhat, variance) = values.read_each(part.reads), part.writes
    centered, kernels = values.write(xhat, "centered_", "rows"), list[Kernel]()
    wide = _wide(mean, x.columns, values, kernels)
    square = values.make(x.array.shape, x, "square_")
    yield from kernels
    yield Map.of(Sub(), [x, wide], centered)
    yield Map.of(Mul(), [centered, centered], square)
    yield from _column_means(square, _given(variance), values)


def _normalized(part: BatchNormPart, values: Values) -> Iterator[Kernel]:
    centered, variance, scale, bias = values.read_each(part.reads)
    rstd = values.write(part.reads[1], "rstd_", "parameters")
    yield _root(part.op, variance, rstd)
    yield from _scaled(part.op, centered, None, rstd, scale, bias, part, values)


def _evaluated(op: BatchNorm, instruction: InstructionLike, values: Values) -> Iterator[Kernel]:
    x, scale, bias = instruction.reads
    assert op.running is not None
    y = (_matrix(instruction.writes[0]),)
    given, mean, variance, scale, bias = values.read_each(
        (_matrix(x), op.running.mean, op.running.variance, scale, bias)
    )
    rstd = values.make(variance.array.shape, variance, "rstd_")
    yield _root(op, variance, rstd)
    part = BatchNormPart("evaluated", op, (), y)
    yield from _scaled(op, given, mean, rstd, scale, bias, part, values)


def _root(op: BatchNorm, variance: MatrixValue, rstd: MatrixValue) -> Map:
    v = variable("variance")
    rule = VectorRule({"variance": v}, {"rstd": 1.0 / sqrt(v + op.eps)})
    return Map(rule, op, {"variance": variance, "rstd": rstd}, f"{rstd.name} of {variance.name}")


def _scaled(
    op: BatchNorm,
    x: MatrixValue,
    mean: MatrixValue | None,
    rstd: MatrixValue,
    scale: MatrixValue | None,
    bias: MatrixValue | None,
    part: BatchNormPart,
    values: Values,
) -> Iterator[Kernel]:
    """Yield the kernels of y = (x - mean) * rstd * scale + bias.  None leaves a term out."""
    kernels = list[Kernel]()
    vectors = {"mean": mean, "rstd": rstd, "scale": scale, "bias": bias}
    names = {
        name: _wide(v, x.columns, values, kernels) for name, v in vectors.items() if v is not None
    }
    given = {name: variable(name) for name in ("x", *names)}
    xhat: Expr = (given["x"] - given["mean"] if mean else given["x"]) * given["rstd"]
    y = xhat * given["scale"] if scale else xhat
    outputs = {"y": y + given["bias"] if bias else y}
    names |= {"x": x, "y": values.write(part.writes[0], "batch_norm_", "rows")}
    if mean is None:
        outputs["xhat"] = xhat
        names["xhat"] = values.write(x.array, "xhat_", "rows")
    yield from kernels
    text = f"{names['y'].name} = {x.name} normalized"
    yield BatchNormRows(VectorRule(given, outputs), op, names, text)


def _sums(part: BatchNormPart, values: Values) -> Iterator[Kernel]:
    (dy, xhat), (dscale, dbias) = values.read_each(part.reads), part.writes
    product = values.make(dy.array.shape, dy, "product_")
    yield Map.of(Mul(), [dy, xhat], product)
    yield from _column_sums(product, values.write(dscale, "d_scale_"), values)
    yield from _column_sums(dy, values.write(dbias, "d_bias_"), values)


def _gradient(part: BatchNormPart, values: Values) -> Iterator[Kernel]:
    dy, xhat, rstd, scale, dscale, dbias = values.read_each(part.reads)
    share = rstd.columns / dy.array.size
    vectors = {"rstd": rstd, "scale": scale, "dscale": dscale, "dbias": dbias}
    kernels = list[Kernel]()
    names = {n: _wide(v, dy.columns, values, kernels) for n, v in vectors.items() if v is not None}
    given = {name: variable(name) for name in ("dy", "xhat", *names)}
    along = given["dy"] - given["dbias"] * share - given["xhat"] * (given["dscale"] * share)
    rate = given["rstd"] * given["scale"] if scale else given["rstd"]
    dx = values.write(part.writes[0], "d_batch_norm_", "rows")
    yield from kernels
    names |= {"dy": dy, "xhat": xhat, "dx": dx}
    rule = VectorRule(given, {"dx": along * rate})
    yield BatchNormRows(rule, part.op, names, f"{dx.name} of batch norm")


BATCH_NORM_PARTS: Mapping[str, Callable[[BatchNormPart, Values], Iterator[Kernel]]] = {
    "mean": _mean,
    "variance": _variance,
    "normalized": _normalized,
    "sums": _sums,
    "gradient": _gradient,
}
"""For each compiled part of a batch norm in training, a function that yields its kernels."""


def _given(array: Array | None) -> Array:
    assert array is not None
    return array


def _wide(vector: MatrixValue, columns: int, values: Values, kernels: list[Kernel]) -> MatrixValue:
    """Return `vector`, repeated for each feature's columns by a kernel appended to `kernels`."""
    times = columns // vector.columns
    if times == 1:
        return vector
    wide = values.make((columns,), vector, "wide_")
    axes = [LoopAxis(vector.columns, (times, 1)), LoopAxis(times, (1, 0))]
    text = f"{wide.name} = {vector.name} repeated"
    kernels.append(Move(wide, [Entries(vector, axes, (0, 0), (0, 0))], text))
    return wide


def _column_sums(x: MatrixValue, out: MatrixValue, values: Values) -> Iterator[Kernel]:
    """Yield the kernels that sum each feature over all its rows and columns."""
    rows, features = x.rows, out.columns
    times = x.columns // features
    if times > 1:
        narrow = values.make((rows, features), x, "row_sums_")
        yield RowSums(x, narrow, (rows, features, times), (rows, features, 1), 1.0)
        x = narrow
    yield ColumnSum(x, out)


def _column_means(x: MatrixValue, out: Array, values: Values) -> Iterator[Kernel]:
    """Yield the kernels that average each feature over all its rows and columns."""
    total = values.make(out.shape, x, "total_")
    yield from _column_sums(x, total, values)
    share = ScalarMul(out.size / x.array.size)
    yield Map.of(share, [total], values.write(out, "mean_", "sums"))
