"""Sizes of the tiles and panels of matrix products (see `tile_loops`), from shapes and target."""

from math import gcd
from typing import Literal, NamedTuple

from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.matrix import MatrixProduct
from mlpengine.backends.compiled.target import CompileTarget
from mlpengine.backends.values import is_short

LONGEST_DEPTH = 400
"""Maximum number of terms that a product adds in one pass in float32; half as many in float64.

With more terms, several passes add to the same sums.  In each pass, the entries of `a` that a tile
reads stay in the first-level cache."""

GROUP_BYTES = 256 * 1024
"""Maximum bytes of a group of panels: half of a second-level cache, where the group stays."""

PACK_BYTES = 256 * 1024
"""Bytes of the largest matrix that tiles read by columns without packing: 64 pages.

The first-level translation buffer has 64 entries."""

SMALLEST_PANEL = 8 * 1024
"""Minimum bytes of a panel that a thread packs right before reading it.

Smaller panels are packed before the product starts.  Their first rows would still be in the store
buffer, where a wide load waits for several stores."""

MIN_READS = 4
"""Minimum number of tiles that read a panel; for fewer reads, writing the panel does not pay."""

PAGE_BYTES = 4096

DOT_ROWS = 2
"""Rows of a tile of dot products; more rows would not fit into the registers."""

SUM_COST = 4
"""Estimated operations for an entry of a dot product besides its multiplications."""

MANY_ROWS = 64
"""Minimum rows of a product for tiles of more than 8 rows, if one tile does not cover all rows.

Compared with tiles of 8 rows, tiles of up to 14 rows shorten the products of 784-256-128-10 by a
tenth with a batch of 128, and a step by 2.6% with a batch of 64.  A program then takes 0.1 to 0.5 s
longer to compile (Xeon with AVX-512, one thread, GCC 12, November 2026)."""

FEW_TERMS = 16384
"""Minimum multiplications in each row of a product for tiles of more than 8 rows (`MANY_ROWS`).
With 8,192, tiles of 12 or 13 rows made no step faster than tiles of 8 rows, but took 0.13 s longer
to compile (64-256-128-10 with a batch of 32, on the same machine)."""

Packing = Literal["none", "panels", "transposed"]


class Tiling(NamedTuple):
    """How a product c = a b is computed.

    Attributes:
        height: maximum number of rows of a tile.
        packing: how b is copied into panels.
        ahead: whether all panels are packed before the product, or each group before its use.
        pack_rows: whether the entries of `a` that a tile reads are copied, too.
        depth_block: number of terms in a pass.
        group: number of panels in a group.
        dots: whether the lanes of a vector are terms of one entry of c, instead of columns.
        joined: number of rows of a tile that the epilogue computes as one vector.
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
    """Return the tiling of a product with sums of `depth` terms and `share` rows for each thread.

    With `often`, several slices of rows or several threads read the same panels, so panels are
    packed ahead.  Equal arguments give equal tilings in every run.
    """
    size = layout.itemsize
    # All passes are equally long, because a short last pass would also load and store all sums.
    passes = max(1, -(-depth * size // (LONGEST_DEPTH * 4)))
    joined = _joined_rows(product, layout) if passes == 1 else 1
    if joined == 1 and _has_few_columns(product, layout):
        return Tiling(DOT_ROWS, "none", False, False, depth, 1, dots=True)
    block = -(-depth // passes)
    across = product.sums_rows
    height = tile_rows(layout.target, share, depth * product.columns)
    # In "forward", adjacent columns of c belong to different rows of w.  Packing transposes w, so
    # that a vector need not gather from several rows.  The other forms read b along its rows.  They
    # pack b if packing pays.  They also pack w if a vector would end beyond a row of w, because the
    # caller's array has no padding.  Joined rows need a panel with repeated columns.
    packing: Packing = "none"
    if product.form == "forward":
        packing = "transposed"
    elif joined > 1 or (
        not _is_panel(product, layout)
        and (
            _pays(product, layout, depth, -(-share // height))
            or (product.form == "input_gradient" and product.columns % layout.lanes)
        )
    ):
        packing = "panels"
    row_bytes = layout.stride(product.a) * size
    # If rows lie a multiple of a page apart, all entries of a column map to one set of the
    # first-level cache, and the rows of a tile evict each other.
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
    """Return the number of rows in a tile for `rows` rows with `terms` multiplications each.

    A tile has at most 8 rows: its 16 sums hide the latency of any multiplier.  With vectors of 64
    bytes, reading panels from the second-level cache takes longer than multiplying.  Higher tiles
    read panels less often, so they are used for few rows and for large products.
    """
    limit = highest_tile(target)
    if target.vector_bytes < 64 or (rows > limit and (rows < MANY_ROWS or terms < FEW_TERMS)):
        return min(8, limit)
    tiles = max(1, -(-rows // limit))
    return -(-rows // tiles)  # each tile has this height, or one row fewer


def highest_tile(target: CompileTarget) -> int:
    """Return the largest number of rows, of two vectors each, that fits into the registers."""
    return (target.registers - 4) // 2


def _joined_rows(product: MatrixProduct, layout: Layout) -> int:
    """Return how many rows of c the epilogue computes as one vector, or 1."""
    short = product.epilogue and is_short(product.columns, layout.lanes)
    for value in {*product.tile_matrices} if short else ():
        shape = value.rows, value.columns, layout.stride(value)
        if value.mask or shape != (product.rows, product.columns, product.columns):
            return 1
    return layout.lanes // product.columns if short and not product.sums_rows else 1


def _has_few_columns(product: MatrixProduct, layout: Layout) -> bool:
    """Return whether dot products need fewer operations than vectors along the columns of c.

    A step of 64-128-10 with a batch of 64 takes 4 % less time with dot products than with vectors
    along columns (EPYC of Zen 5, November 2026).
    """
    if product.form != "forward" or product.columns > layout.lanes:
        return False
    return product.columns * (product.depth // layout.lanes + SUM_COST) < product.depth


def _is_panel(product: MatrixProduct, layout: Layout) -> bool:
    """Return whether b in memory already looks like a packed panel."""
    stride = layout.stride(product.b)
    return stride % layout.lanes == 0 and stride <= 2 * layout.lanes


def _pays(product: MatrixProduct, layout: Layout, depth: int, reads: int) -> bool:
    """Return whether packing b saves time if `reads` tiles read each panel."""
    row_bytes = layout.stride(product.b) * layout.itemsize
    pays = reads >= MIN_READS
    if layout.target.reads_columns:
        across = product.sums_rows
        pays = across and reads > 1 and row_bytes % PAGE_BYTES == 0
    return pays and _reads_badly(depth, row_bytes)


def _reads_badly(depth: int, row_bytes: int, ways: int = 4) -> bool:
    """Return whether reading a column of `depth` rows misses the first-level caches.

    This is so if the column spans more pages than the translation buffer holds, or if one of the 64
    sets of the first-level cache gets more than `ways` lines of the column.
    """
    lines = max(row_bytes // 64, 1)
    sets = 64 // gcd(lines, 64)
    return depth * row_bytes > PACK_BYTES or depth > ways * sets
