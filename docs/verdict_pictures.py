"""Draws the pictures of docs/recipes/reading-diagnostics.md: a broken and a healthy run each.

Run ``MLPENGINE_TABLES=DIR python docs/verdict_pictures.py [NAME ...]`` (a minute) after a change of
the rules.  Each picture has the losses by epoch of a run of benchmarks/diagnoses.py that gets the
verdict, and of the run with sound settings.
"""

import csv
import os
import sys
from contextlib import chdir
from html import escape
from math import isfinite, log10
from pathlib import Path
from tempfile import TemporaryDirectory

PICTURES = Path(__file__).parent / "recipes" / "verdicts"
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import diagnoses  # noqa: E402

from mlpengine.diagnostics.rules import VERDICTS  # noqa: E402

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 560, 190, 52, 24, 28
LOW, HIGH = 1e-3, 1e3
"""Range of the loss that is drawn."""
COLORS = {"broken": "#c0392b", "healthy": "#2471a3"}
DASHES = {"training": "", "validation": ' stroke-dasharray="5 3"'}


def setups() -> dict[str, diagnoses.SetUp]:
    """Return the first broken single network for each verdict."""
    found: dict[str, diagnoses.SetUp] = {}
    for _, one in diagnoses.setups():
        names = [name for name in one.right if name in VERDICTS]
        if names and not one.folds:
            found.setdefault(names[0], one)
    return found


Curves = dict[tuple[str, str], list[float]]


def curves(folder: str, setup: diagnoses.SetUp) -> tuple[Curves, list[str]]:
    """Return the losses by run and part, and the names of the broken run's verdicts."""
    drawn: Curves = {}
    names: list[str] = []
    for run, settings in {"broken": setup.both, "healthy": setup.sound}.items():
        with TemporaryDirectory() as place, chdir(place):
            diagnoses.write(setup, diagnoses.parts_of(folder, setup, 1), settings, 1)
            told = diagnoses.train("runs/drawn")["told"]
            names += [name for name, *_ in told if run == "broken"]
            with Path("runs/drawn/metrics.csv").open(encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        for part in ("training", "validation"):
            column = f"{part.removesuffix('ing')}_loss"
            drawn[run, part] = [float(row[column] or "nan") for row in rows]
    return drawn, names


def picture(title: str, drawn: Curves) -> str:
    """Return the curves as SVG, with a logarithmic axis of the loss."""
    known = [v for values in drawn.values() for v in values if isfinite(v) and v > 0]
    low = max(LOW, min([0.5, *known]))
    high = min(HIGH, max([1.5, *known]))
    epochs = max(2, *(len(values) for values in drawn.values()))
    right, floor = WIDTH - 130, HEIGHT - BOTTOM

    def place(epoch: int, value: float) -> str:
        share = (log10(min(max(value, low), high)) - log10(low)) / (log10(high) - log10(low))
        x = LEFT + (right - LEFT) * epoch / (epochs - 1)
        return f"{x:.1f},{floor - (floor - TOP) * share:.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="14" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{LEFT},{TOP}V{floor}H{right}" fill="none" stroke="#888"/>',
        f'<text x="{right}" y="{HEIGHT - 8}" text-anchor="end">epoch {epochs}</text>',
    ]
    for power in range(-3, 4):
        value = 10.0**power
        if low <= value <= high:
            y = place(0, value).split(",")[1]
            lines.append(f'<path d="M{LEFT},{y}H{right}" stroke="#ddd"/>')
            lines.append(f'<text x="{LEFT - 4}" y="{y}" text-anchor="end">{value:g}</text>')
    for number, ((run, part), values) in enumerate(drawn.items()):
        style = f'stroke="{COLORS[run]}" stroke-width="1.6"{DASHES[part]} fill="none"'
        points = [place(k, values[k]) for k in thinned(len(values)) if isfinite(values[k])]
        if points:
            lines.append(f'<polyline points="{" ".join(points)}" {style}/>')
        y = TOP + 16 * number + 8
        lines.append(f'<path d="M{right + 10},{y}h22" {style}/>')
        note = "" if points else " (none)"
        lines.append(f'<text x="{right + 36}" y="{y + 4}">{run}, {part[:5]}.{note}</text>')
    return "\n".join([*lines, "</svg>", ""])


def thinned(length: int) -> list[int]:
    """Return at most 61 evenly spaced places of a curve, the last one included."""
    return sorted({*range(0, length, -(-length // 60) or 1), length - 1} - {-1})


def main() -> None:
    """Draw all pictures.  Exit with 1 if a set-up does not draw its verdict."""
    PICTURES.mkdir(exist_ok=True)
    missing = []
    for name, setup in sorted(setups().items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        drawn, names = curves(os.environ["MLPENGINE_TABLES"], setup)
        title = f"{setup.kind}: loss by epoch"
        (PICTURES / f"{name}.svg").write_text(picture(title, drawn), encoding="utf-8")
        print(f"{name:<18}{', '.join(names)}", flush=True)
        missing += [name] if name not in names else []
    sys.exit(f"no such verdict: {', '.join(missing)}" if missing else 0)


if __name__ == "__main__":
    main()
