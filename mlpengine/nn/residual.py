"""A residual network with layer norm, for tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlpengine.core.fields import COUNT, Limits
from mlpengine.core.spec import DTypeLike
from mlpengine.core.wording import plural
from mlpengine.nn.initializers import initialize, suited_to
from mlpengine.nn.layers import (
    ActivationLike,
    activation_op,
)
from mlpengine.nn.tabular import Ranges, TabularNetwork, checked_ranges
from mlpengine.tape.tape import Node, Tape

MAX_BLOCKS = 1_000


class Residual(TabularNetwork):
    """A residual network: a dense layer, residual blocks, and an output layer.

    A block is h + dropout(down(dropout(activation(up(norm(h)))))), with layer norm and the dense
    layers up and down.  The output layer is dense(activation(norm(h))).

    >>> from mlpengine.nn import Residual
    >>> network = Residual(4, 1, blocks=2, width=32, dropout=0.1)
    >>> network.predict([[0.0, 0.5, 1.0, 1.5]]).shape
    (1, 1)

    Args:
        in_dim: number of features.
        outputs: number of outputs.
        blocks: number of blocks.
        width: number of outputs of the first layer and of each block.
        expansion: number of hidden units in a block / `width`.
        activation: activation in blocks and before the last layer, an op that keeps the shape.
        dropout: probability of dropping a hidden unit of a block in training.
        residual_dropout: probability of dropping an output of the layer down in training.
        initializer: initializer of the weights, one of `INITIALIZERS`; None chooses one for the
            activation.
        seed: seed of the initial weights and of dropout.
        dtype: float32 or float64, of parameters, inputs and outputs.
        reads: ranges (start, stop) of the features that the first layer reads, such as
            ((0, 3), (5, 8)); empty for all features.

    Raises: UsageError for invalid sizes, names or rates; DtypeError.

    Source: Gorishniy, Rubachev, Khrulkov and Babenko 2021, arXiv 2106.11959, section 3.2, with
    layer norm in place of batch norm.
    """

    __slots__ = ("activation", "blocks", "dropout", "expansion", "residual_dropout", "width")

    def __init__(
        self,
        in_dim: int,
        outputs: int,
        *,
        blocks: int = 2,
        width: int = 128,
        expansion: int = 2,
        activation: ActivationLike = "relu",
        dropout: float = 0.0,
        residual_dropout: float = 0.0,
        initializer: str | None = None,
        seed: int = 0,
        dtype: DTypeLike = "float32",
        reads: Ranges = (),
    ) -> None:
        sizes = {"in_dim": in_dim, "outputs": outputs, "width": width, "expansion": expansion}
        for name, size in sizes.items():
            COUNT.check(f"residual: {name}", size)
        Limits(at_least=1, at_most=MAX_BLOCKS, whole=True).check("residual: blocks", blocks)
        rate = Limits(at_least=0, below=1)
        self.dropout: float = rate.check("residual: dropout", dropout)
        self.residual_dropout: float = rate.check("residual: residual_dropout", residual_dropout)
        self.sizes = (in_dim, *[width] * (blocks + 1), outputs)
        self.blocks, self.width, self.expansion = blocks, width, expansion
        self.activation = activation_op(activation)
        self.initializer, self.reads = initializer, checked_ranges(reads, in_dim)
        shapes = residual_shapes(
            self.n_inputs, outputs, blocks=blocks, width=width, expansion=expansion
        )
        super().__init__(in_dim, shapes, initializer=initializer, seed=seed, dtype=dtype)

    def _initialize(self, initializer: str | None, rng: np.random.Generator) -> None:
        for name, view in self.params.views.items():
            if name.endswith("norm.weight"):
                view[...] = 1
            elif view.ndim == 2:
                follows = name.endswith("up.weight")
                initialize(
                    view, initializer or suited_to(self.activation if follows else None), rng
                )

    def record(self, tape: Tape, x: Node) -> Node:
        """Record the blocks and the output on `tape`; return the output."""
        h = tape.layer("first", self._dense(tape, self.read(x), "first"))
        for k in range(self.blocks):
            z = self._dense(tape, self._norm(tape, h, f"blocks.{k}.norm"), f"blocks.{k}.up")
            z = self._dense(
                tape, tape.dropout(self._activated(tape, z), self.dropout), f"blocks.{k}.down"
            )
            h = tape.layer(f"block {k}", h + tape.dropout(z, self.residual_dropout))
        h = self._activated(tape, self._norm(tape, h, "norm"))
        return self._dense(tape, h, "out")

    def _norm(self, tape: Tape, h: Node, name: str) -> Node:
        y: Node = h.layer_norm(tape.parameter(f"{name}.weight"), tape.parameter(f"{name}.bias"))
        return y

    def _dense(self, tape: Tape, h: Node, name: str) -> Node:
        y: Node = h.linear(tape.parameter(f"{name}.weight"), tape.parameter(f"{name}.bias"))
        return y

    def _activated(self, tape: Tape, h: Node) -> Node:
        return h if self.activation is None else tape.apply(self.activation, h)

    @property
    def _where(self) -> str:
        return "residual"

    @property
    def options(self) -> dict[str, Any]:
        names = ("blocks", "width", "expansion", "activation", "dropout", "residual_dropout")
        shared = ("initializer", "dtype", "reads")
        return {
            "in_dim": self.in_dim,
            "outputs": self.sizes[-1],
            **{name: getattr(self, name) for name in (*names, *shared)},
        }

    @property
    def layer_names(self) -> Sequence[tuple[str, ...]]:
        """Names of the parameters by layer: the first layer, each block, the last layer."""
        blocks = [
            tuple(
                f"blocks.{k}.{part}.{of}" for part in ("up", "norm", "down") for of in WEIGHT_BIAS
            )
            for k in range(self.blocks)
        ]
        first = tuple(f"first.{of}" for of in WEIGHT_BIAS)
        return [first, *blocks, (*self.output_names, *(f"norm.{of}" for of in WEIGHT_BIAS))]

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(f"out.{of}" for of in WEIGHT_BIAS)

    @property
    def dense_sizes(self) -> Sequence[tuple[int, int]]:
        width, inner = self.width, self.width * self.expansion
        blocks = [(width, inner), (inner, width)] * self.blocks
        return [(self.in_dim, width), *blocks, (width, self.sizes[-1])]

    @property
    def dropped_units(self) -> int:
        each = self.expansion * (self.dropout > 0) + (self.residual_dropout > 0)
        return self.blocks * self.width * each

    @property
    def activations(self) -> Mapping[str, str]:
        weights = (*(f"blocks.{k}.up.weight" for k in range(self.blocks)), "norm.weight")
        return dict.fromkeys(weights, self.activation.name) if self.activation else {}

    @property
    def title(self) -> str:
        return f"residual {self.n_inputs}-{self.width}x{self.blocks}-{self.sizes[-1]}"

    def __repr__(self) -> str:
        size = self.title.removeprefix("residual ")
        return f"Residual({size}, {plural(len(self.params), 'parameter')}, {self.dtype.name})"


WEIGHT_BIAS = ("weight", "bias")


def residual_shapes(
    in_dim: int, outputs: int, *, blocks: int, width: int, expansion: int
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters by name; `in_dim` is the first layer's input size."""
    inner = width * expansion

    def dense(name: str, size: int, units: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (units, size), f"{name}.bias": (units,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (width,), f"{name}.bias": (width,)}

    shapes = dense("first", in_dim, width)
    for k in range(blocks):
        shapes |= norm(f"blocks.{k}.norm")
        shapes |= dense(f"blocks.{k}.up", width, inner) | dense(f"blocks.{k}.down", inner, width)
    return shapes | norm("norm") | dense("out", width, outputs)
