"""How far JavaScript is from ``predict`` on real tables.

``python benchmarks/modules.py FOLDER`` (extra ``quality``, and Node; ``--smoke`` for two shipped
tables) takes the tables of a folder as ``benchmarks/arena.py`` does, at most 6,000 rows of each.
``init`` and ``train`` make a model of five epochs, ``export`` writes it, and Node predicts up to
500 held-out rows.  A line has the largest difference of a probability, or of a number in standard
deviations; beyond 1e-5, or with another class, the script ends with an error.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from arena import Contest, contests
from machine import describe
from quality_methods import in_this_process
from quality_tables import shipped

import mlpengine
from mlpengine.config import load_config
from mlpengine.config.tables import read_tables
from mlpengine.core.files import RESOLVED
from mlpengine.core.rows import evenly_spaced
from mlpengine.data.tables import Table
from mlpengine.export import export
from mlpengine.export._agreement import EXPORT_TOLERANCE, label_array, largest_difference
from mlpengine.models.task import Regression

DRIVER = """import { readFileSync } from "node:fs"; import { predict } from "./model.mjs";
console.log(JSON.stringify(JSON.parse(readFileSync("rows.json")).map((row) => predict(row))));"""


def run_node(folder: Path, model: Any, table: Table) -> list[Any]:
    """Return what Node predicts: numbers, or probabilities and labels."""
    kinds = {"text": str, "date": str, "boolean": lambda text: text == "true"}
    columns = [(name, table[name]) for name in model.preprocessor.columns]
    rows = [
        {n: None if c.missing[k] else kinds.get(c.kind, float)(c.text(k)) for n, c in columns}
        for k in range(table.n_rows)
    ]
    (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    node = ["node", "--input-type=module", "-e", DRIVER]
    done = subprocess.run(node, cwd=folder, stdout=subprocess.PIPE, check=True)
    answers = json.loads(done.stdout)
    if isinstance(model.task, Regression):
        names = model.task.column_names
        return [np.array([[one["values"][name] for name in names] for one in answers])]
    keys = [*map(str, label_array(model.classes))]
    chances = np.array([[one["probabilities"][key] for key in keys] for one in answers])
    return [chances, label_array([one["label"] for one in answers])]


def line_of(table: Contest, epochs: int) -> tuple[str, float]:
    """Return the facts of a table as its line shows them, and the difference."""
    frame = table.problem.frame
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        csv, config, run = (str(folder / one) for one in ("rows.csv", "config.yaml", "run"))
        frame.iloc[:: -(-len(frame) // 6_000)].to_csv(csv, index=False)
        in_this_process(["init", csv, "--target", table.problem.target, "-o", config])
        options = ["--epochs", str(epochs), "--set", "training.threads=1", "--set", "report=false"]
        in_this_process(["train", config, "-q", "--out", run, *options])
        model, file = mlpengine.load(run), folder / "model.mjs"
        known = load_config(Path(run, RESOLVED))
        held, places = [*read_tables(known, preprocessor=model.preprocessor).parts.values()][-1]
        held = held.rows(places[evenly_spaced(len(places), 500)])
        export(model, file)
        difference = largest_difference(model, held, run_node(folder, model, held))
        facts = f"{table.problem.name} | {len(model.networks)} | {held.n_rows}"
        return f"| {facts} | {file.stat().st_size:,} | {difference:.1e} |", difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--smoke", action="store_true", help="two shipped tables, one epoch")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if shutil.which("node") is None or not (args.smoke or args.folder):
        parser.error("needs Node, and FOLDER or --smoke")
    describe()
    tables = contests(args.folder, None, args.tables) if args.folder else None
    print("| table | networks | rows | bytes of the module | difference |\n|" + " --- |" * 5)
    for table in tables or [Contest(one, "random") for one in shipped()]:
        line, difference = line_of(table, 1 if args.smoke else 5)
        print(line, flush=True)
        if not difference <= EXPORT_TOLERANCE:
            raise SystemExit(f"{table.problem.name}: outputs differ by {difference:.1e}")


if __name__ == "__main__":
    main()
