"""Matrix products as C: register tiles, packed panels, and an epilogue fused into the last pass.

A tile is up to `Tiling.height` rows by two vectors of c, held in registers for `depth_block`
terms.  All tiles read panels (two vectors wide, with the rows of b one after another), so that b is
read sequentially for every leading dimension.
"""

from collections.abc import Sequence

from mlpengine.backends.compiled.kernels import Map, Product
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.packing import pack_panel
from mlpengine.backends.compiled.statements import (
    Each,
    Function,
    If,
    Loop,
    Statement,
    Switch,
    load,
    store,
)
from mlpengine.backends.compiled.tiling import Tiling
from mlpengine.backends.compiled.values import Value
from mlpengine.formula import c_number

TILE_PARAMETERS = (
    "const int rows, const int wide, const int part, const long i, const long j, "
    "const long k0, const long k1, const real *restrict a, const real *restrict b"
)


def heights(rows: int, block: int, tallest: int) -> set[int]:
    """Return the heights of the tiles that cover `rows` rows, as tile_height() chooses them."""
    used = set()
    for start in range(0, rows, block):
        left = min(block, rows - start)
        while left:
            height = tallest if left % tallest == 0 else min(left, tallest - 1)
            used.add(height)
            left -= height
    return used


def tile_function(product: Product, tiling: Tiling, name: str, layout: Layout) -> Function:
    """Return the function that computes one tile of c."""
    across = product.form == "weight_gradient"
    a_row, a_term = (1, layout.stride(product.a)) if across else (layout.stride(product.a), 1)
    a: str = f"a + k0 * {a_term}, {a_row}, {a_term}"
    if tiling.pack_rows:
        a = "a, 1, rows"
    b = "b + k0 * wide * LANES, wide * LANES" if tiling.ahead else "b, wide * LANES"
    if tiling.packing == "none":
        ld = layout.stride(product.b)
        b = f"b + k0 * {ld}, {ld}"
    keep = _accumulator(product)
    at = layout.at(keep, "r", "v * LANES")
    lanes = "lanes" if _ends_within(keep, layout) else ""
    # Constant offsets from a tile's first entries compile faster than sums of four numbers.
    moves = "".join(
        f" {v.name} += {f'i * {layout.stride(v)} + ' if v.rows > 1 else ''}j;"
        for v in _tile_matrices(product)
    )
    body: list[Statement] = [
        f"(void)part, (void)k0, (void)i, (void)j;{moves}",
        "vec sum[TILE_ROWS][WIDE];",
        Each(["sum[r][v] = (vec){0};"]),
        f"add_products(sum, rows, wide, k1 - k0, {a}, {b});",
        *_epilogue(product, layout),
    ]
    if product.depth > tiling.depth_block:  # the sums are kept in memory between passes
        body[2] = If("k0", [_each([f"sum[r][v] = {load(at, lanes)};"], lanes)], [body[2]])
        waiting = _each([store(at, "sum[r][v]", lanes)], lanes)
        body.insert(4, If(f"k1 < {product.depth}", [waiting, "return;"]))
    return Function(
        f"{name}_tile",
        "reduce" if across else "rows",
        _tile_buffers(product),
        body,
        parameters=TILE_PARAMETERS,
        qualifiers="INLINE",
    )


def product_statements(
    product: Product,
    tiling: Tiling,
    name: str,
    panel: str,
    layout: Layout,
    slices: list[int],
    *,
    by_columns: bool = False,
) -> Sequence[Statement]:
    """Return the loops over the tiles of rows `first` to `last` of c, or of panels `by_columns`.

    `slices` are the numbers of rows with which the program calls them.
    """
    used = set().union(*(heights(n, tiling.row_block, tiling.height) for n in slices))
    across = product.form == "weight_gradient"
    a, a_ld = product.a.name, layout.stride(product.a)
    entry = f"{a}[k * {a_ld} + i + r]" if across else f"{a}[(i + r) * {a_ld} + k]"
    rows_at = f"{a} + i" if across else f"{a} + i * {a_ld}"
    body: list[Statement] = []
    if tiling.pack_rows:
        own = f" + part.index * {product.rows * tiling.depth_block}" if by_columns else ""
        rows_at = f"{name}_rows{own} + i * {tiling.depth_block}"
        copy = Loop("r", 0, "h", [f"tile[(k - k0) * h + r] = {entry};"])
        pack: list[Statement] = [f"real *restrict tile = {rows_at};", Loop("k", "k0", "k1", [copy])]
        body.append(_tiles(pack, tiling))
    columns_at = f"{panel} + j * {product.depth}"
    if tiling.packing == "none":
        columns_at = f"{product.b.name} + j"
    elif not tiling.ahead:
        columns_at = "panel"
    start: str | int
    stop: str | int
    for wide, start, stop, part in _spans(product, layout):
        packs = [pack_panel(product, tiling, layout, wide)] if columns_at == "panel" else []
        operands = f"i, j, k0, k1, {rows_at}, {columns_at}"
        cases = [
            (h, f"{name}_tile(table, workspace, {h}, {wide}, {part}, {operands});")
            for h in sorted(used, reverse=True)
        ]
        tiles: list[Statement] = [*packs, _tiles([Switch("h", cases)], tiling)]
        if by_columns:
            start, stop = f"MAX({start}, first * WIDE * LANES)", f"MIN({stop}, last * WIDE * LANES)"
        body.append(Loop("j", start, stop, tiles, step=wide * layout.lanes))
    begin, end = ("begin", "end") if across else (0, product.depth)
    top, bottom = (0, product.rows) if by_columns else ("first", "last")
    block = f"base + {tiling.row_block}"
    blocks = Loop(
        "base",
        top,
        bottom,
        [f"const long stop = MIN({block}, {bottom});", *body],
        step=tiling.row_block,
    )
    passes = Loop(
        "k0",
        begin,
        end,
        [f"const long k1 = MIN(k0 + {tiling.depth_block}, {end});", blocks],
        step=tiling.depth_block,
    )
    if columns_at != "panel":
        return [passes]
    return [
        f"real panel[{tiling.depth_block} * WIDE * LANES] __attribute__((aligned(64)));",
        passes,
    ]


def _tiles(body: Sequence[Statement], tiling: Tiling) -> Loop:
    """Return the loop over the tiles from row `base` to `stop`, of height ``h`` at row ``i``."""
    return Loop(
        "i", "base, h", "stop", [f"h = tile_height(stop - i, {tiling.height});", *body], step="h"
    )


def _each(body: Sequence[Statement], lanes: str) -> Each:
    """Return a loop over the vectors of a tile; ``lanes`` is the number of valid lanes of each."""
    count = ["const long lanes = part && v == wide - 1 ? part : LANES;"] if lanes else []
    return Each([*count, *body])


def _spans(product: Product, layout: Layout) -> list[tuple[int, int, int, int]]:
    """Return the runs of panels of one width: vectors, first and last column, lanes of the last."""
    lanes, vectors = layout.lanes, -(-product.columns // layout.lanes)
    within = any(_ends_within(v, layout) for v in product.writes if v.stored)
    part = product.columns % lanes if within else 0
    pairs = vectors // 2 * 2
    spans = [(2, 0, pairs * lanes, 0), (1, pairs * lanes, vectors * lanes, 0)]
    if part:
        wide = 2 - vectors % 2
        cut = (vectors - wide) * lanes
        index = 0 if wide == 2 else 1
        spans[index] = (wide, spans[index][1], cut, 0)
        spans.append((wide, cut, vectors * lanes, part))
    return [span for span in spans if span[1] < span[2]]


def _ends_within(value: Value, layout: Layout) -> bool:
    """Return whether the value's rows end within a vector, as they may in the caller's memory."""
    return layout.stride(value) % layout.lanes != 0


def _accumulator(product: Product) -> Value:
    """Return the value whose memory holds the sums between passes: one that is stored anyway."""
    return next((v for v in product.writes if v.stored), product.c)


def _tile_matrices(product: Product) -> list[Value]:
    """Return the matrices of the shape of c that a tile reads or writes."""
    written = [v for v in product.writes if v.stored]
    read = [v for m in product.epilogue for v in m.reads if v not in product.writes]
    return [*dict.fromkeys(written + read)]


def _tile_buffers(product: Product) -> list[str]:
    matrices = [value.name for value in _tile_matrices(product)]
    return matrices + ([product.bias.name] if product.bias else [])


def _epilogue(product: Product, layout: Layout) -> Sequence[Statement]:
    """Return the statements applied to each vector of c before it is stored."""
    known = {product.c: f"at_{product.c.name}"}
    bias = f" + {load(f'{product.bias.name} + j + v * LANES')}" if product.bias else ""
    factor = c_number(product.factor, layout.itemsize)
    scaled = "sum[r][v]" if product.factor == 1 else f"sum[r][v] * splat({factor})"
    lines: list[Statement] = [f"const vec {known[product.c]} = {scaled}{bias};"]
    for step in product.epilogue:
        lines += map_statements(step, layout, "r", "v * LANES", known)
    stored = [value for value in product.writes if value.stored]
    for value in stored:
        lanes = "lanes" if _ends_within(value, layout) else ""
        place = layout.at(value, "r", "v * LANES")
        lines.append(store(place, known[value], lanes))
    return [_each(lines, "lanes" if any(_ends_within(v, layout) for v in stored) else "")]


def map_statements(
    step: Map, layout: Layout, row: str, column: str, known: dict[Value, str]
) -> Sequence[Statement]:
    """Return the statements of a map for one vector; `known` names the values in registers."""
    lines: list[Statement] = []
    for name in step.rule.reads:
        value = step.names[name]
        if value not in known:
            known[value] = f"at_{value.name}"
            at = row if value.rows > 1 else "0"
            lines.append(f"const vec {known[value]} = {layout.load(value, at, column)};")
    for name in step.rule.writes:
        known[step.names[name]] = f"at_{step.names[name].name}"
    names = {name: known[value] for name, value in step.names.items()}
    return [*lines, *step.rule.statements(names, layout.itemsize)]
