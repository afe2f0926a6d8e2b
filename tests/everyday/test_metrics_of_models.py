"""Metrics as a model shows them: by class, by target, one's own; early stopping watches any."""

from math import inf

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as reference

import mlpengine
from mlpengine.models import metrics

FEW = {"training": {"epochs": 3, "batch_size": 16}, "model": {"hidden": [6]}, "seed": 1}


@pytest.fixture(scope="module")
def frame():
    g = np.random.default_rng(0)
    frame = pd.DataFrame(g.normal(size=(120, 3)), columns=["a", "b", "c"])
    frame["kind"] = np.where(frame.a + frame.b > 0, "yes", "no")
    frame["price"] = 100 + 10 * frame.a
    frame["mass"] = 5 - frame.b
    return frame


@pytest.fixture
def own():
    """Metrics of one's own, which are forgotten afterwards."""
    before = dict(metrics.OWN_METRICS)

    @mlpengine.metric(of="probabilities", higher_is_better=True)
    def gain(target, chance, weight=None):
        return float(chance[np.arange(len(target)), target].mean())

    @mlpengine.metric(of="numbers")
    def largest_gap(target, predicted, weight=None):
        return float(np.abs(target - predicted).max())

    yield
    metrics.OWN_METRICS.clear()
    metrics.OWN_METRICS.update(before)


def test_errors_of_several_targets_are_shown_one_by_one(frame):
    features = frame[["a", "b", "c", "price", "mass"]]
    model, _ = mlpengine.fit(features, ["price", "mass"], **FEW)
    measured, predicted = model.evaluate(features), model.predict(features)
    for k, name in enumerate(("price", "mass")):
        for short, full in (("mae", "mean_absolute_error"), ("r2", "r2_score")):
            expected = getattr(reference, full)(frame[name], predicted[:, k])
            assert measured[f"{short} of {name}"] == pytest.approx(expected)
    assert 2 * measured["mae"] == pytest.approx(measured["mae of price"] + measured["mae of mass"])


@pytest.mark.parametrize("folds", [None, 2])
def test_two_classes_have_an_area_under_the_curve(folds, frame):
    rows, new = frame[:90][["a", "c", "kind"]], frame[90:][["a", "c", "kind"]]
    model, result = mlpengine.fit(rows, "kind", test=new, training={"epochs": 3, "folds": folds})
    area = reference.roc_auc_score(new.kind == "yes", model.predict_proba(new)[:, 1])
    assert result.metrics["test"]["roc_auc"] == pytest.approx(area)
    assert all("roc_auc" in part for part in result.metrics.values())
    assert "roc_auc" not in result.history.metrics  # after the last epoch alone
    if folds:
        assert result.spreads["out_of_fold"]["+-"]["roc_auc"] > 0


@pytest.mark.parametrize("monitor", ["gain", "recall of no", "brier"])
def test_early_stopping_watches_any_metric_of_classes(monitor, frame, own):
    features = frame[["a", "b", "c", "kind"]]
    stop = {"early_stopping": {"monitor": monitor, "patience": 2}, "epochs": 12, "folds": None}
    model, result = mlpengine.fit(features, "kind", training=stop, seed=2)
    chance = model.predict_proba(features)[np.arange(120), (frame.kind == "yes").astype(int)]
    assert model.evaluate(features)["gain"] == pytest.approx(chance.mean())
    values = [row.validation[monitor] for row in result.history.rows]
    best = np.argmin(values) if monitor == "brier" else np.argmax(values)
    assert result.best_epoch == 1 + best


@pytest.mark.parametrize("several", ["", "folds", "seeds"])
def test_a_monitored_metric_that_turns_inf_is_named_with_its_epoch(several, frame, own, caplog):
    values = iter([2.0, 2.0, 1.0, 1.0] if several else [2.0, 1.0])
    one = metrics.OwnMetric(lambda *_: next(values, inf), "numbers", False)
    metrics.OWN_METRICS["largest_gap"] = one
    stop = {"early_stopping": {"monitor": "largest_gap", "patience": 3}, "members": []}
    networks = {"folds": None} | ({several: 2} if several else {})
    _, result = mlpengine.fit(frame[["a", "price"]], "price", training=stop | networks)
    assert (result.best_epoch, result.epochs, result.metrics["test"]["largest_gap"]) == (2, 5, inf)
    assert [r.args[0] for r in caplog.records if "largest_gap" in r.getMessage()] == [3]
    values = iter([2.0] if several else [])  # one of two networks has inf
    with pytest.raises(mlpengine.NumericalError, match=r"epoch 1: .*largest_gap"):
        mlpengine.fit(frame[["a", "price"]], "price", training=stop | networks)


@pytest.mark.parametrize("loss", ["mse", {"name": "quantile", "levels": [0.5, 0.9]}])
def test_the_pinball_loss_measures_every_regression(loss, frame):
    """As scikit-learn's, of the quantile of its level or else of the prediction."""
    features = frame[["a", "b", "c", "price"]]
    more = ["pinball_0.9", "mape", *["pinball"] * (loss != "mse")]
    stop = {"early_stopping": {"monitor": "pinball_0.25"}, "metrics": more}
    training = {"epochs": 3, "folds": None} | stop
    model, result = mlpengine.fit(features, "price", loss=loss, training=training)
    assert {*more, "pinball_0.25"} < result.metrics["test"].keys()
    assert "R²" in result.report()._repr_html_()
    curve = [row.validation["pinball_0.25"] for row in result.history.rows]
    assert result.best_epoch == 1 + np.argmin(curve)
    high = model.predict_columns(features).get("price_0.9", model.predict(features))
    expected = reference.mean_pinball_loss(frame.price, high, alpha=0.9)
    measured = model.evaluate(features, metrics=["pinball_0.9"])
    assert measured["pinball_0.9"] == pytest.approx(expected, rel=1e-9)
    for wrong in ("pinball_1.5", "pinball_x", "pinbal_0.9"):
        with pytest.raises(mlpengine.UsageError, match="pinball_LEVEL"):
            model.evaluate(features, metrics=[wrong])


def test_a_metric_of_ones_own_that_is_no_number_is_named(frame, own):
    for odd in (None, np.ones(1), 10**400, np.timedelta64("NaT")):
        one = metrics.OwnMetric(lambda *_, v=odd: v, "numbers", False)
        metrics.OWN_METRICS["largest_gap"] = one
        with pytest.raises(mlpengine.UsageError, match=r"metric .*number \(got "):
            mlpengine.fit(frame[["b", "price"]], "price", training={"metrics": ["largest_gap"]})
    with pytest.raises(mlpengine.UsageError, match=r"weights \(got wrong\(a, b\)"):

        @mlpengine.metric()
        def wrong(a, b): ...

    for given, options in (((), {"higher_is_better": "yes"}), ((), {}), ((abs,), {})):
        with pytest.raises(mlpengine.UsageError, match=r"True or False|a name \(got|@metric\(\)"):
            mlpengine.metric(*given, **options)(lambda t, p, w: 0.0)
    one = metrics.OwnMetric(lambda t, *_: t.fill(0), "numbers", False)
    metrics.OWN_METRICS["largest_gap"] = one
    with pytest.raises(mlpengine.UsageError, match=r"metric .*read-only"):  # others read these
        mlpengine.fit(frame[["b", "price"]], "price", training={"metrics": ["largest_gap"]})


def test_wrong_names_of_metrics_are_refused(frame, own):
    features = frame[["a", "b", "c", "price"]]
    for wrong, said in (("largest_gab", "'largest_gap'"), ("cost", "training.threshold.costs")):
        with pytest.raises(mlpengine.ConfigError, match=said):
            mlpengine.fit(features, "price", training={"early_stopping": {"monitor": wrong}})
    for name in ("r2", "loss"):
        with pytest.raises(mlpengine.UsageError, match=name):
            mlpengine.metric()(type("", (), {"__name__": name, "__module__": "x"})())


def test_two_models_are_compared_row_by_row(frame):
    data = frame[["a", "b", "c", "kind"]]
    models = [mlpengine.fit(data, target="kind", **FEW | {"seed": k})[0] for k in (1, 2)]
    compared = models[0].compare(models[1], data, names=("one", "two"))
    right = [(model.predict(data) == data["kind"]).to_numpy() for model in models]
    apart = right[0] * 1.0 - right[1]
    lead = compared.lead
    assert [v for v, _ in compared.metrics["accuracy"]] == pytest.approx([r.mean() for r in right])
    assert (lead.value, lead.ahead) == (pytest.approx(abs(apart.mean())), int(apart.mean() < 0))
    assert lead.error == pytest.approx(apart.std(ddof=1) / np.sqrt(len(apart)), rel=0.4)
    assert compared.as_dict()["ahead"] == ("one", "two")[lead.ahead]
    assert compared._repr_html_().count("±") == 8
    number, _ = mlpengine.fit(frame[["a", "b", "price"]], target="price", **FEW)
    renamed, _ = mlpengine.fit(data.replace("no", "never"), target="kind", **FEW)
    given = FEW | {"loss": {"name": "quantile", "levels": [0.9]}}
    one, two = (
        mlpengine.fit(frame[["a", "price"]], "price", **given | {"seed": k}) for k in (1, 2)
    )
    gaps = [frame["price"] - np.ravel(model.predict(frame)) for model in (one[0], two[0])]
    apart = np.subtract(*(np.maximum(0.9 * gap, -0.1 * gap) for gap in gaps))
    page = one[1].report()._repr_html_()
    assert [text in page for text in ("a linear one", "pinball on ", "are pinball")] == [0, 1, 1]
    lead = one[0].compare(two[0], frame).lead
    assert (lead.metric, lead.value) == ("pinball", pytest.approx(abs(apart.mean())))
    assert lead.error == pytest.approx(apart.std(ddof=1) / len(apart) ** 0.5)
    kinds = models[0].compare
    wrong = (kinds, number, "predict the same"), (kinds, renamed, "classes differ: never, no")
    for compare, other, said in (*wrong, (number.compare, one[0], "same quantiles")):
        with pytest.raises(mlpengine.UsageError, match=said):
            compare(other, data.assign(price=1.0))
    assert number.compare(number, frame.assign(price=0.1)).lead.metric == "mae"  # R2: not defined


def test_a_verdict_says_that_the_model_does_not_have_the_measured_network():
    a, b, noise = np.random.default_rng(0).normal(size=(3, 200))
    table = {"a": a, "b": b, "y": 2 * a + b + 0.1 * noise}
    slow = {"optimizer": {"name": "sgd", "lr": 1e-6}, "model": {"hidden": [4]}}
    for members, told in ((["plain", "linear"], True), (None, False)):
        training = {"epochs": 10, "folds": 3, "members": members}
        _, result = mlpengine.fit(table, target="y", training=training, **slow)
        found = next(one for one in result.verdicts if one.name == "lr_low")
        assert ("ensemble weight is 0" in found.evidence) is told
