"""Draws docs/pictures/speed.svg from what benchmarks/peers.py measured.

``python benchmarks/peers.py --threads 1 --only tiny small medium large > peers.txt``, then
``python docs/speed_picture.py peers.txt``.  A dot is the median microseconds of a training step,
on a logarithmic axis; a row is a network.
"""

import sys
from html import escape
from math import log10
from pathlib import Path

PICTURE = Path(__file__).parent / "pictures" / "speed.svg"
SHOWN = {
    "mlpengine, many steps per call": ("mlpengine", "#0072B2"),
    "JAX, many steps per call": ("JAX (scan)", "#E69F00"),
    "PyTorch eager": ("PyTorch", "#D55E00"),
    "torch.compile": ("torch.compile", "#CC79A7"),
    "scikit-learn": ("scikit-learn", "#009E73"),
}
"""Columns of the benchmark's table: their names in the picture, and colors (Okabe and Ito 2008)."""

WIDTH, LEFT, RIGHT, TOP, ROW = 760, 190, 34, 44, 34


def measured(text: str) -> list[tuple[str, dict[str, float]]]:
    """Return sizes and rows of each workload, and its medians, from the table that was printed."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    head, _, *rows = lines
    return [
        (row[0], {name: float(row[head.index(name)].replace(",", "")) for name in SHOWN})
        for row in rows
    ]


def picture(rows: list[tuple[str, dict[str, float]]]) -> str:
    """Return the SVG."""
    values = [value for _, medians in rows for value in medians.values()]
    low, high = int(log10(min(values))), int(log10(max(values))) + 1

    def place(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(value) - low) / (high - low)

    height = TOP + ROW * len(rows) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    at = LEFT
    for title, color in SHOWN.values():
        lines.append(f'<circle cx="{at}" cy="18" r="6" fill="{color}"/>')
        lines.append(f'<text x="{at + 11}" y="22">{escape(title)}</text>')
        at += 34 + 7 * len(title)
    for power in range(low, high + 1):
        x, bottom = place(10.0**power), TOP + ROW * len(rows)
        lines.append(f'<path d="M{x:.1f},{TOP - 8}V{bottom}" stroke="#ddd"/>')
        lines.append(
            f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{10**power:,}</text>'
        )
    for k, (workload, medians) in enumerate(rows):
        y = TOP + ROW * (k + 0.5)
        lines.append(
            f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(workload)}</text>'
        )
        for name, value in medians.items():
            lines.append(
                f'<circle cx="{place(value):.1f}" cy="{y}" r="6" fill="{SHOWN[name][1]}" '
                f'fill-opacity="0.9"><title>{value:,.1f}</title></circle>'
            )
    lines.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 6}" text-anchor="middle">'
        "microseconds a training step, one thread, logarithmic axis</text></svg>"
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(measured(Path(sys.argv[1]).read_text("utf-8"))), encoding="utf-8")
