"""`mlpengine explain`: importances and partial dependence, against formulas and scikit-learn."""

import json
import shutil
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.inspection import permutation_importance

from mlpengine.core.errors import DataError
from mlpengine.data.tables import read_table
from mlpengine.models import explain
from mlpengine.models.evaluate import Scorer
from mlpengine.models.explain import dependence, feature_columns, importances, sensitive_columns
from mlpengine.models.members import NetworkMean
from mlpengine.models.model import Model
from mlpengine.models.task import make_split
from mlpengine.nn import Mlp
from mlpengine.ops import MeanSquaredError
from mlpengine.training.loading import load
from mlpengine_cli import main

CONFIG = """\
data: {source: rows.csv, target: y, encoding: piecewise, missing: indicator}
model: {hidden: [16]}
optimizer: {lr: 2e-2}
training: {epochs: 25, batch_size: 16, folds: 3}
report: false
"""


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Train on y = 3 a + (1 in the west) + noise, with a column that means nothing."""
    path = tmp_path_factory.mktemp("explained")
    rng = np.random.default_rng(0)
    a, noise = rng.standard_normal((2, 200))
    zone = rng.choice(["east", "west"], 200)
    y = 3 * a + (zone == "west") + 0.1 * rng.standard_normal(200)
    cells = [f"{v:.4f}" if i % 9 else "" for i, v in enumerate(noise)]
    lines = [f"{p:.4f},{q},{z},{t:.4f}" for p, q, z, t in zip(a, cells, zone, y, strict=True)]
    (path / "rows.csv").write_text("\n".join(["a,noise,zone,y", *lines]) + "\n")
    (path / "c.yaml").write_text(CONFIG)
    with chdir(path):
        assert main.run(["train", "c.yaml", "-q", "--out", "run"]) == 0
    return path


@pytest.fixture
def run(once, mlpengine, tmp_path):
    """Return the path of the run, in a copy of its directory."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return Path("run")


@pytest.mark.parametrize("file", [(), ("rows.csv",)])
def test_one_row_is_explained_by_its_line(file, mlpengine, run):
    done = mlpengine("explain", run, *file, "--row", 20, "--json")
    found, rows = json.loads(done.out), pandas.read_csv("rows.csv")
    of = dict(zip(found["columns"], np.array(found["contributions"])[:, 0], strict=True))
    a, zone = rows.a[18], rows.zone[18]  # line 1 has the names
    assert of["a"] == pytest.approx(3 * (a - rows.a.mean()), abs=0.5)
    assert of["zone"] == pytest.approx((zone == "west") - (rows.zone == "west").mean(), abs=0.3)
    total = found["base"][0] + sum(of.values())
    assert total == pytest.approx(found["prediction"][0], abs=1e-6)
    assert f"prediction{total:.4f}" in mlpengine("explain", run, "--row", 20).out.replace(" ", "")
    for wrong, text in (
        (("explain", run, "--row", 1), "2 to 201"),
        (("predict", run, "rows.csv", "--threshold", 0.3), "two classes"),
    ):
        done = mlpengine(*wrong)
        assert done.code == 2
        assert text in done.err


def test_columns_are_ranked_by_what_they_tell(mlpengine, run):
    done = mlpengine("explain", run, "--json")
    assert (done.code, done.err) == (0, "")
    shown = json.loads(done.out)
    assert (shown["part"], shown["rows"]) == ("out_of_fold", 170)
    a, zone, noise = shown["importances"]
    assert [a["column"], zone["column"], noise["column"]] == ["a", "zone", "noise"]
    # R2 falls by 2 var(3 a) / var(y) where a changes places, and by 2 var(west) for the zone
    variance = 9 + 0.25
    assert a["metric"] == pytest.approx(18 / variance, rel=0.15)
    assert zone["metric"] == pytest.approx(0.5 / variance, rel=0.5)
    assert abs(noise["metric"]) < 0.02
    assert a["loss_error"] > 0
    first = shown["dependence"][0]
    slope = np.polyfit(first["values"], first["predictions"][0], 1)[0]
    assert slope == pytest.approx(3, rel=0.1)
    second = shown["dependence"][1]
    levels = dict(zip(second["values"], second["predictions"][0], strict=True))
    assert levels["west"] - levels["east"] == pytest.approx(1, abs=0.2)
    text = mlpengine("explain", run)
    assert text.out.index("\na ") < text.out.index("\nzone ") < text.out.index("\nnoise ")


def test_the_report_of_many_columns_permutes_those_that_predictions_are_sensitive_to(
    mlpengine, run, monkeypatch
):
    few = json.loads(mlpengine("report", run, "--json").out)["drivers"]
    assert few == {"skipped": "there are 170 out-of-fold rows, and 500 are needed"}
    monkeypatch.setattr(sys.modules["mlpengine.report.collect"], "PERMUTED_ROWS", 100)
    whole = json.loads(mlpengine("report", run, "--json").out)["drivers"]
    assert (whole["columns"], whole["permuted"]) == (3, 3)
    module = sys.modules["mlpengine.report.collect"]
    monkeypatch.setattr(module, "PERMUTED_COLUMNS", 2)
    passes = []
    of_folds = NetworkMean.out_of_fold

    def counted(mean, x, folds):
        passes.append(len(x))
        return of_folds(mean, x, folds)

    monkeypatch.setattr(NetworkMean, "out_of_fold", counted)
    some = json.loads(mlpengine("report", run, "--json").out)["drivers"]
    assert (some["columns"], some["permuted"]) == (3, 2)
    assert some["importances"] == whole["importances"][:2]
    assert some["dependence"] == whole["dependence"][:2]
    assert [rows // 170 for rows in passes] == [1, 5, 5]  # five permutations of each column at once
    assert mlpengine("report", run).code == 0
    assert "Only 2 columns to which" in (run / "report.html").read_text()


def test_outputs_of_linear_networks_are_sensitive_to_large_weights_and_deviations():
    rng = np.random.default_rng(0)
    deviations = np.exp(rng.uniform(-3, 3, 12))
    effects = 3.0 ** rng.permutation(12)  # of features: weight times deviation
    columns = [*"abcdefghij", "a", "b"]  # two of them have two features
    networks = [Mlp([12, 3], dtype="f8"), Mlp([12, 3], dtype="f8")]
    squares = np.zeros(12)
    for network in networks:
        weight = rng.choice([-1, 1], (3, 12)) * rng.uniform(0.8, 1.2, (3, 12)) * effects
        network.params.views["0.weight"][...] = weight / deviations
        squares += (weight**2).sum(axis=0)
    x = rng.standard_normal((200, 12)) * deviations
    totals = {c: squares[[c == one for one in columns]].sum() for c in "abcdefghij"}
    for count in (1, 4, 9):
        expected = sorted(sorted(totals, key=totals.get)[-count:])
        assert sensitive_columns(NetworkMean(networks, None), x, columns, count) == expected
    assert sensitive_columns(NetworkMean(networks, None), x, columns, 10) == [*"abcdefghij"]


def test_importances_are_those_of_scikit_learn(run):
    model, table = load(run), read_table("rows.csv")
    columns = feature_columns(model.preprocessor)
    assert len(columns) == model.preprocessor.n_features
    assert columns[:2] == ["a", "noise"]
    data = model.preprocessor.transform(table)
    part = make_split(table, None, model.preprocessor, model.task, np.dtype("f4"))
    scorer = Scorer(MeanSquaredError(), model.task, 1, np.dtype("f4"))
    ours = importances(model.forward, scorer, part, columns, repeats=20)

    class Estimator:  # on two columns of indices, which scikit-learn permutes
        def fit(self, x, y):
            return self

        def score(self, picks, y):
            x = np.empty_like(data.features)
            for column, name in enumerate(("a", "noise", "zone")):
                block = np.flatnonzero(np.array(columns) == name)
                x[:, block] = data.features[np.ix_(picks[:, column], block)]
            return scorer.run(model.forward(x), part)["r2"]

    picks = np.tile(np.arange(200)[:, None], 3)
    theirs = permutation_importance(Estimator(), picks, part.truth, n_repeats=20, random_state=0)
    expected = dict(zip(("a", "noise", "zone"), theirs.importances_mean, strict=True))
    for row in ours:
        assert row.metric == pytest.approx(expected[row.column], rel=0.1, abs=0.01)


def test_the_error_of_an_importance_is_what_another_sample_of_rows_changes(run):
    model, table = load(run), read_table("rows.csv")
    part = make_split(table, None, model.preprocessor, model.task, np.dtype("f4"))
    columns, scorer = feature_columns(model.preprocessor), model.scorer(model.task)
    rng, found = np.random.default_rng(0), []
    for _ in range(30):
        some = part.rows(rng.choice(len(part), 400))
        found.append({o.column: o for o in importances(model.forward, scorer, some, columns)})
    for column in ("a", "zone"):
        loss, error, metric, metric_error = np.array([one[column][1:] for one in found]).T
        for printed, values in ((error, loss), (metric_error, metric)):
            assert printed.mean() == pytest.approx(values.std(), rel=0.5)
            assert printed.std() < 0.2 * printed.mean()


def test_permutations_are_the_same_at_once_and_one_after_another(run, monkeypatch):
    model, table = load(run), read_table("rows.csv")
    part = make_split(table, None, model.preprocessor, model.task, np.dtype("f4"))
    columns, scorer = feature_columns(model.preprocessor), model.scorer(model.task)
    passes = []

    def forward(x):
        passes.append(len(x))
        return model.forward(x)

    at_once = importances(forward, scorer, part, columns)
    assert passes == [len(part), *[5 * len(part)] * len({*columns})]
    monkeypatch.setattr(explain, "STACKED_ROWS", 5 * len(part) - 1)
    one_by_one = importances(model.forward, scorer, part, columns)
    for one, other in zip(at_once, one_by_one, strict=True):
        assert one.column == other.column
        assert one[1:] == pytest.approx(other[1:], rel=1e-4, abs=1e-6)


def test_dependence_is_the_mean_where_all_rows_agree(run):
    model, table = load(run), read_table("rows.csv")
    curve = dependence(model.forward, model.preprocessor, model.task, table, "a")
    value = curve.values[3]
    lines = Path("rows.csv").read_text().splitlines()
    Path("same.csv").write_text(
        "\n".join([lines[0], *(f"{value!r},{line.split(',', 1)[1]}" for line in lines[1:])])
    )
    assert curve.predictions[3, 0] == pytest.approx(model.predict("same.csv").mean(), rel=1e-4)


def test_a_run_without_folds_is_explained_on_its_test_rows(mlpengine, run):
    options = ["--set", "training.folds=null", "--epochs", 1, "--out", "one"]
    assert mlpengine("train", "c.yaml", "-q", *options).code == 0
    assert json.loads(mlpengine("explain", "one", "--json").out)["part"] == "test"
    Path("runs").mkdir()
    Path("one").rename("runs/one")
    for name, said in (("nothing", "; . has run"), ("runs", "no checkpoint; runs has one; ")):
        refused = mlpengine("explain", name)
        assert (refused.code, said in refused.err) == (2, True), refused.err


@pytest.mark.parametrize("command", ["explain", "predict", "evaluate"])
def test_json_of_weights_as_large_as_the_dtype_holds(command, mlpengine, run):
    huge = load(run)
    huge = Model(huge.networks[0], huge.preprocessor, huge.loss)
    huge.mlp.params.flat[...] = np.copysign(3e38, huge.mlp.params.flat)
    huge.save("huge.safetensors")
    done = mlpengine(command, "huge.safetensors", "rows.csv", "--json")
    assert (done.code, done.out) == (1, "")
    assert "not finite" in done.err


def test_python_explains_as_the_command_does(mlpengine, run):
    explained = load(run).explain("rows.csv", curves=1)
    told = json.loads(mlpengine("explain", run, "rows.csv", "--json").out)
    assert explained.as_dict() == told | {"dependence": told["dependence"][:1]}
    assert f"{explained}\n" == mlpengine("explain", run, "rows.csv").out
    assert "<figcaption>a</figcaption>" in explained.plot()._repr_html_()
    assert load(run).explain(pandas.read_csv("rows.csv")[:2])._repr_html_()  # without errors
    with pytest.raises(DataError, match="explain: at least two rows"):
        load(run).explain(pandas.read_csv("rows.csv")[:1])
