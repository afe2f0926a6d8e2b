"""Sizes of the tiles of matrix products, from the shapes and the target alone."""

from math import gcd
from typing import Literal, NamedTuple

from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.matrix import MatrixProduct
from mlpengine.backends.compiled.target import CompileTarget
from mlpengine.backends.values import is_short

LONGEST_DEPTH = 400
"""Maximum number of terms of a pass.

The rows of a tile then stay in the first-level cache.  Panels of 25 or 50 kB are read from the
second-level cache at the same speed."""

GROUP_BYTES = 256 * 1024
"""Bytes of a group of panels, half of a second-level cache; all tiles of some rows read it."""

PACK_BYTES = 256 * 1024
"""A matrix with more bytes that is read by columns is packed first.

Each of its rows is on another page, and the first-level translation buffer has 64 entries."""

SMALLEST_PANEL = 8 * 1024
"""Minimum bytes of a panel that is read right after it is written.

The first rows of a smaller panel are still in the store buffer, and a wide load would wait for
several stores."""

MIN_READS = 4
"""Packing pays if at least this many tiles read a panel.

With packing, a product of 512 to 256 columns took a third more time with 2 tiles, and a seventh
more with 4 (EPYC of Zen 5, November 2026)."""

PAGE_BYTES = 4096

DOT_ROWS = 2
"""Rows of a tile of dot products; more rows would not fit into the registers."""

SUM_COST = 4
"""Number of operations for summing the lanes of a vector and reading its part of b."""

MANY_ROWS = 64
FEW_TERMS = 16384
"""Minimum rows of a product, and minimum multiplications in each row, for the highest tiles.

The registers limit the height of a tile.

With higher tiles, the products of 784-256-128-10 with a batch of 128 take a tenth less time, and so
do products of wider layers (Xeon with AVX-512, one thread, interleaved, November 2026).  With a
batch of 64, a step of this network takes 2.6% less time, and steps of four other shapes, with 64 or
96 rows, take 4 to 5% less.  Each height must be compiled: for these five shapes this takes 0.1 to
0.5 s more.  The weight gradients of 64-256-128-10 with a batch of 32 have 8,192 terms for each row.
With tiles of 8 rows, this network compiles in 0.83 s, with 12 and 13 rows in 0.96 s, and a step
takes equally long (the same machine, GCC 12)."""

Packing = Literal["none", "panels", "transposed"]


class Tiling(NamedTuple):
    """How a product is computed, in tiles of at most `height` rows.

    With `ahead`, all panels are packed first, and all threads and rows share them.  Otherwise each
    group of panels is packed right before its use and stays in the caches.  With `dots`, the lanes
    of a vector are terms of one entry instead of columns; their sum is an entry of c.  The epilogue
    computes `joined` rows of a tile as one vector.
    """

    height: int
    packing: Packing
    ahead: bool
    pack_rows: bool
    depth_block: int
    group: int
    dots: bool = False
    joined: int = 1


def choose_tiling(
    product: MatrixProduct, layout: Layout, depth: int, share: int, *, often: bool
) -> Tiling:
    """Return the tiling of sums over `depth` terms at a time.

    `share` is the number of rows for each thread.  With `often`, several slices of rows or several
    threads read the same panels, so panels are packed ahead.  The tiling depends only on the shapes
    and the target, so it is the same in every run.
    """
    size = layout.itemsize
    # All passes have equal length: a short last pass would load and store all sums for few terms.
    passes = max(1, -(-depth * size // (LONGEST_DEPTH * 4)))
    joined = _joined_rows(product, layout) if passes == 1 else 1
    if joined == 1 and _has_few_columns(product, layout):
        return Tiling(DOT_ROWS, "none", False, False, depth, 1, dots=True)
    block = -(-depth // passes)
    across = product.sums_rows
    height = tile_rows(layout.target, share, depth * product.columns)
    # In "forward", the columns of c belong to the rows of w, so a vector would have to gather from
    # several rows.  Packing therefore transposes w.  The other forms read b along its rows.  They
    # pack b if that pays, or if a vector would end beyond a row of the caller's array, because such
    # rows have no padding.
    packing: Packing = "none"
    if product.form == "forward":
        packing = "transposed"
    elif not _is_panel(product, layout) and (
        _pays(product, layout, depth, -(-share // height))
        or (product.form == "input_gradient" and product.columns % layout.lanes)
    ):
        packing = "panels"
    row_bytes = layout.stride(product.a) * size
    # If rows are a multiple of a page apart, the same column of all rows maps to one set of the
    # first-level cache, and the rows of a tile would evict each other.
    pack_rows = row_bytes % PAGE_BYTES == 0 and share >= 64
    if across:
        pack_rows = (
            product.columns > 4 * layout.lanes
            and not layout.target.reads_columns
            and _reads_badly(depth, row_bytes, ways=8)
        )
    thin = 2 * block * layout.target.vector_bytes < SMALLEST_PANEL
    group = max(1, GROUP_BYTES // (2 * block * layout.target.vector_bytes))
    ahead = often or thin or joined > 1
    return Tiling(height, packing, ahead, pack_rows, block, group, joined=joined)


def tile_rows(target: CompileTarget, rows: int, terms: int) -> int:
    """Return the number of rows in a tile, two vectors wide, for a product with `rows` rows.

    Each row takes `terms` multiplications.

    The tile leaves registers for a row of b and an entry of a.  Tiles of 8 rows have 16 sums, which
    hide the latency of any multiplier, and low tiles fit more shapes.  With vectors of 64 bytes the
    second-level cache is the limit: higher tiles read panels less often, and one tile may cover all
    rows.
    """
    limit = highest_tile(target)
    if target.vector_bytes < 64 or (rows > limit and (rows < MANY_ROWS or terms < FEW_TERMS)):
        return min(8, limit)
    tiles = max(1, -(-rows // limit))
    return -(-rows // tiles)  # each tile has this height, or one row fewer


def highest_tile(target: CompileTarget) -> int:
    """Return the largest number of rows for which a tile fits into the registers."""
    return (target.registers - 4) // 2


def _joined_rows(product: MatrixProduct, layout: Layout) -> int:
    """Return how many rows of c the epilogue computes as one vector; 1 without an epilogue."""
    short = product.epilogue and is_short(product.columns, layout.lanes)
    for value in {*product.tile_matrices} if short else ():
        shape = value.rows, value.columns, layout.stride(value)
        if value.mask or shape != (product.rows, product.columns, product.columns):
            return 1
    return layout.lanes // product.columns if short and not product.sums_rows else 1


def _has_few_columns(product: MatrixProduct, layout: Layout) -> bool:
    """Return whether dot products need fewer operations than vectors with few lanes in use.

    With dot products, a step of 64-128-10 with a batch of 64 takes 4 % less time (EPYC of Zen 5,
    November 2026).
    """
    if product.form != "forward" or product.columns > layout.lanes:
        return False
    return product.columns * (product.depth // layout.lanes + SUM_COST) < product.depth


def _is_panel(product: MatrixProduct, layout: Layout) -> bool:
    """Return whether the memory layout of b equals the layout of its only panel."""
    stride = layout.stride(product.b)
    return stride % layout.lanes == 0 and stride <= 2 * layout.lanes


def _pays(product: MatrixProduct, layout: Layout, depth: int, reads: int) -> bool:
    """Return whether packing b into panels pays; `reads` tiles read each panel."""
    row_bytes = layout.stride(product.b) * layout.itemsize
    pays = reads >= MIN_READS
    if layout.target.reads_columns:
        across = product.sums_rows
        pays = across and reads > 1 and row_bytes % PAGE_BYTES == 0
    return pays and _reads_badly(depth, row_bytes)


def _reads_badly(depth: int, row_bytes: int, ways: int = 4) -> bool:
    """Return whether reading a column of `depth` rows misses the first-level caches.

    Either the rows span more pages than the translation buffer holds, or their lines map to so few
    of the 64 sets of the first-level cache that they do not fit into `ways` of its ways.
    """
    lines = max(row_bytes // 64, 1)
    sets = 64 // gcd(lines, 64)
    return depth * row_bytes > PACK_BYTES or depth > ways * sets
