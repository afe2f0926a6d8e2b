"""The statements of a training step on scalars, and the place of every value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlpengine.backends.compiled.statements import Statement
from mlpengine.backends.scalar.definitions import Functions
from mlpengine.backends.values import MatrixValue
from mlpengine.core.buffers import address_of
from mlpengine.core.placement import Storage
from mlpengine.core.spec import Array


@dataclass(eq=False)
class ScalarWriter:
    """Forward, loss and backward of `batch` rows.

    With one row no gradient of a parameter is computed: the gradient is the product of two vectors,
    ``factors``.  They are kept until the update.

    Attributes:
        batched: whether functions take a number of rows, as they must for several.
        functions: the functions that the statements call are added to it.
        fixed: the text of arrays that are not placed, by address: parameters and, with several
            rows, their gradients.
        memory: the name of the array that holds all other arrays.
        storages: the places of these arrays in ``memory``.
        statements: of the step; ``value`` becomes the loss.
        size: numbers in that array.
        factors: by the address of a weight's gradient, the text of dy and x.
    """

    batch: int
    batched: bool
    functions: Functions
    fixed: Mapping[int, str]
    memory: str
    storages: dict[MatrixValue, Storage] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    size: int = 0
    factors: dict[int, tuple[str, str]] = field(default_factory=dict)

    def place_of(self, array: Array) -> str:
        """Return the text of an array that is given."""
        return next(self.places(v) for v in self.storages if v.address == address_of(array))

    def places(self, *values: MatrixValue) -> str:
        """Return the text of values, as arguments."""
        return ", ".join(map(self._place, values))

    def _place(self, value: MatrixValue) -> str:
        storage = self.storages.get(value)
        return f"{self.memory} + {storage.offset}" if storage else self.fixed[value.address]

    def sizes(self, in_dim: int, out_dim: int) -> str:
        """Return the arguments of a layer's function."""
        return f"{self.batch}, {in_dim}, {out_dim}" if self.batched else f"{in_dim}, {out_dim}"
