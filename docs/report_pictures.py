"""Draws docs/pictures: ``python docs/report_pictures.py`` (a minute), after a change of the report.

Each is the top of a page of bundled data, as headless Chromium shows it; see screenshots.py.
"""

import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from screenshots import SCHEMES, browser, screenshot

from mlpengine_cli.main import run

PICTURES = Path(__file__).parent / "pictures"
DIGITS = Path(__file__).parents[1] / "configs" / "digits.yaml"
SMALL = "data: {source: digits}\ntraining: {epochs: 30}\n"
SWEEP = """\
sweep:
  trials: 16
  sampler: random
  space:
    optimizer.lr: {log: [1e-4, 1e-1]}
    model.hidden: {choice: [[8], [16], [32, 16]]}
"""
COMMANDS = (
    f"train {DIGITS} --out runs/digits",
    "train small.yaml -q --out runs/broken --set optimizer.name=sgd --set optimizer.lr=1e30",
    "sweep sweep.yaml",
)
SHOTS = {
    "report": ("digits/report.html", 1000, 1040, "light"),
    "report-run": ("digits/report.html", 1280, 1240, "light"),
    "report-failed": ("broken/report.html", 1280, 900, "light"),
    "report-sweep": ("sweep/report.html", 1280, 1000, "dark"),
}
"""Page, width, height and color scheme of each picture."""


def main() -> None:
    """Train, and write all pictures."""
    command = browser()
    with TemporaryDirectory() as directory, chdir(directory):
        Path("small.yaml").write_text(SMALL)
        Path("sweep.yaml").write_text(SMALL + SWEEP)
        for words in COMMANDS:
            if run([*words.split()]) != ("broken" in words):
                sys.exit(f"failed: {words}")
        for name, (page, width, height, scheme) in SHOTS.items():
            picture = PICTURES.resolve() / f"{name}.png"
            screenshot(command, Path("runs", page), picture, width, SCHEMES[scheme], height)
            print(picture)


if __name__ == "__main__":
    main()
