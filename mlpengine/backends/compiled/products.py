"""Matrix products as C: register tiles, packed panels, and an epilogue fused into the last pass.

A tile is up to `Target.tile_rows` rows by two vectors of c, held in registers while it runs over
`depth_block` terms.  Panels (two vectors wide, all rows of b one after another) are read by every
tile, so that b is met in order whatever its leading dimension.
"""

import re
from textwrap import indent

from mlpengine.backends.compiled.kernels import Map, Product
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.numbers import with_options
from mlpengine.backends.compiled.packing import pack_panel
from mlpengine.backends.compiled.tiling import Tiling
from mlpengine.backends.compiled.values import Value


def heights(rows: int, block: int, most: int) -> set[int]:
    """Return the heights of the tiles that `rows` rows are cut into, as tile_height() does."""
    found = set()
    for start in range(0, rows, block):
        left = min(block, rows - start)
        while left:
            height = most if left % most == 0 else min(left, most - 1)
            found.add(height)
            left -= height
    return found


TILE = """\
INLINE void {name}_tile(void *const *table, char *workspace, const int rows, const int wide,
    const int part, const long i, const long j, const long k0, const long k1,
    const real *restrict a, const real *restrict b) {{
{declared}\
  (void)table, (void)workspace, (void)part, (void)k0;
  vec sum[TILE_ROWS][WIDE];
  EACH sum[r][v] = {start};
  for (long k = k0; k < k1; k++) {{
    vec terms[WIDE];
    UNROLL for (int v = 0; v < wide; v++) terms[v] = load(&{b_at});
    UNROLL for (int r = 0; r < rows; r++) {{
      const vec factor = splat({a_at});
      UNROLL for (int v = 0; v < wide; v++) sum[r][v] += factor * terms[v];
    }}
  }}
{finish}
}}
"""


def emit_tile(product: Product, tiling: Tiling, name: str, layout: Layout) -> str:
    """Return the function that computes one tile of c."""
    across = product.form == "weight_gradient"
    a_ld = layout.stride(product.a)
    a_at = f"a[k * {a_ld} + r]" if across else f"a[r * {a_ld} + k]"
    if tiling.pack_rows:
        a_at = "a[(k - k0) * rows + r]"
    b_at = f"b[{'k' if tiling.ahead else '(k - k0)'} * wide * LANES + v * LANES]"
    if tiling.packing == "none":
        b_at = f"b[k * {layout.stride(product.b)} + v * LANES]"
    keep = _accumulator(product)
    at = f"{keep.name} + (i + r) * {layout.stride(keep)} + j + v * LANES"
    start, save = "(vec){0}", ""
    if product.depth > tiling.depth_block:  # the sums wait in memory between passes
        part = _ends_within(keep, layout)
        start = f"k0 ? {_by_width('load', at, part)} : (vec){{0}}"
        store = _by_width("store", at, part, "sum[r][v]")
        save = f"if (k1 < {product.depth}) {{\n  EACH {store};\n  return;\n}}\n"
    finish = f"{save}EACH {{\n{indent(_epilogue(product, layout), '  ')}\n}}"
    return TILE.format(
        name=name,
        declared=layout.declare(_tile_names(product), start + finish),
        start=start,
        a_at=a_at,
        b_at=b_at,
        finish=indent(finish, "  "),
    )


def emit_product(
    product: Product, tiling: Tiling, name: str, panel: str, layout: Layout, slices: list[int]
) -> str:
    """Return the loops over the tiles of rows `first` to `last` of c.

    `slices` are the numbers of rows that the program will ask for.
    """
    most = layout.target.tile_rows
    used = sorted(set().union(*(heights(n, tiling.row_block, most) for n in slices)), reverse=True)
    across = product.form == "weight_gradient"
    a, a_ld = product.a.name, layout.stride(product.a)
    entry = f"{a}[k * {a_ld} + i + r]" if across else f"{a}[(i + r) * {a_ld} + k]"
    rows_at = f"{a} + i" if across else f"{a} + i * {a_ld}"
    text = ""
    if tiling.pack_rows:
        rows_at = f"{name}_rows + i * {tiling.depth_block}"
        text = PACK_ROWS.format(at=rows_at, entry=entry)
    columns_at = f"{panel} + j * {product.depth}"
    if tiling.packing == "none":
        columns_at = f"{product.b.name} + j"
    elif not tiling.ahead:
        columns_at = "panel"
    for wide, start, stop, part in _spans(product, layout):
        pack = "" if columns_at != "panel" else pack_panel(product, tiling, layout, wide)
        cases = "\n".join(
            f"      case {height}: {name}_tile(table, workspace, {height}, {wide}, {part}, i, j, "
            f"k0, k1, {rows_at}, {columns_at}); break;"
            for height in used
        )
        step = wide * layout.lanes
        text += COLUMNS.format(start=start, stop=stop, step=step, pack=pack, cases=cases)
    room = f"real panel[{tiling.depth_block} * WIDE * LANES] __attribute__((aligned(64)));\n"
    return (room if columns_at == "panel" else "") + BLOCKS.format(
        begin="begin" if across else "0",
        end="end" if across else str(product.depth),
        depth_block=tiling.depth_block,
        row_block=tiling.row_block,
        body=indent(text, "    "),
    )


BLOCKS = """\
for (long k0 = {begin}; k0 < {end}; k0 += {depth_block}) {{
  const long k1 = MIN(k0 + {depth_block}, {end});
  for (long base = first; base < last; base += {row_block}) {{
    const long stop = MIN(base + {row_block}, last);
{body}
  }}
}}"""

PACK_ROWS = """\
for (long i = base, h; i < stop; i += h) {{
  h = tile_height(stop - i);
  real *restrict tile = {at};
  for (long k = k0; k < k1; k++)
    for (long r = 0; r < h; r++) tile[(k - k0) * h + r] = {entry};
}}
"""

COLUMNS = """\
for (long j = {start}; j < {stop}; j += {step}) {{
{pack}\
  for (long i = base, h; i < stop; i += h) {{
    h = tile_height(stop - i);
    switch (h) {{
{cases}
      default: __builtin_trap(); /* rows that no case computes */
    }}
  }}
}}
"""


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
    """Return whether its rows end within a vector, as they may in the caller's memory."""
    return layout.stride(value) % layout.lanes != 0


def _by_width(move: str, at: str, within: bool, value: str = "") -> str:
    """Return a load or store of a vector of c; of `part` lanes where its row ends in it."""
    rest = f", {value}" if value else ""
    if not within:
        return f"{move}({at}{rest})"
    whole, part = f"{move}({at}{rest})", f"{move}_some({at}{rest}, part)"
    if value:
        return f"{{ if (part && v == wide - 1) {part}; else {whole}; }}"
    return f"(part && v == wide - 1 ? {part} : {whole})"


def _accumulator(product: Product) -> Value:
    """Return the value in whose memory sums wait between passes: one that is stored anyway."""
    return next((v for v in product.writes if v.stored), product.c)


def _tile_names(product: Product) -> list[str]:
    written = [v.name for v in product.writes if v.stored]
    read = [v.name for m in product.epilogue for v in m.reads]
    return written + read + ([product.bias.name] if product.bias else [])


def _epilogue(product: Product, layout: Layout) -> str:
    """Return what happens to each vector of c before it is stored."""
    lines = []
    bias = f" + load({product.bias.name} + j + v * LANES)" if product.bias else ""
    known = {product.c: f"at_{product.c.name}"}
    lines.append(f"const vec {known[product.c]} = sum[r][v]{bias};")
    for step in product.epilogue:
        lines += map_lines(step, layout, "(i + r)", "j + v * LANES", known)
    for value in product.writes:
        if value.stored:
            at = f"{value.name} + (i + r) * {layout.stride(value)} + j + v * LANES"
            lines.append(_by_width("store", at, _ends_within(value, layout), known[value]) + ";")
    return "\n".join(lines)


def map_lines(
    step: Map, layout: Layout, row: str, column: str, known: dict[Value, str]
) -> list[str]:
    """Return the statements of a map at one vector; `known` names what is in registers already."""
    lines, renamed = [], {}
    for name in step.rule.reads:
        value = step.names[name]
        if value not in known:
            known[value] = f"at_{value.name}"
            at = f"{value.name} + {row} * {layout.stride(value)} + {column}"
            lines.append(f"const vec {known[value]} = load({at});")
        renamed[name] = known[value]
    for name in step.rule.writes:
        value = step.names[name]
        known[value] = renamed[name] = f"at_{value.name}"
        lines.append(f"vec {known[value]};")
    code = re.sub(r"(?<![\w@])[a-z]\w*", lambda m: renamed.get(m[0], m[0]), step.rule.code)
    lines += [f"{part.strip()};" for part in with_options(code, step.op).split(";")]
    return lines
