"""Modules of JavaScript, run by Node on the rows that `predict` takes."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from test_export import MODELS, mixed_model, mixed_table
from test_recorded_networks import C_NETWORKS, inputs_of, ours, shaken

import mlpengine
from mlpengine import Mlp
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table, read_table
from mlpengine.data.tables.dialect import CsvDialect
from mlpengine.data.tables.parsing import dates
from mlpengine.export import export
from mlpengine.export._js_module import to_js
from mlpengine.models.model import Model
from mlpengine.nn import ACTIVATIONS

NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")

BLANKS = "".join(filter(str.isspace, map(chr, range(0x10000))))


def in_node(folder, modules, rows):
    """Return the answers of several modules, text by name, each for its rows."""
    for name, text in modules.items():
        (folder / f"{name}.mjs").write_text(text)
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "all.mjs").write_text(
        'import { readFileSync } from "node:fs";\n'
        'const answers = {}, rows = JSON.parse(readFileSync("rows.json"));\n'
        "for (const name in rows) {\n"
        "  const { predict } = await import(`./${name}.mjs`);\n"
        "  answers[name] = rows[name].map((row) => {\n"
        "    try { return predict(...[row].flat(name.startsWith('net') ? 0 : 1)); }\n"
        "    catch (error) { return error.message; }\n"
        "  });\n"
        "}\n"
        "console.log(JSON.stringify(answers));\n"
    )
    done = subprocess.run(
        [NODE, "all.mjs"], cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def row_objects(preprocessor, table):
    """Return rows as JSON has them: null for gaps, dates and booleans as text."""
    kinds = {"text": str, "date": lambda text: text.replace("T", " "), "boolean": str.upper}
    return [
        {
            name: None
            if table[name].missing[row]
            else kinds.get(table[name].kind, float)(table[name].text(row))
            for name in preprocessor.columns
        }
        for row in range(table.n_rows)
    ]


def test_javascript_gives_our_predictions_on_mixed_tables(tmp_path):
    """Every kind of column, target, loss and preprocessing, with gaps and unknown levels."""
    models = {f"m{i}": mixed_model(**options) for i, options in enumerate(MODELS.values())}
    gaps = [one.get("gaps", True) for one in MODELS.values()]
    tables = [mixed_table(gaps=one).rows(np.arange(20)) for one in gaps]
    modules = {name: to_js(model)[0].decode() for name, model in models.items()}
    rows = {
        name: row_objects(model.preprocessor, table)
        for (name, model), table in zip(models.items(), tables, strict=True)
    }
    answers = in_node(tmp_path, modules, rows)
    for (name, model), table in zip(models.items(), tables, strict=True):
        task, got = model.task, answers[name]
        if hasattr(task, "column_names"):
            values = np.array([[one["values"][n] for n in task.column_names] for one in got])
            expected = np.stack([*model.predict_columns(table).values()], axis=1)
            spread = np.repeat(task.target.scale, len(task.loss.predictions))
            if task.target.log:
                values, expected = np.log(values), np.log(expected)
            np.testing.assert_allclose(values / spread, expected / spread, rtol=1e-6, atol=1e-6)
            continue
        keys = [
            str(label).lower() if label in (True, False) else str(label) for label in model.classes
        ]
        chances = np.array([[one["probabilities"][key] for key in keys] for one in got])
        np.testing.assert_allclose(chances, model.predict_proba(table), rtol=1e-6, atol=1e-6)
        labels = [one.get("label", [*one.get("labels", {}).values()]) for one in got]
        assert labels == model.predict(table).tolist()


def networks():
    """Return networks of every op that has C, in both dtypes."""
    nets = [*map(shaken, [*(ours() | C_NETWORKS).values()])]
    for dtype in ("float32", "float64"):
        for op in ACTIVATIONS:
            sizes = [7, 20, 20, 4]
            mlp = Mlp(sizes, activation=str(op), output_activation=str(op), dtype=dtype)
            nets.append(shaken(mlp))
    return {f"net{i}": net for i, net in enumerate(nets)}


def test_javascript_computes_every_network_that_c_does(tmp_path):
    nets = networks()
    x = {name: inputs_of(net, 20) for name, net in nets.items()}
    modules = {name: to_js(net)[0].decode() for name, net in nets.items()}
    rows = {name: flat.tolist() for name, (_, flat) in x.items()}
    rows["net0"].append([None, *rows["net0"][0][1:]])
    answers = in_node(tmp_path, modules, rows)
    assert answers["net0"].pop() == "predict: needs numbers (got null)"
    for name, net in nets.items():
        tolerance = 1e-12 if net.dtype == np.float64 else 2e-5
        expected = net.predict(x[name][0])
        np.testing.assert_allclose(answers[name], expected, tolerance, tolerance, err_msg=name)
        assert ("Math.fround" in modules[name]) == (net.dtype == np.float32)


def test_cells_are_read_as_predict_reads_them_and_intervals_are_its_own(flats, tmp_path):
    usual = {"area": 70.5, "rooms": 3, "kind": "old", "sold": "2024-05-06", "lift": True}
    rows = [
        usual,
        usual | {"area": None, "kind": None, "lift": None},
        usual | {"area": "", "kind": " NA ", "lift": "null"},
        usual | {"area": " 70.5 ", "lift": "TRUE"},
        usual | {"kind": "never seen", "rooms": 1e6},
        usual | {"kind": "</script>", "sold": "2024-02-29T13:45:10.25+02"},
        usual | {"sold": "1969-12-31 23:59", "area": 100_000},
        usual | {"sold": "31.12.2024 23:59:59", "area": "100000.0", "lift": "false"},
        usual | {"kind": f"{BLANKS}old{BLANKS}", "rooms": f"{BLANKS}3{BLANKS}"},
        usual | {"kind": "\ufeffold"},
    ]
    levels = {0.5: rows, 0.9: rows, 0.99: rows[:2]}
    name = json.dumps([[row, {"level": level}] for level, some in levels.items() for row in some])
    text = to_js(flats)[0].decode()
    answers = in_node(tmp_path, {"m": text}, {"m": json.loads(name)})["m"]
    got = iter(answers)
    spread = flats.task.target.scale[0]
    for level, some in levels.items():
        for row in some:
            one = next(got)
            table = {key: [cell] for key, cell in row.items()}
            low, high = flats.predict_interval(table, level)
            expected = np.array([flats.predict(table)[0], low[0], high[0]])
            values = np.array([one["values"]["price"], *one["interval"]["price"]])
            np.testing.assert_allclose(values / spread, expected / spread, rtol=0, atol=1e-5)


DATES = {
    "mm/dd/yyyy": ["05/06/2024", "2/29/2024", "12/31/1969"],
    "dd-month-yy": ["1-Feb-68", "31-december-69", "09-Sept-24", "7-MAY-00"],
    "yyyy.mm.dd HH:MM:SS AM": ["2024.01.02 12:00:00 am", "2024.12.31 11:59:59.5 PM"],
    None: ["3:05pm", "12:30AM", "12:30PM", "3:59:59.5", "1.1.2024 24:00", "2024-01-01T00:00-00:30"],
}
WRONG_DATES = {
    "mm/dd/yyyy": ["13/06/2024", "2/30/2024"],
    "dd-month-yy": ["1-Fab-68", "1-Feb-1968"],
    "yyyy.mm.dd HH:MM:SS AM": ["2024.01.02 13:00:00 am", "2024.01.02 0:00:00 PM"],
    None: ["13:05 pm", "24:00", "1.1.1970 24:01"],
}


def test_dates_of_every_format_are_those_of_predict(tmp_path):
    """The model is linear in the seconds, so that predictions tell them apart."""
    modules, rows, expected = {}, {}, {}
    for i, (form, texts) in enumerate(DATES.items()):
        reading = CsvDialect(date_format=form)
        moments = [dates([text], frozenset(), reading.date_pattern("when")) for text in texts]
        seconds = np.array([0.0, 1e9]) if form else np.array([0.0, 8e4])
        table = Table({"when": Column(seconds, "date"), "y": Column(np.arange(2.0))}, "made")
        fitted = Preprocessor(
            "y", task="regression", standardize_target=False, reading=reading
        ).fit(table)
        mlp = Mlp([fitted.n_features, 1], seed=i, dtype="float64")
        model = Model(mlp, fitted, "mse")
        modules[f"m{i}"] = to_js(model)[0].decode()
        rows[f"m{i}"] = [{"when": text} for text in (*texts, *WRONG_DATES[form])]
        known = Table({"when": Column(np.concatenate(moments), "date")}, "made")
        expected[f"m{i}"] = model.predict(known)
    answers = in_node(tmp_path, modules, rows)
    for name, values in expected.items():
        got = answers[name]
        shown = [one["values"]["y"] for one in got[: len(values)]]
        np.testing.assert_allclose(shown, values, rtol=1e-6, atol=1e-6)
        for one in got[len(values) :]:
            assert 'column "when" needs a date' in one


def test_sets_of_classes_are_those_of_predict(tmp_path):
    model, _ = mlpengine.fit("penguins", model={"hidden": [8]}, training={"folds": 3, "epochs": 6})
    table = read_table("penguins")
    cells = row_objects(model.preprocessor, table)
    levels = (0.5, 0.9, 0.99)
    rows = [[row, {"level": level}] for level in levels for row in cells]
    answers = in_node(tmp_path, {"m": to_js(model)[0].decode()}, {"m": [*rows, cells[0]]})["m"]
    shown = np.array([[name in one["set"] for name in model.classes] for one in answers])
    expected = [model.predict_set(table, level) for level in levels]
    np.testing.assert_array_equal(shown[:-1], np.concatenate(expected))
    assert expected[0].sum() < expected[1].sum() < expected[2].sum()
    assert answers[-1]["set"] == answers[len(cells)]["set"]  # 0.9


def test_what_is_no_cell_is_refused_by_the_name_of_its_column(flats, tmp_path):
    usual = {"area": 70.5, "rooms": 3, "kind": "old", "sold": "2024-05-06", "lift": True}
    no_rooms = {name: cell for name, cell in usual.items() if name != "rooms"}
    wrong = {
        'column "rooms" is needed; null stands for a gap': [no_rooms],
        'column "rooms" needs a number (got "three")': [usual | {"rooms": "three"}],
        'column "area" needs a number (got 1e+101)': [usual | {"area": 1e101}],
        'column "sold" needs a date (got "2024-02-30")': [usual | {"sold": "2024-02-30"}],
        'column "sold" needs a date (got "05/06/2024")': [usual | {"sold": "05/06/2024"}],
        "predict: a row is an object of values by column (got null)": [None],
        "level must be one of 0.5,0.8,0.9,0.95,0.99": [usual, {"level": 0.7}],
    }
    text = to_js(flats)[0].decode()
    answers = in_node(tmp_path, {"m": text}, {"m": [*wrong.values()]})["m"]
    for message, answer in zip(wrong, answers, strict=True):
        assert message in json.dumps(answer).replace('\\"', '"').replace('\\\\"', '"'), answer


def test_export_writes_a_module_that_a_page_can_hold(flats, tmp_path):
    exported = export(flats, tmp_path / "flats.js")
    assert (exported.difference, exported.inputs["sold"]) == (None, "date")
    assert "</script" not in (tmp_path / "flats.js").read_text()
