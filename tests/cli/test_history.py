"""Lags and windows from training to prediction: later rows change no earlier prediction."""

import json

import numpy as np
import pytest

from mlpengine import fit
from mlpengine.core.errors import DataError, UsageError
from mlpengine.models.model import Model
from mlpengine_cli.predict import Sure
from mlpengine_cli.service import Answers

CONFIG = """\
data:
  source: past.csv
  target: sold
  lags: {sold: [1, 2], price: 1}
  rolling: {sold: {mean: [3], std: 5}}
  split: {time: day}
  drop: [shop]
  series: shop
model: {hidden: [8]}
optimizer: {name: adam, lr: 1e-2}
training: {epochs: 10, batch_size: 16}
report: false
"""
DAYS, NOW = 150, 130  # the rows from NOW on are test rows
COLUMNS = ["day", "shop", "price", "sold"]


def table(noise: float) -> dict[str, list]:
    """Return two series; with noise, targets change from NOW on, and prices after it."""
    g = np.random.default_rng(0)
    price, sold = g.normal(size=(DAYS, 2)), g.normal(size=(DAYS, 2))
    for day in range(2, DAYS):
        sold[day] = 0.6 * sold[day - 1] - 0.3 * sold[day - 2] + price[day - 1] + 0.1 * sold[day]
    later = np.random.default_rng(1).normal(size=(2, DAYS, 2)) * noise
    sold[NOW:] += later[0, NOW:]
    price[NOW + 1 :] += later[1, NOW + 1 :]
    days, shops = np.repeat(np.arange(DAYS), 2).tolist(), ["a", "b"] * DAYS
    columns = (days, shops, price.ravel().round(6).tolist(), sold.ravel().round(6).tolist())
    return dict(zip(COLUMNS, columns, strict=True))


def csv(columns: dict[str, list], rows: slice = slice(None)) -> str:
    cells = zip(*(column[rows] for column in columns.values()), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in cells)]) + "\n"


def served(model: Model, columns: dict[str, list]) -> list[float]:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    answer = Answers(model).answer(json.dumps(rows).encode(), Sure(), at_once=True)
    return [row["sold"] for row in json.loads(answer)["predictions"]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "past.csv").write_text(csv(table(0)))
    (tmp_path / "noisy.csv").write_text(csv(table(5)))
    return tmp_path


def test_later_rows_change_no_earlier_prediction(folder, mlpengine):
    for name in ("past", "noisy"):
        trained = mlpengine("train", "c.yaml", "--out", name, settings=[f"data.source={name}.csv"])
        assert trained.code == 0, trained.err
        assert "4 rows of 300 left out: their lags reach" in trained.err
    runs = [Model.load(folder / name / "model.safetensors") for name in ("past", "noisy")]
    for name, weights in runs[0].state_dict().items():
        np.testing.assert_array_equal(weights, runs[1].state_dict()[name])
    model, now = runs[0], 2 * NOW + 2  # the first row after the row of NOW
    tables = table(0), table(5)
    sections = {"model": {"hidden": [4]}, "training": {"folds": None, "epochs": 2}}
    data = {"lags": {"sold": 1}, "drop": ["price"], "series": "shop", "split": {"time": "day"}}
    fitted = [fit(one, "sold", data=data, **sections)[0].predict(one) for one in tables]
    lines = [mlpengine("predict", "past", f"{name}.csv").out for name in ("past", "noisy")]
    ways = {
        "fit": fitted,
        "predict": [model.predict(one) for one in tables],
        "mlpengine predict": [[float(t.split(",")[1]) for t in out.split()[1:]] for out in lines],
        "serve": [served(model, one) for one in tables],
    }
    for way, (plain, noisy) in ways.items():
        np.testing.assert_allclose(plain[:now], noisy[:now], rtol=1e-6, err_msg=way)
        assert not np.allclose(plain[now:], noisy[now:], rtol=1e-3), way
        if way != "fit":
            np.testing.assert_allclose(plain, ways["predict"][0], rtol=1e-5, err_msg=way)


def test_forecasts_follow_a_series_beyond_its_training_rows():
    rows = {"t": np.arange(200), "y": np.exp(np.arange(200) / 50)}
    data = {"lags": {"y": [1, 2]}, "split": {"time": "t", "test": 0.0}}
    past = {name: column[:150] for name, column in rows.items()}
    model, _ = fit(past, "y", data=data, training={"epochs": 4})
    np.testing.assert_allclose(model.predict(rows)[150:], rows["y"][150:], rtol=0.02)
    one = {"training": {"epochs": 1, "folds": None}}
    model, _ = fit(rows, "y", data=data | {"split": {"time": "t"}}, loss="gaussian_nll", **one)
    again, result = fit(rows, "y", warm_start=model, **one)  # with the model's lags, time and loss
    assert (again.columns, again.loss, len(result.metrics)) == (model.columns, model.loss, 3)


def test_the_rows_before_may_be_in_another_file(folder, mlpengine):
    mlpengine("train", "c.yaml", "--out", "run")
    model, every = Model.load(folder / "run" / "model.safetensors"), table(0)
    last = {name: column[-2:] for name, column in every.items()}
    before = {name: column[:-2] for name, column in every.items()}
    (folder / "old.csv").write_text(csv(before))
    (folder / "new.csv").write_text(csv({**last, "sold": ["", ""]}))
    expected = model.predict(every)[-2:]
    lone = mlpengine("predict", "run", "new.csv")
    assert "'sold_lag_1': 2 of 2 values missing" in lone.err
    assert "in the same table or request, by --history" in lone.err
    both = mlpengine("predict", "run", "new.csv", "--history", "old.csv")
    assert not both.err
    given = [float(line.split(",")[1]) for line in both.out.split()[1:]]
    np.testing.assert_allclose(given, expected, rtol=1e-6)
    following = {name: last[name] for name in ("shop", "price")}
    np.testing.assert_allclose(model.predict_next(before, following), expected, rtol=1e-6)
    with pytest.raises(DataError, match=r"row 2, column 'day': must be later"):
        model.predict_next(before, following | {"day": [DAYS - 1, DAYS - 2]})
    with pytest.raises(DataError, match="history must have rows"):
        model.predict_next([], following)
    known = model.table({**last, "sold": [None, None]}, before)
    np.testing.assert_allclose(model.predict(known), expected, rtol=1e-6)
    (folder / "last.csv").write_text(csv(last))
    found = {}
    for command in ("evaluate", "explain", "check"):
        found[command] = mlpengine(command, "run", "last.csv", "--history", "old.csv", "--json")
        assert not found[command].err
        assert mlpengine(command, "run", "--history", "old.csv").code == 2
    errors = model.evaluate(model.table(last, before))
    assert json.loads(found["evaluate"].out)["data"] == pytest.approx(errors)
    columns = json.loads(found["check"].out)["columns"]
    assert columns["sold_lag_1"]["missing"] == 0
    row = {name: float(known[name].values[0]) for name in model.preprocessor.columns}
    np.testing.assert_allclose(model.predict(row), expected[:1], rtol=1e-5)  # has its lags


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["data.split.time=null"], "data.lags: needs data.split.time"),
        (["data.split.time=sold"], "data.split.time: must be another column than the target"),
        (["data.lags={'sold': 900}"], "'sold_lag_900' is missing in every row"),
        (["data.lags={'sold': []}"], "data.lags.sold"),
        (["data.rolling={'sold': {}}"], "data.rolling.sold"),
        (["data.lags={'sould': 1}"], "'sould'"),
        (["data.rolling={'sold': {'median': 3}}"], "data.rolling.sold"),
        (["data.lags={}", "data.rolling={}"], "data.series: needs data.lags"),
        (["data.series=null"], "line 3, column 'day'"),
        (["data.features={'sold_lag_1': 'price'}"], "'sold_lag_1'"),
    ],
)
def test_settings_that_give_no_order_are_refused(folder, mlpengine, settings, told):
    refused = mlpengine("check", "c.yaml", settings=settings)
    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err


def test_other_models_have_no_history(folder, mlpengine):
    plain = ["data.lags={}", "data.rolling={}", "data.series=null"]
    mlpengine("train", "c.yaml", "--out", "run", settings=plain)
    refused = mlpengine("predict", "run", "past.csv", "--history", "past.csv")
    assert (refused.code, refused.err.startswith("error: --history: ")) == (2, True)
    with pytest.raises(UsageError, match=r"^predict_next: "):
        Model.load(folder / "run" / "model.safetensors").predict_next(table(0))
