"""Losses that predict something else than a mean, from training to prediction and export."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import r2_score

from mlpengine.core.errors import UsageError
from mlpengine.data.tables import Column, Table
from mlpengine.models.calibration import Residuals
from mlpengine.ops import MeanSquaredError
from mlpengine.training.loading import load

RNG = np.random.default_rng(0)
ROWS = 900
X = RNG.uniform(-2, 2, (ROWS, 2))
MEAN = np.exp(4 + X[:, 0])
NOISE = RNG.normal(size=ROWS)
TARGETS = {
    "count": RNG.poisson(MEAN),
    "size": RNG.gamma(20, MEAN / 20),
    "level": 100 + 20 * X[:, 0] + 5 * np.exp(X[:, 1] / 2) * NOISE,
}
CONFIG = """\
data: {{source: rows.csv, target: {target}, drop: {drop}}}
model: {{hidden: [16, 16], activation: tanh}}
loss: {loss}
optimizer: {{lr: 1e-2}}
training: {{epochs: 40, batch_size: 32, backend: {backend}}}
report: false
"""


@pytest.fixture
def folder(tmp_path):
    table = np.column_stack([X, *TARGETS.values()])
    header = ",".join(["a", "b", *TARGETS])
    np.savetxt(tmp_path / "rows.csv", table, "%.9g", ",", header=header, comments="")
    return tmp_path


def write(folder, loss, target, backend="numpy"):
    drop = json.dumps([name for name in TARGETS if name != target])
    config = CONFIG.format(loss=loss, target=target, drop=drop, backend=backend)
    (folder / "c.yaml").write_text(config)


def predictions(text):
    header, *lines = text.splitlines()
    return header.split(",")[1:], np.array([[float(x) for x in r.split(",")[1:]] for r in lines])


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        *((text, "have a lower bound") for text in ("y - t", "-(y - t) ** 2", "-exp(y) * t")),
        ("(y - log1p(t - 9)) ** 2", "be finite"),
        *((text, None) for text in ("exp(-y * t)", "(log1p(exp(y)) - t) ** 2")),
    ],
)
def test_a_formula_needs_finite_values_and_a_lower_bound(text, needs, folder, mlpengine, caplog):
    write(folder, json.dumps({"formula": text}), "size")
    ran = mlpengine("train", "c.yaml", "-q", "--set", "training.epochs=1")
    assert ran.code == (2 if needs else 0)
    assert (f"c.yaml:3: loss: formula: the loss must {needs}" in ran.err) == bool(needs)
    assert ("data.standardize_target" in ran.err) == bool(needs)
    assert ("lowest at" in caplog.text) == (not needs)
    MeanSquaredError().check_bounded(np.array([[6e12], [np.nan]]))


@pytest.mark.parametrize(("loss", "learned"), [("poisson", "none"), ("mse", "log")])
def test_intervals_of_positive_targets_are_not_negative(loss, learned, folder, mlpengine):
    write(folder, loss, "size" if learned == "log" else "count")
    settings = ["--set", "training.epochs=2", "--set", "training.folds=3"]
    settings += ["--set", f"data.transform_target={learned}"]
    assert mlpengine("train", "c.yaml", "--out", "run", "-q", *settings).code == 0
    header, values = predictions(mlpengine("predict", "run", "rows.csv", "--interval", 0.98).out)
    assert [name.partition("_")[2] for name in header] == ["", "low", "high"]
    predicted, low, high = values.T
    assert (low <= predicted).all()
    assert (predicted <= high).all()
    errors = np.linspace(-1e3, 1e3, 99)[:, None]  # which would lead below 0
    wide = replace(load("run"), residuals=Residuals.of(errors, np.zeros((99, 1))))
    low, high = wide.predict_interval("rows.csv", 0.9)
    assert low.min() == 0
    assert high.min() > 0


def test_an_exposure_is_a_target_divided_and_weighted(folder, mlpengine):
    write(folder, "poisson", "count")
    lines = (folder / "c.yaml").read_text()
    (folder / "c.yaml").write_text(lines.replace("target: count", "target: count, exposure: b"))
    table = np.genfromtxt(folder / "rows.csv", delimiter=",", names=True)
    names, table = table.dtype.names, np.array(table.tolist()) + np.array([0, 2.001, 0, 0, 0])
    np.savetxt(folder / "rows.csv", table, "%.9g", ",", header=",".join(names), comments="")
    assert mlpengine("train", "c.yaml", "--set", "training.epochs=2", "-q").code == 0
    assert predictions(mlpengine("predict", "runs/c", "rows.csv").out)[0] == ["count_per_b"]
    model, rows = load("runs/c"), {n: table[:, k] for k, n in enumerate(names)}
    prepared = model.preprocessor.transform(Table({n: Column(v) for n, v in rows.items()}))
    rates = rows["count"] / rows["b"] / model.preprocessor.target.scale
    np.testing.assert_allclose(prepared.target[:, 0], rates, rtol=1e-6)
    np.testing.assert_allclose(prepared.weights, rows["b"], rtol=1e-6)
    few = ["training.epochs=2", "data.exposure=null", "loss=mse"]
    for name, more in (("w", "data.weight=b"), ("n", "data.drop=[size, level, b]")):
        mlpengine("train", "c.yaml", "--out", name, "-q", settings=[*few, more])
    pairs = [json.loads(mlpengine("compare", *pair, "--json").out) for pair in ("wn", "nw")]
    assert {(one["weights"], one["difference"]) for one in pairs} == {("w", pairs[0]["difference"])}
    assert "'count_per_b'" in mlpengine("compare", "w", "runs/c").out.splitlines()[-1]
    guesses = [load(name).predict(rows) for name in "wn"]
    scores = [r2_score(rows["count"], guess, sample_weight=rows["b"]) for guess in guesses]
    leads = [load(a).compare(load(b), rows).lead.value for a, b in ("wn", "nw")]
    np.testing.assert_allclose(leads, abs(np.subtract(*scores)), rtol=1e-5)
    with pytest.raises(UsageError, match="count_per_b"):
        model.compare(load("w"), rows)
    for loss, refused in (("mse", True), ("gamma", False)):  # a weight of exposure ** 0
        assert ("c.yaml:1" in mlpengine("check", "c.yaml", "--set", f"loss={loss}").err) == refused
    table[0, 1] = 0
    np.savetxt(folder / "rows.csv", table, "%.9g", ",", header=",".join(names), comments="")
    done = mlpengine("train", "c.yaml", "-q")
    assert (done.code, "line 2, column 'b'" in done.err) == (2, True)


@pytest.fixture
def censored(folder):
    """A table of times with a third of them censored; return the config with `events`."""
    end = RNG.exponential(2 * MEAN)
    table = np.column_stack([X, np.minimum(TARGETS["size"], end), TARGETS["size"] <= end])
    np.savetxt(folder / "rows.csv", table, "%.9g", ",", header="a,b,days,died", comments="")
    return folder


def test_censored_times_from_init_to_every_prediction(censored, mlpengine):
    assert mlpengine("init", "rows.csv", "--target", "days", "--event", "died").code == 0
    few = ["training.epochs=20", "training.folds=2", "training.members=[plain, linear]"]
    assert mlpengine("train", "rows.yaml", "--out", "run", "-q", settings=few).code == 0
    shown = json.loads(mlpengine("evaluate", "run", "--metric", "brier_50", "--json").out)["test"]
    assert 0 < shown["brier_50"] < 0.15 < 0.8 < shown["concordance"]
    given = ["--quantile", "0.1,0.2500001", "--times", "30,60.0000001"]
    header, values = predictions(mlpengine("predict", "run", "rows.csv", *given).out)
    quantiles = ["days", "days_0.1", "days_0.9", "days_0.2500001"]
    assert header == [*quantiles, "survival_30", "survival_60.0000001"]
    median, low, high, quarter, month, two = values.T
    assert ((low < quarter) & (quarter < median) & (median < high) & (two <= month)).all()
    model = load("run")
    np.testing.assert_allclose(model.predict_quantile("rows.csv", 0.2500001), quarter, rtol=1e-8)
    chances = model.predict_survival("rows.csv", [30, 60.0000001])
    np.testing.assert_allclose(chances, np.stack([month, two], 1), rtol=1e-8)
    with pytest.raises(UsageError, match="must be a list"):
        model.predict_survival("rows.csv", 30)
    for wrong in (["--interval", "0.9"], ["--set", "0.9"], ["--times", "-3"], ["--times", "1,1"]):
        refused = mlpengine("predict", "run", "rows.csv", *wrong)
        assert (refused.code, wrong[0] in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("column", "value"), [("days", "0"), ("days", "-4"), ("died", "2"), ("died", "")]
)
def test_a_wrong_time_or_event_is_named(column, value, censored, mlpengine):
    lines = (censored / "rows.csv").read_text().splitlines()
    cells = lines[5].split(",")
    cells[2 + (column == "died")] = value
    lines[5] = ",".join(cells)
    (censored / "rows.csv").write_text("\n".join(lines) + "\n")
    (censored / "c.yaml").write_text("data: {source: rows.csv, target: days, event: died}")
    answer = mlpengine("train", "c.yaml", "-q")
    assert (answer.code, f"line 6, column '{column}'" in answer.err) == (2, True)


def test_times_between_bounds_are_learned(censored, mlpengine):
    size = TARGETS["size"]
    low = np.floor(size / 20) * 20
    cells = [(*x, a, a + 20 if b else "") for x, a, b in zip(X, low, size < 90, strict=True)]
    lines = ["a,b,low,high", *(",".join(map(str, row)) for row in cells)]
    (censored / "rows.csv").write_text("\n".join(lines))
    (censored / "wrong.csv").write_text("\n".join([*lines[:3], "1,1,40,20"]))
    data = "data: {source: rows.csv, target: [low, high], task: survival}\n"
    (censored / "c.yaml").write_text(data + "training: {epochs: 40}\noptimizer: {lr: 1e-2}\n")
    assert mlpengine("train", "c.yaml", "--out", "run", "-q").code == 0
    shown = json.loads(mlpengine("evaluate", "run", "rows.csv", "--json").out)["data"]
    assert shown.keys() == {"loss", "concordance", "nll"}
    assert shown["concordance"] > 0.8
    header, values = predictions(mlpengine("predict", "run", "rows.csv", "--quantile", "0.25").out)
    assert header == ["time", "time_0.1", "time_0.9", "time_0.25"]
    assert np.corrcoef(np.log(values[:, 0]), np.log(size))[0, 1] > 0.9
    assert (np.diff(values[:, [1, 3, 0, 2]]) > 0).all()
    assert "line 4, column 'high'" in mlpengine("evaluate", "run", "wrong.csv").err


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ("task: survival", "task"),
        ("event: died, task: regression", "event"),
        ("event: died, bound_predictions: true", "bound_predictions"),
        ("event: days", "target"),
        ("event: gone", "event"),
        ("event: died, features: {leak: died * 2}", "leak"),
    ],
)
def test_settings_of_censored_times_are_checked(data, key, censored, mlpengine):
    (censored / "c.yaml").write_text(f"data:\n {{source: rows.csv, target: days, {data}}}")
    answer = mlpengine("check", "c.yaml")
    assert (answer.code, f"{key}: " in answer.err) == (2, True)


def test_quantiles_are_of_the_loss_or_of_errors(folder, mlpengine):
    write(folder, "gaussian_nll", "level")
    assert mlpengine("train", "c.yaml", "--out", "run", "-q").code == 0
    _, values = predictions(mlpengine("predict", "run", "rows.csv", "--quantile", "0.2").out)
    mean, deviation, low = values.T
    np.testing.assert_allclose(low, norm.ppf(0.2, mean, deviation), rtol=1e-6)
    write(folder, "{name: quantile, levels: [0.1, 0.4, 0.9000001]}", "level")
    assert mlpengine("train", "c.yaml", "--out", "lines", "-q").code == 0
    tables = json.loads(mlpengine("compare", "lines", "lines", "--json").out)["metrics"]
    known = json.loads(mlpengine("evaluate", "lines", "--json").out)["test"]["pinball"]
    assert tables["test pinball"] == pytest.approx([known, known], rel=1e-5)
    given = ["--quantile", "0.2,0.9000001"]
    header, values = predictions(mlpengine("predict", "lines", "rows.csv", *given).out)
    assert header == ["level_0.1", "level_0.4", "level_0.9000001", "level_0.2"]
    low, high, own = norm.ppf([0.1, 0.4, 0.2])
    expected = values[:, 0] + (values[:, 1] - values[:, 0]) * (own - low) / (high - low)
    np.testing.assert_allclose(values[:, 3], expected, rtol=1e-6)
    assert "quantiles" in json.loads(mlpengine("compare", "lines", "run", "--json").out)["reason"]
    write(folder, "mse", "level")
    few = ["--set", "training.epochs=2", "--set", "training.folds=3"]
    assert mlpengine("train", "c.yaml", "--out", "folds", "-q", *few).code == 0
    predicted = load("folds").predict_quantile("rows.csv", 0.3)
    assert (predicted > TARGETS["level"]).mean() == pytest.approx(0.3, abs=0.05)
    for run, level in (("lines", "0.05"), ("run", "1"), ("folds", "x")):
        refused = mlpengine("predict", run, "rows.csv", "--quantile", level)
        assert (refused.code, "--quantile" in refused.err) == (2, True)


def test_commands_measure_a_part_without_one_of_its_targets(folder, mlpengine):
    table = np.column_stack([X, X.sum(1), X[:, 0] - X[:, 1]])
    for name, gaps in (("rows", slice(None, None, 3)), ("test", slice(None))):
        table[gaps, 2] = np.nan
        np.savetxt(folder / f"{name}.csv", table, "%.9g", ",", header="a,b,sum,off", comments="")
    text = "data: {source: rows.csv, test_source: test.csv, target: [sum, off]}\nloss: log_cosh\n"
    (folder / "c.yaml").write_text(text + "training: {epochs: 2}")
    done = mlpengine("train", "c.yaml", "--out", "run")
    assert (done.code, "nan" in done.err.lower()) == (0, False)
    shown = json.loads(mlpengine("evaluate", "run", "--json").out)["test"]
    off = load("run").predict("test.csv")[:, 1] - table[:, 3]
    assert shown["mae of sum"] is None
    assert shown["mae"] == shown["mae of off"] == pytest.approx(np.abs(off).mean(), rel=1e-5)
    diagnosed = mlpengine("diagnose", "run")
    assert (diagnosed.code, "known_targets" in done.out + diagnosed.out) == (0, False)
    reported = json.loads(mlpengine("report", "run", "--json").out)
    assert [one["name"] for one in reported["predictions"]["targets"]] == ["off"]
    refused = mlpengine("train", "c.yaml", "--set", "optimizer=levenberg_marquardt")
    assert (refused.code, "(got log_cosh of" in refused.err) == (2, True)
