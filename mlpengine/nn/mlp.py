"""A multilayer perceptron, recorded on the tape."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from mlpengine.core.buffers import unmasked
from mlpengine.core.errors import ShapeError, UsageError
from mlpengine.core.fields import Limits
from mlpengine.core.spec import Array, ArrayLike, DTypeLike, floating
from mlpengine.core.wording import plural, quoted
from mlpengine.nn.initializers import biases_from, initialize, suited_to
from mlpengine.nn.input_layer import InputLayer
from mlpengine.nn.layers import (
    ACTIVATIONS,
    ActivationLike,
    activation_op,
    parameter_specs,
    plan_layers,
    record_layers,
)
from mlpengine.nn.tabular import TabularNetwork
from mlpengine.ops import GradOp
from mlpengine.tape.tape import Node, Tape

Parametrization = Literal["standard", "neural_tangent"]

ROWS_AT_START = 2048
"""Maximum number of rows from which initial weights are scaled."""


class Mlp(TabularNetwork):
    """Dense layers, each followed by an activation, with all parameters in one flat vector.

    Args:
        sizes: in_dim, the hidden sizes, out_dim.
        activation: activation after every hidden layer, or a sequence with one for each.
        output_activation: activation after the last layer; usually None, because losses take
            logits.
        dropout: probability of dropping a hidden activation in training, or a sequence with one for
            each hidden layer; rounded to a multiple of 1/256 (see `mlpengine.ops.Dropout`).
        initializer: initializer of the weights, one of `INITIALIZERS`; None chooses one for each
            activation.
        seed: seed of the initial weights and of dropout.
        dtype: float32 or float64, for everything.
        input_layer: an `InputLayer` between the features and the first layer, or None.
        learned_activation: whether hidden activations f become x + alpha (f(x) - x) with a learned
            alpha for each unit; alpha starts at 1.
        parametrization: ``neural_tangent`` divides products with weights by sqrt(in_dim), and
            weights start with variance 1 unless an initializer is given.

    Attributes:
        layers: the layers in order.
        input_layer: the `InputLayer`, or None.
        params: all parameters, named as in PyTorch's ``nn.Sequential`` of an equal network.  The
            input layer's parameters begin with "input_layer."; learned activations have "1.alpha"
            etc.

    Raises: UsageError for invalid sizes, names or rates; DtypeError.
    """

    __slots__ = ("_dropout", "layers", "learned_activation", "parametrization")

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
        input_layer: InputLayer | None = None,
        learned_activation: bool = False,
        parametrization: Parametrization = "standard",
    ) -> None:
        self.sizes = _checked_sizes(sizes)
        if parametrization not in get_args(Parametrization):
            raise UsageError(
                f"mlp: parametrization must be one of {', '.join(get_args(Parametrization))} "
                f"(got {parametrization!r})"
            )
        hidden = len(self.sizes) - 2
        rates = _dropout_rates(dropout, hidden)
        self._dropout = rates if len(set(rates)) > 1 else float(np.max(dropout, initial=0.0))
        self.initializer = initializer
        if not isinstance(learned_activation, bool):
            raise UsageError(
                f"mlp: learned_activation must be True or False (got {learned_activation!r})"
            )
        self.learned_activation = learned_activation
        self.parametrization: Parametrization = parametrization
        each = _one_each(activation, hidden)
        if len(each) != hidden:
            raise UsageError(
                f"mlp: needs one activation for each hidden layer (got {len(each)} for {hidden}); "
                f"write activation={[*each[:1]] * hidden}"
            )
        ops = [activation_op(a) for a in (*each, output_activation)]
        self.input_layer = input_layer
        self.layers = plan_layers(
            self.sizes,
            ops,
            rates,
            input_layer=input_layer,
            learned_activation=learned_activation,
            neural_tangent=parametrization == "neural_tangent",
        )
        specs = parameter_specs(self.layers, floating(dtype, "mlp"), input_layer, self.in_dim)
        super().__init__(
            self.in_dim,
            {name: spec.shape for name, spec in specs.items()},
            initializer=initializer,
            seed=seed,
            dtype=dtype,
        )

    def _initialize(self, initializer: str | None, rng: np.random.Generator) -> None:
        own = "unit_normal" if self._is_scaled else None
        for weight, layer in zip(self.weights, self.layers, strict=True):
            initialize(weight, initializer or own or suited_to(layer.activation), rng)
            if layer.alpha_name is not None:
                self.params.views[layer.alpha_name][...] = 1
        if self.input_layer is not None:
            self.input_layer.initialize(self.params.views, rng)

    def record(self, tape: Tape, x: Node) -> Node:
        """Record the input layer and the dense layers on `tape`; return the output."""
        return record_layers(
            self.layers, tape, self.input_layer.record(tape, x) if self.input_layer else x
        )

    @property
    def _where(self) -> str:
        return "mlp"

    @property
    def dropout(self) -> float | tuple[float, ...]:
        """Rate of the hidden layers, or a rate for each layer if the rates differ."""
        return self._dropout

    @property
    def weights(self) -> list[Array]:
        """Weights by layer, views (out_dim, in_dim) of ``params.flat``."""
        return [self.params.views[layer.weight_name] for layer in self.layers]

    @property
    def biases(self) -> list[Array]:
        """Biases by layer, views (out_dim,) of ``params.flat``."""
        return [self.params.views[layer.bias_name] for layer in self.layers]

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names of parameters by group: weights, biases, alphas, embedding and scaling."""
        groups = {
            "weights": [layer.weight_name for layer in self.layers],
            "biases": [layer.bias_name for layer in self.layers],
            "alphas": [layer.alpha_name for layer in self.layers if layer.alpha_name],
        }
        return {group: tuple(names) for group, names in groups.items()} | self._input_layer_groups

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

    def initialize_from(self, x: ArrayLike, *, seed: int = 0) -> None:
        """Rescale the weights so that pre-activations have variance 1 on rows `x` (rows, in_dim).

        The method goes layer by layer, in float64, on up to 2,048 evenly spaced rows.  The bias of
        a unit is then minus a random convex combination of the unit's pre-activations in five
        random rows.  Units with a constant pre-activation keep their weights.

        Raises: ShapeError or DtypeError if `x` does not fit or has no rows.
        """
        given = unmasked(x, "initialize_from: x")
        if not len(given):
            raise ShapeError("initialize_from: x needs at least one row (got 0)")
        rows = given[:: -(-len(given) // ROWS_AT_START)].astype(np.float64)
        wide = self.without_dropout("float64")
        scratch, rng = wide.scratch(len(rows)), np.random.default_rng(seed)
        for number, layer in enumerate(wide.layers):
            wide.forward(rows, scratch)
            h = scratch.activations[number - 1] if number else scratch.first
            z = h @ wide.weights[number].T * layer.factor
            spread = z.std(axis=0)
            spread[spread <= 1e-12 * np.abs(z).max(axis=0)] = 1.0
            wide.weights[number] /= spread[:, None]
            wide.biases[number][...] = biases_from(z / spread, rng)
        self.params.flat[...] = wide.params.flat

    @property
    def _is_scaled(self) -> bool:
        return self.parametrization != "standard"

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
            "input_layer": self.input_layer,
            "learned_activation": self.learned_activation,
            "parametrization": self.parametrization,
        }

    def __repr__(self) -> str:
        arrows = "-".join(str(size) for size in self.sizes)
        return f"Mlp({arrows}, {plural(len(self.params), 'parameter')}, {self.dtype.name})"


def _one_each(
    activation: ActivationLike | Sequence[ActivationLike], hidden: int
) -> list[ActivationLike]:
    if activation is None or isinstance(activation, str | GradOp):
        return [activation] * hidden
    if not isinstance(activation, Sequence):
        names = (getattr(activation, "__name__", ""), "relu")
        near = next(name for name in names if name in ACTIVATIONS)
        raise UsageError(
            f"mlp: activation must be one, or one for each layer (got {quoted(activation)}); "
            f"write activation={near!r}"
        )
    return list(activation)


def _dropout_rates(dropout: float | Sequence[float], hidden: int) -> tuple[float, ...]:
    several = isinstance(dropout, Sequence | np.ndarray) and not isinstance(dropout, str)
    given = [*dropout] if several else [dropout] * max(hidden, 1)  # type: ignore[misc]
    rates = [Limits(at_least=0, below=1).check("mlp: dropout", rate) for rate in given]
    rates = rates if several else rates[:hidden]
    if len(rates) != hidden:
        raise UsageError(
            f"mlp: needs one dropout for each hidden layer (got {len(rates)} for {hidden})"
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
