"""How each matrix product is cut: by its shapes and the target alone."""

from dataclasses import dataclass
from math import gcd
from typing import Literal

from mlpengine.backends.compiled.kernels import Product
from mlpengine.backends.compiled.layout import Layout

LONGEST_DEPTH = 400
"""Terms of one pass: a panel of them is 25 kB with vectors of 32 bytes, and stays in a first-level
cache beside a tile's rows; with 64 bytes it comes from the second level, which costs nothing."""

BLOCK_BYTES = 256 * 1024
"""Rows of `a` that one pass over the panels reads: half of a second-level cache."""

PACK_BYTES = 256 * 1024
"""A matrix that is read down its columns and spans more than this is packed first: every row lies
on another page, and a first-level translation buffer holds 64."""

SMALLEST_PANEL = 8 * 1024
"""Bytes of a panel from which it may be read as soon as it is written: of a smaller one the first
rows are still on their way to the cache, and a wider load waits for several stores."""

Packing = Literal["none", "panels", "transposed"]


@dataclass(frozen=True)
class Tiling:
    """How one product is computed.

    Panels that are packed `ahead`, all of them, are shared by all threads and rows; the others are
    packed one by one where they are used, and never leave the caches.
    """

    packing: Packing
    ahead: bool
    pack_rows: bool
    depth_block: int
    row_block: int


def choose_tiling(product: Product, layout: Layout, depth: int, *, often: bool) -> Tiling:
    """Return the tiling of sums over `depth` terms at a time; `often` if by many slices of rows.

    It follows from the shapes and the target alone, so that every run takes the same.
    """
    size, rows = layout.itemsize, product.rows
    passes = max(1, -(-depth * size // (LONGEST_DEPTH * 4)))
    block = -(-depth // passes)
    height = layout.target.tile_rows
    fitting = max(4, BLOCK_BYTES // max(block * size * height, 1)) * height
    packing: Packing = "none"
    if product.form == "forward":
        packing = "transposed"
    elif not _is_panel(product, layout) and (
        _reads_badly(depth, layout.stride(product.b) * size)
        or (product.form == "input_gradient" and product.columns % layout.lanes)
    ):
        packing = "panels"
    across = product.form == "weight_gradient"
    row_bytes = layout.stride(product.a) * size
    pack_rows = depth * row_bytes > PACK_BYTES if across else row_bytes % 4096 == 0 and rows >= 64
    thin = 2 * block * layout.target.vector_bytes < SMALLEST_PANEL
    ahead = across or often or thin or rows * block * size > 2 * BLOCK_BYTES
    return Tiling(packing, ahead, pack_rows, block, min(fitting, rows) if ahead else rows)


def _is_panel(product: Product, layout: Layout) -> bool:
    """Return whether b lies in memory as its only panel would."""
    stride = layout.stride(product.b)
    return stride % layout.lanes == 0 and stride <= 2 * layout.lanes


def _reads_badly(depth: int, row_bytes: int) -> bool:
    """Return whether reading down a column of `depth` rows would miss the caches it could stay in.

    Either the rows span more pages than there are translations, or their lines fall into so few
    of the 64 sets of the first-level cache that half of its ways do not hold them.
    """
    lines = max(row_bytes // 64, 1)
    sets = 64 // gcd(lines, 64)
    return depth * row_bytes > PACK_BYTES or depth > 4 * sets
