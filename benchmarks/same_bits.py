"""Weights of the same runs in two trees: the same bits.

``python benchmarks/same_bits.py --against TREE`` makes each run in this tree and in another one,
say a checkout of a release, and compares the weights of their models bit by bit: each file of
configs/, a few tables by the config that ``init`` writes, and three estimators (tests show that
ranks and resumed runs have the bits of whole ones).  ``--tables FILE:TARGET ...`` adds tables.  The
exit code is 1 if any bit differs.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from against import path_of_commands
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
TABLES = ("penguins:species", "diabetes:progression", "digits:digit")
LENGTHS = ("--set", "training.epochs=12", "--set", "report=false")

ESTIMATORS = """\
import sys
import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import load_diabetes, load_digits, load_iris
from mlpengine.estimators import MlpClassifier, MlpRegressor

fits = [
    MlpClassifier(random_state=0, epochs=12).fit(*load_iris(return_X_y=True)),
    MlpRegressor(random_state=0, epochs=12).fit(*load_diabetes(return_X_y=True)),
    MlpClassifier([32], random_state=0, epochs=6, folds=2).fit(*load_digits(return_X_y=True)),
]
nets = [net for fit in fits for net in fit.mlps_]
save_file({str(k): np.array(net.params.flat) for k, net in enumerate(nets)}, sys.argv[1])
"""


class Tree:
    """A checkout of the project.  Its commands run in a folder of their own."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root.resolve(), folder
        folder.mkdir()
        path = path_of_commands(self.root, str(folder))
        self.environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}

    def python(self, *words: object) -> None:
        """Run Python with these arguments.  Raises: SystemExit with its message if it failed."""
        command = [sys.executable, *map(str, words)]
        options = {"cwd": self.folder, "env": self.environment}
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        if done.returncode:
            raise SystemExit(f"{command}\n{done.stderr}")

    def command(self, *words: object) -> None:
        """Run a command of mlpengine."""
        self.python("-m", "mlpengine_cli.main", *words)

    def config(self, name: str) -> Path:
        """Return a config of the tree."""
        return self.root / "configs" / f"{name}.yaml"


def of_config(name: str) -> Callable[[Tree, Path], None]:
    def run(tree: Tree, out: Path) -> None:
        tree.command("train", tree.config(name), "-q", "--out", out, *LENGTHS)

    return run


def of_table(table: str) -> Callable[[Tree, Path], None]:
    source, _, target = table.rpartition(":")

    def run(tree: Tree, out: Path) -> None:
        config = tree.folder / f"{Path(source).name.partition('.')[0]}.yaml"
        tree.command("init", source, "--target", target, "-o", config)
        tree.command("train", config, "-q", "--out", out, *LENGTHS)

    return run


def estimators(tree: Tree, out: Path) -> None:
    out.mkdir()
    tree.python("-c", ESTIMATORS, out / "model.safetensors")


def cases(tables: tuple[str, ...], *, smoke: bool) -> Iterator[tuple[str, Callable]]:
    """Yield the runs by name."""
    names = [path.stem for path in sorted((ROOT / "configs").glob("*.yaml"))]
    yield from ((f"configs/{name}.yaml", of_config(name)) for name in names[: 1 if smoke else None])
    yield from ((f"init {table}", of_table(table)) for table in tables)
    if smoke:
        return
    yield "three estimators", estimators


def bits(path: Path) -> tuple[str, int]:
    """Return a digest of the weights of a model file, whatever their names, and their number."""
    arrays = load_file(path).values()
    digests = sorted(sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for a in arrays)
    return sha256("".join(digests).encode()).hexdigest()[:12], sum(a.size for a in arrays)


def main() -> int:
    """Print a line for each run; return 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, default=ROOT, metavar="TREE")
    parser.add_argument("--tables", nargs="*", default=[], metavar="FILE:TARGET")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    tables = TABLES[:1] if args.smoke else (*TABLES, *args.tables)
    differing = 0
    with TemporaryDirectory() as directory:
        trees = Tree(args.against, Path(directory, "old")), Tree(ROOT, Path(directory, "new"))
        for number, (name, run) in enumerate(cases(tables, smoke=args.smoke)):
            if args.only not in name:
                continue
            digests = []
            for tree in trees:
                out = tree.folder / f"run{number}"
                run(tree, out)
                digests.append(bits(out / "model.safetensors"))
            same = digests[0] == digests[1]
            differing += not same
            digest, count = digests[1]
            verdict = "same" if same else "DIFFER"
            print(f"{name:<48} {count:>9,} weights {digest} {verdict}", flush=True)
    print(f"{differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
