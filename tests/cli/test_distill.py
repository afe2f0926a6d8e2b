"""`mlpengine distill` and `mlpengine.distill`: one network that predicts what a teacher does."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mlpengine import distill, fit, load
from mlpengine.config import load_config
from mlpengine.config.columns import merged_verdicts
from mlpengine.core.errors import UsageError
from mlpengine.diagnostics.verdict import Verdict
from mlpengine.training.measure import Measured
from mlpengine.training.transfer import TransferSet

TEACHER = """\
data: {source: SOURCE, target: TARGET, split: {test: 0.2}}
model: {hidden: [8]}
training: {folds: 3, epochs: 6, batch_size: 16}
optimizer: {name: adam, lr: 0.01}
report: false
"""
QUICK = ("--set=model.hidden=[6]", "--made", "1500", "--set", "training.epochs=8")
REPORTED = ("--set", "report=true")
QUICK = (*QUICK, "--set", "optimizer.lr=0.01", "-q")


def train_teacher(mlpengine, source="penguins", target="species"):
    Path("t.yaml").write_text(TEACHER.replace("SOURCE", source).replace("TARGET", target))
    done = mlpengine("train", "t.yaml", "--out", "t", "-q")
    assert done.code == 0, done.err


def test_a_student_is_a_run_as_any_other(mlpengine):
    train_teacher(mlpengine)
    done = mlpengine("distill", "t", "-o", "s", *QUICK, *REPORTED, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    # the teacher is measured on the very test rows that its own run held out
    own = json.loads(Path("t/result.json").read_text())["test"]
    assert result["spread"]["test"]["teacher"] == pytest.approx(own, rel=1e-4)
    assert result["spread"]["test"].keys() == {"teacher", "direct"}
    lags = Verdict("underfitting", None, "", "", 1.0, 0.0, "", no_fix="x")
    for loss in (0.5, 0.6):  # a student that equals its teacher does not underfit
        measured = Measured({"test": {"loss": loss}}, {"test": {"teacher": {"loss": 0.49}}})
        reported = merged_verdicts(load_config(Path("t.yaml")), [], [lags], measured)
        assert len(reported) == (loss > 0.55)
    student, teacher = load("s"), load("t")
    assert (len(teacher.networks), len(student.networks)) == (3, 1)
    assert student.mlp.sizes[1:] == (6, 3)
    agree = student.predict("penguins") == teacher.predict("penguins")
    assert agree.mean() > 0.95
    assert student.predict_set("penguins").shape == (344, 3)
    bits = Path("s/model.safetensors").read_bytes()
    # the page shows the three beside each other, on these rows
    page = Path("s/report.html").read_text(encoding="utf-8")
    shown = json.loads(mlpengine("report", "s", "--json").out)["score"]["predictions"]
    assert [*shown] == ["model", "teacher", "direct", "linear", "constant"]
    for title in ("teacher", "direct"):
        measured = result["spread"]["test"][title]["accuracy"]
        assert shown[title]["accuracy"]["value"] == pytest.approx(measured, rel=1e-4)
    for text in ("Its teacher has accuracy", "its teacher</th>", "trained directly</th>"):
        assert text in page
    assert mlpengine("evaluate", "s", "--json").code == 0
    assert mlpengine("diagnose", "s").code == 0  # its training rows are the transfer set
    for form in ("onnx", "c", "c-train"):
        assert mlpengine("export", "s", "--format", form, "-o", f"m.{form[0]}").code == 0
    # the run goes on where it ended, and begins anew with the same bits
    again = mlpengine("distill", "t", "-o", "s2", *QUICK)
    assert Path("s2/model.safetensors").read_bytes() == bits
    assert "direct: " in again.out
    compared = mlpengine("compare", "s", "s2")
    assert (compared.code, compared.err) == (0, "")
    longer = mlpengine("train", "--resume", "s", "--epochs", "9", "-q")
    assert longer.code == 0, longer.err
    assert "teacher" in longer.out
    # fine-tuning learns the targets of rows, which no teacher has labeled
    tuned = mlpengine("train", "--warm-start", "s2", "--epochs", "2", "--out", "tuned", "-q")
    assert tuned.code == 0, tuned.err
    assert "teacher" not in tuned.out
    assert TransferSet.load(Path("s2/transfer.safetensors")).targets.shape == (275 + 1500, 3)


def test_what_cannot_be_distilled_is_said(mlpengine):
    frame = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60) % 7})
    frame["y"] = frame["a"] * 2.5 + frame["b"]
    frame.to_csv("rows.csv", index=False)
    train_teacher(mlpengine, "rows.csv", "y")
    one = ("--set", "training.folds=null", "--set", "data.split.validation=0.2")
    assert mlpengine("train", "t.yaml", "--out", "one", "-q", *one).code == 0
    residual = ("--set", "model.network=residual")
    sized = mlpengine("distill", "t", *residual, "--set=model.hidden=[8]", "-o", "refused")
    assert "model.hidden: residual does not have this" in sized.err
    for setting in ("data.target=b", "data.source=t.yaml", "training.folds=3"):
        refused = mlpengine("distill", "t", "--set", setting, "-o", "refused")
        assert f"leave out --set of {setting.split('=')[0]}" in refused.err
    assert not Path("refused").exists()
    smaller = mlpengine("distill", "one", "--set=model.hidden=[2]", "-o", "two", *QUICK[1:])
    assert smaller.code == 0, smaller.err
    for setting in ("seed=3", "data.split.test=0.4"):
        other = mlpengine("distill", "t", "--set", setting)
        assert "leave seed and data.split unchanged" in other.err
    frame.assign(b=1.0).to_csv("rows.csv", index=False)
    changed = mlpengine("distill", "t")
    assert changed.code != 0
    assert "has changed since the run was trained (rows.csv)" in changed.err
    resumed = mlpengine("train", "--resume", "two", "--epochs", "20")
    assert resumed.code != 0
    assert "have changed since the teacher labeled them" in resumed.err
    Path("rows.csv").unlink()
    missing = mlpengine("distill", "t")
    assert "there is no such file or data set" in missing.err
    for done in (changed, resumed, missing):
        assert "Traceback" not in done.err


def frame_of(rows=240):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=rows),
            "b": rng.integers(0, 4, rows),
            "c": rng.choice(["u", "v"], rows),
        }
    )
    return frame.assign(y=frame["a"] * 2 + frame["b"] * (frame["c"] == "u"))


def by_formula(rows):
    return rows["a"] * 2 + rows["b"] * (rows["c"] == "u")


SMALL = {"model": {"hidden": [16]}, "training": {"epochs": 20}, "made": 1_000}


def test_any_function_is_a_teacher():
    frame, seen = frame_of(), []
    noisy = frame.assign(y=np.random.default_rng(1).permutation(frame["y"]))

    def predict(rows):
        seen.append(rows)
        return by_formula(rows)

    student, result = distill(noisy, "y", predict=predict, **SMALL)
    assert all(isinstance(rows, pd.DataFrame) and [*rows] == ["a", "b", "c"] for rows in seen)
    assert [len(rows) for rows in seen] == [192, 1_000, 48]
    assert {*seen[1]["c"]} == {"u", "v"}
    assert seen[1].dtypes.to_dict() == frame.drop(columns="y").dtypes.to_dict()
    # it learned the formula, of which the targets of the table say nothing
    error = student.predict(frame) - frame["y"]
    assert np.sqrt(np.mean(error**2)) < 0.3 * frame["y"].std()
    assert result.spreads["test"].keys() == {"teacher", "direct"}
    table = pa.Table.from_pandas(noisy)
    distill(table, "y", predict=lambda rows: seen.append(rows) or rows["a"].to_numpy(), **SMALL)
    assert seen[-1].column_names == ["a", "b", "c"]
    with pytest.raises(UsageError, match="needs folds"):
        student.predict_interval(frame)


def test_a_student_has_the_numbers_that_its_teacher_reads(caplog):
    frame = frame_of()
    frame["day"], frame["row"] = np.arange(240), np.arange(240) + 7
    frame["code"] = [f"k{i}" for i in range(240)]

    def predict(rows):
        return rows["a"] + rows["day"] / 60 + rows["code"].str[1:].astype(float)

    student, _ = distill(frame, "y", predict=predict, **SMALL)
    assert student.columns == ["a", "b", "c", "day"]
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "warning: distill: column 'code', of texts that hardly repeat, is left out, but the "
        "teacher's predictions change with it"
    ]
    student, _ = distill(frame, "y", predict=predict, data={"drop": ["day", "code"]}, **SMALL)
    assert student.columns == ["a", "b", "c", "row"]


def test_a_model_of_spread_teaches_spread():
    frame = frame_of(300)
    noisy = frame.assign(y=frame["y"] + np.random.default_rng(1).normal(0, 0.5, 300))
    quick = {"epochs": 60, "batch_size": 16, "folds": None}
    teacher, _ = fit(noisy, "y", loss="gaussian_nll", optimizer={"lr": 0.01}, training=quick)
    student, _ = distill(
        noisy, "y", predict=teacher, loss="gaussian_nll", made=1_000, training=quick
    )
    stds = (model.predict_columns(frame)["y_std"].mean() for model in (teacher, student))
    assert next(stds) == pytest.approx(next(stds), rel=0.25)
    with pytest.raises(UsageError, match="needs a teacher that was trained with it"):
        distill(noisy, "y", predict=by_formula, loss="gaussian_nll", **SMALL)


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (lambda rows: [*[0.0] * 4, np.nan, *[0.0] * 187], r"finite numbers \(row 5 has nan\)"),
        (lambda rows: np.zeros(3), r"shape \(192, 1\): a number for each row"),
        (lambda rows: ["x"] * len(rows), "a number for each row"),
        (7, "predict must be a model, a run or a function"),
    ],
)
def test_wrong_predictions_are_refused(predict, message):
    with pytest.raises(UsageError, match=message):
        distill(frame_of(), "y", predict=predict, **SMALL)


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (lambda rows: np.full((275, 3), 0.5), r"sum of 1 \(row 1 has 0.5, 0.5, 0.5\)"),
        (lambda rows: np.zeros(275), r"write predict=model.predict_proba"),
    ],
)
def test_wrong_probabilities_are_refused(predict, message):
    with pytest.raises(UsageError, match=message):
        distill("penguins", predict=predict, **SMALL)


def test_a_teacher_of_another_target_is_refused():
    teacher, _ = fit("diabetes", training={"epochs": 1, "folds": None})
    with pytest.raises(UsageError, match="must predict the same target"):
        distill("penguins", "species", predict=teacher, **SMALL)


def test_a_student_learns_by_full_batches():
    options = {"model": {"hidden": [6], "activation": "tanh"}, "data": {"encoding": "none"}}
    training = {"epochs": 40, "dtype": "float64"}
    frame = frame_of()
    student, _ = distill(
        frame,
        "y",
        predict=by_formula,
        optimizer="levenberg_marquardt",
        training=training,
        made=0,
        **options,
    )
    error = student.predict(frame) - frame["y"]
    assert np.sqrt(np.mean(error**2)) < 0.03 * frame["y"].std()
