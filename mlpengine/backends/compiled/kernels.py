"""Kernels: the intermediate representation between the instruction list and the C text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mlpengine.backends.compiled.rules import Rule
from mlpengine.backends.compiled.values import Value
from mlpengine.ops import Dropout
from mlpengine.ops._op import GradOp
from mlpengine.spec import Array

Form = Literal["forward", "input_gradient", "weight_gradient"]


@dataclass(eq=False)
class Map:
    """An element-wise rule; ``names`` maps the rule's names to values.

    The values have one shape, but those it reads may also be vectors, the same for every row.
    """

    rule: Rule
    op: GradOp
    names: Mapping[str, Value]
    text: str

    @property
    def reads(self) -> list[Value]:
        """What it reads."""
        return [self.names[name] for name in self.rule.reads]

    @property
    def writes(self) -> list[Value]:
        """What it writes."""
        return [self.names[name] for name in self.rule.writes]


@dataclass(eq=False)
class Product:
    """A matrix product c = a b of one of three forms, and the maps fused into its last pass.

    forward: y = x w^T (+ bias); input_gradient: dx = dy w; weight_gradient: dw = dy^T x.
    Each product is multiplied by `factor`, before the bias is added.
    """

    form: Form
    a: Value
    b: Value
    c: Value
    bias: Value | None
    text: str
    epilogue: list[Map] = field(default_factory=list)
    factor: float = 1.0

    @property
    def rows(self) -> int:
        """Rows of c."""
        return self.a.columns if self.form == "weight_gradient" else self.a.rows

    @property
    def columns(self) -> int:
        """Columns of c."""
        return self.b.rows if self.form == "forward" else self.b.columns

    @property
    def depth(self) -> int:
        """Terms of each sum."""
        return self.a.rows if self.form == "weight_gradient" else self.a.columns

    def is_turned(self, lanes: int) -> bool:
        """Return whether the transpose is computed instead, because it fills vectors of `lanes`."""
        across = self.form == "weight_gradient"
        return across and self.columns <= lanes and self.rows >= 2 * lanes

    @property
    def reads(self) -> list[Value]:
        """What it reads, fused maps included."""
        own = [self.a, self.b] + ([self.bias] if self.bias else [])
        made = {self.c, *(v for m in self.epilogue for v in m.writes)}
        return own + [v for m in self.epilogue for v in m.reads if v not in made]

    @property
    def writes(self) -> list[Value]:
        """The values that it computes, stored or not."""
        return [self.c, *(v for m in self.epilogue for v in m.writes)]


@dataclass(eq=False)
class ColumnSum:
    """The bias gradient: each column of x summed over the rows."""

    x: Value
    out: Value
    text: str

    @property
    def reads(self) -> list[Value]:
        """What it reads."""
        return [self.x]

    @property
    def writes(self) -> list[Value]:
        """What it writes."""
        return [self.out]


@dataclass(eq=False)
class LossRows:
    """A loss, row by row: its gradient, and each row's value for the sum that follows.

    Both are divided by `mean_rows`, the rows of the mean, of which the program may have a part.
    """

    op: GradOp
    output: Value
    target: Value
    weight: Value | None
    d_output: Value | None
    value: Array
    mean_rows: int
    text: str

    @property
    def reads(self) -> list[Value]:
        """What it reads."""
        return [self.output, self.target] + ([self.weight] if self.weight else [])

    @property
    def writes(self) -> list[Value]:
        """What it writes."""
        return [self.d_output] if self.d_output else []


@dataclass(eq=False)
class Draw:
    """The random bytes of a dropout, of which `out` is the mask."""

    op: Dropout
    out: Value
    text: str

    @property
    def reads(self) -> list[Value]:
        """Nothing."""
        return []

    @property
    def writes(self) -> list[Value]:
        """What it writes."""
        return [self.out]


@dataclass(eq=False)
class Embedding:
    """The forward rule of `PeriodicEmbedding`; `weight` and `bias` may be None."""

    x: Value
    frequency: Value
    phase: Value
    weight: Value | None
    bias: Value | None
    y: Value
    text: str

    @property
    def reads(self) -> list[Value]:
        """What it reads."""
        mixing = [v for v in (self.weight, self.bias) if v is not None]
        return [self.x, self.frequency, self.phase, *mixing]

    @property
    def writes(self) -> list[Value]:
        """What it writes."""
        return [self.y]


@dataclass(eq=False)
class EmbeddingSums:
    """The gradients of the parameters of a `PeriodicEmbedding`, summed over the rows."""

    dy: Value
    x: Value
    frequency: Value
    phase: Value
    weight: Value | None
    d_frequency: Value
    d_phase: Value
    d_weight: Value | None
    d_bias: Value | None
    text: str

    @property
    def reads(self) -> list[Value]:
        """What it reads."""
        mixing = [self.weight] if self.weight else []
        return [self.dy, self.x, self.frequency, self.phase, *mixing]

    @property
    def writes(self) -> list[Value]:
        """What it writes."""
        mixing = [v for v in (self.d_weight, self.d_bias) if v is not None]
        return [self.d_frequency, self.d_phase, *mixing]


@dataclass(eq=False)
class SoftmaxRows:
    """Softmax of each row of x or its `logarithm`; with `dy` the gradient, and x is the value."""

    x: Value
    dy: Value | None
    out: Value
    logarithm: bool
    text: str

    @property
    def reads(self) -> list[Value]:
        """What it reads."""
        return [self.x] + ([self.dy] if self.dy else [])

    @property
    def writes(self) -> list[Value]:
        """What it writes."""
        return [self.out]


Kernel = Map | Product | ColumnSum | LossRows | Draw | SoftmaxRows | Embedding | EmbeddingSums


def read_by_vectors(kernel: Kernel, lanes: int) -> list[Value]:
    """Return the values that `kernel` reads by whole vectors, for every length of the rows."""
    if isinstance(kernel, Map):
        return kernel.reads
    if not isinstance(kernel, Product):
        return []
    vectors = [v for m in kernel.epilogue for v in m.reads]
    if kernel.bias is not None:
        vectors.append(kernel.bias)
    if kernel.form == "weight_gradient":
        vectors.append(kernel.a if kernel.is_turned(lanes) else kernel.b)
    return vectors


def fuse(kernels: list[Kernel]) -> list[Kernel]:
    """Move each map into the last pass of the product whose value it reads.

    A map is moved only if no kernel between the two computes another of its operands.
    """
    fused: list[Kernel] = []
    for kernel in kernels:
        host = _host(kernel, fused)
        if host is None:
            fused.append(kernel)
        else:
            assert isinstance(kernel, Map)
            host.epilogue.append(kernel)
    return fused


def _host(kernel: Kernel, before: list[Kernel]) -> Product | None:
    """Return the product into which `kernel` can be fused: the last to compute an operand of it."""
    if not isinstance(kernel, Map):
        return None
    for host in reversed(before):
        if any(v in host.writes for v in kernel.reads):
            wide = isinstance(host, Product) and host.form != "weight_gradient"
            return host if wide and isinstance(host, Product) else None
    return None


def mark_stored(kernels: list[Kernel]) -> None:
    """Mark the values that stay in registers: only the kernel that computes them reads them."""
    readers: dict[Value, set[int]] = {}
    for i, kernel in enumerate(kernels):
        for value in kernel.reads:
            readers.setdefault(value, set()).add(i)
    for i, kernel in enumerate(kernels):
        for value in kernel.writes:
            value.stored = value.final or bool(readers.get(value, set()) - {i})
