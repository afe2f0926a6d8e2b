"""The scalar statements of a step, and the position of every value in memory."""

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
    """Scalar code of forward, loss and backward for one row.

    The gradient of a weight is the outer product of the vectors dy and x.  This product is not
    computed: the update reads the two vectors (`factors`).

    Attributes:
        functions: definitions of the file; the functions that are called here are added.
        fixed: C expressions of arrays outside `memory`, such as parameters, by address.
        memory: name of the array that holds all other values.
        storages: positions of values in `memory`.
        statements: statements of the step; their variable ``value`` is the loss.
        size: number of entries of `memory`.
        factors: C expressions of dy and x, by the address of a weight's gradient.
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
        """Return the C expression of an array in `memory`, such as "scratch + 8"."""
        return next(self.places(v) for v in self.storages if v.address == address_of(array))

    def places(self, *values: MatrixValue) -> str:
        """Return the C expressions of values, separated by commas, as arguments of a call."""
        return ", ".join(map(self._place, values))

    def element(self, value: MatrixValue, index: str) -> Expr:
        """Return an entry of a value."""
        return element(f"({self._place(value)})", index)

    def each_row(self, function: str, rows: int, *arguments: MatrixValue | str) -> Statement:
        """Return one call of a function for each row; values with several rows go row by row."""
        shown = [
            a if isinstance(a, str) else self._place(a) + f" + row * {a.columns}" * (a.rows > 1)
            for a in arguments
        ]
        call = f"{function}({', '.join(shown)});"
        return call if rows == 1 else ForLoop("row", 0, rows, [call])

    def _place(self, value: MatrixValue) -> str:
        storage = self.storages.get(value)
        return f"{self.memory} + {storage.offset}" if storage else self.fixed[value.address]
