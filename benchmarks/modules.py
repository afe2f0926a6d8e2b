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
import json
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from arena import Contest, contests
from machine import describe
from quality_methods import in_this_process
from quality_tables import problems

import mlpengine
from mlpengine.config import load_config
from mlpengine.config.tables import read_tables
from mlpengine.core.files import RESOLVED
from mlpengine.core.rows import evenly_spaced
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.data.tables.table import number_text
from mlpengine.export import export
from mlpengine.export._agreement import label_array, largest_difference
from mlpengine.models.model import Model
from mlpengine.models.task import MultiLabel, Regression

ROWS, TOLERANCE = 500, 1e-5
"""Rows that Node predicts, and the largest difference of an output."""


DRIVER = """\
import { readFileSync, writeFileSync } from "node:fs";
import { predict } from "./module.mjs";
const rows = JSON.parse(readFileSync("rows.json"));
writeFileSync("answers.json", JSON.stringify(rows.map((row) => predict(row))));
"""


def run_node(module: bytes, rows: list[Any]) -> list[Any]:
    """Return what ``predict`` of a module returns for each of the rows."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "module.mjs").write_bytes(module)
        (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
        (folder / "driver.mjs").write_text(DRIVER, encoding="utf-8")
        subprocess.run(
            ["node", "driver.mjs"],
            check=True, cwd=folder,
        )  # fmt: skip
        answers: list[Any] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
        return answers


def row_objects(preprocessor: Preprocessor, table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them: null for gaps, dates as text."""
    columns = {name: _cells(table[name]) for name in preprocessor.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _cells(column: Column) -> list[Any]:
    gaps, values = column.missing.tolist(), column.values.tolist()
    if column.kind == "text":
        return [None if gap else column.levels[v] for gap, v in zip(gaps, values, strict=True)]
    if column.kind == "date":
        return [
            None if gap else number_text("date", v) for gap, v in zip(gaps, values, strict=True)
        ]
    plain = bool if column.kind == "boolean" else float
    return [None if gap else plain(v) for gap, v in zip(gaps, values, strict=True)]


def outputs_of(model: Model, answers: list[dict[str, Any]]) -> list[Any]:
    """Return answers as an ONNX model gives them: numbers, or probabilities and labels."""
    task = model.task
    if isinstance(task, Regression):
        return [_matrix(answers, "values", task.column_names)]
    keys = [key_of(label) for label in model.classes]
    chances = _matrix(answers, "probabilities", keys)
    if isinstance(task, MultiLabel):
        return [chances, _matrix(answers, "labels", keys)]
    return [chances, label_array([one["label"] for one in answers])]


def _matrix(answers: list[dict[str, Any]], part: str, keys: list[str]) -> Any:
    return np.array([[one[part][key] for key in keys] for one in answers], np.float64)


def key_of(label: object) -> str:
    """Return a label as JavaScript writes it as a key of an object."""
    if isinstance(label, bool) or not isinstance(label, int | float):
        return str(label).lower() if isinstance(label, bool) else str(label)
    return str(int(label)) if float(label).is_integer() else repr(label)


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
        answers = run_node(file.read_bytes(), row_objects(model.preprocessor, held))
        difference = largest_difference(model, held, outputs_of(model, answers))
        if not difference <= TOLERANCE:
            raise SystemExit(f"{table.problem.name}: outputs differ by {difference:.1e}")
        yield from (len(model.networks), f"{4 * model.parameters:,}", held.n_rows)
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
