"""The base class of networks."""

from copy import copy
from threading import local
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakValueDictionary

import numpy as np

from mlpengine.core.buffers import quiet_runner, unmasked, write_into
from mlpengine.core.errors import IndexRangeError, ShapeError, TapeError, UsageError
from mlpengine.core.named import (
    NamedRows,
    arrays_by_name,
    arrays_in,
    as_rows,
    check_rows,
    need_names,
)
from mlpengine.core.spec import Array, DTypeLike, Spec
from mlpengine.nn.gradients import Gradients
from mlpengine.nn.recording import Recordable
from mlpengine.nn.scratch import Scratch
from mlpengine.tape.flat import Flat
from mlpengine.tape.rematerialization import Rematerialization

if TYPE_CHECKING:
    from mlpengine.nn.compiled import CompiledMlp

PREDICT_ROWS = 256
"""Maximum number of rows in one forward pass of `Network.predict`."""


class Network(Recordable):
    """Base class of networks, with named parameters in one flat vector.

    `Mlp` is the usual network.  For another network, write a subclass that passes its parameters to
    this constructor and overrides `record`.  `TrainingStep` and `Loop` train such a network:

    >>> from mlpengine import Adam, MeanSquaredError, TrainingStep
    >>> from mlpengine.nn import Network
    >>> class Gated(Network):
    ...     def __init__(self, in_dim, width, **options):
    ...         shapes = {"value.weight": (width, in_dim), "gate.weight": (width, in_dim)}
    ...         shapes |= {"gate.bias": width, "out.weight": (1, width), "out.bias": 1}
    ...         super().__init__(in_dim, shapes, **options)
    ...
    ...     def record(self, tape, x):
    ...         p = tape.parameter
    ...         gate = x.linear(p("gate.weight"), p("gate.bias")).sigmoid()
    ...         h = tape.layer("gated", gate * x.linear(p("value.weight")))
    ...         return tape.dropout(h, 0.1).linear(p("out.weight"), p("out.bias"))
    >>> network = Gated(4, 16, seed=0)
    >>> step = TrainingStep(network, MeanSquaredError(), Adam(network), batch_size=32)

    With several named inputs, `record` gets a node for each input, in order.  It may also return
    several outputs, as a mapping.  Arrays for named inputs and outputs are passed as mappings.

    ``copy.copy`` shares the parameters; a deep or pickled copy has its own parameters.

    Args:
        inputs: shape of an input row, or number of features; for several inputs, shapes by name.
            ``("int64", shape)`` is an input of integers, for embeddings and gathers.
        parameters: shapes or initial arrays by name.  For a shape with two or more axes, such as a
            weight (out_dim, in_dim), `initializer` draws the values; vectors start at 0.
        buffers: shapes or initial arrays of values that are saved but not trained, by name.
            ``tape.batch_norm`` keeps its running statistics there.
        initializer: one of `mlpengine.nn.INITIALIZERS`; by default ``glorot_uniform``.
        groups: names of parameters by group, for an optimizer's `groups`.  The groups ``weights``
            (parameters of two or more axes) and ``biases`` (all others) always exist.
        seed: seed of the initial weights and of dropout.
        dtype: float32 or float64, of parameters, outputs and all inputs but integers.

    Attributes:
        in_shape: shape of an input row; for several inputs, shapes by name.
        params: all parameters.
        rng: random generator for dropout; `TrainingStep` sets its attribute ``step``.

    Raises: UsageError for invalid parameters, names or seed; DtypeError.
    """

    __slots__ = ("_thread", "shared_scratches")

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Return an object without parameters; ``__init__`` or a copy sets them."""
        network = super().__new__(cls, *args, **named)
        network._thread, network.shared_scratches = local(), WeakValueDictionary()
        return network

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in ("params", "in_shape", "_out_sizes"):
                text = "__init__ must call super().__init__(inputs, parameters) before this"
                raise AttributeError(f"{self._where}: {text}")
            return object.__getattribute__(self, name)

    def scratch(
        self,
        batch_size: int,
        *,
        training: bool = True,
        backend: str = "numpy",
        rematerialization: Rematerialization = "keep",
    ) -> Scratch:
        """Return the buffers and bound calls of a forward pass over `batch_size` rows.

        If `training` is False, there is no dropout, and activations share memory.  `backend` is
        ``numpy`` or ``numexpr``.  `rematerialization` is ``keep``, or ``balanced`` to save memory:
        backward then computes cheap activations again.
        Raises: UsageError if `training` is False and the output of a row depends on other rows.
        """
        key = (batch_size, training, rematerialization, self.params.frozen)
        scratch = Scratch(
            self,
            batch_size,
            training=training,
            backend=backend,
            rematerialization=rematerialization,
            twin=self.shared_scratches.get(key),
        )
        if scratch.twin is None and not (scratch.recording.draws or scratch.recording.statistics):
            self.shared_scratches[key] = scratch
        if not training and batch_size > 1:
            self.check_rows()
        return scratch

    def check_rows(self, *, training: bool = False) -> None:
        """Raise UsageError if the output of a row depends on other rows of the batch."""
        scratch = Scratch(self, 2, training=training, backend="numpy", rematerialization="keep")
        outputs: list[dict[str, Array]] = []
        for factors in ([1, 1], [1, -3], [-3, 1]):  # a factor for each row; integers stay 0
            rng = np.random.default_rng(0)
            for array in arrays_in(scratch.input):
                array[...] = rng.standard_normal(array.shape) * (array.dtype.kind == "f")
                array *= np.reshape(factors, (2, *[1] * (array.ndim - 1)))
            quiet_runner()(scratch.program.run)
            outputs.append({n: y.copy() for n, y in arrays_by_name(scratch.output).items()})
        for name, both in outputs[0].items():
            same = [outputs[1][name][0], outputs[2][name][1]]
            if not np.allclose(both, same, 1e-3, 1e-6, equal_nan=True):
                advice = "; for statistics of a batch write tape.batch_norm(h, ..., running='norm')"
                raise UsageError(
                    f"{self._where}: record: a row of {name or 'the output'} must not depend on "
                    "other rows (one of two rows changes with the other)" + advice * (not training)
                )

    def gradients(self, batch_size: int, *, input_gradient: bool = False) -> Gradients:
        """Return gradient buffers for `batch_size` rows; `input_gradient` adds ``d_input``."""
        return Gradients(self, batch_size, input_gradient=input_gradient)

    def compile(self, batch_size: int = 1) -> "CompiledMlp":
        """Return the forward pass over `batch_size` rows, without dropout, as machine code.

        Machine code treats denormal numbers (below 1.2e-38 in float32) as zero.
        Raises: CompileError if there is no compiler, or an op cannot be compiled; UsageError for
            several inputs or outputs.
        """
        from mlpengine.nn.compiled import CompiledMlp

        self.need_one("compile")
        return CompiledMlp(self.scratch(batch_size, training=False))

    def forward(self, x: Any, scratch: Scratch) -> Any:
        """Compute the output for `x` (batch, in_dim); return a view of the scratch.

        Raises: ShapeError or DtypeError if `x` does not fit the scratch; nothing is broadcast.
        """
        if scratch.mlp is not self:
            raise TapeError(
                f"forward: scratch must be of this network (it belongs to {scratch.mlp})"
            )
        if isinstance(scratch.input, NamedRows):
            scratch.input.write(x, "forward: x")
        elif x is not scratch.input:
            write_into(scratch.input, unmasked(x, "forward: x"), "forward: x")
        scratch.program.run()
        return scratch.output

    def backward(self, scratch: Scratch, grads: Gradients) -> None:
        """Compute the gradients of the last forward from ``grads.d_output``; overwrite `grads`."""
        grads.bind(scratch).run()

    def predict(self, x: Any) -> Any:
        """Return the output for `x` (rows, in_dim) as a new array, without dropout.

        Named inputs and outputs are mappings of arrays.  Several threads may call this method.

        Equal calls give equal bits.  Between different calls, the output of a row may differ in its
        last bits, because the rounding of BLAS depends on the number of rows and on the row's
        position.  To make this rare, all passes of a large input have `PREDICT_ROWS` rows.
        Raises: ShapeError or DtypeError.
        """
        rows = self._rows(x)
        if not hasattr(self._thread, "scratch"):
            self._thread.scratch = self.scratch(PREDICT_ROWS, training=False)
        scratch = self._thread.scratch
        if 0 < len(rows) <= PREDICT_ROWS and isinstance(scratch.output, np.ndarray):
            copy: Array = self.forward(rows, scratch.for_rows(len(rows))).copy()
            return copy  # faster than filling `out`
        out: Array = self.empty_outputs(len(rows))
        for start in range(0, len(rows), PREDICT_ROWS):
            start = max(0, min(start, len(rows) - PREDICT_ROWS))
            part = rows[start : start + PREDICT_ROWS]
            try:
                out[start : start + len(part)] = self.forward(part, scratch.for_rows(len(part)))
            except IndexRangeError as error:
                raise IndexRangeError(f"{error} (its row 0 is row {start} of x)") from None
        return out

    def _rows(self, x: Any) -> Any:
        """Return `x` as rows of the network's input.  Raises: ShapeError."""
        if isinstance(self.in_shape, dict):
            need_names(x, self.in_shape, "predict: x")
            named = as_rows(x)
            check_rows(named, len(named), "predict: x")
            return named
        rows = unmasked(x, "predict: x")
        if rows.shape[1:] != self.in_shape or rows.ndim != len(self.in_shape) + 1:
            wanted = ", ".join(map(str, ("rows", *self.in_shape)))
            advice = "; for one row write predict([x])" if rows.shape == self.in_shape else ""
            raise ShapeError(f"predict: x must be ({wanted}) (got {rows.shape}){advice}")
        return rows

    def without_dropout(self, dtype: DTypeLike | None = None) -> Self:
        """Return a copy, with its own parameters, that has no dropout even in training.

        Random samples are replaced by their means, and batch norm uses its running averages.
        `dtype` is the dtype of the copy, by default the dtype of this network.
        """
        kind, other = self.dtype if dtype is None else np.dtype(dtype), copy(self)
        params = Flat({n: Spec(s.shape, kind) for n, s in self.params.specs.items()})
        params.flat[...], params.frozen = self.params.flat, self.params.frozen
        other.params = params
        other.rng = None  # type: ignore[assignment]  # without a generator, no dropout is recorded
        return other

    _thread: local
    """The `Scratch` that `predict` uses in each thread; not copied."""

    shared_scratches: "WeakValueDictionary[tuple[Any, ...], Scratch]"
    """Scratches by their options; networks of equal structure may share this dictionary."""

    def __getstate__(self) -> tuple[Any, dict[str, Any]]:
        own, slots = cast("tuple[Any, dict[str, Any]]", super().__getstate__())
        return own, {k: v for k, v in slots.items() if k not in ("_thread", "shared_scratches")}
