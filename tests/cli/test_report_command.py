"""`mlpengine report`, and the page that `train` writes: whole, harmless, and what it says."""

import json
import shutil
from contextlib import chdir
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from small import SMALL

from mlpengine.config.baselines import ScoredRows
from mlpengine.core.errors import CheckpointError
from mlpengine.core.redaction import without_directories
from mlpengine.data.features import NumberTarget
from mlpengine.models import Model, Regression, Split
from mlpengine.report.predictions import _row_losses
from mlpengine_cli.main import run

WITH_PAGE = SMALL.replace("report: false", "report: true")
HOSTILE = ['<script>alert("a")</script>', '"><img src=//x onerror=1>', "</title><b>&amp;", "-->"]
VOID = {"br", "col", "link", "meta", "path", "rect"}
LIMIT = 500_000


class Page(HTMLParser):
    """What a page holds; fails on markup that a browser would have to guess at."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.links, self.ids, self.texts = [], set(), [], [], []
        self.data, self.labels = "", []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        assert len(given) == len(attributes)
        assert not [name for name in given if name.startswith("on")]
        self.tags.add(tag)
        self.links += [given[name] for name in ("src", "href") if name in given]
        self.ids += [given["id"]] if "id" in given else []
        self.labels += [given["aria-label"]] if tag == "svg" and "role" in given else []
        if tag == "script":
            assert given["type"] == "application/json"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1:] == ["script"]:
            self.data += text
        else:
            self.texts.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def numbers(self):
        return json.loads(self.data)


def read(path):
    """Return a page that needs nothing from elsewhere and has everything."""
    page = read_with_notes(path)
    assert page.numbers["notes"] == []
    return page


def read_with_notes(path):
    """Return a page that needs nothing from elsewhere, and may say what is missing."""
    data = Path(path).read_bytes()
    assert len(data) < LIMIT
    page = Page(data.decode())
    assert all(link == "data:," or link[1:] in page.ids for link in page.links)
    assert len(set(page.ids)) == len(page.ids)
    assert all(page.labels)
    assert page.tags >= {"html", "h1", "h2", "main", "title"}
    return page


def rows_of(task, rng, n=160):
    """Return columns, targets last, that a task can learn from."""
    a, b = rng.standard_normal((2, n)).round(3)
    zone = rng.choice(["east", "west", "north"], n)
    return {
        "number": {"a": a, "b": b, "zone": zone, "y": (3 * a + b + (zone == "west")).round(3)},
        "two": {"a": a, "b": b, "zone": zone, "y": np.where(a + b > 0, "yes", "no")},
        "labels": {"a": a, "b": b, "y": (a > 0).astype(int), "z": (b > 0).astype(int)},
    }[task]


def write_csv(path, columns):
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    names = ['"' + name.replace('"', '""') + '"' for name in columns]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")


TASKS = {
    "number": "data: {source: rows.csv, target: y, drop: b}\ntraining: {epochs: 4}\n",
    "number in folds": "data: {source: rows.csv, target: y, split: {test: 0}}\n"
    "training: {epochs: 4, folds: 3}\n",
    "two": "data: {source: rows.csv, target: y}\ntraining: {epochs: 4, seeds: 2}\n",
    "labels": "data: {source: rows.csv, target: [y, z], task: multilabel}\ntraining: {epochs: 4}\n",
    "two with folds": "data: {source: rows.csv, target: y, split: {test: 0.25}}\n"
    "training: {epochs: 4, folds: 3}\n",
}


@pytest.mark.parametrize("name", TASKS)
def test_training_writes_a_page(mlpengine, tmp_path, name):
    write_csv(tmp_path / "rows.csv", rows_of(name.split(" ")[0], np.random.default_rng(0)))
    content = f"{TASKS[name]}model: {{hidden: [8]}}\n"
    (tmp_path / "c.yaml").write_text(content)
    done = mlpengine("train", "c.yaml", "-q", "--out", "run")
    assert done.code == 0, done.err
    assert done.out.endswith("run/report.html\n")
    page = read("run/report.html")
    known, result = page.numbers, json.loads(Path("run/result.json").read_text())
    part, metric = known["score"]["part"], known["score"]["metric"]
    assert part == ("out_of_fold" if "in folds" in name else "test")
    value = known["score"]["predictions"]["model"][metric]["value"]
    assert value == pytest.approx(result[part][metric], rel=1e-5)
    assert {"linear", "constant"} <= known["score"]["predictions"].keys()
    assert known["result"]["peak_bytes"] > 10_000_000
    assert ("log" in known["hardest"]["unit"]) == (name == "labels")
    for section in ("Training", "Predictions", "What drives", "Gradients", "Data", "Hardest rows"):
        assert section in page.text
    areas = {who: one.get("roc_auc") for who, one in known["score"]["predictions"].items()}
    if name.startswith("two"):
        assert 0 < areas["model"]["value"] < 0.9 < areas["linear"]["value"] <= 1
        assert areas["constant"]["value"] == 0.5
        assert "ROC-AUC" in page.text
    else:
        assert not any(areas.values())
    if name == "two with folds":  # 40 test rows
        levels = known["predictions"]["sets"]["levels"]
        assert [one["level"] for one in levels] == [0.5, 0.8, 0.9, 0.95]
        assert all(one["share"] * 40 % 1 == 0 <= one["size"] <= 2 for one in levels)
        assert f"Mean number of classes: {levels[0]['size']:.3g} for 0.5, " in page.text
    shutil.move("run/report.html", "first.html")
    again = mlpengine("report", "run")
    assert (again.code, again.out) == (0, "run/report.html\n")
    assert read("run/report.html").numbers["score"] == known["score"]


def test_the_error_of_a_row_is_the_mean_of_its_known_targets():
    truth = np.array([[1.0, np.nan], [3.0, 2.0], [5.0, 4.0]])
    task = Regression(NumberTarget(["y", "z"], [0.0, 0.0], [1.0, 1.0]))
    rows, none = Split(truth, truth, truth), np.zeros((3, 2))
    losses = _row_losses(task, ScoredRows("test", rows, none, none, np.arange(3), 3, task))
    np.testing.assert_allclose(losses, np.nanmean(truth / np.nanstd(truth, axis=0), axis=1))


def test_the_page_can_be_switched_off(mlpengine, config):
    assert "report.html" not in mlpengine("train", config, "--out", "run").out
    assert not Path("run/report.html").exists()
    shown = json.loads(mlpengine("report", "run", "--json").out)
    assert (shown["model"]["target"], Path("run/report.html").exists()) == (["species"], False)


def test_names_do_not_become_markup(mlpengine, tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.standard_normal(60).round(2) for name in HOSTILE}
    first = columns[HOSTILE[0]]
    columns["</td>"] = np.where(first > 0, "</script><script>1", "<!--")
    columns["y"] = np.where(first > 0, "<i>", "]]>")
    write_csv(tmp_path / "rows.csv", columns)
    (tmp_path / "c.yaml").write_text(
        "# </pre><script>\ndata: {source: rows.csv, target: y}\nmodel: {hidden: [4]}\n"
        "training: {epochs: 2}\n"
    )
    out = '<u onload="1">'
    assert mlpengine("train", "c.yaml", "-q", "--out", out).code == 0
    page = read(f"{out}/report.html")
    assert not page.tags & {"img", "b", "i", "u"}
    assert {*HOSTILE, "</td>", "y"} == {*page.numbers["data"]["columns"], "y"}
    for name in (*HOSTILE, "# </pre><script>", out):
        assert name in " ".join(page.texts)


def test_a_failed_run_has_a_page_with_its_verdicts(mlpengine, tmp_path):
    (tmp_path / "c.yaml").write_text(WITH_PAGE + "optimizer: {name: sgd, lr: 1e30}\n")
    done = mlpengine("train", "c.yaml", "-q", "--out", "run")
    assert (done.code, "run/report.html" in done.err) == (1, True)
    page = Page(Path("run/report.html").read_text())
    assert "The run failed: " in page.text
    assert page.numbers["verdicts"]
    codes = [mlpengine("report", "run", "-o", name).code for name in ("later.html", "c.yaml")]
    assert codes == [0, 2]
    later = Page(Path("later.html").read_text())
    assert "The run failed: " in later.text
    assert all(later.numbers[name] == page.numbers[name] for name in ("failure", "verdicts"))


DAMAGE = {
    "result.json": b'{"ending": [1, {"a": "b"}], "verdicts": 3, "best_epoch": "x"}',
    "environment.json": b"[1]",
    "metrics.csv": b"epoch,train_loss\n1,zero\n",
    "diagnostics.csv": b"step,layer,quantity,value\n1,9,loss,2\n1,,\xff,3\n",
    "model.safetensors": b"\0" * 100,
    "config.yaml": b"\xff\xfe</pre>",
}


def test_a_damaged_run_has_a_page_with_what_is_left(mlpengine, config):
    assert mlpengine("train", config, "-q", "--out", "run").code == 0
    for name, damage in DAMAGE.items():
        path = Path("run", name)
        whole = path.read_bytes()
        for content in (damage, None):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            done = mlpengine("report", "run", "-o", "page.html")
            assert done.code == 0, done.err
            page = Page(Path("page.html").read_text())
            if content is not None and name != "config.yaml":
                assert any(name in note for note in page.numbers["notes"]), name
            path.write_bytes(whole)
    shutil.rmtree("run/checkpoints")
    Path("run/model.safetensors").unlink()
    assert mlpengine("report", "run", "-o", "page.html").code == 0
    assert "the model cannot be read" in Page(Path("page.html").read_text()).text


def test_a_sweep_has_a_page(mlpengine, tmp_path):
    (tmp_path / "sweep.yaml").write_text(
        WITH_PAGE + "sweep:\n  trials: 5\n  sampler: random\n  space:\n"
        "    optimizer.lr: {log: [1e-4, 1e-1]}\n    model.hidden: {choice: [[4], [8]]}\n"
    )
    done = mlpengine("sweep", "sweep.yaml", "-q", "--out", "runs")
    assert done.code == 0, done.err
    assert "runs/report.html" in done.out
    page = read("runs/report.html")
    known, best = page.numbers, json.loads(mlpengine("report", "runs", "--json").out)["best"]
    losses = [one["value"] for one in known["trials"]]
    assert best["value"] == pytest.approx(min(losses))
    assert known["importance"].keys() == {"optimizer.lr", "model.hidden"}
    assert known["score"]["part"] == "test"
    for text in ("Trials: loss", "Which settings matter", "5 complete", "train runs/best.yaml"):
        assert text in page.text


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory):
    """Train on a table given by its absolute path; return the run's directory, which stays so."""
    folder = tmp_path_factory.mktemp("handed over")
    source = folder / "own data" / "rows.csv"
    source.parent.mkdir()
    write_csv(source, rows_of("two", np.random.default_rng(0)))
    config = TASKS["two"].replace("rows.csv", f'"{source}"').replace(", seeds: 2", "")
    (folder / "c.yaml").write_text(f"{config}")
    with chdir(folder):
        assert run(["train", str(folder / "c.yaml"), "--out", "run", "-q"]) == 0
    return folder / "run"


def test_what_travels_has_no_directories(mlpengine, tmp_path, handed_over):
    for suffix in ("onnx", "c", "safetensors"):
        assert mlpengine("export", handed_over, "-o", f"x.{suffix}").code == 0
    assert mlpengine("report", handed_over, "-o", "again.html").code == 0
    files = [*tmp_path.iterdir(), handed_over / "model.safetensors", handed_over / "report.html"]
    assert len(files) == 6
    directory = str(handed_over.parent).encode()
    for file in files:
        assert directory not in file.read_bytes(), file
    assert directory in (handed_over / "config.resolved.yaml").read_bytes()
    assert "rows.csv" in read("again.html").text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/bob/data/x.csv: line 3", "x.csv: line 3"),
        ("--set data.source=/srv/x.csv", "--set data.source=x.csv"),
        (r"source: 'C:\Users\Bob\x.csv'", "source: 'x.csv'"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("a / b + c/d/e", "a / b + c/d/e"),
        ("runs/c/model.safetensors", "runs/c/model.safetensors"),
    ],
)
def test_only_absolute_paths_lose_their_directories(text, shown):
    assert without_directories({"a": [text]}) == {"a": [shown]}


def test_one_file_is_enough(mlpengine, tmp_path, handed_over):
    """Whoever gets a model alone learns what it is, and can measure and explain it."""
    given = tmp_path / "model.safetensors"
    shutil.copy(handed_over / "model.safetensors", given)
    measured = json.loads((handed_over / "result.json").read_text())
    card = json.loads(mlpengine("summary", given, "--json").out)
    assert (card["target"], card["classes"]) == (["y"], ["no", "yes"])
    kinds = {"a": "number", "b": "number", "zone": "category"}
    assert {one["name"]: one["type"] for one in card["columns"]} == kinds
    assert card["columns"][2]["levels"] == ["east", "north", "west"]
    assert (record := card["record"])["source"] == "rows.csv"
    assert record["rows"] == {"train": 112, "validation": 24, "test": 24}
    assert record["metrics"] == pytest.approx(measured["test"], rel=1e-5)
    assert "see mlpengine summary" in mlpengine("report", given).err
    for command in ("explain", "evaluate"):
        refused = mlpengine(command, given)
        assert refused.code == 2
        assert f"say which rows to use: mlpengine {command} {given} FILE" in refused.err
    data = handed_over.parent / "own data" / "rows.csv"
    assert json.loads(mlpengine("evaluate", given, data, "--json").out)["rows"] == {"data": 160}
    known = json.loads(mlpengine("explain", given, data, "--json").out)
    assert (known["rows"], known["importances"][2]["column"]) == (160, "zone")


def test_a_record_of_another_form_is_refused(handed_over, tmp_path):
    model = Model.load(handed_over / "model.safetensors")
    replace(model, record={**model.record, "rows": [1]}).save(tmp_path / "wrong.safetensors")
    with pytest.raises(CheckpointError, match=r"record.rows: must be a mapping"):
        Model.load(tmp_path / "wrong.safetensors")


def test_a_run_records_when_and_on_what_it_was_trained(handed_over):
    environment = json.loads((handed_over / "environment.json").read_text())
    result = json.loads((handed_over / "result.json").read_text())
    began, ended = map(datetime.fromisoformat, (environment["started"], result["ended"]))
    assert began.utcoffset() == ended.utcoffset() == timedelta(0)
    assert timedelta(0) <= ended - began < timedelta(hours=1)
    digest = sha256((handed_over.parent / "own data" / "rows.csv").read_bytes()).hexdigest()
    assert environment["data_sha256"] == {"rows.csv": digest}
    page = read(handed_over / "report.html")
    assert f"SHA-256 of rows.csv {digest[:16]}" in page.text
    assert all(str(environment[name]) in page.text for name in ("started", "processor"))
