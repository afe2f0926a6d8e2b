"""The statements of a training step in scalar C, and the place of every value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlpengine.backends.scalar.text import Functions
from mlpengine.backends.values import Value
from mlpengine.common.buffers import address_of
from mlpengine.common.placement import Storage
from mlpengine.spec import Array


@dataclass(eq=False)
class ScalarWriter:
    """Forward, loss and backward of `batch` rows.

    With one row no gradient of a parameter is computed: it is the product of two vectors that are
    kept until the update, ``factors``.

    Attributes:
        functions: to which the functions of the statements are added.
        fixed: C expressions of arrays that are not placed, by address: parameters and, with several
            rows, their gradients.
        storages: the places of the others in ``scratch``.
        statements: the C of the step; ``value`` becomes the loss.
        size: numbers in ``scratch``.
        factors: by the address of a weight's gradient, the expressions of dy and x.
    """

    batch: int
    functions: Functions
    fixed: Mapping[int, str]
    storages: dict[Value, Storage] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    size: int = 0
    factors: dict[int, tuple[str, str]] = field(default_factory=dict)

    @property
    def batched(self) -> bool:
        """Whether there are several rows."""
        return self.batch > 1

    def place_of(self, array: Array) -> str:
        """Return the C expression of an array that is given."""
        return next(self.places(v) for v in self.storages if v.address == address_of(array))

    def places(self, *values: Value) -> str:
        """Return the C expressions of values, as arguments."""
        return ", ".join(
            f"scratch + {self.storages[v].offset}" if v in self.storages else self.fixed[v.address]
            for v in values
        )

    def sizes(self, in_dim: int, out_dim: int) -> str:
        """Return the arguments of a layer's function."""
        return f"{self.batch}, {in_dim}, {out_dim}" if self.batched else f"{in_dim}, {out_dim}"
