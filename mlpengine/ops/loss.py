"""The base class of losses: ops that return one number and that you can also call directly."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from mlpengine.core.buffers import Uncopyable, quiet_runner, replay, write_into
from mlpengine.core.errors import DtypeError, ShapeError
from mlpengine.core.fields import check_options
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array, ArrayLike, Call, Calls, Spec, call
from mlpengine.core.wording import quoted
from mlpengine.formula.numpy_functions import CONSTANT_LENGTH
from mlpengine.ops._check import listing
from mlpengine.ops.op import Direction, GradOp

VALUE = Spec((), np.dtype(np.float64))
"""Spec of the value of a loss: float64 for operands of any dtype."""

MAX_BINDINGS = 8
"""Maximum number of `BoundLoss` objects that a loss caches: train and validation, full and last
batches, with and without weights."""


LOSSES: dict[str, type["Loss"]] = {}
"""The losses that configs and estimators accept, by name."""

DEFAULTS = {
    "classification": "softmax_cross_entropy",
    "multilabel": "bce_with_logits",
    "regression": "mse",
    "survival": "survival",
}
"""Default loss of each task."""


def losses_of(task: str) -> list[str]:
    """Return the names of the losses for a task, the default first."""
    names = [name for name, loss in LOSSES.items() if task in loss.tasks]
    return sorted(names, key=lambda name: (name != DEFAULTS[task], name == "formula"))


@dataclass(frozen=True, eq=False)
class BoundLoss(Uncopyable):
    """A loss on fixed buffers: write `target`, run `calls`, read `value`.

    `sample_weight` is the buffer of the weights, or None without weights.  Without `d_output`,
    `backward` is empty.  The value is the sum of the rows' losses, divided by `mean_rows`.

    For a `LossSum`, `target` has arrays by name, and `parts` has the losses by output.  `sums` are
    the last calls of `forward`; these add the values of the parts.
    """

    output: Array
    d_output: Array | None
    target: Array
    sample_weight: Array | None
    value: Array
    forward: tuple[Call, ...]
    backward: tuple[Call, ...]
    mean_rows: float
    parts: "Mapping[str, BoundLoss]" = field(default_factory=dict)
    sums: tuple[Call, ...] = ()
    _quietly: Callable[..., None] = field(default_factory=quiet_runner, repr=False)

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of `forward`, then of `backward`."""
        return [*self.forward, *self.backward]

    def run(self) -> float:
        """Compute the value, and the gradient if `d_output` is bound; return the value."""
        self._quietly(replay, self.calls)
        return float(self.value.item())


class Loss(GradOp):
    """Base class of losses.  The operands are output, target and, optionally, a weight per row.

    ``loss(output, target, d_output)`` returns the value as a Python float and overwrites `d_output`
    with the gradient of `output`.  The first call binds the loss to `output` and `d_output`.  Later
    calls with the same arrays allocate nothing.

    Options are fields of a frozen dataclass; their annotations have the limits.

    `backward` accepts ``dy=None`` for dy = 1.
    """

    tasks: ClassVar[tuple[str, ...]] = ()
    """Tasks for which configs and estimators accept the loss."""

    takes_target: ClassVar[bool] = True
    """Whether the loss has targets; a loss without targets must be part of a `LossSum`."""

    initial_divisor: ClassVar[float] = 1.0
    """Divisor of a network's initial outputs; above 1 for losses that grow exponentially."""

    training_options: ClassVar[tuple[str, ...]] = ()
    """Names of options that evaluation ignores, such as class weights."""

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: object) -> None:
        """Register the loss if it has tasks."""
        super().__init_subclass__(name=name, **kwargs)
        if name and cls.tasks:
            LOSSES[name] = cls

    def __post_init__(self) -> None:
        check_options(self, self.name)

    @abstractmethod
    def target_spec(self, output: Spec, target: Spec | None = None) -> Spec:
        """Return the spec of the target buffer; `target` is the spec of the caller's target.

        Raises: ShapeError or DtypeError if `target` does not fit.
        """

    @property
    def measured_options(self) -> dict[str, Any]:
        """The options by name, without `training_options`."""
        names: list[str] = [f.name for f in fields(self)] if is_dataclass(self) else []
        return {n: getattr(self, n) for n in names if n not in self.training_options}

    def of_classes(self, count: int) -> "Loss":
        """Return this loss for a target with `count` classes."""
        return self

    @property
    def title(self) -> str:
        """The name of the loss in messages."""
        return self.name

    def plain(self) -> "Loss":
        """Return the loss for evaluation, without its `training_options`."""
        return type(self)(**self.measured_options)

    def best_constant(self, target: Array, outputs: int, weights: Array | None = None) -> Array:
        """Return the constant output (outputs,) with the lowest mean loss; NaN by default.

        Shapes: target (rows, ...), weights (rows,) or None.
        """
        return np.full(outputs, np.nan)

    def check_target(self, target: Array) -> None:
        """Raise IndexRangeError for wrong targets that `forward` does not detect."""

    def __call__(
        self,
        output: Array,
        target: ArrayLike,
        d_output: Array | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the value; write the gradient of `output` into `d_output` unless it is None.

        Raises: ShapeError, DtypeError or IndexRangeError for targets or weights that do not fit.
        """
        target = np.asarray(target)
        weighted = sample_weight is not None
        key = (id(output), id(d_output), target.dtype.kind, target.ndim, weighted)
        bindings: dict[object, BoundLoss] = self.__dict__.setdefault("_bindings", {})
        bound = bindings.get(key)
        if bound is None:
            if not isinstance(output, np.ndarray) or output.dtype.kind != "f":
                raise DtypeError(
                    f"{self.name}: output must be an array of floats (got {quoted(output)}); "
                    "write loss(output, target), the output first"
                )
            if not isinstance(d_output, np.ndarray | None):
                text = f"{self.name}: d_output must be an array or None (got {quoted(d_output)})"
                raise DtypeError(text)
            if len(bindings) >= MAX_BINDINGS:
                del bindings[next(iter(bindings))]
            bound = self.bind(output, d_output, weighted=weighted, target=Spec.of(target))
            self.check_target(target)
            bindings[key] = bound  # keeps both arrays alive, so no other array gets their ids
        write_into(bound.target, target, f"{self.name}: target")
        if bound.sample_weight is not None:
            weights = np.asarray(sample_weight)
            write_into(bound.sample_weight, weights, f"{self.name}: sample_weight")
        return bound.run()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_bindings"}

    def bind(
        self,
        output: Array,
        d_output: Array | None,
        *,
        weighted: bool = False,
        target: Spec | None = None,
        mean_rows: float | None = None,
        memory: BoundLoss | None = None,
        weight: Array | None = None,
    ) -> BoundLoss:
        """Bind the loss to `output` and to `d_output`, the buffer for its gradient (or None).

        `target` is the spec of the targets; a loss that accepts class indices or probabilities
        needs it.  If `output` has only some of the rows, `mean_rows` is the number of all rows; the
        values and gradients of the parts then add up to the mean.  `memory` is the bound loss of a
        larger batch; both share targets, weights and value.  `weight` is a shared weight buffer.
        """
        x = Spec.of(output)
        if d_output is not None and Spec.of(d_output) != x:
            d_x = Spec.of(d_output)
            raise ShapeError(
                f"{self.name}: d_output must have the shape and dtype of output "
                f"({listing(output=x, d_output=d_x)})"
            )
        t = self.target_spec(x, target)
        w = Spec(x.shape[:1], x.dtype) if weighted else None
        self.infer(x, t, w)
        specs = {**self.work(x, t, w), "target": t, "weight": w}
        named = {k: s if s is None else np.zeros(s.shape, s.dtype) for k, s in specs.items()}
        named |= {"output": output, "dy": None}
        value = np.zeros((), np.float64)
        if memory is not None:
            rows = slice(len(output))
            named["target"], value = memory.target[rows], memory.value
            named["weight"] = None if memory.sample_weight is None else memory.sample_weight[rows]
        if weight is not None:
            named["weight"] = weight
        mean_rows = len(output) if mean_rows is None else mean_rows
        operands = [named[name] for name in self.signature.operands]
        forward = tuple(self.forward(*operands, out=value, **self._pick(named, "forward")))
        backward: tuple[Call, ...] = ()
        if d_output is not None:
            residuals = [named[name] for name in self.signature.residuals]
            slots = (d_output, None, None)
            work = self._pick(named, "backward")
            backward = tuple(self.backward(*residuals, out=slots, **work))
        if mean_rows != len(output):
            share = len(output) / mean_rows
            forward += (call(np.multiply, value, np.array(share), value),)
            if d_output is not None:
                factor = np.array(share, d_output.dtype)
                backward += (call(np.multiply, d_output, factor, d_output),)
        buffers = (named["target"], named["weight"], value, forward, backward, mean_rows)
        return BoundLoss(output, d_output, *buffers)  # type: ignore[arg-type]

    def _pick(self, named: dict[str, Array | None], rule: Direction) -> dict[str, Array | None]:
        return {name: named[name] for name in self.signature.work[rule]}


def wide_spec(x: Spec) -> Spec:
    """Return the spec of the buffer that `total` needs for the entries of `x`."""
    blocks = -(-x.size // CONSTANT_LENGTH)
    return Spec((blocks + min(x.size, CONSTANT_LENGTH),), VALUE.dtype)


def total(x: Array, scale: float, wide: Array, out: Array) -> Calls:
    """Yield the calls that write `scale` times the float64 sum of `x` into `out`."""
    blocks = -(-x.size // CONSTANT_LENGTH)
    parts, workspace = wide[:blocks], wide[blocks:]
    row = np.full(workspace.size, scale)
    for i in range(blocks):
        block = x[i * CONSTANT_LENGTH : (i + 1) * CONSTANT_LENGTH]
        part = out if blocks == 1 else parts[i : i + 1].reshape(())
        if x.dtype != out.dtype:
            yield call(workspace[: block.size].__setitem__, ..., block)  # faster than np.copyto
            block = workspace[: block.size]
        yield call(np.dot, block, row[: block.size], part)
    if blocks != 1:
        yield call(np.add.reduce, parts, 0, None, out)


FEW_COLUMNS = 32
"""Maximum length of rows for which a product with ones is faster than `np.add.reduce`."""


def row_totals(x: Array, wide: Array, out: Array) -> Calls:
    """Yield the calls that write the float64 row sums of `x`; see `wide_spec` for `wide`."""
    columns = x.shape[1]
    if columns == 1:
        yield call(out.__setitem__, ..., x[:, 0])
    elif columns > FEW_COLUMNS:
        yield call(np.add.reduce, x, 1, np.float64, out)
    else:
        ones, step = np.ones(columns), CONSTANT_LENGTH // columns
        for first in range(0, len(x), step):
            block, sums = x[first : first + step], out[first : first + step]
            if x.dtype != out.dtype:
                copy = wide[: block.size].reshape(block.shape)
                yield call(copy.__setitem__, ..., block)
                block = copy
            yield call(np.dot, block, ones, sums)


def need_rows(where: str, output: Spec, weight: Spec | None) -> None:
    """Raise ShapeError if `output` is empty or `weight` does not have one entry for each row."""
    if not output.size:
        raise ShapeError(f"{where}: output needs at least one entry ({listing(output=output)})")
    if weight is not None and (not output.shape or weight.shape != output.shape[:1]):
        raise ShapeError(
            f"{where}: weight needs one entry per row ({listing(output=output, weight=weight)})"
        )
