"""The page that predicts, for people who have not installed anything.

``python docs/demo_page.py [FILE]``, by default ``docs/_build/penguins.html``, trains on a table
that ships with the package and does what ``mlpengine export --format html`` does.  Building the
documentation writes the page beside the others.
"""

import sys
from pathlib import Path

import mlpengine
from mlpengine.export import export

PAGE = "penguins.html"


def write(path: Path) -> None:
    """Train on the penguins and write the page."""
    model, _ = mlpengine.fit("penguins", seed=1, progress=False)
    export(model, path)


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]]
    write(given[0] if given else Path(__file__).with_name("_build") / PAGE)
