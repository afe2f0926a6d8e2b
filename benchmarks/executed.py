"""How many files and functions of the package `train` executes from a CSV to the first update.

``python benchmarks/executed.py`` (``--smoke`` is the same).  Trains on a table of numbers,
categories and gaps in this process, and counts functions, and the files that hold them, until the
first step returns.
"""

import os
import sys
from inspect import CO_OPTIMIZED
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import numpy as np

CONFIG = """\
data: {source: rows.csv, target: kind}
model: {hidden: [16]}
loss: {name: softmax_cross_entropy}
training: {epochs: 1, backend: compiled}
"""


def write_table(path: Path) -> None:
    rng, lines = np.random.default_rng(0), ["size,weight,color,kind"]
    for size, weight, color in zip(*rng.random((2, 300)), rng.integers(0, 3, 300), strict=True):
        cells = f"{size:.3f}", "" if weight < 0.1 else f"{weight:.3f}", "rgb"[color]
        lines.append(",".join([*cells, "yes" if size + weight > 1 else "no"]))
    path.write_text("\n".join([*lines, ""]))


def main() -> None:
    code: set[CodeType] = set()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code.add(frame.f_code)
        if event == "return" and frame.f_code.co_qualname == "TrainingStep.run":
            sys.setprofile(None)

    with TemporaryDirectory() as folder:
        write_table(Path(folder, "rows.csv"))
        Path(folder, "c.yaml").write_text(CONFIG)
        sys.setprofile(watch)
        from mlpengine_cli.main import run

        run(["train", str(Path(folder, "c.yaml")), "-q", "--out", str(Path(folder, "run"))])
    roots = tuple(os.path.dirname(sys.modules[n].__file__) for n in ("mlpengine", "mlpengine_cli"))
    made = [one for one in code if one.co_flags & CO_OPTIMIZED and one.co_name[0] != "<"]
    own = [one for one in made if one.co_filename.startswith(roots)]
    print(f"files {len({one.co_filename for one in own})}, functions {len(own)}")


if __name__ == "__main__":
    main()
