"""Comparison of exported modules with mlpengine's own predictions, by running them in Node."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mlpengine.core.errors import NumericalError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.data.tables.table import number_text
from mlpengine.export._agreement import checked, label_array, largest_difference, largest_error
from mlpengine.export._exported import Exported
from mlpengine.export._onnx_feed import RANDOM_ROWS, probe_table
from mlpengine.models.model import Model
from mlpengine.models.task import MultiLabel, Regression
from mlpengine.nn import Network

NODE_SECONDS = 600.0
"""Time limit of Node."""

DRIVER = """\
import { readFileSync, writeFileSync } from "node:fs";
import { predict } from "./module.mjs";
const rows = JSON.parse(readFileSync("rows.json"));
writeFileSync("answers.json", JSON.stringify(rows.map((row) => predict(row))));
"""


def verified(module: bytes, model: Model | Network, exported: Exported) -> Exported:
    """Return `exported` with the largest difference between a module and our own predictions.

    Without Node there is no difference.

    Raises: NumericalError if it exceeds `EXPORT_TOLERANCE`, or Node cannot run the module.
    """
    if shutil.which("node") is None:
        return replace(exported, compared="Node is not installed")
    if isinstance(model, Network):
        x = np.random.default_rng(0).standard_normal((RANDOM_ROWS, *model.in_shape))
        x = x.reshape(RANDOM_ROWS, -1).astype(np.float32).astype(np.float64)
        answers = run_node(module, x.tolist())
        ours = model.predict(x.reshape(RANDOM_ROWS, *model.in_shape).astype(model.dtype))
        difference = largest_error(np.array(answers), ours)
    else:
        table = probe_table(model.preprocessor)
        answers = run_node(module, row_objects(model.preprocessor, table))
        difference = largest_difference(model, table, _outputs(model, answers))
    compared = f"{plural(len(answers), 'made-up row')} in Node"
    return replace(exported, difference=checked(difference, "Node"), compared=compared)


def run_node(module: bytes, rows: list[Any]) -> list[Any]:
    """Return what ``predict`` of a module returns for each of the rows.

    Raises: NumericalError if Node fails.
    """
    with TemporaryDirectory(prefix="mlpengine-") as directory:
        folder = Path(directory)
        (folder / "module.mjs").write_bytes(module)
        (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
        (folder / "driver.mjs").write_text(DRIVER, encoding="utf-8")
        done = subprocess.run(
            ["node", "driver.mjs"],
            check=False, cwd=folder, capture_output=True, text=True, timeout=NODE_SECONDS,
        )  # fmt: skip
        if done.returncode:
            message = " ".join(line for line in done.stderr.splitlines() if "Error" in line)
            raise NumericalError(f"export: Node must run the module ({message or done.stderr})")
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


def _outputs(model: Model, answers: list[dict[str, Any]]) -> list[Array]:
    """Return answers as an ONNX model gives them: numbers, or probabilities and labels."""
    task = model.task
    if isinstance(task, Regression):
        return [_matrix(answers, "values", task.column_names)]
    keys = [key_of(label) for label in model.classes]
    chances = _matrix(answers, "probabilities", keys)
    if isinstance(task, MultiLabel):
        return [chances, _matrix(answers, "labels", keys)]
    return [chances, label_array([one["label"] for one in answers])]


def _matrix(answers: list[dict[str, Any]], part: str, keys: list[str]) -> Array:
    return np.array([[one[part][key] for key in keys] for one in answers], np.float64)


def key_of(label: object) -> str:
    """Return a label as JavaScript writes it as a key of an object."""
    if isinstance(label, bool) or not isinstance(label, int | float):
        return str(label).lower() if isinstance(label, bool) else str(label)
    return str(int(label)) if float(label).is_integer() else repr(label)
