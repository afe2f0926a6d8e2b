"""How far JavaScript is from ``predict`` on real tables.

``python benchmarks/modules.py FOLDER`` (extra ``quality``, and Node; ``--smoke`` for two shipped
tables) takes the tables of a folder as ``benchmarks/arena.py`` does, with
``--tables`` and ``--half`` as there, and at most ``--rows`` of each.  ``init`` and ``train`` make a
model, folds and member types included, of a few epochs; ``export`` writes it as js, and
Node predicts up to 500 held-out rows.

Each table is a line: the networks, the bytes of the weights and of the file, and the largest
difference of a probability, or of a number in units of its standard deviation.  A class that is not
the same ends the script, and so does a difference beyond 1e-5.
"""

import argparse
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arena import Contest, contests
from machine import describe
from quality_methods import in_this_process
from quality_tables import problems

import mlpengine
from mlpengine.config import load_config
from mlpengine.config.tables import read_tables
from mlpengine.core.files import RESOLVED
from mlpengine.core.rows import evenly_spaced
from mlpengine.export import _node, export
from mlpengine.export._agreement import largest_difference

ROWS, TOLERANCE = 500, 1e-5
"""Rows that Node predicts, and the largest difference of an output."""


def exported(table: Contest, rows: int, epochs: int) -> Iterator[Any]:
    """Yield the facts of a table, as its line shows them."""
    frame = table.problem.frame
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        csv, config, run = (str(folder / one) for one in ("rows.csv", "config.yaml", "run"))
        frame.iloc[:: -(-len(frame) // rows)].to_csv(csv, index=False)
        in_this_process(["init", csv, "--target", table.problem.target, "-o", config])
        settings = (f"training.epochs={epochs}", "training.threads=1", "report=false")
        options = [word for setting in settings for word in ("--set", setting)]
        in_this_process(["train", config, "-q", "--out", run, *options])
        model = mlpengine.load(run)
        config = load_config(Path(run, RESOLVED))
        held, rows_held = [*read_tables(config, preprocessor=model.preprocessor).parts.values()][-1]
        held = held.rows(rows_held[evenly_spaced(len(rows_held), ROWS)])
        file = folder / "model.mjs"
        export(model, file)
        answers = _node.run_node(file.read_bytes(), _node.row_objects(model.preprocessor, held))
        difference = largest_difference(model, held, _node._outputs(model, answers))
        if not difference <= TOLERANCE:
            raise SystemExit(f"{table.problem.name}: outputs differ by {difference:.1e}")
        yield from (len(model.networks), f"{model.params.nbytes:,}", held.n_rows)
        yield from (f"{file.stat().st_size:,}", f"{difference:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--half", choices=["choose", "report"])
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="two shipped tables")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if shutil.which("node") is None:
        print("NOTHING WAS COMPARED: needs Node")
        return
    describe()
    if args.smoke:
        shipped = (p for p in problems() if p.name in ("diabetes", "penguins"))
        tables = (Contest(problem, "random") for problem in shipped)
        args.epochs = 1
    elif args.folder:
        tables = contests(args.folder, args.half, args.tables)
    else:
        parser.error("needs FOLDER, or --smoke")
    print("| table | networks | weights | rows | js | difference |")
    print("|" + " --- |" * 6)
    largest, count = 0.0, 0
    for table in tables:
        facts = [*exported(table, args.rows, args.epochs)]
        largest, count = max(largest, *map(float, facts[4:])), count + 1
        print(f"| {table.problem.name} | {' | '.join(map(str, facts))} |", flush=True)
    print(f"\n{count} tables: largest difference {largest:.1e}, and every class the same")


if __name__ == "__main__":
    main()
