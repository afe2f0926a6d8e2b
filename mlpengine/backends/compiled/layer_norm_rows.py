"""Layer norm, and its gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlpengine.backends.compiled.column_sum import ColumnSum
from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel, present
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.row_loops import lane_loop, mask_lanes
from mlpengine.backends.compiled.statements import ForLoop, Statement, load_vector, store
from mlpengine.backends.scalar.layer_functions import layer_norm_function
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values
from mlpengine.core.spec import Array
from mlpengine.ops import LayerNorm


@dataclass(eq=False, repr=False)
class LayerNormRows(Kernel):
    """Layer norm, row by row; backward reads xhat (the normalized row) and rstd (1 / std)."""

    x: MatrixValue
    scale: MatrixValue | None
    bias: MatrixValue | None
    y: MatrixValue
    xhat: MatrixValue
    rstd: MatrixValue
    eps: float

    any_phase = True

    def __post_init__(self) -> None:
        self.text = f"{self.y.name} = {self.x.name} normalized"
        self.reads = present(self.x, self.scale, self.bias)
        self.writes = [self.y, self.xhat, self.rstd]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> Sequence[Kernel] | None:
        op = instruction.op
        if not isinstance(op, LayerNorm):
            return None
        *lead, features = instruction.reads[0].shape
        xhat, rstd = (
            instruction.work[name].reshape(prod(lead), length)
            for name, length in (("xhat", features), ("rstd", 1))
        )
        if instruction.kind == "backward":
            return _gradients(instruction, values, xhat, rstd)
        x, scale, bias = values.read_each(instruction.reads)
        y = values.write(instruction.writes[0], "layer_norm_")
        kept = values.write(xhat, "xhat_"), values.write(rstd, "rstd_")
        return [cls(x, scale, bias, y, *kept, op.eps)]

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        given = present(self.scale, self.bias)
        if self.xhat.stored or self.rstd.stored:
            return super().emit_scalar(writer)
        function = layer_norm_function(
            writer.functions, self.eps, scaled=self.scale is not None, biased=self.bias is not None
        )
        sizes = str(self.x.columns)
        return [writer.each_row(function, self.x.rows, self.x, *given, self.y, sizes)]

    def emit(self, writer: Writer, name: str) -> None:
        layout, count = writer.layout, self.x.columns
        x, root = _entry(layout, self.x), "sqrtf" if layout.itemsize == 4 else "sqrt"
        add = [f"total += {x};"]
        square = [
            f"vec apart = {x} - splat(mean);",
            mask_lanes("apart", "0"),
            "squares = multiply_add(apart, apart, squares);",
        ]
        value = "xhat" if self.scale is None else f"xhat * {_entry(layout, self.scale)}"
        if self.bias is not None:
            factor = "splat(1)" if self.scale is None else _entry(layout, self.scale)
            value = f"multiply_add(xhat, {factor}, {_entry(layout, self.bias)})"
        write = [
            f"const vec xhat = ({x} - splat(mean)) * splat(rstd);",
            *_stored(layout, self.y, value),
            *_stored(layout, self.xhat, "xhat"),
        ]
        variance = f"sum_lanes(squares) / {count} + (real){self.eps!r}"
        row = [
            "vec total = {0}, squares = {0};",
            *lane_loop(count, layout.lanes, add),
            f"const real mean = sum_lanes(total) / {count};",
            *lane_loop(count, layout.lanes, square),
            f"const real rstd = 1 / {root}({variance});",
            *lane_loop(count, layout.lanes, write),
        ]
        if self.rstd.stored:
            row.append(f"*({layout.at(self.rstd, 'i', '0')}) = rstd;")
        _add(writer, name, self, row)


@dataclass(eq=False, repr=False)
class LayerNormGradients(Kernel):
    """Backward of layer norm: `dx`, and `product` = dy * xhat, to be summed for the scale."""

    dy: MatrixValue
    scale: MatrixValue | None
    xhat: MatrixValue
    rstd: MatrixValue
    dx: MatrixValue | None
    product: MatrixValue | None

    any_phase = True

    def __post_init__(self) -> None:
        self.writes = present(self.dx, self.product)
        self.text = f"{self.writes[0].name} = gradient of {self.xhat.name}"
        self.reads = present(self.dy, self.scale, self.xhat, self.rstd)

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> None:
        """Return None, because `LayerNormRows.lower` handles both directions."""

    def emit(self, writer: Writer, name: str) -> None:
        layout, count = writer.layout, self.dy.columns
        entry: list[Statement] = [
            f"const vec dy = {_entry(layout, self.dy)}, xhat = {_entry(layout, self.xhat)};"
        ]
        h = "dy" if self.scale is None else f"dy * {_entry(layout, self.scale)}"
        sums = [*entry]
        if self.product is not None:
            sums += _stored(layout, self.product, "dy * xhat")
        if self.dx is None:
            return _add(writer, name, self, lane_loop(count, layout.lanes, sums))
        sums += [f"const vec h = {h};", "total += h;", "along = multiply_add(h, xhat, along);"]
        slope = f"({h} - splat(mean) - xhat * splat(share)) * splat(rstd)"
        row = [
            "vec total = {0}, along = {0};",
            *lane_loop(count, layout.lanes, sums),
            f"const real mean = sum_lanes(total) / {count}, share = sum_lanes(along) / {count};",
            f"const real rstd = *({layout.at(self.rstd, 'i', '0')});",
            *lane_loop(count, layout.lanes, [*entry, *_stored(layout, self.dx, slope)]),
        ]
        return _add(writer, name, self, row)


def _gradients(
    instruction: InstructionLike, values: Values, xhat: Array, rstd: Array
) -> list[Kernel]:
    """Return the kernels of backward; the sums for scale and bias come last."""
    dy, scale = values.read_each(instruction.reads)
    kept = values.read(xhat), values.read(rstd)
    dx, dscale, dbias = instruction.writes
    terms = instruction.work["product"].reshape(xhat.shape)
    product = None if dscale is None else values.write(terms, "d_scales_")
    slope = None if dx is None else values.write(dx, "d_layer_norm_")
    kernels: list[Kernel] = []
    if dy.kind != "rows" and (dscale is not None or dbias is not None):
        raise UnsupportedError("the gradient of scale or bias if parameters are normalized")
    if slope or product:
        kernels.append(LayerNormGradients(dy, scale, *kept, slope, product))
    if product is not None:
        kernels.append(ColumnSum(product, values.write(dscale, "d_scale_")))
    if dbias is not None:
        kernels.append(ColumnSum(dy, values.write(dbias, "d_bias_")))
    return kernels


def _entry(layout: Layout, value: MatrixValue) -> str:
    """Return C that loads a vector of row ``i``, or of the only row if there is one row."""
    return load_vector(layout.at(value, "i" if value.rows > 1 else "0", "j"), "n")


def _stored(layout: Layout, value: MatrixValue, vector: str) -> list[Statement]:
    """Return the statement that stores a vector, or nothing if the value is not in memory."""
    return [store(layout.at(value, "i", "j"), vector, "n")] if value.stored else []


def _add(writer: Writer, name: str, kernel: Kernel, row: Sequence[Statement]) -> None:
    rows = [ForLoop("i", "first", "last", row)]
    count, buffers = kernel.writes[0].rows, (kernel.reads, kernel.writes)
    writer.add(name, kernel.called_in, count, kernel.text, rows, *buffers)
