"""The table of compiled losses, row by row.

The value of a row goes into ``row_loss``, in double; the program adds them up in order.
"""

from dataclasses import dataclass
from textwrap import indent

import numpy as np

from mlpengine.backends.compiled.kernels import LossRows
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.numbers import literal, with_options
from mlpengine.backends.compiled.values import padded_length


@dataclass(frozen=True)
class EntryRule:
    """A mean over entries: statements from vectors ``o`` and ``t`` to ``entry`` and ``slope``.

    Both are then multiplied by their scales over the number of entries.
    """

    code: str
    value_scale: float = 1.0
    slope_scale: float = 1.0


ENTRIES = {
    "mse": EntryRule("slope = o - t; entry = slope * slope;", slope_scale=2.0),
    "mae": EntryRule("entry = v_abs(o - t); slope = select(o == t, splat(0), (o - t) / entry);"),
    "huber": EntryRule(
        "const vec d = o - t; "
        "slope = vmax(vmin(d, splat(@delta)), splat(-@delta)); "
        "entry = slope * (d + d - slope);",
        value_scale=0.5,
    ),
    "bce_with_logits": EntryRule(
        "const vec soft = v_log1p_exp_of_minus_abs(o); "
        "const vec log_p = vmin(o, splat(0)) - soft; "
        "const vec log_q = vmax(o, splat(0)) + soft; "
        "entry = (splat(1) - t) * log_q - splat(@positive_weight) * t * log_p; "
        "const vec p = v_exp(log_p); "
        "slope = p - t + splat(@positive_weight - 1) * (p - splat(1)) * t; "
        "entry = select((t < splat(0)) | (t > splat(1)), splat(NAN), entry);"
    ),
}

LOSSES = (*ENTRIES, "softmax_cross_entropy")
"""Names of the losses that have compiled rows."""


def emit_loss(kernel: LossRows, layout: Layout) -> str:
    """Return the loop over rows `first` to `last` of a loss."""
    if kernel.op.name in ENTRIES:
        return _entry_loss(kernel, layout, ENTRIES[kernel.op.name])
    return _cross_entropy(kernel, layout)


def _columns(count: int, lanes: int, body: str) -> str:
    """Return a loop over the whole vectors of a row and the rest, `n` lanes each."""
    whole = count // lanes * lanes
    text = ""
    if whole:
        text += f"for (long j = 0; j < {whole}; j += LANES) {{\n  const long n = LANES;\n"
        text += indent(body, "  ") + "\n}\n"
    if count % lanes:
        text += f"{{\n  const long j = {whole}, n = {count % lanes};\n{indent(body, '  ')}\n}}\n"
    return text


def _row_loop(body: str) -> str:
    return f"for (long i = first; i < last; i++) {{\n{indent(body, '  ')}\n}}"


def _entry_loss(kernel: LossRows, layout: Layout, rule: EntryRule) -> str:
    output, target, weight, slot = kernel.output, kernel.target, kernel.weight, kernel.d_output
    entries = max(output.rows * output.columns, 1)
    share = f" * {weight.name}[i]" if weight else ""
    body = (
        f"vec o = load_first({output.name} + i * {layout.stride(output)} + j, n);\n"
        f"vec t = load_first({target.name} + i * {layout.stride(target)} + j, n);\n"
        "vec entry, slope;\n"
        f"{with_options(rule.code, kernel.op)}\n"
        "if (n < LANES) entry = select(first_lanes(n), entry, splat(0));\n"
        # Shares of the mean: no sum of entries that are near the largest number overflows.
        "row += (double)sum_lanes(entry * splat((real)1 / LANES))"
        f" * ({rule.value_scale / entries!r} * LANES);"
    )
    if slot is not None:
        scale = literal(np.float64(rule.slope_scale / entries), layout.itemsize)
        body += (
            f"\nstore_first({slot.name} + i * {layout.stride(slot)} + j, "
            f"slope * splat({scale}{share}), n);"
        )
    value = f"row_loss[i] = row{share};"
    columns = _columns(output.columns, layout.lanes, body)
    return _row_loop(f"double row = 0;\n{columns}{value}")


def _cross_entropy(kernel: LossRows, layout: Layout) -> str:
    output, slot, weight = kernel.output, kernel.d_output, kernel.weight
    lanes, columns = layout.lanes, output.columns
    share = f" * {weight.name}[i]" if weight else ""
    o = f"{output.name} + i * {layout.stride(output)} + j"
    low = "if (n < LANES) o = select(first_lanes(n), o, splat(-INFINITY));"
    most = f"vec o = load_first({o}, n);\n{low}\nmost = vmax(o, most);"
    parts = (
        f"vec o = load_first({o}, n);\n{low}\nvec e = v_exp(o - splat(top));\nsum += e;\n"
        f"{_target_rows(kernel, layout)}"
        "if (n < LANES) q = select(first_lanes(n), q, splat(0));\n"
        "if (n < LANES) o = select(first_lanes(n), o, splat(0));\n"
        "mass += q;\npicked += q * (o - splat(top));"
    )
    text = f"vec most = splat(-INFINITY);\n{_columns(columns, lanes, most)}"
    text += "const real top = max_lanes(most);\n"
    text += "vec sum = {0}, mass = {0}, picked = {0};\n"
    if slot is not None:
        at = f"{slot.name} + i * {layout.stride(slot)} + j"
        parts += f"\nstore_first({at}, e, n);"
        weighted = f" * splat({weight.name}[i])" if weight else ""
        slope = (
            f"{_target_rows(kernel, layout)}"
            f"const vec e = load_first({at}, n);\n"
            f"store_first({at}, (e * splat(weighed / total) - q){weighted}, n);"
        )
    text += _check_label(kernel) + _columns(columns, lanes, parts)
    text += "const real total = sum_lanes(sum), weighed = sum_lanes(mass);\n"
    text += "const double whole = (double)v_log(splat(total))[0] * (double)weighed;\n"
    text += f"row_loss[i] = (whole - (double)sum_lanes(picked)){share};\n"
    if slot is not None:
        text += _columns(columns, lanes, slope)
    return f"{_column_scale(kernel, layout)}{_row_loop(text)}"


def _column_scale(kernel: LossRows, layout: Layout) -> str:
    """Return the class weights over the batch size as a constant array."""
    weights = kernel.op.class_weights  # type: ignore[attr-defined]
    if weights is None:
        return ""
    numbers = ", ".join(_number(w / max(kernel.output.rows, 1), layout) for w in weights)
    size = padded_length(len(weights), layout.lanes)
    return f"static const real column_scale[{size}] = {{{numbers}}};\n"


def _target_rows(kernel: LossRows, layout: Layout) -> str:
    """Return what writes q / batch of the columns j to j + n into the vector q."""
    op, target, batch = kernel.op, kernel.target, max(kernel.output.rows, 1)
    smoothing = float(op.label_smoothing)  # type: ignore[attr-defined]
    columns = kernel.output.columns
    scale = "column_scale" if op.class_weights is not None else ""  # type: ignore[attr-defined]
    by_column = f" * load({scale} + j)" if scale else f" * splat({_number(1 / batch, layout)})"
    if target.array.dtype.kind == "f":
        hot = f"load_first({target.name} + i * {layout.stride(target)} + j, n)"
    else:
        hot = "one_where(lane_numbers() + (bits)j == (bits)label + (ivec){0})"
    mixed = f"{hot} * splat({_number(1 - smoothing, layout)})"
    mixed += f" + splat({_number(smoothing / columns, layout)})"
    ignored = op.ignore_index is not None  # type: ignore[attr-defined]
    return f"vec q = ({mixed}){by_column}{' * splat(counts)' if ignored else ''};\n"


def _check_label(kernel: LossRows) -> str:
    """Return what reads the label of row i; one out of range ends the step."""
    if kernel.target.array.dtype.kind == "f":
        return ""
    ignore = kernel.op.ignore_index  # type: ignore[attr-defined]
    text = f"int64_t label = {kernel.target.name}[i];\n"
    if ignore is not None:
        text += f"const real counts = label != {ignore};\nif (label == {ignore}) label = 0;\n"
    return (
        text
        + f"if ((uint64_t)label >= {kernel.output.columns}) {{ bad_label[0] = 1; label = 0; }}\n"
    )


def _number(value: float, layout: Layout) -> str:
    return literal(np.float64(value), layout.itemsize)
