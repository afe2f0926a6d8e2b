"""What networks have in common that configs and models may have: a front, layers, linear twins."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mlpengine.core.buffers import write_into
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.nn.front import EMBEDDING, MASK, SCALE, Front
from mlpengine.nn.network import Network


class LinearOption(NamedTuple):
    """The option with which a network can hold a linear model.

    Attributes:
        name: of the option, False by default.
        group: of the parameters that it adds.
        neutral: their initial value, with which the network computes what it does without them.
    """

    name: str
    group: str
    neutral: float


class TabularNetwork(Network):
    """A network between the features and the outputs of a table, which configs and models have.

    Attributes:
        sizes: in_dim, the sizes of the layers' outputs, and out_dim.
        front: what computes the first layer's input from the features, or None.
        initializer: of the weights, or None for those that suit the activations.
    """

    linear_option: ClassVar[LinearOption]

    sizes: tuple[int, ...]
    front: Front | None
    initializer: str | None

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The arguments of the constructor that make such a network, but for the seed."""

    @property
    @abstractmethod
    def layer_names(self) -> Sequence[tuple[str, ...]]:
        """The names of the parameters by layer, without those of the front.

        The first is the weight that reads the front.
        """

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the parameters that the outputs are proportional to."""
        return self.layer_names[-1]

    @property
    @abstractmethod
    def dense_sizes(self) -> Sequence[tuple[int, int]]:
        """The inputs and outputs of each product with a weight, the front not counted."""

    @property
    @abstractmethod
    def dropped_units(self) -> int:
        """The number of units of a row that dropout may drop."""

    @property
    @abstractmethod
    def activations(self) -> Mapping[str, str]:
        """The names of the activations, by the weight of the layer before."""

    @property
    @abstractmethod
    def is_linear(self) -> bool:
        """Whether it holds a linear model, which training keeps linear."""

    @abstractmethod
    def linear(self, projection: Array, weight: Array, bias: Array) -> Self:
        """Return a network like this one that computes x @ projection @ weight.T + bias.

        A projection that picks columns of x is the numbers of these, (columns,), in place of a
        matrix (in_dim, columns).
        """

    def _of_features(self, weight: Array, projection: Array) -> Array:
        """Return weight (rows, columns) of x @ projection as one of x, (rows, in_dim)."""
        if projection.ndim == 2:
            product: Array = weight @ projection.T
            return product
        spread = np.zeros((len(weight), self.in_dim))
        spread[:, projection] = weight
        return spread

    @property
    def in_dim(self) -> int:
        """Number of features."""
        return self.sizes[0]

    @property
    def title(self) -> str:
        """Its sizes in a word, such as 4-16-1."""
        return "-".join(map(str, self.sizes))

    @property
    def can_be_linear(self) -> bool:
        """Whether it has the option by which it may hold a linear model."""
        return bool(self.options[self.linear_option.name])

    def like(self, **changes: Any) -> Self:
        """Return a new network of this architecture and these options, but for `changes`.

        Its weights are drawn anew, as those of a new network; the same layers are frozen.
        """
        network = type(self)(**self.options | changes)
        network.freeze(self.frozen)
        return network

    def like_linear(self, **changes: Any) -> Self:
        """Return a network as `like` does, which may hold a linear model.

        Raises: UsageError for an activation that is not element-wise, of an `Mlp`.
        """
        return self.like(**{self.linear_option.name: True}, **changes)

    def freeze(self, layers: Iterable[Any]) -> None:
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
        each, frozen = self.layer_names, set[str]()
        count = len(each)
        if not np.iterable(layers) or isinstance(layers, str):
            raise UsageError(f"freeze: layers must be a list (got {layers!r}); write freeze([0])")
        for number in layers:
            if not isinstance(number, int | np.integer) or not -count <= number < count:
                raise UsageError(f"freeze: layers count from 0 to {count - 1} (got {number!r})")
            frozen |= {*each[int(number)]}
            if number in (0, -count) and self.front is not None:
                frozen |= self.front.specs(self.in_dim, self.dtype).keys()
        super().freeze(frozen)

    @property
    def frozen(self) -> list[int]:
        """The numbers of the layers that `freeze` froze."""
        frozen = self.params.frozen
        return [k for k, (first, *_) in enumerate(self.layer_names) if first in frozen]

    @property
    def _fixed(self) -> frozenset[str]:
        return frozenset({MASK} & self.params.specs.keys())

    @property
    def _front_groups(self) -> dict[str, tuple[str, ...]]:
        """The groups of the front's parameters."""
        names = self.params.specs
        return {
            "embedding": tuple(name for name in names if name.startswith(f"{EMBEDDING}.")),
            "scaling": (SCALE,) if SCALE in names else (),
        }

    def mask_inputs(self, kept: ArrayLike) -> None:
        """Let layer 0 read the numbers of the front where `kept` (numbers,) is true, and no others.

        The weights of layer 0, which must be new, are rescaled to as many inputs.

        Raises: UsageError if the front has no mask, or no number is kept; ShapeError.
        """
        mask = np.asarray(kept, np.bool_)
        if MASK not in self.params.views:
            raise UsageError(f"mask_inputs: needs a front with masked=True (got {self.front})")
        write_into(self.params.views[MASK], mask.astype(self.dtype), "mask_inputs: kept")
        if not mask.any():
            raise UsageError("mask_inputs: layer 0 needs a number to read (got none)")
        self.params.views[self.layer_names[0][0]] *= (mask.size / mask.sum()) ** 0.5

    @property
    def n_inputs(self) -> int:
        """How many numbers the first layer reads: the features, or what the front makes of them."""
        return self.front.out_dim(self.in_dim) if self.front else self.in_dim

    def divide_outputs(self, number: float) -> None:
        """Divide what the network computes by a number."""
        for name in self.output_names:
            self.params.views[name][...] /= number
