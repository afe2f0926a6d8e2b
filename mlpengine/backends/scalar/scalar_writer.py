"""The statements of a step on single numbers, and the place of every value in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlpengine.backends.compiled.statements import ForLoop, Statement, element
from mlpengine.backends.scalar.definitions import Functions
from mlpengine.backends.values import MatrixValue
from mlpengine.core.buffers import address_of
from mlpengine.core.placement import Storage
from mlpengine.core.spec import Array
from mlpengine.formula import Expr


@dataclass(eq=False)
class ScalarWriter:
    """Forward, loss and backward of one row.

    The gradient of a weight is not computed, because it is the product of two vectors.  These
    ``factors`` are kept until the update.

    Attributes:
        functions: definitions; called functions are added.
        fixed: text of arrays with a place of their own, such as parameters, by address.
        memory: name of the array that holds all other values.
        storages: positions of values in ``memory``.
        statements: statements of the step; their variable ``value`` is the loss.
        size: number of entries of ``memory``.
        factors: texts of dy and x, by the address of a weight's gradient.
        trains: whether there is a loss.
    """

    functions: Functions
    fixed: Mapping[int, str]
    memory: str
    storages: dict[MatrixValue, Storage] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    size: int = 0
    factors: dict[int, tuple[str, str]] = field(default_factory=dict)
    trains: bool = False

    def place_of(self, array: Array) -> str:
        """Return the text of an array in ``memory``."""
        return next(self.places(v) for v in self.storages if v.address == address_of(array))

    def places(self, *values: MatrixValue) -> str:
        """Return the addresses of values as the text of arguments."""
        return ", ".join(map(self._place, values))

    def element(self, value: MatrixValue, index: str) -> Expr:
        """Return an entry of a value."""
        return element(f"({self._place(value)})", index)

    def each_row(self, function: str, rows: int, *arguments: MatrixValue | str) -> Statement:
        """Return the call of a function for each of `rows` rows; matrices advance by a row."""
        shown = [
            a if isinstance(a, str) else self._place(a) + f" + row * {a.columns}" * (a.rows > 1)
            for a in arguments
        ]
        call = f"{function}({', '.join(shown)});"
        return call if rows == 1 else ForLoop("row", 0, rows, [call])

    def _place(self, value: MatrixValue) -> str:
        storage = self.storages.get(value)
        return f"{self.memory} + {storage.offset}" if storage else self.fixed[value.address]
