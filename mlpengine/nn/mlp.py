"""The multilayer perceptron."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Limits
from mlpengine.core.spec import Array, DTypeLike
from mlpengine.core.wording import plural, quoted
from mlpengine.nn.initializers import initialize, suited_to
from mlpengine.nn.layers import (
    ACTIVATIONS,
    ActivationLike,
    activation_op,
    plan_layers,
    record_layers,
)
from mlpengine.nn.tabular import Ranges, TabularNetwork, checked_ranges
from mlpengine.ops import GradOp
from mlpengine.tape.tape import Node, Tape


class Mlp(TabularNetwork):
    """Dense layers, each followed by an activation, with all parameters in one flat vector.

    Args:
        sizes: in_dim, the hidden sizes, out_dim.
        activation: activation after every hidden layer, or a sequence with one for each layer.
        output_activation: activation after the last layer; usually None, because losses take
            logits.
        dropout: probability of dropping a hidden activation in training, or a sequence with one for
            each hidden layer; rounded to a multiple of 1/256 (see `mlpengine.ops.Dropout`).
        initializer: initializer of the weights, one of `INITIALIZERS`; None chooses one for each
            activation.
        seed: seed of the initial weights and of dropout.
        dtype: float32 or float64, of parameters, inputs and outputs.
        reads: ranges (start, stop) of the features that the first layer reads, such as
            ((0, 3), (5, 8)); empty for all features.

    Attributes:
        layers: the layers in order.
        params: all parameters, named as in a PyTorch ``nn.Sequential`` of the same layers.

    Raises: UsageError for invalid sizes, names or rates; DtypeError.
    """

    __slots__ = ("_dropout", "layers")

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        activation: ActivationLike | Sequence[ActivationLike] = "relu",
        output_activation: ActivationLike = None,
        dropout: float | Sequence[float] = 0.0,
        initializer: str | None = None,
        seed: int = 0,
        dtype: DTypeLike = "float32",
        reads: Ranges = (),
    ) -> None:
        self.sizes = _checked_sizes(sizes)
        self.reads = checked_ranges(reads, self.in_dim)
        hidden = len(self.sizes) - 2
        rates = _dropout_rates(dropout, hidden)
        self._dropout = rates if len(set(rates)) > 1 else float(np.max(dropout, initial=0.0))
        self.initializer = initializer
        each = _one_each(activation, hidden)
        if len(each) != hidden:
            raise UsageError(
                f"mlp: needs one activation for each hidden layer (got {len(each)} for {hidden}); "
                f"write activation={[*each[:1]] * hidden}"
            )
        ops = [activation_op(a) for a in (*each, output_activation)]
        self.layers = plan_layers([self.n_inputs, *self.sizes[1:]], ops, rates)
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in self.layers:
            shapes[layer.weight_name] = layer.out_dim, layer.in_dim
            shapes[layer.bias_name] = (layer.out_dim,)
        super().__init__(self.in_dim, shapes, initializer=initializer, seed=seed, dtype=dtype)

    def _initialize(self, initializer: str | None, rng: np.random.Generator) -> None:
        for weight, layer in zip(self.weights, self.layers, strict=True):
            initialize(weight, initializer or suited_to(layer.activation), rng)

    def record(self, tape: Tape, x: Node) -> Node:
        """Record the dense layers on `tape`; return the output."""
        return record_layers(self.layers, tape, self.read(x))

    @property
    def _where(self) -> str:
        return "mlp"

    @property
    def dropout(self) -> float | tuple[float, ...]:
        """Rate of the hidden layers, or a rate for each layer if the rates differ."""
        return self._dropout

    @property
    def weights(self) -> tuple[Array, ...]:
        """Weights by layer, views (out_dim, in_dim) of ``params.flat``."""
        return tuple(self.params.views[layer.weight_name] for layer in self.layers)

    @property
    def biases(self) -> tuple[Array, ...]:
        """Biases by layer, views (out_dim,) of ``params.flat``."""
        return tuple(self.params.views[layer.bias_name] for layer in self.layers)

    @property
    def layer_names(self) -> Sequence[tuple[str, ...]]:
        return [layer.names for layer in self.layers]

    @property
    def dense_sizes(self) -> Sequence[tuple[int, int]]:
        return [*pairwise(self.sizes)]

    @property
    def dropped_units(self) -> int:
        return sum(layer.out_dim for layer in self.layers if layer.dropout)

    @property
    def activations(self) -> Mapping[str, str]:
        ops = {layer.weight_name: layer.activation for layer in self.layers}
        return {weight: op.name for weight, op in ops.items() if op is not None}

    @property
    def options(self) -> dict[str, Any]:
        *hidden, last = (layer.activation for layer in self.layers)
        return {
            "sizes": self.sizes,
            "activation": hidden,
            "output_activation": last,
            "dropout": self.dropout,
            "initializer": self.initializer,
            "dtype": self.dtype,
            "reads": self.reads,
        }

    def __repr__(self) -> str:
        return f"Mlp({self.title}, {plural(len(self.params), 'parameter')}, {self.dtype.name})"


def _one_each(
    activation: ActivationLike | Sequence[ActivationLike], hidden: int
) -> list[ActivationLike]:
    if activation is None or isinstance(activation, str | GradOp):
        return [activation] * hidden
    if not isinstance(activation, Sequence):
        names = (getattr(activation, "__name__", ""), "relu")
        near = next(name for name in names if name in ACTIVATIONS)
        raise UsageError(
            "mlp: activation must be a name, an op or a list of these, one for each hidden layer "
            f"(got {quoted(activation)}); write activation={near!r}"
        )
    return list(activation)


def _dropout_rates(dropout: float | Sequence[float], hidden: int) -> tuple[float, ...]:
    several = isinstance(dropout, Sequence | np.ndarray) and not isinstance(dropout, str)
    given = [*dropout] if several else [dropout] * max(hidden, 1)  # type: ignore[misc]
    rates = [Limits(at_least=0, below=1).check("mlp: dropout", rate) for rate in given]
    rates = rates if several else rates[:hidden]
    if len(rates) != hidden:
        raise UsageError(
            f"mlp: needs a dropout rate for each hidden layer (got {len(rates)} for {hidden})"
        )
    return tuple(rates)


def _checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    given = [*sizes] if isinstance(sizes, Sequence | np.ndarray) else [sizes]
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in given)
    if len(given) < 2 or not whole or min(given) < 1:
        raise UsageError(
            f"mlp: sizes must be two or more whole numbers from 1 (got {sizes!r}); write "
            f"Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs"
        )
    return tuple(int(n) for n in sizes)
