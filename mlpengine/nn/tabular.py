"""The base class of networks for tables."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, Self

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.core.structure import check_keys
from mlpengine.core.wording import quoted
from mlpengine.nn.layers import activation_from_dict, activation_to_dict
from mlpengine.nn.network import Network
from mlpengine.ops import Cat, GradOp
from mlpengine.tape.tape import Node

Ranges = tuple[tuple[int, int], ...]
"""Ranges (start, stop) of features, as in slices."""


class TabularNetwork(Network):
    """A network from the features of a table to outputs; configs and models use such networks.

    Attributes:
        sizes: in_dim, the number of outputs of each hidden layer or block, and out_dim.
        reads: ranges of the features that layer 0 reads; empty for all features.
        initializer: initializer of the weights; None chooses one for each activation.
    """

    __slots__ = ("initializer", "reads", "sizes")

    sizes: tuple[int, ...]
    reads: Ranges
    initializer: str | None

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Arguments of the constructor, without the seed."""

    @property
    @abstractmethod
    def layer_names(self) -> Sequence[tuple[str, ...]]:
        """Names of each layer's parameters; ``layer_names[0][0]`` is the weight of the features."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the last layer's parameters; scaling all of them scales the outputs."""
        return self.layer_names[-1]

    @property
    @abstractmethod
    def dense_sizes(self) -> Sequence[tuple[int, int]]:
        """Number of inputs and outputs of each weight matrix."""

    @property
    @abstractmethod
    def dropped_units(self) -> int:
        """Number of units per row to which dropout applies."""

    @property
    @abstractmethod
    def activations(self) -> Mapping[str, str]:
        """Name of each activation, by the name of the weight matrix before the activation."""

    def check_rows(self, *, training: bool = False) -> None:
        """Do nothing: in these networks, no output depends on other rows."""

    @property
    def out_sizes(self) -> Mapping[str, int]:
        """The number of outputs; the only output has the name ""."""
        return {"": self.sizes[-1]}

    @property
    def is_linear(self) -> bool:
        """Whether the network is a linear model of all features, without hidden layers."""
        return len(self.sizes) == 2 and not self.reads and not self.activations

    def describe(self) -> dict[str, Any]:
        settings = {n: _data_of(v) for n, v in self.options.items() if n != "initializer"}
        return {"name": type(self).__name__, "settings": settings}

    def to_dict(self) -> dict[str, Any]:
        return self.describe()

    @classmethod
    def _constructed(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        names = signature(cls).parameters.keys() - {"seed", "initializer"}
        check_keys(settings, "network.settings", sorted(names))
        options = dict(settings) | {"initializer": "zeros"}
        for name in ("activation", "output_activation"):
            if name in options:
                options[name] = _activation_of(options[name])
        return options

    @classmethod
    def restored(cls, description: Mapping[str, Any], state: Mapping[str, Array]) -> Self:
        network = super().restored(description, state)
        network.initializer = None  # `describe` leaves it out
        return network

    @property
    def in_dim(self) -> int:
        """Number of features."""
        return self.sizes[0]

    @property
    def title(self) -> str:
        """Sizes as text, such as 4-16-1; the first is the number of features that layer 0 reads."""
        return "-".join(map(str, (self.n_inputs, *self.sizes[1:])))

    def like(self, **changes: Any) -> Self:
        """Return a new network with this architecture and these options, except for `changes`.

        The new network has new initial weights, and the same layers are frozen.
        """
        network = type(self)(**self.options | changes)
        network.freeze(self.frozen)
        if changes.keys() == {"seed"}:
            network.shared_scratches = self.shared_scratches
        return network

    def freeze(self, layers: Iterable[Any]) -> None:
        """Freeze the parameters of these layers, and train all others.

        Layer 0 is the first layer, and -1 the last; an empty list unfreezes all.  The gradients of
        frozen layers are zero and are not computed.  No optimizer changes or decays these layers.
        Call this method before you make gradients, optimizer and training step.

        >>> from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep
        >>> mlp = Mlp([4, 8, 8, 1])
        >>> mlp.freeze([0, 1])
        >>> step = TrainingStep(mlp, MeanSquaredError(), Adam(mlp), batch_size=16)

        Raises: UsageError for a layer that does not exist, or if no layer is left to train.
        """
        each, frozen = self.layer_names, set[str]()
        count = len(each)
        if not np.iterable(layers) or isinstance(layers, str):
            raise UsageError(f"freeze: layers must be a list (got {layers!r}); write freeze([0])")
        for number in layers:
            if not isinstance(number, int | np.integer) or not -count <= number < count:
                raise UsageError(f"freeze: a layer must be from 0 to {count - 1} (got {number!r})")
            frozen |= {*each[int(number)]}
        super().freeze(frozen)

    @property
    def frozen(self) -> list[int]:
        """Numbers of the frozen layers."""
        frozen = self.params.frozen
        return [k for k, (first, *_) in enumerate(self.layer_names) if first in frozen]

    def read(self, x: Node) -> Node:
        """Return a node with the features that layer 0 reads."""
        parts: list[Node] = [x[:, slice(*pair)] for pair in self.reads]
        joined: Node = x.tape.apply(Cat(axis=1), *parts) if len(parts) > 1 else [*parts, x][0]
        return joined

    @property
    def n_inputs(self) -> int:
        """Number of features that layer 0 reads."""
        return sum(stop - start for start, stop in self.reads) or self.in_dim

    def divide_outputs(self, number: float) -> None:
        """Divide the outputs of the network by a number."""
        for name in self.output_names:
            self.params.views[name][...] /= number


def checked_ranges(ranges: Any, in_dim: int) -> Ranges:
    """Return `ranges` as tuples.  Raises: UsageError unless bounds rise to at most `in_dim`."""
    given = ranges if np.iterable(ranges) else (ranges,)
    pairs: Any = tuple(tuple(one) if np.iterable(one) else () for one in given)
    ends = [end for pair in pairs for end in pair]
    if any(len(pair) != 2 or not all(isinstance(end, int) for end in pair) for pair in pairs) or (
        [-1, *ends, in_dim + 1] != sorted({-1, *ends, in_dim + 1})
    ):
        raise UsageError(
            f"network: reads must be pairs of rising numbers up to {in_dim} (got {quoted(ranges)})"
        )
    return tuple((start, stop) for start, stop in pairs)


def _data_of(value: Any) -> Any:
    """Return the value of a network's option as JSON-able data."""
    if isinstance(value, GradOp):
        return activation_to_dict(value)
    if isinstance(value, np.dtype):
        return value.name
    return [_data_of(one) for one in value] if isinstance(value, list | tuple) else value


def _activation_of(value: Any) -> Any:
    """Return the activation or list of activations that `_data_of` described."""
    if isinstance(value, list):
        return [_activation_of(one) for one in value]
    return activation_from_dict(value) if isinstance(value, dict) else value
