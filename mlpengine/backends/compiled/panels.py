"""Packing of b: panels are copies of b, two vectors wide, that tiles read sequentially."""

from collections.abc import Sequence

from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.matrix import MatrixProduct
from mlpengine.backends.compiled.statements import ForLoop, If, Statement, load_vector, store
from mlpengine.backends.compiled.tiling import Tiling
from mlpengine.backends.values import is_short

FEW_ENTRIES = 4096
"""Maximum entries of a transposed matrix for which the packing code has constant sizes.

Compared with variable sizes, a step of 4-32-32-1 on 32 rows takes 4 % less time, and compiling
takes 0.04 s longer (two-core Intel Xeon, November 2026)."""


def panel_count(product: MatrixProduct, layout: Layout) -> int:
    """Return the number of entries in all panels of b; for short rows, they include the bias."""
    vectors = -(-product.columns // layout.lanes)
    return vectors * layout.lanes * (product.depth + is_short(product.columns, layout.lanes))


def packing(
    product: MatrixProduct, name: str, layout: Layout, tiling: Tiling
) -> Sequence[Statement]:
    """Return the loop that fills the panels `first` to `last` of b.

    If rows of a tile are joined (`Tiling.joined`), each row of the panel is repeated until it fills
    a vector, and the bias follows as a further row.
    """
    transposed = tiling.packing == "transposed"
    pack = "pack_transposed" if transposed else "pack_panel"
    if transposed and product.depth * product.columns <= FEW_ENTRIES:
        pack = "pack_transposed_inline"
    vectors = -(-product.columns // layout.lanes)
    matrix = f"{product.b.name}, {layout.stride(product.b)}, {product.depth}, {product.columns}"
    full, thin = (f"{pack}(panel, {matrix}, j, {width});" for width in ("WIDE * LANES", "LANES"))
    # if the number of vectors is odd, the last panel is one vector wide
    fill: Statement = full if vectors % 2 == 0 else If(f"p < {vectors // 2}", [full], [thin])
    body: list[Statement] = [
        "const int64_t j = p * WIDE * LANES;",
        f"real *restrict panel = {name} + j * {product.depth};",
        fill,
    ]
    if tiling.joined > 1:
        place, columns = f"panel + {product.depth} * LANES", product.columns
        if not transposed:
            body.append(f"repeat_columns(panel, {product.depth}, {columns});")
        if product.bias is not None:
            body.append(store(place, load_vector(product.bias.name, columns), columns))
            body.append(f"repeat_columns({place}, 1, {columns});")
    return [ForLoop("p", "first", "last", body)]


def row_packing(product: MatrixProduct, name: str, layout: Layout) -> Sequence[Statement]:
    """Return the calls that fill the rows `first` to `last` of all panels."""
    b, ld = product.b.name, layout.stride(product.b)
    vectors, lanes = -(-product.columns // layout.lanes), layout.lanes
    return [
        f"pack_panel({name} + {v * lanes * product.depth} + first * {wide * lanes}, "
        f"{b} + first * {ld}, {ld}, last - first, {product.columns}, {v * lanes}, {wide * lanes});"
        for v in range(0, vectors, 2)
        for wide in [min(2, vectors - v)]
    ]


def pack_panel(
    product: MatrixProduct, tiling: Tiling, layout: Layout, wide: int, panel: str
) -> str:
    """Return the statement that packs rows k0 to k1 of the panel that begins at column j of b."""
    b, ld = product.b.name, layout.stride(product.b)
    size = f"{ld}, k1 - k0, {product.columns}, j, {wide} * LANES"
    if tiling.packing == "transposed":
        return f"pack_transposed({panel}, {b} + k0, {size});"
    return f"pack_panel({panel}, {b} + k0 * {ld}, {size});"
