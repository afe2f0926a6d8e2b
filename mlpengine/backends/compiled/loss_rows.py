"""Losses, row by row.

The loss of each row is stored as a double in ``row_loss``, or in ``row_loss_1`` for a second loss.
The program then adds these values in order.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import ClassVar, Self

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel, LossInstruction, present
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.row_loops import lane_loop, mask_lanes
from mlpengine.backends.compiled.statements import ForLoop, If, Statement, lets, load_vector, store
from mlpengine.backends.scalar.definitions import Functions
from mlpengine.backends.scalar.layer_functions import cross_entropy, entry_loss, loss_function
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values, is_short, padded_length
from mlpengine.core.spec import Array
from mlpengine.formula import c_number, where
from mlpengine.ops import EntryLoss, Loss, SoftmaxCrossEntropy


@dataclass(eq=False, repr=False)
class LossRows(Kernel):
    """A loss, row by row: its gradient, and the value of each row.

    Gradient and value are multiplied by `factor` / `mean_rows`.  `mean_rows` is the number of rows
    of the whole batch; the program may compute a shard of it.  `factor` is the weight of the loss
    in a sum of several losses.
    """

    output: MatrixValue
    target: MatrixValue
    weight: MatrixValue | None
    d_output: MatrixValue | None
    value: Array
    mean_rows: int
    factor: float
    op: Loss

    kind: ClassVar[type[Loss]]
    header = "losses"

    def __post_init__(self) -> None:
        self.text = f"{self.op.name}, and its gradient"
        self.reads = present(self.output, self.target, self.weight)
        self.writes = present(self.d_output)

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> list[Self] | None:
        op = instruction.op
        if not isinstance(instruction, LossInstruction) or not isinstance(op, cls.kind):
            return None
        output, target, weight = values.read_each(instruction.reads)
        slot, total = instruction.writes
        assert total is not None
        if len(output.array.shape) != 2:
            raise UnsupportedError("a loss of outputs that are not (rows, columns)")
        d_output = None if slot is None else values.write(slot, "d_output")
        rows = output.rows if instruction.mean_rows is None else instruction.mean_rows
        rows = max(rows, 1)
        return [cls(output, target, weight, d_output, total, rows, instruction.weight, op)]

    def emit(self, writer: Writer, name: str) -> None:
        if writer.output is None:
            writer.output, writer.mean_rows = self.output, self.mean_rows
        suffix = f"_{writer.losses}" if writer.losses else ""
        writer.losses += 1
        row_loss = f"row_loss{suffix}"
        writer.layout.add_array(f"loss_value{suffix}", self.value)
        writer.layout.reserve(row_loss, writer.batch, "double", ("update",))
        reads: list[MatrixValue | str] = [*self.reads]
        writes: list[MatrixValue | str] = [*self.writes, row_loss]
        if self.target.array.dtype.kind == "i":
            writer.layout.reserve("bad_label", 1, "int64_t", ("prepare", "update"))
            writes.append("bad_label")
        reads += self._prepare(writer, name, suffix)
        rows, body = self.output.rows, [*self._body(writer.layout)]
        if suffix:
            body.insert(0, f"double *const row_loss = {row_loss};")
        writer.add(name, "rows", rows, self.text, body, reads, writes, takes_part=True)

    @property
    def _rows_of_mean(self) -> str:
        """C expression that divides losses and gradients: `mean_rows` / `factor`."""
        return "part.mean_rows" if self.factor == 1 else f"(part.mean_rows / {self.factor!r})"

    def _prepare(self, writer: Writer, name: str, suffix: str) -> Sequence[str]:
        """Add functions that run once in a step; return the names of the buffers they write."""
        return ()

    @abstractmethod
    def _body(self, layout: Layout) -> Sequence[Statement]:
        """Return the loop over the rows `first` to `last`."""

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        function = loss_function(writer.functions, self.text, self._scalar(writer.functions))
        places = writer.places(self.output, self.target, *self.writes)
        return [f"const real value = {function}({places});"]

    @abstractmethod
    def _scalar(self, functions: Functions) -> list[Statement]:
        """Return the scalar statements of the loss."""


class EntryLossRows(LossRows):
    """A loss that is a mean over entries, such as the squared error."""

    op: EntryLoss

    kind = EntryLoss

    def _scalar(self, functions: Functions) -> list[Statement]:
        return entry_loss(self.op, self.output.columns // self.op.columns)

    def _body(self, layout: Layout) -> Sequence[Statement]:
        """Return the loop over rows; a vector holds columns of a row, or rows of a single column.

        If there are no sample weights, several short rows share a vector.
        """
        output, target, slot, loss = self.output, self.target, self.d_output, self.op
        count, per_entry = loss.columns, loss.target_columns
        entries = target.columns // per_entry
        by_rows = entries == 1
        shared = is_short(entries, layout.lanes) and not (by_rows or self.weight)
        shared &= all(layout.stride(v) == entries for v in present(output, target, slot))
        shared &= target.rows * entries >= layout.lanes
        f = loss.formulas
        value = f.entry
        if loss.has_target_range:  # a wrong target gives NaN, and NumPy reports it
            value = where(loss.outside(f.targets[0]), nan, value)
        outputs, names = {"value": value}, {t: f"t_{k}" for k, t in enumerate(f.targets)}

        def lanes(value: MatrixValue, column: str = "j", step: int = 1) -> tuple[str, str, int]:
            """Return address, number and stride of the entries in a vector."""
            return layout.at(value, "i", column), "n", layout.stride(value) if by_rows else step

        def column_of(k: int, of: int) -> str:
            return "j" if of == 1 else f"j * {of} + {k}"

        loads: list[Statement] = [
            f"const vec t_{k} = {load_vector(*lanes(target, column_of(k, per_entry), per_entry))};"
            for k in range(per_entry)
        ]
        stores: list[Statement] = []
        shares: list[Statement] = [
            f"const double entries = {self._rows_of_mean} * {max(entries, 1)};",
            f"const double mean = {f.value_scale!r} / entries;",
        ]
        for k, o in enumerate(f.outputs):
            column, names[o] = column_of(k, count), f"o_{k}"
            loads.append(f"const vec o_{k} = {load_vector(*lanes(output, column, count))};")
            if slot is not None:
                outputs[f"slope_{k}"] = f.slopes[k]
                at, n, step = lanes(slot, column, count)
                shares.append(f"const real scale_{k} = (real)({f.scales[k]!r} / entries);")
                stores.append(store(at, f"slope_{k} * (splat(scale_{k}) * share)", n, step))
        body = [*loads, *lets(outputs, names, "e"), *stores]
        share = "splat(1)"
        if (weight := self.weight) is not None:
            share = (
                load_vector(f"{weight.name} + i", "n") if by_rows else f"splat({weight.name}[i])"
            )
        if shared:
            body = [
                f"const int64_t j = 0, n = MIN(LANES, (last - i) * {entries});",
                "const vec share = splat(1);",
                *body,
                f"store_shared_losses(row_loss + i, value, mean, n / {entries}, {entries});",
            ]
            return [*shares, ForLoop("i", "first", "last", body, layout.lanes // entries)]
        if by_rows:
            lanes_left = "const int64_t j = 0, n = MIN(LANES, last - i);"
            body = [lanes_left, f"const vec share = {share};", *body]
            body.append("store_row_losses(row_loss + i, value, mean, share, n);")
            return [*shares, ForLoop("i", "first", "last", body, "LANES")]
        # Divide first, then sum: a sum of entries near the largest number would overflow.
        row = "row += (double)sum_lanes(entry * splat((real)1 / LANES)) * (mean * LANES);"
        loops = lane_loop(
            entries,
            layout.lanes,
            [*body, "vec entry = value;", mask_lanes("entry", "0"), row],
        )
        head = ["double row = 0;", f"const vec share = {share};"]
        row_loss = "row_loss[i] = row * (double)share[0];"
        return [*shares, ForLoop("i", "first", "last", [*head, *loops, row_loss])]


class CrossEntropyRows(LossRows):
    """The cross-entropy of softmax."""

    op: SoftmaxCrossEntropy
    _column_scale = ""

    kind = SoftmaxCrossEntropy

    @property
    def _class_weights(self) -> Sequence[float]:
        return self.op.class_weights or ()

    def _prepare(self, writer: Writer, name: str, suffix: str) -> Sequence[str]:
        """Add the function that computes class weight / `mean_rows` for each class."""
        weights = self._class_weights
        if not weights:
            return ()
        scale, classes = f"column_scale{suffix}", len(weights)
        self._column_scale = scale
        writer.layout.reserve(scale, padded_length(classes, writer.layout.lanes))
        numbers = ", ".join(repr(float(weight)) for weight in weights)
        share = f"{scale}[i] = (real)(weights[i] / {self._rows_of_mean});"
        body: list[Statement] = [
            f"static const double weights[{classes}] = {{{numbers}}};",
            ForLoop("i", "first", "last", [share]),
        ]
        text = "The share of each class in the mean"
        writer.add(f"{name}_scale", "prepare", classes, text, body, [], [scale], takes_part=True)
        return [scale]

    def _scalar(self, functions: Functions) -> list[Statement]:
        return cross_entropy(functions, self.op, self.output.columns)

    def _body(self, layout: Layout) -> Sequence[Statement]:
        narrow = self.output.columns <= layout.lanes
        group = self._narrow(layout) if narrow else self._wide(layout)
        share = f"const real row_share = (real)(1 / {self._rows_of_mean});"
        head = [] if self._class_weights else [share]
        return [*head, ForLoop("from", "first", "last", group, "LANES")]

    def _narrow(self, layout: Layout) -> Sequence[Statement]:
        """Return the statements for LANES rows of a few classes, with a vector for each class."""
        output, slot, target, weight = self.output, self.d_output, self.target, self.weight
        columns = output.columns

        def load_columns(value: MatrixValue, name: str) -> list[Statement]:
            at, ld = layout.at(value, "from", "0"), layout.stride(value)
            return [f"vec {name}[LANES];", f"load_columns({name}, {at}, rows, {columns}, {ld});"]

        wanted = self._target_rows(layout, narrow=True)
        lines: list[Statement] = [
            "const int64_t rows = MIN(LANES, last - from);",
            *load_columns(output, "o"),
        ]
        if target.array.dtype.kind == "f":
            lines += load_columns(target, "t")
        else:
            ignores = self.op.ignore_index is not None
            each = [*self._check_label(), "labels[i - from] = (bits)label;"]
            lines.append("bits labels[LANES] = {0};")
            if ignores:
                lines.append("real counted[LANES] = {0};")
                each.append("counted[i - from] = counts;")
            lines.append(ForLoop("i", "from", "from + rows", each))
            lines.append("const ivec label = load_bits(labels);")
            if ignores:
                lines.append("const vec counts = load(counted);")
        lines += [
            "vec top = o[0], sum = {0}, mass = {0}, picked = {0};",
            ForLoop("j", 1, columns, ["top = vmax(o[j], top);"]),
            ForLoop(
                "j",
                0,
                columns,
                [
                    "const vec low = o[j] - top;",
                    wanted,
                    "mass += q;",
                    "picked = multiply_add(q, low, picked);",
                    "sum += o[j] = v_exp(low);",
                ],
            ),
        ]
        share = ""
        if weight is not None:
            lines.append(f"const vec share = load_some({weight.name} + from, rows);")
            share = " * share"
        if slot is not None:
            slope = f"o[j] = multiply_add(o[j], scale, -q){share};"
            lines += ["const vec scale = mass / sum;", ForLoop("j", 0, columns, [wanted, slope])]
            at, ld = layout.at(slot, "from", "0"), layout.stride(slot)
            lines.append(f"store_columns({at}, o, rows, {columns}, {ld});")
        factor = " * (double)share[i]" if share else ""
        value = f"((double)logs[i] * (double)mass[i] - (double)picked[i]){factor}"
        return [
            *lines,
            "const vec logs = v_log(sum);",
            ForLoop("i", 0, "rows", [f"row_loss[from + i] = {value};"]),
        ]

    def _wide(self, layout: Layout) -> Sequence[Statement]:
        """Return the statements for LANES rows of many classes; one v_log serves all these rows."""
        share = f" * {self.weight.name}[i]" if self.weight else ""
        log = "(double)logs[i - from] * (double)masses[i - from]"
        return [
            "const int64_t to = MIN(from + LANES, last);",
            "real totals[LANES], masses[LANES];",
            "store(totals, splat(1));",
            ForLoop("i", "from", "to", self._row(layout)),
            "const vec logs = v_log(load(totals));",
            ForLoop("i", "from", "to", [f"row_loss[i] = ({log} - row_loss[i]){share};"]),
        ]

    def _row(self, layout: Layout) -> Sequence[Statement]:
        output, slot, weight = self.output, self.d_output, self.weight
        low: list[Statement] = [
            f"vec o = {load_vector(layout.at(output, 'i', 'j'), 'n')};",
            mask_lanes("o", "-INFINITY"),
        ]
        wanted = self._target_rows(layout)
        sums: list[Statement] = [
            *low,
            "const vec e = v_exp(o - splat(top));",
            "sum += e;",
            wanted,
            mask_lanes("q", "0"),
            mask_lanes("o", "0"),
            "mass += q;",
            "picked = multiply_add(q, o - splat(top), picked);",
        ]
        slopes: list[Statement] = []
        if slot is not None:  # until the sum is known, this buffer holds the exponentials
            at = layout.at(slot, "i", "j")
            sums.append(store(at, "e", "n"))
            weighted = f" * splat({weight.name}[i])" if weight else ""
            slope = f"multiply_add({load_vector(at, 'n')}, splat(weighed / total), -q){weighted}"
            slopes = [wanted, store(at, slope, "n")]

        def loop(body: Sequence[Statement]) -> Sequence[Statement]:
            return lane_loop(output.columns, layout.lanes, body) if body else ()

        return [
            "vec highest = splat(-INFINITY);",
            *loop([*low, "highest = vmax(o, highest);"]),
            "const real top = max_lanes(highest);",
            "vec sum = {0}, mass = {0}, picked = {0};",
            *self._check_label(),
            *loop(sums),
            "const real total = sum_lanes(sum), weighed = sum_lanes(mass);",
            "totals[i - from] = total, masses[i - from] = weighed;",
            "row_loss[i] = (double)sum_lanes(picked);",
            *loop(slopes),
        ]

    def _target_rows(self, layout: Layout, *, narrow: bool = False) -> str:
        """Return the statement that computes q = class weight * target probability / mean_rows."""
        op, target = self.op, self.target
        smoothing = float(op.label_smoothing)
        columns = self.output.columns
        by_column = "splat(row_share)"
        if self._class_weights:
            scale = self._column_scale
            by_column = f"splat({scale}[j])" if narrow else f"load({scale} + j)"
        if target.array.dtype.kind == "f":
            hot = "t[j]" if narrow else load_vector(layout.at(target, "i", "j"), "n")
        elif narrow:
            hot = "one_where(label == (bits)j + (ivec){0})"
        else:
            hot = "one_where(lane_numbers() + (bits)j == (bits)label + (ivec){0})"
        mixed = f"{hot} * splat({c_number(1 - smoothing, layout.itemsize)})"
        mixed += f" + splat({c_number(smoothing / columns, layout.itemsize)})"
        ignored = op.ignore_index is not None
        counts = (" * counts" if narrow else " * splat(counts)") if ignored else ""
        return f"vec q = ({mixed}) * {by_column}{counts};"

    def _check_label(self) -> Sequence[Statement]:
        """Return the statements that read the label of row i, or set ``bad_label``."""
        if self.target.array.dtype.kind == "f":
            return ()
        ignore = self.op.ignore_index
        lines: list[Statement] = [f"int64_t label = {self.target.name}[i];"]
        if ignore is not None:
            lines.append(f"const real counts = label != {ignore};")
            lines.append(If(f"label == {ignore}", ["label = 0;"]))
        bad = f"(uint64_t)label >= {self.output.columns}"
        return [*lines, If(bad, ["bad_label[0] = 1;", "label = 0;"])]
