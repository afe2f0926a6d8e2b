"""Choice of tiles and panels of matrix products (see `tile_loops`), from shapes and target."""

from math import gcd
from typing import Literal, NamedTuple

from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.matrix import MatrixProduct
from mlpengine.backends.compiled.target import CompileTarget
from mlpengine.backends.values import is_short

LONGEST_DEPTH = 400
"""Maximum number of terms in a pass in float32; half as many in float64.

With this number, the entries of `a` that a tile reads in a pass stay in the first-level cache."""

GROUP_BYTES = 256 * 1024
"""Maximum bytes of a group of panels: half of a second-level cache."""

PACK_BYTES = 256 * 1024
"""Maximum bytes of a matrix that tiles read by columns without packing: 64 pages.

The first-level TLB (the cache of page addresses) has 64 entries."""

SMALLEST_PANEL = 8 * 1024
"""Minimum bytes of a panel that a thread packs right before it reads the panel.

Smaller panels are packed before the product starts.  Otherwise, their first rows would still be in
the store buffer of the processor, and a load would wait for several stores."""

MIN_READS = 4
"""Minimum number of tiles that must read a panel for packing to pay."""

PAGE_BYTES = 4096

DOT_ROWS = 2
"""Rows of a tile of dot products; more rows would not fit into the registers."""

SUM_COST = 4
"""Estimated operations of a dot product besides its multiplications."""

MANY_ROWS = 64
"""Minimum rows of a product for tiles of more than 8 rows, unless one tile covers all rows.

In 784-256-128-10, tiles of up to 14 rows shorten the products by a tenth (batch of 128) and a step
by 2.6% (batch of 64), compared with tiles of 8 rows.  Compiling takes 0.1 to 0.5 s longer (Xeon
with AVX-512, one thread, GCC 12, November 2026)."""

FEW_TERMS = 16384
"""Minimum multiplications in each row of a product for tiles of more than 8 rows.

With a minimum of 8,192, the network 64-256-128-10 (batch of 32) had tiles of 12 or 13 rows: no step
was faster, and compiling took 0.13 s longer (same machine as above)."""

Packing = Literal["none", "panels", "transposed"]


class Tiling(NamedTuple):
    """How a product c = a b is computed.

    Attributes:
        height: maximum number of rows of a tile.
        packing: how b is copied into panels.
        ahead: whether all panels are packed before the product.  If False, each group of panels is
            packed right before it is read.
        pack_rows: whether the rows of `a` that a tile reads are copied, too.
        depth_block: number of terms in a pass.
        group: number of panels in a group.
        dots: whether a vector holds terms of one entry of c (a dot product), not columns of c.
        joined: number of short rows of a tile that form one vector in the epilogue.
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

    `often` means that several slices of rows or several threads read the same panels; panels are
    then packed before the product.  Equal arguments give equal tilings in every run.
    """
    size = layout.itemsize
    # Passes are equally long: a short last pass would load and store all sums for a few terms.
    passes = max(1, -(-depth * size // (LONGEST_DEPTH * 4)))
    joined = _joined_rows(product, layout) if passes == 1 else 1
    if joined == 1 and _has_few_columns(product, layout):
        return Tiling(DOT_ROWS, "none", False, False, depth, 1, dots=True)
    block = -(-depth // passes)
    across = product.sums_rows
    height = tile_rows(layout.target, share, depth * product.columns)
    # In "forward", adjacent columns of c belong to different rows of w.  Packing transposes w, so
    # that a vector is not gathered from several rows.  The other forms read b along its rows, and
    # pack b if this saves time.  An input gradient also packs w if a vector would end beyond a row
    # of w, because the caller's array has no padding.  Joined rows need panels of repeated columns.
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
    # If rows are a multiple of a page apart, all entries of a column are in the same set of the
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

    A tile usually has 8 rows: its 16 sums hide the latency of the multipliers.  With vectors of 64
    bytes, reading panels from the second-level cache takes longer than multiplying.  Higher tiles
    read panels less often; they are used for few rows and for large products.
    """
    limit = highest_tile(target)
    if target.vector_bytes < 64 or (rows > limit and (rows < MANY_ROWS or terms < FEW_TERMS)):
        return min(8, limit)
    tiles = max(1, -(-rows // limit))
    return -(-rows // tiles)  # each tile has this height, or one row fewer


def highest_tile(target: CompileTarget) -> int:
    """Return the maximum number of rows, of two vectors each, that fit into the registers."""
    return (target.registers - 4) // 2


def _joined_rows(product: MatrixProduct, layout: Layout) -> int:
    """Return the number of short rows of c that form one vector in the epilogue, or 1."""
    short = product.epilogue and is_short(product.columns, layout.lanes)
    for value in {*product.tile_matrices} if short else ():
        shape = value.rows, value.columns, layout.stride(value)
        if value.mask or shape != (product.rows, product.columns, product.columns):
            return 1
    return layout.lanes // product.columns if short and not product.sums_rows else 1


def _has_few_columns(product: MatrixProduct, layout: Layout) -> bool:
    """Return whether dot products need fewer operations than vectors along the columns of c.

    With dot products, a step of 64-128-10 with a batch of 64 takes 4 % less time (EPYC of Zen 5,
    November 2026).
    """
    if product.form != "forward" or product.columns > layout.lanes:
        return False
    return product.columns * (product.depth // layout.lanes + SUM_COST) < product.depth


def _is_panel(product: MatrixProduct, layout: Layout) -> bool:
    """Return whether b in memory is already laid out like a panel."""
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
    """Return whether reading a column of `depth` rows misses the first-level cache or TLB.

    The column must not span more pages than the TLB has entries, and none of the 64 sets of the
    cache may get more than `ways` lines of the column.
    """
    lines = max(row_bytes // 64, 1)
    sets = 64 // gcd(lines, 64)
    return depth * row_bytes > PACK_BYTES or depth > ways * sets
