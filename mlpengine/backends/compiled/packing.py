"""Packed panels of b: two vectors wide, all rows one after another, so that tiles read in order."""

from mlpengine.backends.compiled.kernels import Product
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.tiling import Tiling


def panel_count(product: Product, layout: Layout) -> int:
    """Return how many numbers the packed panels of b take."""
    vectors = -(-product.columns // layout.lanes)
    return vectors * layout.lanes * product.depth


def emit_packing(product: Product, name: str, layout: Layout, *, transposed: bool) -> str:
    """Return the loop that fills panels `first` to `last` of b."""
    pack = "pack_transposed" if transposed else "pack_panel"
    b, depth, columns = product.b, product.depth, product.columns
    vectors = -(-columns // layout.lanes)
    ld = layout.stride(b)
    text = (
        "for (long p = first; p < last; p++) {\n"
        "  const long j = p * WIDE * LANES;\n"
        f"  real *restrict panel = {name} + j * {depth};\n"
    )
    full = f"{pack}(panel, {b.name}, {ld}, {depth}, {columns}, j, WIDE * LANES);"
    if vectors % 2 == 0:
        return f"{text}  {full}\n}}"
    thin = f"{pack}(panel, {b.name}, {ld}, {depth}, {columns}, j, LANES);"
    return f"{text}  if (p < {vectors // 2}) {full}\n  else {thin}\n}}"


def emit_row_packing(product: Product, name: str, layout: Layout) -> str:
    """Return the loop that fills rows `first` to `last` of all panels of b."""
    b, depth = product.b, product.depth
    vectors = -(-product.columns // layout.lanes)
    ld = layout.stride(b)
    lines = [f"for (long p = 0; p < {vectors // 2}; p++)"] if vectors >= 2 else []
    if vectors >= 2:
        lines += [
            "  for (long k = first; k < last; k++) UNROLL for (long v = 0; v < WIDE; v++)",
            f"    store({name} + p * WIDE * LANES * {depth} + (k * WIDE + v) * LANES,",
            f"          load({b.name} + k * {ld} + (p * WIDE + v) * LANES));",
        ]
    if vectors % 2:
        j = (vectors - 1) * layout.lanes
        lines += [
            "for (long k = first; k < last; k++)",
            f"  store({name} + {j * depth} + k * LANES, load({b.name} + k * {ld} + {j}));",
        ]
    return "\n".join(lines)


def pack_panel(product: Product, tiling: Tiling, layout: Layout, wide: int) -> str:
    """Return what packs the terms k0 to k1 of one panel."""
    ld, width = layout.stride(product.b), f"{wide} * LANES"
    rest = f"{ld}, k1 - k0, {product.columns}, j, {width}"
    if tiling.packing == "transposed":
        return f"  pack_transposed(panel, {product.b.name} + k0, {rest});\n"
    return f"  pack_panel(panel, {product.b.name} + k0 * {ld}, {rest});\n"
