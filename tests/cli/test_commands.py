"""From a table to predictions: init, check, summary, train, evaluate, predict, compare, schema."""

import csv
import io
import json
import os
import re
import shutil
import sys
from datetime import datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pytest
from pyarrow import feather, parquet

import mlpengine
from mlpengine import fit
from mlpengine.config import json_schema, load_config
from mlpengine.data.features import NumberTarget
from mlpengine.data.tables import _arrow, _csv, read_table
from mlpengine.models import Regression, Split
from mlpengine.models.comparison import NO_LEAD
from mlpengine.report.comparison import _difference
from mlpengine_cli.compare import comparison_text
from mlpengine_cli.main import run
from mlpengine_cli.outcome import metrics_table, mistakes
from mlpengine_cli.predict import csv_digits, row_names
from mlpengine_cli.tables import Coded, csv_text, escaped

RNG = np.random.default_rng(0)
ROWS = 160


def table():
    """Two kinds of flowers, told by length and color; a copy of the kind, an id, a constant."""
    kind = RNG.integers(0, 2, ROWS)
    length = kind * 2 + RNG.normal(0, 0.6, ROWS)
    lines = ["id,length,width,color,kind,answer,unit"]
    for i in range(ROWS):
        width = "" if i % 9 == 0 else f"{RNG.normal():.3f}"
        color = "red" if RNG.random() < 0.2 + 0.6 * kind[i] else "blue"
        name = ("=lily", "rose")[kind[i]]
        lines.append(f"of {i} A,{length[i]:.3f},{width},{color},{name},{'AB'[kind[i]]},cm")
    return "\n".join(lines) + "\n"


SMALLER = {
    "split: {test: 0.2}": "split: {validation: 0.1, test: 0.2}",
    "encoding: piecewise": "encoding: none",
    "  folds: 8\n": "",
    "  members: [plain, piecewise, linear]": "  #",
}


def make_small(config):
    """Replace the folds and the two member types that init wrote by one plain network."""
    text = config.read_text()
    for old, new in SMALLER.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    config.write_text(text)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with a table, the config that init wrote with a small network, and a run."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "flowers.csv").write_text(table())
    config = folder / "flowers.yaml"
    assert run(["init", str(folder / "flowers.csv"), "--target", "kind", "-o", str(config)]) == 0
    make_small(config)
    fast = ["--epochs", "20", "--set", "report=false", "-q"]
    assert run(["train", str(config), "--out", str(folder / "run"), *fast]) == 0
    return folder


@pytest.fixture
def at(trained, mlpengine, monkeypatch):
    monkeypatch.chdir(trained)
    return mlpengine


def test_init_drops_what_gives_the_answer_away(trained):
    lines = (trained / "flowers.yaml").read_text().splitlines()
    assert lines[0] == "# yaml-language-server: $schema=mlpengine.schema.json"
    data = load_config(trained / "flowers.yaml").config.data
    assert sorted(data.drop) == ["answer", "id", "unit"]
    assert (data.source, data.missing) == ("flowers.csv", "indicator")
    reasons = {line.split()[1]: line for line in lines if line.startswith("    - ")}
    why = {"answer": "stands for one value of the target", "id": "or list it", "unit": "constant"}
    assert all(reason in reasons[name] for name, reason in why.items())


def test_a_path_that_is_not_utf_8_is_read_and_no_config_can_name_it(at, trained, tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_bytes((trained / "flowers.csv").read_bytes())
    found = at("init", path, "--target", "kind", "-o", tmp_path / "c.yaml")
    assert (found.code, "rename it" in found.err) == (2, True)
    assert not (tmp_path / "c.yaml").exists()
    assert at("predict", "run", path).out == at("predict", "run", "flowers.csv").out


def test_check_shows_what_it_found_before_an_error(at):
    wrong = {"data.missing=error": "column 'width'", "training.freeze=[5]": "freeze: a layer must"}
    for setting, said in wrong.items():
        found = at("check", "flowers.yaml", "--set", setting)
        assert (found.code, "width" in found.out, said in found.err) == (2, True, True)


def test_summary_of_a_run_is_that_of_its_model(at):
    known = json.loads(at("summary", "run", "--json").out)
    assert {one["name"]: one["type"] for one in known["columns"]}["width"] == "number"
    text = at("summary", "run/model.safetensors").out
    assert f"{known['parameters']:,} parameters" in text
    assert all(one["name"] in text for one in known["columns"])


def test_evaluate(at, trained):
    own = json.loads(at("evaluate", "run", "--json").out)
    result = json.loads((trained / "run" / "result.json").read_text())
    for part in ("train", "validation", "test"):
        assert own[part]["accuracy"] == result[part]["accuracy"]
        matrix = np.array(own["confusion_matrix"][part])
        assert matrix.trace() / matrix.sum() == pytest.approx(own[part]["accuracy"])
    every = json.loads(at("evaluate", "run", "flowers.csv", "--json").out)
    assert every["rows"] == {"data": ROWS}
    assert set(every["data"]) > {"accuracy", "roc_auc", "log_loss", "balanced_accuracy"}
    assert "rows are true classes" in at("evaluate", "run").out


def test_residuals_leave_out_rows_of_weight_0_and_tables_have_errors():
    task = Regression(NumberTarget(["y"], [0.0], [1.0], exposure="t"))
    part = Split(np.zeros((3, 1)), np.array([[1.0], [2.0], [9.0]]), weights=np.array([1, 3, 0]))
    _, line, note = mistakes(task, part, np.array([[1.5], [2.5], [0.0]]), "test")
    assert (line.split(), "weight" in note) == (["y_per_t", *["0.5000"] * 5], True)
    errors = {"test": {"+-": {"m1": 0.5}}}  # shown with many metrics, too
    table = metrics_table({"test": {f"m{k}": 2.0 for k in range(9)}}, {"test": 3}, task, errors)
    assert table[3].split() == ["m1", "2.0000", "0.5000"]


def test_evaluate_weighs_accuracy_and_confusion_matrix_alike(at, trained, tmp_path, caplog):
    text = (trained / "flowers.csv").read_text().replace("rose", "rose" * 99)
    (tmp_path / "even.csv").write_text(text)
    header, *lines = text.splitlines()
    heavy = [f"{line},{1 + number % 5}" for number, line in enumerate(lines)]
    (tmp_path / "heavy.csv").write_text("\n".join([f"{header},weight", *heavy]) + "\n")
    paths = [tmp_path / "heavy.csv", "-o", tmp_path / "h.yaml"]
    assert at("init", *paths, "--target", "kind").code == 0
    make_small(tmp_path / "h.yaml")
    settings = ["data.weight=weight", "data.drop=[id, length, answer, unit]", "report=false"]
    out = ["--out", tmp_path / "heavy", "--epochs", 2, "-q"]
    assert at("train", tmp_path / "h.yaml", *out, settings=settings).code == 0
    found = json.loads(at("evaluate", tmp_path / "heavy", "--json").out)
    for part in ("train", "validation", "test"):
        matrix = np.array(found["confusion_matrix"][part])
        assert (matrix % 1).any()
        assert matrix.sum() == pytest.approx(found["rows"][part])
        assert matrix.trace() / matrix.sum() == pytest.approx(found[part]["accuracy"])
    even = at("evaluate", tmp_path / "heavy", tmp_path / "even.csv")
    assert "'weight'" in caplog.text
    for shown in (even, at("summary", tmp_path / "heavy"), at("check", tmp_path / "h.yaml")):
        assert max(map(len, shown.out.splitlines())) < 250


NEW = "color,extra,width,length\nred,9,0.1,2.2\ngreen,9,,0.1\nblue,9,1,\n,9,0,2\n"


def chances(lines):
    """Return the probabilities in the lines that `predict` printed."""
    return np.array([line.split(",")[2:] for line in lines[1:]], float)


def test_predict_rows_never_seen(at, trained):
    (trained / "new.csv").write_text(NEW)
    lines = at("predict", "run", "new.csv").out.splitlines()
    assert lines[0] == "line,kind,probability_=lily,probability_rose"
    found = [line.split(",")[:2] for line in lines[1:]]
    assert found == [["2", "rose"], ["3", "'=lily"], ["4", found[2][1]], ["5", "rose"]]
    np.testing.assert_allclose(chances(lines).sum(axis=1), 1, atol=1e-7)


def test_predict_in_blocks_of_rows(at, trained, monkeypatch, tmp_path):
    """Files and streams are read and predicted a block at a time, quoted line breaks included."""
    header, *lines = (trained / "flowers.csv").read_text().splitlines()
    quoted = [line + (',"two\nlines"' if i % 50 == 7 else ",x") for i, line in enumerate(lines)]
    content = "\n".join([f"{header},note", *quoted]) + "\n\n"
    (tmp_path / "notes.csv").write_text(content)
    whole = at("predict", "run", tmp_path / "notes.csv").out.splitlines()
    lengths = []
    read = _csv.read_csv

    def counted(*args):
        table = read(*args)
        lengths.append(table.n_rows)
        return table

    monkeypatch.setattr(_csv, "_CHUNK", 600)
    monkeypatch.setattr(_csv, "_CHUNK_ROWS", 1)
    monkeypatch.setattr(_csv, "read_csv", counted)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
    for source in (tmp_path / "notes.csv", "-"):
        rows = at("predict", "run", source).out.splitlines()
        assert [row.split(",")[:2] for row in rows] == [row.split(",")[:2] for row in whole]
        # blocks of less than a pass of the network may round otherwise
        np.testing.assert_allclose(chances(rows), chances(whole), rtol=1e-6)
    assert sum(lengths) == 2 * ROWS
    assert max(lengths) < 40
    starts = [2 + i + sum(j % 50 == 7 for j in range(i)) for i in range(ROWS)]
    assert [int(line.split(",")[0]) for line in whole[1:]] == starts


IDS = {
    "whole numbers": ([12, 7, -3], ["12", "7", "-3"]),
    "beyond 2**53": ([2**63 - 1, None, 3], [str(2**63 - 1), "", "3"]),
    "beyond 2**63": (np.uint64([2**64 - 1, 2**53, 3]), [str(2**64 - 1), str(2**53), "3"]),
    "texts": (["007", "a", None], ["007", "a", ""]),
    "numbers with a gap": ([12, None, 3], ["12", "", "3"]),
    "dates": (
        [datetime(2024, 5, 1), datetime(2031, 1, 2, 3, 4, 5), datetime(1969, 1, 1)],
        ["2024-05-01T00:00:00", "2031-01-02T03:04:05", "1969-01-01T00:00:00"],
    ),
}
"""Columns of Parquet, and how CSV writes them."""


@pytest.mark.parametrize("name", IDS)
def test_the_id_keeps_its_type(name, at, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(_arrow, "_BATCH", 2)  # rows of a block
    ids, texts = IDS[name]
    new = {"key": ids, "length": [0.1, 2.0, 1.0], "width": [0.0, 1.0, 2.0], "color": ["red"] * 3}
    parquet.write_table(pyarrow.table(new), tmp_path / "new.parquet")
    given = at("predict", "run", tmp_path / "new.parquet", "--id", "key")
    assert [line.split(",")[0] for line in given.out.splitlines()[1:]] == texts
    shown = json.loads(at("predict", "run", tmp_path / "new.parquet", "--id", "key", "--json").out)
    in_json = [str(i) if isinstance(i, datetime) else i for i in ids]
    assert [row["key"] for row in shown["predictions"]] == in_json


def test_ids_in_parquet_stay_unchanged(at, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(_arrow, "_BATCH", 2)  # rows of a block
    odd = {
        "zone": pyarrow.array([1, 2**60 + 1, None], pyarrow.timestamp("ns", "Europe/Paris")),
        "day": pyarrow.array([0, 19_000, None], pyarrow.date32()),
        "cents": pyarrow.array([Decimal("1.10"), None, Decimal(9**30)], pyarrow.decimal128(38, 2)),
        "count": pyarrow.array([1, 2**53 + 1, None], pyarrow.uint64()),
        "a.b": [" x ", "", None],
    }
    new = pyarrow.table({"length": [0.1, 2.0, 1.0], "width": [0.0] * 3, "color": ["red"] * 3} | odd)
    parquet.write_table(new, tmp_path / "new.pq")
    feather.write_feather(new, tmp_path / "new.arrow")
    out = tmp_path / "out.parquet"
    for name, key in product(("new.pq", "new.arrow"), odd):
        assert at("predict", "run", tmp_path / name, "--id", key, "-o", out).code == 0
        assert parquet.read_table(out)[key].equals(new[key])


def test_ids_that_are_predicted_are_refused():
    with pytest.raises(Exception, match="species"):
        row_names(read_table("penguins"), "species", {"species": []})
    assert list(row_names(read_table("penguins"), None, {"line": []})) == ["line_number"]


def test_csv_text():
    columns = {"=a": ["x,y", "-b"], "n": np.array([-0.5, 1e-9]), "t": [True, False], "i": [-3, 4]}
    assert csv_text(columns) == '\'=a,n,t,i\n"x,y",-0.5,true,-3\n-b,1e-09,false,4\n'
    digits = np.array([1 / 3, 123456789.4, -np.inf, np.nan])
    assert csv_text({"n": digits}) == "n\n0.333333333\n123456789\n-inf\nnan\n"
    x = np.arange(60.0)  # all digits of a large mean beside a small spread
    model, _ = fit({"x": x, "y": 1e12 + x}, "y", training={"epochs": 1})
    y = model.predict({"x": x})
    shown = csv_text({"y": y}, digits=csv_digits(model)).split()[1:]
    assert [*map(float, shown)] == y.tolist()


def test_texts_that_a_spreadsheet_takes_for_formulas_are_escaped():
    for text in ("=1", "+a()", "-a|b", "@a!b", "\ta", "\ra"):
        assert escaped(text) == f"'{text}"
    assert [*map(escaped, ["-1.5", "-Kx", "@a", "a=", "-"])] == ["-1.5", "-Kx", "@a", "a=", "-"]


def test_labels_are_quoted_as_the_csv_module_quotes_them():
    labels = ["a", "b,c", 'say "so"', "two\nlines", "caf\u00e9", "", "x" * 300]
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerows(zip(labels, range(len(labels)), strict=True))
    for column in (labels, Coded(np.array([0, 1, 2, 3, 4, 5, -1]), labels)):
        columns = {"text": column, "n": np.arange(len(labels))}
        assert csv_text(columns) == "text,n\n" + target.getvalue()


def test_python_checks_a_table_as_the_command_does(at):
    told = json.loads(at("check", "flowers.yaml", "--json").out)
    known = mlpengine.check("flowers.csv", target="kind")
    assert {name: told[name] for name in known.as_dict()} == json.loads(json.dumps(known.as_dict()))
    assert str(known) in at("check", "flowers.yaml").out
    assert len(known.dropped) > 0
    assert known._repr_html_().count(">dropped: ") == sum(map(bool, known.dropped.values()))
    table = {"a": np.arange(60) % 7, "code": np.arange(60) % 3, "y": list("uvw") * 20}
    recoded = mlpengine.check(table, target="y", data={"drop": ["code"]})
    assert str(recoded).count(recoded.dropped["code"]) == 1


def test_ls(at, trained, tmp_path):
    runs = tmp_path / "runs"
    for name in ("first", "broken", "begun"):
        shutil.copytree(trained / "run", runs / name)
    for path in ("broken/environment.json", "begun/result.json"):
        (runs / path).unlink()
    os.mkfifo(runs / "broken" / "environment.json")
    (runs / "begun" / "environment.json").write_text('{"started": 1}')
    listed = {Path(one["run"]).name: one for one in json.loads(at("ls", runs, "--json").out)}
    assert [*listed] == ["broken", "begun", "first"]  # those without a date are first
    first, result = listed["first"], json.loads((trained / "run" / "result.json").read_text())
    assert (first["part"], first["metric"], first["data"]) == ("test", "accuracy", "flowers.csv")
    assert first["value"] == result["test"]["accuracy"] == listed["broken"]["value"]
    told = [one["name"] for one in result["verdicts"] if one["severity"] != "note"]
    assert first["verdicts"] == told
    assert (listed["begun"]["ending"], listed["begun"]["value"]) == (None, None)
    lines = at("ls", runs).out.splitlines()
    assert f"accuracy {first['value']:.4f} (test)" in lines[-1]
    assert lines[2].endswith("has not ended")
    (runs / "begun" / "failure.json").write_text("{}")
    assert at("ls", runs).out.splitlines()[2].endswith("failed")
    for wrong in (tmp_path / "nothing", trained / "run"):
        assert at("ls", wrong).code == 2


def test_compare(at):
    fast = ["--epochs", 2, "--set", "report=false", "-q", "--set", "model.hidden=[3]"]
    assert at("train", "flowers.yaml", "--out", "other", *fast).code == 0
    target = ["--out", "target", "--set", "data.target=color"]
    assert at("train", "flowers.yaml", *fast, *target).code == 0
    assert "no run is better: their targets" in at("compare", "run", "target").out
    found = json.loads(at("compare", "run", "other", "--json").out)
    assert found["settings"]["model.hidden"] == [[64, 64], [3]]
    assert (found["by"], found["standard_errors"]) == ("test accuracy", {})
    scores = [json.loads(at("evaluate", run, "--json").out)["test"] for run in ("run", "other")]
    apart = abs(scores[0]["accuracy"] - scores[1]["accuracy"])
    assert found["difference"] == pytest.approx(apart, rel=1e-5)
    assert (found["better"] is None) == (found["difference"] <= 2 * found["error"])
    record = Path("other", "result.json")
    text = at("compare", "run", "other").out
    assert re.search(r"model\.hidden(.|\n)*networks +1 +1\n", text)
    assert f"by {found['difference']:#.2g} +- {found['error']:#.2g} in test accuracy" in text
    assert re.search(r"the settings are the same(.|\n)*equal in", at("compare", "run", "run").out)
    assert _difference("classes", [["a", "b"], ["b"]]).endswith("(['a'] and [])")
    costs = {"runs": ["a", "b"], "settings": {"training.threshold.costs.false_negative": [7, 5]}}
    lines = comparison_text([{}, {"ending": "interrupted"}], {}, NO_LEAD | costs)
    assert [line[:9] for line in lines[-3:-1]] == ["note: b w", "note: the"]
    given = ["--set", "training.threshold.costs={false_negative: 9}"]
    assert at("train", "flowers.yaml", "--out", "costs", *fast, *given).code == 0
    shown = json.loads(at("compare", "other", "costs", "--json").out)["metrics"]["test cost"]
    even = json.loads(at("evaluate", "costs", "--threshold", 0.5, "--json").out)["test"]["cost"]
    assert shown[0] == pytest.approx(even, abs=1e-6) != shown[1]
    assert "false_negative 9, false_positive 1" in at("evaluate", "costs").out
    for key in ("loss.delta", "data.transform_target"):  # which keep the rows
        lines = comparison_text([{}, {}], {}, NO_LEAD | {"runs": "ab", "settings": {key: [1, 2]}})
        assert [line[:12] for line in lines[-3:-1]] == ["results", "note: losses"]
    known = Path("other", "environment.json")  # as if the table had changed after its training
    known.write_text(re.sub(r'("flowers.csv": ")..', r"\1--", known.read_text()))
    reason = json.loads(at("compare", "run", "other", "--json").out)["reason"]
    assert re.match(r"flowers\.csv .* training of other;", reason)
    record.write_text("{}")
    assert "best epoch" not in at("compare", "other", "other").out
    record.unlink()
    Path("other", "failure.json").write_text('{"error": "step 2: not finite"}')
    assert "error: other: the run failed (step 2" in at("compare", "run", "other").err


def test_schema(at, tmp_path):
    assert json.loads(at("schema").out) == json.loads(at("schema", "--json").out) == json_schema()
    assert at("schema", "-o", tmp_path / "s.json").code == 0
    assert json.loads((tmp_path / "s.json").read_text()) == json_schema()
