"""The description of a matrix product."""

from dataclasses import dataclass, field
from typing import Literal

from mlpengine.backends.compiled.kernel import present
from mlpengine.backends.compiled.maps import Map
from mlpengine.backends.values import MatrixValue

Form = Literal["forward", "input_gradient", "weight_gradient"]


@dataclass(eq=False, repr=False)
class MatrixProduct:
    """A matrix product c = a b, and an epilogue: element-wise ops on c before it is stored.

    `form` is ``forward`` (y = x w^T + bias), ``input_gradient`` (dx = dy w) or ``weight_gradient``
    (dw = dy^T x).
    """

    form: Form
    a: MatrixValue
    b: MatrixValue
    c: MatrixValue
    bias: MatrixValue | None
    text: str
    epilogue: list[Map] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads, self.writes = present(self.a, self.b, self.bias), [self.c]

    @property
    def sums_rows(self) -> bool:
        """Whether the product is the gradient of a weight."""
        return self.form == "weight_gradient"

    @property
    def rows(self) -> int:
        """Rows of c."""
        return self.a.columns if self.sums_rows else self.a.rows

    @property
    def columns(self) -> int:
        """Columns of c."""
        return self.b.rows if self.form == "forward" else self.b.columns

    @property
    def depth(self) -> int:
        """Number of terms in each sum."""
        return self.a.rows if self.sums_rows else self.a.columns

    @property
    def tile_matrices(self) -> list[MatrixValue]:
        """The matrices in memory, in the shape of c, that a tile writes or its epilogue reads."""
        written = [v for v in self.writes if v.stored]
        read = [v for m in self.epilogue for v in m.reads if v not in self.writes]
        return [*dict.fromkeys(written + read)]

    def fuse(self, step: Map) -> None:
        """Add an element-wise op to the epilogue."""
        self.epilogue.append(step)
        self.reads += [v for v in step.reads if v not in self.writes]
        self.writes += step.writes
