"""The table of compiled losses, row by row.

The value of a row is stored in ``row_loss``, in double; the program sums them in order.
"""

from collections.abc import Sequence
from math import isfinite, nan

from mlpengine.backends.compiled.kernels import LossRows
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.rows import columns, masked
from mlpengine.backends.compiled.statements import If, Loop, Statement, load, store
from mlpengine.backends.compiled.values import Value
from mlpengine.formula import c_number, c_statements, where
from mlpengine.ops import EntryLoss, GradOp


def has_rows(op: GradOp) -> bool:
    """Return whether the loss has compiled rows."""
    return op.name == "softmax_cross_entropy" or isinstance(op, EntryLoss)


def loss_rows(kernel: LossRows, layout: Layout) -> Sequence[Statement]:
    """Return the loop over rows `first` to `last` of a loss."""
    if isinstance(kernel.op, EntryLoss):
        return _entry_loss(kernel, layout, kernel.op)
    narrow = kernel.output.columns <= layout.lanes
    group = (_narrow_cross_entropies if narrow else _cross_entropies)(kernel, layout)
    head = (
        () if class_weights(kernel.op) else ["const real row_share = (real)(1 / part.mean_rows);"]
    )
    return [*head, Loop("from", "first", "last", group, "LANES")]


def _entry_loss(kernel: LossRows, layout: Layout, loss: EntryLoss) -> Sequence[Statement]:
    """Return the loop over rows; a vector has a lane for each column of a row's target.

    If the target has one column, a vector has a lane for each of several rows.
    """
    output, target, slot, count = kernel.output, kernel.target, kernel.d_output, loss.columns
    by_rows = target.columns == 1
    f = loss.formulas
    value, t = f.entry, f.target
    if isfinite(loss.target_range[0]):  # NumPy then reports the target that makes the loss NaN
        value = where(loss.outside(t), nan, value)
    outputs, names = {"value": value}, {t: "t"}

    def lanes(value: Value, column: str = "j", step: int = 1) -> tuple[str, str, int]:
        """Return address, number and distance of the entries of a vector."""
        return layout.at(value, "i", column), "n", layout.stride(value) if by_rows else step

    loads: list[Statement] = [f"const vec t = {load(*lanes(target))};"]
    stores: list[Statement] = []
    shares: list[Statement] = [
        f"const double entries = part.mean_rows * {max(target.columns, 1)};",
        f"const double mean = {f.value_scale!r} / entries;",
    ]
    for k, o in enumerate(f.outputs):
        column, names[o] = "j" if count == 1 else f"j * {count} + {k}", f"o_{k}"
        loads.append(f"const vec o_{k} = {load(*lanes(output, column, count))};")
        if slot is not None:
            outputs[f"slope_{k}"] = f.slopes[k]
            at, n, step = lanes(slot, column, count)
            shares.append(f"const real scale_{k} = (real)({f.scales[k]!r} / entries);")
            stores.append(store(at, f"slope_{k} * (splat(scale_{k}) * share)", n, step))
    body = [*loads, *c_statements(outputs, names, layout.itemsize, prefix="e"), *stores]
    share = "splat(1)"
    if (weight := kernel.weight) is not None:
        share = load(f"{weight.name} + i", "n") if by_rows else f"splat({weight.name}[i])"
    if by_rows:
        lanes_left = "const int64_t j = 0, n = MIN(LANES, last - i);"
        body = [lanes_left, f"const vec share = {share};", *body]
        body.append("store_row_losses(row_loss + i, value, mean, share, n);")
        return [*shares, Loop("i", "first", "last", body, "LANES")]
    # Shares of the mean: no sum of entries that are near the largest number overflows.
    row = "row += (double)sum_lanes(entry * splat((real)1 / LANES)) * (mean * LANES);"
    loops = columns(
        target.columns, layout.lanes, [*body, "vec entry = value;", masked("entry", "0"), row]
    )
    head = ["double row = 0;", f"const vec share = {share};"]
    row_loss = "row_loss[i] = row * (double)share[0];"
    return [*shares, Loop("i", "first", "last", [*head, *loops, row_loss])]


def _narrow_cross_entropies(kernel: LossRows, layout: Layout) -> Sequence[Statement]:
    """Return the statements of a group of rows: a vector has a lane for each row, and a class."""
    output, slot, target, weight = kernel.output, kernel.d_output, kernel.target, kernel.weight
    columns = output.columns

    def load_columns(value: Value, name: str) -> list[Statement]:
        at, ld = layout.at(value, "from", "0"), layout.stride(value)
        return [f"vec {name}[LANES];", f"load_columns({name}, {at}, rows, {columns}, {ld});"]

    wanted = _target_rows(kernel, layout, narrow=True)
    lines: list[Statement] = [
        "const int64_t rows = MIN(LANES, last - from);",
        *load_columns(output, "o"),
    ]
    if target.array.dtype.kind == "f":
        lines += load_columns(target, "t")
    else:
        ignores = kernel.op.ignore_index is not None  # type: ignore[attr-defined]
        each = [*_check_label(kernel), "labels[i - from] = (bits)label;"]
        lines.append("bits labels[LANES] = {0};")
        if ignores:
            lines.append("real counted[LANES] = {0};")
            each.append("counted[i - from] = counts;")
        lines += [Loop("i", "from", "from + rows", each), "const ivec label = load_bits(labels);"]
        if ignores:
            lines.append("const vec counts = load(counted);")
    lines += [
        "vec top = o[0], sum = {0}, mass = {0}, picked = {0};",
        Loop("j", 1, columns, ["top = vmax(o[j], top);"]),
        Loop(
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
        lines += ["const vec scale = mass / sum;", Loop("j", 0, columns, [wanted, slope])]
        at, ld = layout.at(slot, "from", "0"), layout.stride(slot)
        lines.append(f"store_columns({at}, o, rows, {columns}, {ld});")
    factor = " * (double)share[i]" if share else ""
    value = f"((double)logs[i] * (double)mass[i] - (double)picked[i]){factor}"
    return [
        *lines,
        "const vec logs = v_log(sum);",
        Loop("i", 0, "rows", [f"row_loss[from + i] = {value};"]),
    ]


def _cross_entropies(kernel: LossRows, layout: Layout) -> Sequence[Statement]:
    """Return the statements of a group of rows, whose logarithms are computed as one vector."""
    share = f" * {kernel.weight.name}[i]" if kernel.weight else ""
    log = "(double)logs[i - from] * (double)masses[i - from]"
    return [
        "const int64_t to = MIN(from + LANES, last);",
        "real totals[LANES], masses[LANES];",
        "store(totals, splat(1));",
        Loop("i", "from", "to", _cross_entropy(kernel, layout)),
        "const vec logs = v_log(load(totals));",
        Loop("i", "from", "to", [f"row_loss[i] = ({log} - row_loss[i]){share};"]),
    ]


def _cross_entropy(kernel: LossRows, layout: Layout) -> Sequence[Statement]:
    output, slot, weight = kernel.output, kernel.d_output, kernel.weight
    low: list[Statement] = [
        f"vec o = {load(layout.at(output, 'i', 'j'), 'n')};",
        masked("o", "-INFINITY"),
    ]
    wanted = _target_rows(kernel, layout)
    sums: list[Statement] = [
        *low,
        "const vec e = v_exp(o - splat(top));",
        "sum += e;",
        wanted,
        masked("q", "0"),
        masked("o", "0"),
        "mass += q;",
        "picked = multiply_add(q, o - splat(top), picked);",
    ]
    slopes: list[Statement] = []
    if slot is not None:  # the gradient's buffer holds the exponentials until it is written
        at = layout.at(slot, "i", "j")
        sums.append(store(at, "e", "n"))
        weighted = f" * splat({weight.name}[i])" if weight else ""
        slope = f"multiply_add({load(at, 'n')}, splat(weighed / total), -q){weighted}"
        slopes = [wanted, store(at, slope, "n")]

    def loop(body: Sequence[Statement]) -> Sequence[Statement]:
        return columns(output.columns, layout.lanes, body) if body else ()

    return [
        "vec highest = splat(-INFINITY);",
        *loop([*low, "highest = vmax(o, highest);"]),
        "const real top = max_lanes(highest);",
        "vec sum = {0}, mass = {0}, picked = {0};",
        *_check_label(kernel),
        *loop(sums),
        "const real total = sum_lanes(sum), weighed = sum_lanes(mass);",
        "totals[i - from] = total, masses[i - from] = weighed;",
        "row_loss[i] = (double)sum_lanes(picked);",
        *loop(slopes),
    ]


def class_weights(op: GradOp) -> Sequence[float]:
    """Return the weights of the classes, if the loss has any."""
    return getattr(op, "class_weights", None) or ()


def column_scale(kernel: LossRows) -> Sequence[Statement]:
    """Return the statements that compute the class weights over the rows of the mean."""
    weights = class_weights(kernel.op)
    numbers = ", ".join(repr(float(weight)) for weight in weights)
    scale = "column_scale[i] = (real)(weights[i] / part.mean_rows);"
    return [
        f"static const double weights[{len(weights)}] = {{{numbers}}};",
        Loop("i", "first", "last", [scale]),
    ]


def _target_rows(kernel: LossRows, layout: Layout, *, narrow: bool = False) -> str:
    """Return the statement that sets q to q / rows of the mean, columns j to j + n.

    If `narrow`, of column j, with a lane for each row.
    """
    op, target = kernel.op, kernel.target
    smoothing = float(op.label_smoothing)  # type: ignore[attr-defined]
    columns = kernel.output.columns
    by_column = "splat(row_share)"
    if class_weights(op):
        by_column = "splat(column_scale[j])" if narrow else "load(column_scale + j)"
    if target.array.dtype.kind == "f":
        hot = "t[j]" if narrow else load(layout.at(target, "i", "j"), "n")
    elif narrow:
        hot = "one_where(label == (bits)j + (ivec){0})"
    else:
        hot = "one_where(lane_numbers() + (bits)j == (bits)label + (ivec){0})"
    mixed = f"{hot} * splat({_number(1 - smoothing, layout)})"
    mixed += f" + splat({_number(smoothing / columns, layout)})"
    ignored = op.ignore_index is not None  # type: ignore[attr-defined]
    counts = (" * counts" if narrow else " * splat(counts)") if ignored else ""
    return f"vec q = ({mixed}) * {by_column}{counts};"


def _check_label(kernel: LossRows) -> Sequence[Statement]:
    """Return the statements that read the label of row i; one out of range ends the step."""
    if kernel.target.array.dtype.kind == "f":
        return ()
    ignore = kernel.op.ignore_index  # type: ignore[attr-defined]
    lines: list[Statement] = [f"int64_t label = {kernel.target.name}[i];"]
    if ignore is not None:
        lines.append(f"const real counts = label != {ignore};")
        lines.append(If(f"label == {ignore}", ["label = 0;"]))
    bad = f"(uint64_t)label >= {kernel.output.columns}"
    return [*lines, If(bad, ["bad_label[0] = 1;", "label = 0;"])]


def _number(value: float, layout: Layout) -> str:
    return c_number(float(value), layout.itemsize)
