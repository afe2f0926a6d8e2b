"""Loops over the vectors of a row whose last one may be partial, and softmax by them."""

from collections.abc import Sequence

from mlpengine.backends.compiled.kernels import SoftmaxRows
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.statements import Block, If, Loop, Statement, load, store


def columns(count: int, lanes: int, body: Sequence[Statement]) -> Sequence[Statement]:
    """Return a loop over the vectors of a row, of `n` lanes each; the last one may be partial."""
    whole = count // lanes * lanes
    parts: list[Statement] = []
    if whole:
        parts.append(Loop("j", 0, whole, ["const int64_t n = LANES;", *body], step="LANES"))
    if count % lanes:
        parts.append(Block([f"const int64_t j = {whole}, n = {count % lanes};", *body]))
    return parts


def masked(name: str, value: str) -> Statement:
    """Return the statement that sets the lanes after the end of a row to a neutral value."""
    return If("n < LANES", [f"{name} = vselect(first_lanes(n), {name}, splat({value}));"])


def softmax_rows(kernel: SoftmaxRows, layout: Layout) -> Sequence[Statement]:
    """Return the loop over rows `first` to `last` of softmax or its logarithm, or its gradient."""
    row = _gradient(kernel, layout) if kernel.dy else _value(kernel, layout)
    return [Loop("i", "first", "last", row)]


def _value(kernel: SoftmaxRows, layout: Layout) -> Sequence[Statement]:
    x, y = (layout.at(value, "i", "j") for value in (kernel.x, kernel.out))
    entry: list[Statement] = [f"vec x = {load(x, 'n')};", masked("x", "-INFINITY")]
    power = ["const vec e = v_exp(x - splat(top));", "sum += e;"]
    if kernel.logarithm:
        power.append(store(y, "x - splat(top)", "n"))
        last = [store(y, f"{load(y, 'n')} - splat(shift)", "n")]
        shift = "const real shift = v_log(splat(sum_lanes(sum)))[0];"
    else:
        power.append(store(y, "e", "n"))
        last = [store(y, f"{load(y, 'n')} / splat(total)", "n")]
        shift = "const real total = sum_lanes(sum);"

    def loop(body: Sequence[Statement]) -> Sequence[Statement]:
        return columns(kernel.out.columns, layout.lanes, body)

    return [
        "vec highest = splat(-INFINITY), sum = {0};",
        *loop([*entry, "highest = vmax(x, highest);"]),
        "const real top = max_lanes(highest);",
        *loop([*entry, *power]),
        shift,
        *loop(last),
    ]


def _gradient(kernel: SoftmaxRows, layout: Layout) -> Sequence[Statement]:
    assert kernel.dy is not None
    y, dy, dx = (layout.at(value, "i", "j") for value in (kernel.x, kernel.dy, kernel.out))
    entry = [f"const vec y = {load(y, 'n')}, dy = {load(dy, 'n')};"]
    if kernel.logarithm:
        add, slope = [f"sum += {load(dy, 'n')};"], "dy - v_exp(y) * splat(total)"
    else:
        add, slope = [*entry, "sum = multiply_add(dy, y, sum);"], "(dy - splat(total)) * y"

    def loop(body: Sequence[Statement]) -> Sequence[Statement]:
        return columns(kernel.out.columns, layout.lanes, body)

    return [
        "vec sum = {0};",
        *loop(add),
        "const real total = sum_lanes(sum);",
        *loop([*entry, store(dx, slope, "n")]),
    ]
