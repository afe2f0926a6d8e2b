"""The layers of a dense network: their description, and their recording on a tape."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mlpengine.common.misuse import KnownAttributes, called_as
from mlpengine.common.structure import conform
from mlpengine.common.wording import suggestion
from mlpengine.errors import UsageError
from mlpengine.nn.front import EMBEDDING, MASK, SCALE, Front
from mlpengine.ops import (
    REGISTRY,
    Activation,
    Dropout,
    Elementwise,
    FormulaActivation,
    GradOp,
    LearnedActivation,
    Linear,
    Philox,
)
from mlpengine.ops.softmax import AlongAxis
from mlpengine.spec import Array, Spec
from mlpengine.tape.flat import Flat
from mlpengine.tape.tape import Node, Tape


class ActivationNames(Sequence[str]):
    """The names of activations: ``identity``, the element-wise ones and the softmaxes."""

    def __getitem__(self, index: Any) -> Any:
        registered = (n for n, op in REGISTRY.items() if issubclass(op, Activation | AlongAxis))
        return ("identity", *sorted(registered))[index]

    def __len__(self) -> int:
        return len(self[:])


ACTIVATIONS = ActivationNames()

_ROWS = Spec((2, 3), np.dtype("float32"))
"""A spec that an op must map to the same shape and dtype to serve as an activation."""

ActivationLike = str | GradOp | None
"""A name of `ACTIVATIONS`, a formula of x, an op such as ``LeakyRelu(0.2)``, or None."""


def activation_op(activation: ActivationLike) -> GradOp | None:
    """Return the op of an activation; None for identity.

    Raises: UsageError for an unknown name; FormulaError for a formula that cannot be read.
    """
    if activation is None or activation == "identity":
        return None
    if isinstance(activation, GradOp):
        return activation
    if activation not in ACTIVATIONS:
        if is_formula(activation):
            return FormulaActivation(activation)
        raise UsageError(
            f"activation: must be one of {', '.join(ACTIVATIONS)} (got {activation!r})"
            f"{suggestion(activation, ACTIVATIONS)}"
        )
    return REGISTRY[activation]()


def is_formula(activation: str) -> bool:
    """Return whether a text is a formula of x rather than the name of an activation."""
    return not activation.replace("-", "_").isidentifier()


def activation_to_dict(op: GradOp | None) -> dict[str, Any]:
    """Return an activation as JSON-able data; `activation_from_dict` reads it back."""
    if op is None:
        return {"name": "identity"}
    options: dict[str, Any] = asdict(op) if is_dataclass(op) else {}
    return {"name": op.name, **options}


def activation_from_dict(description: dict[str, Any]) -> GradOp | None:
    """Return the activation that `activation_to_dict` returned.

    Raises: UsageError for an op that is unknown or no activation; CheckpointError for options
        that are not those of the op.
    """
    options = dict(description)
    name = options.pop("name", None)
    if name == "identity" and not options:
        return None
    if not isinstance(name, str) or name not in REGISTRY:
        raise UsageError(
            f"activation: op must be registered (got {name!r}); import its module first"
        )
    kind = REGISTRY[name]
    if is_dataclass(kind):
        conform(options, kind, f"activation {name}")
    try:
        op = kind(**options)
        fits = op.infer(_ROWS) == _ROWS
    except (TypeError, ValueError, IndexError) as error:
        raise UsageError(f"activation: must be an op on one operand ({name}: {error})") from error
    if not fits:
        raise UsageError(f"activation: must return the shape that it is given ({name} does not)")
    return op


@dataclass(frozen=True)
class Layer:
    """One dense layer: factor * weight (out_dim, in_dim), bias (out_dim,), activation, dropout.

    With an `alpha_name` the activation f is mixed with the pre-activation in learned shares, alpha
    (out_dim,): x + alpha * (f(x) - x).
    """

    in_dim: int
    out_dim: int
    activation: GradOp | None
    dropout: float
    weight_name: str
    bias_name: str
    alpha_name: str | None = None
    factor: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parameters."""
        own = self.weight_name, self.bias_name
        return own if self.alpha_name is None else (*own, self.alpha_name)


def plan_layers(
    sizes: Sequence[int],
    activations: Sequence[GradOp | None],
    dropout: Sequence[float],
    *,
    front: Front | None = None,
    learned_activation: bool = False,
    neural_tangent: bool = False,
) -> tuple[Layer, ...]:
    """Return the layers; names count the modules of a PyTorch ``nn.Sequential`` of the same net.

    `dropout` has a rate for each hidden layer; the ``nn.Sequential`` has modules of rate 0, too,
    unless all rates are.

    Raises: UsageError if learned activations are asked for and one is not element-wise.
    """
    stride = 3 if any(dropout) else 2
    last = len(sizes) - 2
    first = front.out_dim(sizes[0]) if front else sizes[0]
    layers = []
    for i, (in_dim, out_dim) in enumerate(pairwise([first, *sizes[1:]])):
        op, start = activations[i], i * stride
        learned = learned_activation and op is not None and i < last
        if learned and not isinstance(op, Elementwise):
            raise UsageError(f"mlp: a learned activation must be element-wise (got {op!r})")
        layers.append(
            Layer(
                in_dim,
                out_dim,
                op,
                dropout[i] if i < last else 0.0,
                f"{start}.weight",
                f"{start}.bias",
                f"{start + 1}.alpha" if learned else None,
                in_dim**-0.5 if neural_tangent else 1.0,
            )
        )
    return tuple(layers)


def parameter_specs(
    layers: Sequence[Layer], dtype: np.dtype[Any], front: Front | None, in_dim: int
) -> dict[str, Spec]:
    """Return the specs of all parameters by name, in the order of the flat vector."""
    specs = front.specs(in_dim, dtype) if front else {}
    for layer in layers:
        specs[layer.weight_name] = Spec((layer.out_dim, layer.in_dim), dtype)
        specs[layer.bias_name] = Spec((layer.out_dim,), dtype)
        if layer.alpha_name is not None:
            specs[layer.alpha_name] = Spec((layer.out_dim,), dtype)
    return specs


class Network(KnownAttributes):
    """Dense layers over one flat vector of parameters.

    ``copy.copy`` shares the parameters; a deep or pickled copy has its own.

    Attributes:
        layers: in order.
        front: what computes the first layer's input from the features, or None.
        in_dim: number of features.
        params: all parameters; names are those of a PyTorch ``nn.Sequential`` of the same net,
            those of the front begin with "front.", those of learned activations are "1.alpha" etc.
        weights: by layer, views (out_dim, in_dim) of ``params.flat``.
        biases: by layer, views (out_dim,).
        rng: the generator that dropout draws from; `TrainingStep` sets its step.
    """

    def __init__(
        self,
        layers: tuple[Layer, ...],
        dtype: np.dtype[Any],
        rng: Philox,
        *,
        front: Front | None,
        in_dim: int,
    ) -> None:
        self.layers, self.rng, self.front, self.in_dim = layers, rng, front, in_dim
        self.params = Flat(parameter_specs(layers, dtype, front, in_dim))
        self.params.frozen = self._fixed
        self._list_views()

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64, of everything."""
        return self.params.flat.dtype

    @called_as("mlp.freeze([0])")
    def freeze(self, layers: Iterable[int]) -> None:
        """Keep the parameters of these layers as they are, and train all others.

        Layers count from 0, or from -1 backwards; the front belongs to layer 0; an empty list
        unfreezes all.  No backend computes the gradients of frozen layers, which are zero, and no
        optimizer moves or decays them.  Call this before making gradients, optimizer and training
        step.

        >>> from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
        >>> mlp = Mlp([4, 8, 8, 1])
        >>> mlp.freeze([0, 1])
        >>> step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), batch_size=16)

        Raises: UsageError for a layer that does not exist, or if no layer is left to train.
        """
        count = len(self.layers)
        if not np.iterable(layers) or isinstance(layers, str):
            raise UsageError(f"freeze: layers must be a list (got {layers!r}); write freeze([0])")
        numbers = set()
        for number in layers:
            if not isinstance(number, int | np.integer) or not -count <= number < count:
                raise UsageError(f"freeze: layers count from 0 to {count - 1} (got {number!r})")
            numbers.add(int(number) % count)
        if len(numbers) == count:
            raise UsageError(f"freeze: a layer must be left to train (got all {count})")
        names = {name for number in numbers for name in self.layers[number].names}
        if 0 in numbers and self.front is not None:
            names |= self.front.specs(self.in_dim, self.dtype).keys()
        self.params.frozen = self._fixed | names

    @property
    def _fixed(self) -> frozenset[str]:
        """The names of what is never trained."""
        return frozenset({MASK} & self.params.specs.keys())

    @property
    def frozen(self) -> list[int]:
        """The numbers of the layers that `freeze` froze."""
        frozen = self.params.frozen
        return [i for i, layer in enumerate(self.layers) if layer.weight_name in frozen]

    @property
    def lowest_trained(self) -> int:
        """The number of the first layer that is trained."""
        frozen = self.frozen
        return next(i for i in range(len(self.layers)) if i not in frozen)

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names of parameters by group: weights, biases, alphas, embedding and scaling."""
        front = [n for n in self.params.specs if n.startswith(f"{EMBEDDING}.")]
        groups = {
            "weights": [layer.weight_name for layer in self.layers],
            "biases": [layer.bias_name for layer in self.layers],
            "alphas": [layer.alpha_name for layer in self.layers if layer.alpha_name],
            "embedding": front,
            "scaling": [SCALE] if SCALE in self.params.specs else [],
        }
        return {group: tuple(names) for group, names in groups.items()}

    def move_to(self, block: Array, row: int) -> None:
        """Move the parameters into that row of `block`, before anything is bound to them."""
        self.params.move_to(block, row)
        self._list_views()

    def _list_views(self) -> None:
        self.weights = [self.params.views[layer.weight_name] for layer in self.layers]
        self.biases = [self.params.views[layer.bias_name] for layer in self.layers]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("weights", "biases")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._list_views()


class Recording(NamedTuple):
    """A network on a tape: its input, that of layer 0, and of each layer z and its output."""

    tape: Tape
    input: Node
    first: Node
    pre_activations: tuple[Node, ...]
    layer_outputs: tuple[Node, ...]

    @property
    def output(self) -> Node:
        """The output of the network."""
        return self.layer_outputs[-1]


def record(network: Network, tape: Tape, batch_size: int, rng: Philox | None) -> Recording:
    """Record the network on `tape`; dropout draws from `rng` and is left out where it is None."""
    shape = batch_size, network.in_dim
    x = h = tape.input(shape, network.dtype, name="input", wants_grad=True)
    if network.front is not None:
        h = network.front.record(tape, h)
    first, pre_activations, layer_outputs, dropouts = h, [], [], 0
    for layer in network.layers:
        weight, bias = (
            tape.parameter(tape.params.views[name], name=name)
            for name in (layer.weight_name, layer.bias_name)
        )
        h = tape.apply(Linear(layer.factor), h, weight, bias)
        pre_activations.append(h)
        if layer.alpha_name is not None and isinstance(layer.activation, Elementwise):
            alpha = tape.parameter(tape.params.views[layer.alpha_name], name=layer.alpha_name)
            h = tape.apply(LearnedActivation.of(layer.activation), h, alpha)
        elif layer.activation is not None:
            h = tape.apply(layer.activation, h)
        if layer.dropout and rng is not None:
            h = tape.apply(Dropout(layer.dropout, rng, dropouts), h)
            dropouts += 1
        layer_outputs.append(h)
    return Recording(tape, x, first, tuple(pre_activations), tuple(layer_outputs))
