"""Packed panels of b, two vectors wide with contiguous rows, which tiles read sequentially."""

from collections.abc import Sequence

from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.matrix import MatrixProduct
from mlpengine.backends.compiled.statements import ForLoop, If, Statement, load_vector, store
from mlpengine.backends.compiled.tiling import Tiling

FEW_ENTRIES = 4096
"""Up to this many entries, packing is compiled for exactly the matrix's size.

A step of 4-32-32-1 on 32 rows then takes 4 % less time, and the compiler takes 0.04 s more
(two-core Intel Xeon, November 2026)."""


def panel_count(product: MatrixProduct, layout: Layout) -> int:
    """Return the number of entries in the packed panels of b."""
    vectors = -(-product.columns // layout.lanes)
    return vectors * layout.lanes * product.depth


def packing(
    product: MatrixProduct, name: str, layout: Layout, *, transposed: bool
) -> Sequence[Statement]:
    """Return the loop that fills panels `first` to `last` of b."""
    pack = "pack_transposed" if transposed else "pack_panel"
    if transposed and product.depth * product.columns <= FEW_ENTRIES:
        pack = "pack_transposed_inline"
    vectors = -(-product.columns // layout.lanes)
    matrix = f"{product.b.name}, {layout.stride(product.b)}, {product.depth}, {product.columns}"
    full, thin = (f"{pack}(panel, {matrix}, j, {width});" for width in ("WIDE * LANES", "LANES"))
    # a panel has two vectors; if their number is odd, the last panel has one
    fill: Statement = full if vectors % 2 == 0 else If(f"p < {vectors // 2}", [full], [thin])
    body = [
        "const int64_t j = p * WIDE * LANES;",
        f"real *restrict panel = {name} + j * {product.depth};",
        fill,
    ]
    return [ForLoop("p", "first", "last", body)]


def row_packing(product: MatrixProduct, name: str, layout: Layout) -> Sequence[Statement]:
    """Return the loops that fill rows `first` to `last` of all panels of b."""
    b, depth, ld = product.b.name, product.depth, layout.stride(product.b)
    vectors = -(-product.columns // layout.lanes)
    # row by row, so that several threads can fill disjoint rows of all panels
    loops: list[Statement] = []
    if vectors >= 2:
        panel = f"{name} + p * WIDE * LANES * {depth} + k * WIDE * LANES"
        move = f"copy_vectors({panel}, {b} + k * {ld} + p * WIDE * LANES, WIDE);"
        loops.append(ForLoop("p", 0, vectors // 2, [ForLoop("k", "first", "last", [move])]))
    if vectors % 2:
        j = (vectors - 1) * layout.lanes
        move = store(f"{name} + {j * depth} + k * LANES", load_vector(f"{b} + k * {ld} + {j}"))
        loops.append(ForLoop("k", "first", "last", [move]))
    return loops


def pack_panel(
    product: MatrixProduct, tiling: Tiling, layout: Layout, wide: int, panel: str
) -> str:
    """Return the statement that packs the terms k0 to k1 of the panel of column j."""
    b, ld = product.b.name, layout.stride(product.b)
    size = f"{ld}, k1 - k0, {product.columns}, j, {wide} * LANES"
    if tiling.packing == "transposed":
        return f"pack_transposed({panel}, {b} + k0, {size});"
    return f"pack_panel({panel}, {b} + k0 * {ld}, {size});"
