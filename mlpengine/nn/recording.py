"""Parameters of networks, and the recording of a forward pass on a tape."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.buffers import unmasked, zeros
from mlpengine.core.errors import CheckpointError, NumericalError, TapeError, UsageError
from mlpengine.core.named import one_or_named
from mlpengine.core.spec import Array, ArrayLike, DTypeLike, Spec, floating
from mlpengine.core.wording import plural, quoted, suggestion
from mlpengine.nn.initializers import initialize, suited_to
from mlpengine.nn.saving import Saved
from mlpengine.ops import BatchNorm, Dropout, Normal, Philox, RunningStatistics
from mlpengine.tape.flat import Flat
from mlpengine.tape.operand import numeric
from mlpengine.tape.record import Value, dependents, needed_records
from mlpengine.tape.tape import Node, RecordedLayer, Tape

ShapeLike = int | Sequence[int]
InputLike = ShapeLike | tuple[str, ShapeLike]
"""Shape of an input row, or ``("int64", shape)`` for an input of integers."""

INTEGERS = np.dtype(np.int64)
"""Dtype of integer inputs."""

RESERVED_NAMES = ("", "input", "__metadata__")
"""Names that no parameter may have, because the input and the metadata of files have them."""

SHOWN_PARAMETERS = 20
"""Number of parameters that an error message lists."""


class Recording(NamedTuple):
    """A forward pass on a tape, with its inputs and outputs by name.

    If a network has a single input or output without a name, its name here is "".
    """

    tape: Tape
    inputs: Mapping[str, Node]
    outputs: Mapping[str, Node]

    @property
    def input(self) -> Node:
        """The only input."""
        return self.inputs[""]

    @property
    def output(self) -> Node:
        """The only output."""
        return self.outputs[""]

    @property
    def layers(self) -> Sequence[RecordedLayer]:
        """The layers, in forward order."""
        return self.tape.layers

    @property
    def draws(self) -> bool:
        """Whether the recording draws random numbers."""
        return any(isinstance(r.op, Dropout | Normal) for r in self.tape.records)

    @property
    def predicts(self) -> bool:
        """Whether predictions use these ops without dropout; False for named inputs or outputs."""
        plain = "" in self.inputs and "" in self.outputs
        return plain and not any(isinstance(r.op, Normal | BatchNorm) for r in self.tape.records)

    @property
    def statistics(self) -> list[RunningStatistics]:
        """Running statistics of batch norm."""
        ops = (r.op for r in self.tape.records)
        return [op.running for op in ops if isinstance(op, BatchNorm) and op.running is not None]

    @property
    def traced(self) -> list[Value]:
        """Values with gradients that stay in memory after backward, for per-row gradients.

        These are the pre-activations of the layers.  If no layer names a pre-activation, the
        outputs of all ops that combine rows with parameters are added.
        """
        ends: list[Value] = [layer.pre_activation for layer in self.layers]
        if any(layer.pre_activation is not layer.output for layer in self.layers):
            return ends
        records = self.tape.records
        rows = dependents(records, self.tape.inputs)
        trained = dependents(records, self.tape.parameters)
        mixed = [
            r.outputs[0]
            for r in records
            if r.key in rows
            and any(
                x is not None and x.index in trained and x.index not in rows for x in r.operands
            )
        ]
        return [*dict.fromkeys([*ends, *mixed])]


class Recordable(Saved):
    """Base of `Network`: the parameters and `record`; `Network` adds buffers and gradients."""

    __slots__ = ("_buffers", "_groups", "_integers", "_out_sizes", "in_shape", "rng")

    in_shape: Any
    rng: Philox

    def __init__(
        self,
        inputs: InputLike | Mapping[str, InputLike],
        parameters: Mapping[str, ShapeLike | Array],
        *,
        buffers: Mapping[str, ShapeLike | Array] | None = None,
        initializer: str | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        seed: int = 0,
        dtype: DTypeLike = "float32",
    ) -> None:
        kind = floating(dtype, self._where)
        if not isinstance(parameters, Mapping) or not parameters:
            raise UsageError(
                f"{self._where}: parameters must be shapes by name, such as "
                f"{{'weight': (8, 4), 'bias': 8}} (got {quoted(parameters)})"
            )
        where = f"{self._where}: inputs"
        if isinstance(inputs, Mapping):
            _need_texts(inputs, where)
            rows = {n: _input_spec(v, f"{where}: {n}", kind) for n, v in inputs.items()}
            self.in_shape = {name: spec.shape for name, spec in rows.items()}
        else:
            rows = {"": _input_spec(inputs, where, kind)}
            self.in_shape = rows[""].shape
        self._out_sizes: Mapping[str, int] = {}
        self._integers = frozenset(name for name, spec in rows.items() if spec.dtype != kind)
        self._buffers = frozenset(buffers or {})
        if twice := self._buffers & parameters.keys():
            raise UsageError(f"{self._where}: buffers must not be parameters (got {min(twice)!r})")
        parameters = {**parameters, **(buffers or {})}
        for name in parameters:
            if not isinstance(name, str) or name in RESERVED_NAMES:
                raise UsageError(f"{self._where}: a parameter must not be called {name!r}")
        arrays = {n: v for n, v in parameters.items() if isinstance(v, np.ndarray)}
        values = {n: numeric(v, f"{self._where}: {n}") for n, v in arrays.items()}
        specs = {n: Spec(_shape(v, f"{self._where}: {n}"), kind) for n, v in parameters.items()}
        if self._expected is not None:
            check_arrays(specs, self._expected)
            self._expected = None
        try:
            weights_rng, rng = np.random.default_rng(seed).spawn(2)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{self._where}: seed must be a whole number from 0 (got {seed!r})"
            ) from error
        self.params, self.rng = Flat(specs), Philox.drawn(rng)
        self.params.frozen = self._fixed
        if not isinstance(groups, Mapping | None):
            raise UsageError(
                f"{self._where}: groups must be names of parameters by group (got {quoted(groups)})"
            )
        self._groups = {group: tuple(names) for group, names in (groups or {}).items()}
        for names in self._groups.values():
            self._need_names(names, "groups")
        self._initialize(initializer, weights_rng)
        for name, value in values.items():
            view = self.params.views[name]
            with np.errstate(over="ignore"):
                view[...] = value
            if not np.isfinite(view).all():
                raise NumericalError(f"{self._where}: {name} must be finite in {self.dtype}")

    def _initialize(self, initializer: str | None, rng: np.random.Generator) -> None:
        """Draw initial weights; all parameters are 0 before."""
        for name, view in self.params.views.items():
            if view.ndim > 1 and name not in self._buffers:
                initialize(view.reshape(len(view), -1), initializer or suited_to(None), rng)

    def record(self, tape: Tape, *inputs: Any, **_: Any) -> Any:
        """Record the forward pass on `tape`; return the output (rows, outputs), or a mapping.

        ``tape.parameter(name)`` returns a parameter, ``tape.dropout(h, rate)`` applies dropout, and
        ``tape.layer(name, h)`` gives messages a name for the layer with output h.  The `inputs` are
        nodes (rows, ...) in the order of `in_shape`.

        The method is called once for each number of rows.  The output of a row must depend only on
        the input of this row, except through ``tape.batch_norm``.
        """
        raise UsageError(f"{self._where}: record must be overridden, to return an output")

    def recorded(self, batch_size: int, *, training: bool) -> Recording:
        """Return the recording for `batch_size` rows; it has dropout only with `training`.

        Raises: UsageError for a recording that cannot be trained.
        """
        tape = Tape.over(self.params, self.rng if training else None)
        inputs = {
            name: tape.input(
                (batch_size, *shape),
                self.in_dtypes[name],
                name=f"input {name}".rstrip(),
                wants_grad=self.in_dtypes[name] == self.dtype,
            )
            for name, shape in self.in_shapes.items()
        }
        try:
            returned = self.record(tape, *inputs.values())
        except (TypeError, ValueError) as error:
            if "__array_ufunc__" not in str(error) and "zero-dimensional arr" not in str(error):
                raise
            text = f"{self._where}: record: functions of NumPy do not take nodes ({error}); "
            advice = "write methods, such as x.tanh(), or mlpengine.tape.cat([x, y], axis=1)"
            raise TapeError(text + advice) from error
        outputs = dict(returned) if isinstance(returned, Mapping) else {"": returned}
        where = f"{self._where}: record"
        if isinstance(returned, Mapping):
            _need_texts(returned, f"{where}: outputs")
        self._check_outputs(outputs, batch_size, where)
        for name, output in outputs.items():
            if not any(layer.output is output for layer in tape.layers):
                tape.layer(name or "output", output, alone=len(outputs) > 1)
        for layer in tape.layers:
            if layer.output.spec.shape[:1] != (batch_size,):
                raise UsageError(
                    f"{where}: layer {layer.name!r} must have a row for each row of the input "
                    f"(got {layer.output.spec} for {plural(batch_size, 'row')})"
                )
        needed = {record.key for record in needed_records(tape.records, [*outputs.values()])}
        for key, op in ((record.key, record.op) for record in tape.records):
            if isinstance(op, BatchNorm) and not self._owns(op):
                raise UsageError(
                    f"{where}: batch_norm needs running statistics among the buffers; write "
                    "tape.batch_norm(h, scale, bias, running='norm') and, in the constructor, "
                    "buffers={'norm.mean': 8, 'norm.variance': np.ones(8)}"
                )
            if isinstance(op, Dropout | Normal) and op.rng is not self.rng:
                right = f"dropout(h, {op.rate:g})" if isinstance(op, Dropout) else "normal(h, s)"
                raise UsageError(
                    f"{where}: {op.name} must draw from the network's own generator; write "
                    f"tape.{right}"
                )
            if isinstance(op, Dropout | Normal) and key not in needed:
                raise UsageError(
                    f"{where} must use the result of tape.{op.name}; write "
                    f"h = tape.{op.name}(h, ...)"
                )
        read = {node.name for node in tape.parameters}
        if unread := [name for name in self.params.specs if name not in read]:
            raise UsageError(f"{where} must use every parameter (it leaves out {unread[0]!r})")
        return Recording(tape, inputs, outputs)

    def _check_outputs(self, outputs: Mapping[str, Any], rows: int, where: str) -> None:
        """Raise UsageError unless the outputs are different nodes (rows, outputs)."""
        for name, output in outputs.items():
            spec = output.spec if isinstance(output, Node) else Spec((), np.dtype(bool))
            if spec != Spec((rows, *spec.shape[1:2]), self.dtype) or len(spec.shape) != 2:
                what = f"as {name!r} a node" if name else "a node"
                got = output if isinstance(output, Node) else quoted(output)
                raise UsageError(
                    f"{where} must return {what} {self.dtype.name}[{rows}, outputs] for "
                    f"{plural(rows, 'row')} (got {got})"
                )
        if not outputs or len({*outputs.values()}) < len(outputs):
            listed = ", ".join(outputs) or "none"
            raise UsageError(f"{where} must return different nodes by name (got {listed})")

    @property
    def in_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Row shape of each input by name; an input without a name has the name ""."""
        return self.in_shape if isinstance(self.in_shape, dict) else {"": self.in_shape}

    @property
    def in_dtypes(self) -> Mapping[str, np.dtype[Any]]:
        """Dtype of each input by name: int64 or the dtype of the network."""
        return {name: INTEGERS if name in self._integers else self.dtype for name in self.in_shapes}

    def _owns(self, op: BatchNorm) -> bool:
        """Return whether the running statistics are buffers of this network."""
        return op.running is not None and np.shares_memory(op.running.mean, self.params.flat)

    @property
    def _where(self) -> str:
        return type(self).__name__

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of parameters and activations, float32 or float64."""
        return self.params.flat.dtype

    def need_one(self, where: str) -> None:
        """Raise UsageError if inputs or outputs have names; `where` begins the message."""
        if "" not in self.in_shapes or "" not in self.out_sizes:
            raise UsageError(
                f"{where}: takes networks of one input and one output, without names (got {self!r})"
            )

    @property
    def outputs(self) -> Any:
        """Number of output columns, or a mapping of numbers for named outputs."""
        sizes = self.out_sizes
        return sizes.get("", sizes)

    @property
    def out_sizes(self) -> Mapping[str, int]:
        """Number of columns of each output by name; an output without a name has the name ""."""
        if not self._out_sizes:  # only `record` knows the sizes
            outputs = self.recorded(2, training=False).outputs
            self._out_sizes = {name: node.spec.shape[1] for name, node in outputs.items()}
        return self._out_sizes

    def empty_outputs(self, rows: int) -> Any:
        """Return new zeros for the outputs of `rows` rows, or `NamedRows` for named outputs."""
        sizes = self.out_sizes
        return one_or_named({name: zeros(Spec((rows, n), self.dtype)) for name, n in sizes.items()})

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names of parameters by group."""
        views = {n: v for n, v in self.params.views.items() if n not in self._buffers}
        weights = tuple(name for name, view in views.items() if view.ndim > 1)
        biases = tuple(name for name, view in views.items() if view.ndim <= 1)
        return {"weights": weights, "biases": biases, **self._groups}

    def freeze(self, names: Iterable[str]) -> None:
        """Freeze the parameters with these names, and train all others.

        ``"block"`` also freezes every parameter with a name that begins with ``"block."``; an empty
        list unfreezes all.  The gradients of frozen parameters are zero and are not computed.  No
        optimizer changes or decays these parameters.  Call this method before you make gradients,
        optimizer and training step.

        Raises: UsageError for an unknown name, or if no parameter is left to train.
        """
        frozen = set(self._fixed)
        for name in names:
            own = {n for n in self.params.specs if n == name or n.startswith(f"{name}.")}
            if not own:
                self._need_names([name], "freeze")
            frozen |= own
        if frozen == self.params.specs.keys():
            raise UsageError("freeze: a layer must be left to train (got all)")
        self.params.frozen = frozenset(frozen)

    def _need_names(self, names: Iterable[str], what: str) -> None:
        """Raise UsageError for the first of `names` that is not a parameter."""
        for name in names:
            if name not in self.params.specs:
                raise UsageError(
                    f"{self._where}: {what} must name parameters (got {name!r})"
                    f"{suggestion(name, self.params.specs)}"
                )

    @property
    def _fixed(self) -> frozenset[str]:
        """Names of parameters that are never trained: the buffers."""
        return self._buffers

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the parameters by name (of an `Mlp`: ``0.weight``, ``0.bias``, ...)."""
        return {name: view.copy() for name, view in self.params.views.items()}

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Copy all parameters from `state`, or none if an error is raised.

        Raises: CheckpointError for missing, unknown or misshapen names, or for a number that
            float32 cannot hold.
        """
        if not isinstance(state, Mapping):
            raise CheckpointError(
                f"parameters: state must be a mapping of arrays by name (got {quoted(state)}); "
                f"{type(self).__name__}.load(path) reads a file"
            )
        arrays = {n: unmasked(value, f"parameters: {n}") for n, value in state.items()}
        check_arrays(self.params.specs, arrays)
        with np.errstate(over="ignore"):
            cast = {n: array.astype(self.dtype, copy=False) for n, array in arrays.items()}
        for name, array in arrays.items():
            if cast[name] is not array and (np.isinf(cast[name]) & np.isfinite(array)).any():
                raise CheckpointError(f"parameters: {name} must fit into {self.dtype}")
        for name, array in cast.items():
            self.params.views[name][...] = array

    def to_dict(self) -> dict[str, Any]:
        """Return class, shapes and dtypes as JSON-able data, to compare networks with files."""
        shapes = self.in_shapes
        return {
            "network": type(self).__name__,
            "in_shape": {n: [*s] for n, s in shapes.items()} if "" not in shapes else [*shapes[""]],
            "dtype": self.dtype.name,
            "integers": sorted(self._integers),
            "parameters": {name: list(spec.shape) for name, spec in self.params.specs.items()},
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({plural(len(self.params), 'parameter')}, {self.dtype.name})"


def _advice_on_names(own: Sequence[str], given: Sequence[str]) -> str:
    """Return advice if as many arrays as parameters are given, but no name fits; else ""."""
    if len(own) != len(given) or {*own} & {*given}:
        return ""
    text = f"must be called {', '.join(own[:4])}, ... (got {', '.join(given[:4])}, ...)"
    prefix = given[0].removesuffix(own[0])
    if {*given} == {prefix + name for name in own}:
        return (
            f"{text}; write mlp.load_state_dict({{name.removeprefix({prefix!r}): value "
            f"for name, value in state.items()}})"
        )
    return (
        f"{text}; if the arrays are in this order, write "
        "mlp.load_state_dict(dict(zip(mlp.state_dict(), state.values())))"
    )


def check_arrays(specs: Mapping[str, Spec], arrays: Mapping[str, Array]) -> None:
    """Raise CheckpointError unless arrays fit the parameters of `specs`."""
    problems = [f"{name} is missing" for name in specs if name not in arrays]
    for name, array in arrays.items():
        spec = specs.get(name)
        if spec is None:
            problems.append(f"{name} is unknown")
        elif not isinstance(array, np.ndarray):
            problems.append(f"{name} must be an array")
        elif array.shape != spec.shape:
            problems.append(f"{name} must be {spec.shape} (got {array.shape})")
        elif not np.can_cast(array.dtype, spec.dtype, "same_kind"):
            problems.append(f"{name} must be {spec.dtype} (got {array.dtype})")
    if problems and (advice := _advice_on_names([*specs], [*arrays])):
        raise CheckpointError(f"parameters: {advice}")
    if problems:
        left = len(problems) - SHOWN_PARAMETERS
        more = f"; {left:,} more" if left > 0 else ""
        raise CheckpointError(
            f"parameters: {'; '.join(problems[:SHOWN_PARAMETERS])}{more}; mlp."
            "state_dict() shows the names and shapes that are needed"
        )


def _need_texts(named: Mapping[str, Any], where: str) -> None:
    """Raise UsageError unless `named` has keys, and all are nonempty texts."""
    if not named or not all(isinstance(name, str) and name for name in named):
        raise UsageError(f"{where} must have names, such as 'x' (got {quoted(named)})")


def _input_spec(given: InputLike, where: str, dtype: np.dtype[Any]) -> Spec:
    """Return shape and dtype of an input row; `dtype` is the default."""
    shape: Any = given
    if isinstance(given, Sequence) and len(given) == 2 and isinstance(given[0], str):
        name, shape = given
        if name != INTEGERS.name:
            raise UsageError(
                f"{where}: the dtype of an input must be int64, or left out for {dtype} "
                f"(got {name!r})"
            )
        dtype = INTEGERS
    return Spec(_shape(shape, where), dtype)


def _shape(shape: ShapeLike | Array, where: str) -> tuple[int, ...]:
    """Return the shape of an array, or a given shape, as a tuple; a number n becomes (n,)."""
    given = shape.shape if isinstance(shape, np.ndarray) else shape
    sizes = tuple(given) if isinstance(given, Sequence) else (given,)
    if not all(isinstance(n, int | np.integer) and n >= 1 for n in sizes):
        raise UsageError(f"{where} must be a shape of whole numbers from 1 (got {quoted(shape)})")
    return tuple(int(n) for n in sizes)
