"""Matrix products c = a b as C loops over tiles of c; `tiling` chooses the sizes.

A tile is a part of c: up to `Tiling.height` rows by two vectors of columns.  Its sums stay in
registers during a pass, which adds at most `depth_block` terms to each sum.  After the last pass,
the epilogue applies the element-wise ops that are fused into the product.

A panel is a copy of columns of b, two vectors wide, in the order in which tiles read it.  A group
of panels stays in the second-level cache.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from mlpengine.backends.compiled.kernel import present
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.matrix import MatrixProduct
from mlpengine.backends.compiled.panels import pack_panel
from mlpengine.backends.compiled.statements import (
    CFunction,
    ClaimLoop,
    Each,
    ForLoop,
    If,
    Statement,
    Switch,
    load_vector,
    store,
)
from mlpengine.backends.compiled.tiling import Tiling
from mlpengine.backends.values import MatrixValue, padded_length
from mlpengine.formula import FUNCTIONS, order

TILE_PARAMETERS = (
    "const int rows, const int wide, const int part, const int64_t i, const int64_t j, "
    "const int64_t k0, const int64_t k1, const int64_t depth, "
    "const real *restrict a, const real *restrict b"
)

LONG_EPILOGUE = 20
"""An epilogue with more operations becomes a function, and is not unrolled into each tile.

Unrolled, the tile of each height would contain the epilogue up to 28 times.  With a function, a
network of three hidden layers with a long activation compiled in 2.1 s instead of 8.6 s of
processor time; a step took equally long (Xeon with AVX-512, GCC 12, float32, November 2026)."""

OPERATIONS_OF_FUNCTION = 16
"""Number of operations that a function such as exp counts as."""


def heights(rows: int, tallest: int) -> set[int]:
    """Return the heights of the tiles that cover `rows` rows, as tile_height() chooses them."""
    return {end - top for top, end in pairwise(tile_tops(rows, tallest))}


def tile_tops(rows: int, tallest: int) -> list[int]:
    """Return the first rows of the tiles that cover `rows` rows, followed by `rows`."""
    tops = [0]
    while tops[-1] < rows:
        left = rows - tops[-1]
        # Tiles have `tallest` - 1 rows until tiles of `tallest` rows cover the rest.  Two heights
        # then suffice for almost any number of rows, and only these tiles are compiled.
        tops.append(tops[-1] + (tallest if left % tallest == 0 else min(left, tallest - 1)))
    return tops


def tile_function(product: MatrixProduct, tiling: Tiling, name: str, layout: Layout) -> CFunction:
    """Return the function that computes one tile of c."""
    across = product.sums_rows
    a_row, a_term = (1, layout.stride(product.a)) if across else (layout.stride(product.a), 1)
    a: str = f"a + k0 * {a_term}, {a_row}, {a_term}"
    if tiling.pack_rows:
        a = "a, 1, rows"
    b = "b + k0 * wide * LANES, wide * LANES" if tiling.ahead else "b, wide * LANES"
    if tiling.packing == "none":
        ld = layout.stride(product.b)
        b = f"b + k0 * {ld}, {ld}"
    ends = "part ? part : LANES" if tiling.packing == "none" else "LANES"
    keep = next((v for v in product.writes if v.stored), product.c)  # holds sums between passes
    at = layout.at(keep, "r", "v * LANES")
    lanes = "lanes" if layout.ends_within(keep) else ""
    finish = _finish(product, tiling, name, layout) if _is_long(product) else None
    passes = product.depth > tiling.depth_block
    kept = [keep] if passes else []
    body: list[Statement] = [
        *_moves(product.tile_matrices if finish is None else kept, layout),
        "vec sum[TILE_ROWS][WIDE];",
    ]
    if tiling.dots:
        shape = f"rows, {product.columns}, {product.depth}"
        body.append(f"dot_products(sum, {shape}, a, {a_row}, b, {layout.stride(product.b)});")
    else:
        body += [
            Each(["sum[r][v] = (vec){0};"]),
            *([If("k0", [Each([f"__builtin_prefetch({at});"])])] if passes else []),
            f"add_products(sum, rows, wide, k1 - k0, {a}, {b}, {ends});",
        ]
    if passes:
        waiting = Each(_vector([store(at, "sum[r][v]", lanes)], lanes))
        body += [
            If("k0", [Each(_vector([f"sum[r][v] += {load_vector(at, lanes)};"], lanes))]),
            If("k1 < depth", [waiting, "return;"]),
        ]
    if tiling.joined > 1:
        body.append(f"join_rows(sum, rows, {product.columns});")
    if finish is None:
        body.append(Each(_epilogue(product, tiling, name, layout, "sum[r][v]"), _vectors(tiling)))
    else:
        # a copy, because the call would move `sum` from registers to memory
        keeps = Each(["kept[r][v] = sum[r][v];"], _vectors(tiling))
        call = f"{finish.name}(table, workspace, kept, rows, wide, part, i, j);"
        body += ["vec kept[TILE_ROWS][WIDE];", keeps, call]
    return CFunction(
        f"{name}_tile",
        "reduce" if across else "rows",
        [value.name for value in kept] if finish else _tile_buffers(product, tiling, name),
        body,
        parameters=TILE_PARAMETERS,
        tile=finish,
        qualifiers="INLINE",
    )


def _is_long(product: MatrixProduct) -> bool:
    """Return whether the epilogue must be a function (see `LONG_EPILOGUE`)."""
    outputs = [f for m in product.epilogue for f in m.rule.outputs.values()]
    given = {v for m in product.epilogue for v in m.rule.given.values()}
    nodes = [FUNCTIONS[node.name] for node in order(outputs, given) if node.args]
    length = sum(OPERATIONS_OF_FUNCTION if node.expensive else 1 for node in nodes)
    return length > LONG_EPILOGUE


def _vectors(tiling: Tiling) -> str:
    """Return C for the number of rows of vectors in a tile; `joined` rows of c share a vector."""
    return "rows" if tiling.joined == 1 else f"(rows + {tiling.joined - 1}) / {tiling.joined}"


def _finish(product: MatrixProduct, tiling: Tiling, name: str, layout: Layout) -> CFunction:
    """Return the function that applies a long epilogue to the sums of a tile of any height."""
    vector = _epilogue(product, tiling, name, layout, "kept[r][v]")
    return CFunction(
        f"{name}_finish",
        "rows",
        _tile_buffers(product, tiling, name),
        [
            *_moves(product.tile_matrices, layout),
            ForLoop("r", 0, _vectors(tiling), [ForLoop("v", 0, "wide", vector)]),
        ],
        parameters=(
            "vec kept[TILE_ROWS][WIDE], const int rows, const int wide, const int part, "
            "const int64_t i, const int64_t j"
        ),
        qualifiers="SHARED",
    )


def product_statements(
    product: MatrixProduct,
    tiling: Tiling,
    name: str,
    layout: Layout,
    slices: list[int],
    *,
    times: int = 1,
    by_columns: bool = False,
    claimed: bool = False,
) -> Sequence[Statement]:
    """Return the loops over the tiles of c.

    A call computes the rows `first` to `last` of c or, if `by_columns`, the columns of the panels
    `first` to `last`.  If `claimed`, threads claim tiles one by one: for the first group of panels
    from the list ``list``, for each further group from the next list.

    `slices` are the possible numbers of rows of a call.  `times` is the number of rows of c for
    each row of the batch.  Consecutive tiles have the same rows, so that rows of `a` stay in the
    first-level cache, and c is written sequentially.
    """
    used = set().union(*(heights(n, tiling.height) for n in slices))
    across = product.sums_rows
    block, b = tiling.depth_block, product.b.name
    spans = _spans(product, layout)
    width = tiling.group * 2 * layout.lanes
    grouped = width < product.columns
    bounded = grouped or by_columns
    start = "left" if bounded else "0"
    body: list[Statement] = []

    def loops(makes: Callable[[int, int], Statement]) -> list[Statement]:
        """Return the loops over the panels of a group, one loop for each width of a panel."""
        return [
            ForLoop(
                "j",
                f"MAX({begin}, left)" if bounded else begin,
                f"MIN({end}, right)" if bounded else end,
                [makes(wide, part)],
                step=wide * layout.lanes,
            )
            for wide, begin, end, part in spans
        ]

    if tiling.packing == "none":
        columns_at = f"{b} + j"
    elif tiling.ahead:
        columns_at = f"{name}_panels + j * {product.depth}"
    else:
        # Each thread packs a group of panels into its own memory right before it reads the group.
        # So no thread waits for another thread, and the panels are in the cache.
        own = f" + part.index * {group_size(product, tiling, layout)}"
        columns_at = f"{name}_panels{own} + (j - {start}) * {block}"
        body += loops(lambda wide, _: pack_panel(product, tiling, layout, wide, columns_at))
    of_batch = "part.rows" if times == 1 else f"part.rows * {times}"
    depth = of_batch if across else product.depth
    a, a_ld = product.a.name, layout.stride(product.a)
    rows_at = f"{a} + i" if across else f"{a} + i * {a_ld}"
    below = str(product.rows) if claimed else "bottom"
    tiles: list[Statement] = [f"h = tile_height({below} - i, {tiling.height});"]
    if tiling.pack_rows:
        size = row_copy_size(product, tiling, layout, claimed=claimed)
        own = f" + part.index * {size}" if by_columns or claimed else ""
        if not claimed:
            own += f" + i * {block}"
        entries = f"{rows_at} + k0 * {a_ld}, 1, {a_ld}" if across else f"{rows_at} + k0, {a_ld}, 1"
        rows_at = f"{name}_rows{own}"
        pack = f"pack_tile({rows_at}, {entries}, h, k1 - k0);"
        tiles.append(If("left == from", [pack]) if grouped and not claimed else pack)
    tiles += loops(
        lambda wide, part: Switch(
            "h",
            [
                (
                    h,
                    f"{name}_tile(table, workspace, {h}, {wide}, {part}, "
                    f"i, j, k0, k1, {depth}, {rows_at}, {columns_at});",
                )
                for h in sorted(used, reverse=True)
            ],
        )
    )
    over_tiles = ForLoop("i", "top, h", "stop", tiles, step="h")
    if not claimed:
        body.append(over_tiles)
    else:
        number = f"list + (left - from) / {width}" if grouped else "list"
        span = "const int64_t top = tops[first], bottom = tops[last], stop = bottom;"
        body.append(ClaimLoop(number, [span, over_tiles]))
    if grouped:
        bound = f"const int64_t right = MIN(left + {width}, to);"
        body = [ForLoop("left", "from", "to", [bound, *body], width)]
    begin, end = ("begin", "end") if across else (0, product.depth)
    # The loop over passes is outermost, so that each part of b is packed once for all rows.
    passes = ForLoop(
        "k0", begin, end, [f"const int64_t k1 = MIN(k0 + {block}, {end});", *body], step=block
    )
    rows = f"top = 0, bottom = {product.rows}" if by_columns else "top = first, bottom = last"
    rows += ", stop = bottom" if across else f", stop = MIN(bottom, {of_batch})"
    columns = "first * WIDE * LANES", f"MIN(last * WIDE * LANES, {spans[-1][2]})"
    if not by_columns:
        columns = "0", f"{spans[-1][2]}"
    names = ("from", "to") if grouped else ("left", "right")
    head = [f"const int64_t {rows};"]
    if claimed:
        tops = ", ".join(map(str, tile_tops(product.rows, tiling.height)))
        head = [f"static const int64_t tops[] = {{{tops}}};"]
    if bounded:
        head.append(f"const int64_t {names[0]} = {columns[0]}, {names[1]} = {columns[1]};")
    return [*head, passes]


def group_count(product: MatrixProduct, tiling: Tiling, layout: Layout) -> int:
    """Return the number of groups of panels."""
    return -(-product.columns // (tiling.group * 2 * layout.lanes))


def row_copy_size(product: MatrixProduct, tiling: Tiling, layout: Layout, *, claimed: bool) -> int:
    """Return the length of the packed copy of `a`: for one tile if `claimed`, else for all rows."""
    rows = tiling.height if claimed else product.rows
    return padded_length(rows * tiling.depth_block, layout.lanes)


def group_size(product: MatrixProduct, tiling: Tiling, layout: Layout) -> int:
    """Return the number of entries in a group of panels for one pass."""
    vectors = min(2 * tiling.group, -(-product.columns // layout.lanes))
    return vectors * layout.lanes * tiling.depth_block


def _moves(matrices: Sequence[MatrixValue], layout: Layout) -> list[str]:
    """Return the statements that move the pointers of `matrices` to the start of a tile.

    Code with constant offsets from there compiles faster than code with long index expressions.
    """
    return [f"{v.name} += {f'i * {layout.stride(v)} + ' if v.rows > 1 else ''}j;" for v in matrices]


def _vector(body: Sequence[Statement], lanes: str) -> list[Statement]:
    """Return `body`, after the definition of ``lanes`` if `body` reads ``lanes``."""
    count = ["const int64_t lanes = part && v == wide - 1 ? part : LANES;"] if lanes else []
    return [*count, *body]


def _spans(product: MatrixProduct, layout: Layout) -> list[tuple[int, int, int, int]]:
    """Return ranges of columns with equally wide tiles: (vectors, start, stop, partial lanes)."""
    lanes, vectors = layout.lanes, -(-product.columns // layout.lanes)
    within = any(map(layout.ends_within, _unpadded(product)))
    part = product.columns % lanes if within else 0
    pairs = vectors // 2 * 2
    # Tiles are two vectors wide.  If the number of vectors is odd, the last tile is one vector
    # wide.  If rows have no padding and the last vector is partial, its tile is a range of its own.
    spans = [(2, 0, pairs * lanes, 0), (1, pairs * lanes, vectors * lanes, 0)]
    if part:
        wide = 2 - vectors % 2
        cut = (vectors - wide) * lanes
        index = 0 if wide == 2 else 1
        spans[index] = (wide, spans[index][1], cut, 0)
        spans.append((wide, cut, vectors * lanes, part))
    return [span for span in spans if span[1] < span[2]]


def _unpadded(product: MatrixProduct) -> list[MatrixValue]:
    """Return the values that a tile reads or writes in vectors along the rows of c."""
    return [*product.tile_matrices, *present(product.bias), *([product.b] * product.sums_rows)]


def _tile_buffers(product: MatrixProduct, tiling: Tiling, name: str) -> list[str]:
    matrices = [value.name for value in product.tile_matrices]
    if product.bias is None:
        return matrices
    return [*matrices, f"{name}_panels" if tiling.joined > 1 else product.bias.name]


def _epilogue(
    product: MatrixProduct, tiling: Tiling, name: str, layout: Layout, total: str
) -> list[Statement]:
    """Return the statements that add the bias to the sums `total`, apply the epilogue and store."""
    known = {product.c: f"at_{product.c.name}"}
    joined, row, column = tiling.joined > 1, "r", "v * LANES"
    within = any(map(layout.ends_within, _unpadded(product)))
    count = "part && v == wide - 1 ? part : LANES"
    if joined:
        row, column = "0", "r * LANES"
        count = f"MIN(LANES, (rows - r * {tiling.joined}) * {product.columns})"
    bias = ""
    if joined and product.bias:
        bias = f" + {load_vector(f'{name}_panels + {product.depth} * LANES')}"
    elif product.bias:
        bias = f" + {layout.load(product.bias, '0', 'j + v * LANES', 'lanes')}"
    lines: list[Statement] = [f"const int64_t lanes = {count};"] if within else []
    lines.append(f"const vec {known[product.c]} = {total}{bias};")
    for step in product.epilogue:
        lines += step.statements(layout, row, column, known, "lanes")
    for value in (value for value in product.writes if value.stored):
        lanes = "lanes" if layout.ends_within(value) else ""
        lines.append(store(layout.at(value, row, column), known[value], lanes))
    return lines
