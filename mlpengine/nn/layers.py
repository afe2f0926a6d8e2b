"""Dense layers and activations of a network."""

from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Spec
from mlpengine.core.structure import check_keys, of_type
from mlpengine.core.wording import suggestion
from mlpengine.ops import (
    REGISTRY,
    Activation,
    FormulaActivation,
    GradOp,
    Linear,
)
from mlpengine.ops.softmax import AlongAxis
from mlpengine.tape.tape import Node, Tape


class ActivationNames(Sequence[str]):
    """Names of activations: ``identity``, the element-wise ops and the softmaxes."""

    def __getitem__(self, index: Any) -> Any:
        registered = (n for n, op in REGISTRY.items() if issubclass(op, Activation | AlongAxis))
        return ("identity", *sorted(registered))[index]

    def __len__(self) -> int:
        return len(self[:])

    def __contains__(self, name: object) -> bool:
        return name in self[:]


ACTIVATIONS = ActivationNames()

_ROWS = Spec((2, 3), np.dtype("float32"))
"""An example input; the output of an activation must have the same shape and dtype."""

ActivationLike = str | GradOp | None
"""A name in `ACTIVATIONS`, a formula such as "x * tanh(x)", an op, or None for identity."""


def activation_op(activation: ActivationLike) -> GradOp | None:
    """Return the op of an activation; None for identity."""
    if activation is None or activation == "identity":
        return None
    if isinstance(activation, GradOp):
        return activation
    if not isinstance(activation, str):
        raise UsageError(f"activation: must be a name, a formula or an op (got {activation!r})")
    if activation not in ACTIVATIONS:
        if is_formula(activation):
            return FormulaActivation(activation)
        raise UsageError(
            f"activation: must be one of {', '.join(ACTIVATIONS)} (got {activation!r})"
            f"{suggestion(activation, ACTIVATIONS)}"
        )
    return REGISTRY[activation]()


def is_formula(activation: str) -> bool:
    """Return whether a text is a formula such as "x * tanh(x)", and not a name."""
    return not activation.replace("-", "_").isidentifier()


def activation_to_dict(op: GradOp) -> dict[str, Any]:
    """Return an activation as JSON-able data; `activation_from_dict` reads it back."""
    options: dict[str, Any] = asdict(op) if is_dataclass(op) else {}
    return {"name": op.name, **options}


def activation_from_dict(description: dict[str, Any]) -> GradOp:
    """Return an activation from the data of `activation_to_dict`."""
    options = dict(description)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in REGISTRY:
        raise UsageError(
            f"activation: {name!r} must name an op; import the module of your own op first"
        )
    kind = REGISTRY[name]
    if is_dataclass(kind):
        declared, where = {one.name: one for one in fields(kind)}, f"activation {name}"
        needed = [n for n, one in declared.items() if one.default is MISSING]
        check_keys(options, where, needed, declared)
        for key, value in options.items():
            is_text = declared[key].type is str or isinstance(declared[key].default, str)
            of_type(value, str if is_text else float, f"{where}.{key}")
    try:
        op = kind(**options)
        fits = op.infer(_ROWS) == _ROWS
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(f"activation: must be an op on one operand ({name}: {error})") from error
    if not fits:
        raise UsageError(f"activation: must keep the shape of its input ({name} does not)")
    return op


@dataclass(frozen=True)
class Layer:
    """A dense layer: dropout(activation(x @ weight.T + bias)).

    Shapes: weight (out_dim, in_dim), bias (out_dim,).
    """

    in_dim: int
    out_dim: int
    activation: GradOp | None
    dropout: float
    weight_name: str
    bias_name: str

    @property
    def names(self) -> tuple[str, str]:
        """Names of the layer's parameters."""
        return self.weight_name, self.bias_name


def plan_layers(
    sizes: Sequence[int], activations: Sequence[GradOp | None], dropout: Sequence[float]
) -> tuple[Layer, ...]:
    """Return the layers, with the parameter names of PyTorch's ``nn.Sequential``.

    `dropout` has a rate for each hidden layer.  The weights are called ``0.weight``, ``2.weight``,
    ..., or, if any rate is above 0, ``0.weight``, ``3.weight``, ...
    """
    stride = 3 if any(dropout) else 2
    last = len(sizes) - 2
    return tuple(
        Layer(
            in_dim,
            out_dim,
            activations[i],
            dropout[i] if i < last else 0.0,
            f"{i * stride}.weight",
            f"{i * stride}.bias",
        )
        for i, (in_dim, out_dim) in enumerate(pairwise(sizes))
    )


def record_layers(layers: Sequence[Layer], tape: Tape, h: Node) -> Node:
    """Record dense layers, named "layer 0", "layer 1", ..., on `tape`; return the output."""
    for number, layer in enumerate(layers):
        weight, bias = tape.parameter(layer.weight_name), tape.parameter(layer.bias_name)
        h = z = tape.apply(Linear(), h, weight, bias)
        if layer.activation is not None:
            h = tape.apply(layer.activation, h)
        h = tape.layer(f"layer {number}", tape.dropout(h, layer.dropout), pre_activation=z)
    return h
