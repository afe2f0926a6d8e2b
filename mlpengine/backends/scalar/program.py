"""The kernels of a training step as C statements, and the place of every value in one array."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mlpengine.backends.compiled.kernels import (
    ColumnSum,
    Kernel,
    LossRows,
    Map,
    Product,
    mark_stored,
)
from mlpengine.backends.compiled.lower import InstructionLike, lower
from mlpengine.backends.compiled.values import UnsupportedError, Value
from mlpengine.backends.scalar.functions import (
    back_dense,
    dense,
    each,
    gradients,
    loss_function,
)
from mlpengine.backends.scalar.text import Functions
from mlpengine.buffers import address_of
from mlpengine.placement import Storage, place
from mlpengine.spec import Array


@dataclass(eq=False)
class StepProgram:
    """Forward, loss and backward of `batch` rows.

    With one row no gradient of a parameter is computed: it is the product of two vectors that are
    kept until the update, ``factors``.

    Attributes:
        functions: to which the functions of the statements are added.
        fixed: C expressions of arrays that are not placed, by address: parameters and, with several
            rows, their gradients.
        inputs: arrays that are given, placed before everything else.
        statements: the C of the step; ``value`` becomes the loss.
        size: numbers in ``scratch``.
        factors: by the address of a weight's gradient, the expressions of dy and x.
    """

    instructions: Iterable[InstructionLike]
    batch: int
    functions: Functions
    fixed: Mapping[int, str]
    inputs: Sequence[Array]
    statements: list[str] = field(default_factory=list)
    size: int = 0
    factors: dict[int, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Lower the instructions, place their values and print the statements.

        Raises: UnsupportedError where something has no C.
        """
        lowered = lower(self.instructions, 1, {})
        for value in lowered.values:
            value.final = False
        mark_stored(lowered.kernels)
        self._storages: dict[Value, Storage] = {}
        self._find_lifetimes(lowered.kernels)
        self.size = place(self._storages.values(), 1)
        for kernel in lowered.kernels:
            self.statements += self._printed(kernel)

    def place_of(self, array: Array) -> str:
        """Return the C expression of an array of `inputs`."""
        return next(self._at(v) for v in self._storages if v.address == address_of(array))

    # ------------------------------------------------------------ placing
    def _find_lifetimes(self, kernels: Sequence[Kernel]) -> None:
        end = len(kernels)
        given = {address_of(array) for array in self.inputs}
        for time, kernel in enumerate(kernels):
            for value in kernel.writes:
                if value.stored and value.address not in self.fixed:
                    self._storages[value] = Storage(value.rows * value.columns, time, time)
            last = end if self.batch == 1 and _is_gradient(kernel) else time
            for value in kernel.reads:
                if value not in self._storages and value.address in given:
                    self._storages[value] = Storage(value.rows * value.columns, -1, time)
                if value in self._storages:
                    storage = self._storages[value]
                    storage.last = max(storage.last, last)

    def _at(self, value: Value) -> str:
        if value in self._storages:
            return f"scratch + {self._storages[value].offset}"
        return self.fixed[value.address]

    # ------------------------------------------------------------ printing
    @property
    def _batched(self) -> bool:
        return self.batch > 1

    def _printed(self, kernel: Kernel) -> list[str]:
        if isinstance(kernel, Product):
            rule = {"forward": self._forward, "input_gradient": self._input_gradient}
            return rule.get(kernel.form, self._gradients)(kernel)
        if isinstance(kernel, LossRows):
            return self._loss(kernel)
        if isinstance(kernel, Map):
            return [self._map(kernel)]
        if isinstance(kernel, ColumnSum):
            return []  # the gradient of a bias is summed with that of its weight
        raise UnsupportedError(kernel.text)

    def _sizes(self, in_dim: int, out_dim: int) -> str:
        return f"{self.batch}, {in_dim}, {out_dim}" if self._batched else f"{in_dim}, {out_dim}"

    def _forward(self, kernel: Product) -> list[str]:
        if len(kernel.epilogue) > 1 or kernel.bias is None:
            raise UnsupportedError("a layer of several activations")
        named = {"x": kernel.c}
        rule = None
        for step in kernel.epilogue:
            rule, named = step.rule, dict(step.names)
        stored = [name for name, value in named.items() if value.stored]
        rule = rule.limited_to(stored) if rule else None
        about = kernel.epilogue[0].op.name if kernel.epilogue else ""
        function = dense(
            self.functions,
            rule,
            stored,
            batched=self._batched,
            about=about,
        )
        places = "".join(f"{self._at(named[name])}, " for name in stored)
        operands = f"{self._at(kernel.a)}, {self._at(kernel.b)}, {self._at(kernel.bias)}"
        sizes = self._sizes(kernel.depth, kernel.columns)
        return [f"{function}({operands}, {places}{sizes});"]

    def _input_gradient(self, kernel: Product) -> list[str]:
        rule, reads, out = None, [], kernel.c
        about, later = "dx = dy w", list(kernel.epilogue)
        if later and not kernel.c.stored:
            step = later.pop(0)
            rule, (out,) = step.rule, step.writes
            reads = [name for name in step.rule.reads if step.names[name] is not kernel.c]
            places = "".join(f"{self._at(step.names[name])}, " for name in reads)
            about = f"dx = dy w, and the gradient of {step.op.name}"
        else:
            places = ""
        function = back_dense(self.functions, rule, reads, batched=self._batched, about=about)
        operands = f"{self._at(kernel.a)}, {self._at(kernel.b)}, {self._at(out)}"
        sizes = self._sizes(kernel.columns, kernel.depth)
        first = f"{function}({operands}, {places}{sizes});"
        return [first, *(self._map(step) for step in later)]

    def _gradients(self, kernel: Product) -> list[str]:
        dy, x = self._at(kernel.a), self._at(kernel.b)
        self.factors[kernel.c.address] = dy, x
        if not self._batched:
            return []
        function = gradients(self.functions)
        sizes = self._sizes(kernel.columns, kernel.rows)
        return [f"{function}({dy}, {x}, {self._at(kernel.c)}, {sizes});"]

    def _map(self, kernel: Map) -> str:
        rule = kernel.rule.limited_to([n for n, v in kernel.names.items() if v.stored])
        function = each(self.functions, rule, about=kernel.op.name)
        names = (*rule.reads, *rule.writes)
        places = ", ".join(self._at(kernel.names[name]) for name in names)
        out = kernel.writes[0]
        return f"{function}({places}, {out.rows * out.columns});"

    def _loss(self, kernel: LossRows) -> list[str]:
        output = kernel.output
        function = loss_function(self.functions, kernel.op, output.rows, output.columns)
        assert kernel.d_output is not None
        places = ", ".join(self._at(v) for v in (output, kernel.target, kernel.d_output))
        return [f"const real value = {function}({places});"]


def _is_gradient(kernel: Kernel) -> bool:
    return isinstance(kernel, ColumnSum) or (
        isinstance(kernel, Product) and kernel.form == "weight_gradient"
    )
