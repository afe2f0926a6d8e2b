"""Thresholds of two classes: their choice, and every place that decides by them."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, confusion_matrix, roc_curve

import mlpengine
from mlpengine.config.baselines import ScoredRows, score_of
from mlpengine.core.errors import CheckpointError, ConfigError, UsageError
from mlpengine.estimators import MlpClassifier
from mlpengine.export import FORMATS, export
from mlpengine.models.card import facts_of
from mlpengine.models.task import BinaryClassification, Classification, Split, Threshold
from mlpengine.models.threshold import choose_threshold
from mlpengine.report.predictions import predictions_of
from mlpengine.settings.training import ThresholdChoice
from mlpengine_cli.predict import Sure, output_columns

COSTS = {"false_negative": 5, "false_positive": 1}


@pytest.fixture(scope="module")
def frame():
    g = np.random.default_rng(0)
    frame = pd.DataFrame(g.normal(size=(240, 2)), columns=["a", "b"])
    frame["left"] = np.where(frame.a + g.logistic(size=240) > 1, "yes", "no")
    return frame


def fitted(frame, threshold, loss="softmax_cross_entropy", **training):
    training = {"epochs": 4, "folds": 3, "members": [], "threshold": threshold, **training}
    data = {"classes": ["no", "yes"]}
    return mlpengine.fit(frame, "left", data=data, loss=loss, training=training, seed=1)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("costs", [(5, 1), (1, 3), None])
def test_calibrated_probabilities_give_the_threshold_of_decision_theory(costs, positive):
    """fp / (fp + fn) for costs (Elkan 2001); the share of the class for balanced accuracy."""
    rng = np.random.default_rng(1)
    logits = rng.normal(-1, 1.5, 40_000)
    chance = 1 / (1 + np.exp(-logits))
    truth = (rng.random(40_000) < chance).astype(int)
    part = Split(np.empty((40_000, 0)), truth[:, None] * 1.0, truth)
    label = ["no", "yes"][positive]
    choice = ThresholdChoice("balanced_accuracy", positive=label)
    expected = truth.mean() if positive else 1 - truth.mean()
    if costs:
        choice = ThresholdChoice(costs=dict(zip(COSTS, costs, strict=True)), positive=label)
        expected = costs[1] / sum(costs)
    task = BinaryClassification(1, ["no", "yes"])
    chosen = choose_threshold(choice, task, logits[:, None], part)
    assert chosen.positive == positive
    assert chosen.value == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "ordinal"])
def test_a_model_decides_by_its_threshold_everywhere(loss, frame, tmp_path):
    model, result = fitted(frame, {"costs": COSTS}, loss)
    limit = model.threshold.value
    predicted, chance = model.predict(frame), model.predict_proba(frame)[:, 1]
    assert limit < 0.4
    assert (predicted == np.where(chance > limit, "yes", "no")).all()
    (_, wrong), (missed, _) = confusion_matrix(frame.left, predicted)
    assert model.evaluate(frame)["cost"] == pytest.approx((5 * missed + wrong) / len(frame))
    cost, accuracy = (result.metrics["out_of_fold"][name] for name in ("cost", "accuracy"))
    assert cost < 0.8
    variance = 6 * cost - 5 * (1 - accuracy) - cost**2  # of costs 5 and 1
    error = result.spreads["out_of_fold"]["+-"]["cost"]
    assert error == pytest.approx((variance / 191) ** 0.5)
    truth = (frame.left == "yes").to_numpy().astype(int)
    rows, output = Split(frame, truth, truth), model.outputs(frame)
    scored = ScoredRows("test", rows, output, truth, np.arange(240), 240, model.task)
    curves = predictions_of(model, model.task, scored)["curves"]
    fall, rise, limits = roc_curve(truth, chance, drop_intermediate=False)
    np.testing.assert_allclose([curves["false_positive_rate"], curves["recall"]], [fall, rise])
    assert curves["decisions"][0]["recall"] == rise[limits > limit][-1]
    model.save(tmp_path / "m")
    assert (again := mlpengine.load(tmp_path / "m")).threshold == model.threshold
    assert (again.predict(frame) == predicted).all()
    student, _ = mlpengine.distill(frame, "left", predict=model, made=0, training={"epochs": 2})
    assert student.threshold == model.threshold
    page = re.sub("<[^>]*>", "", result._repr_html_())
    assert f"at the threshold {limit:.3g} for yes" in page
    half, ours = (model.evaluate(frame, threshold=value) for value in (0.5, limit))
    both = model.with_threshold(0.5).compare(model, frame)
    assert both.metrics["cost"][0][0] == half["cost"] == curves["decisions"][1]["cost"]
    assert curves["decisions"][0]["accuracy"] == ours["accuracy"]
    plain = replace(model, threshold=None)
    assert model.compare(plain, frame).lead[:3] == ("cost", "data", 0)
    assert plain.compare(model, frame).lead[:3] == both.lead[:3] == ("cost", "data", 1)
    scores = score_of(result.trained.data, scored, 0.0, model.threshold)["predictions"]["model"]
    assert scores["accuracy"]["value"] == pytest.approx(ours["accuracy"])
    other = model.with_threshold(0.9)
    assert (other.predict(frame) == np.where(chance > 0.9, "yes", "no")).all()
    text = export(model, tmp_path / "m.c") and (tmp_path / "m.c").read_text()
    assert f"THRESHOLD {limit}" in text
    assert re.search(r"POSITIVE 1\b", text)
    page = FORMATS["html"](model)[0].decode()
    assert f"The prediction is yes if its probability is above {limit:.3g}." in page
    with pytest.raises(UsageError, match="at most 1"):
        model.with_threshold(1.5)
    state = model.to_dict() | {"threshold": {"value": 2.0}}
    with pytest.raises(CheckpointError, match="threshold"):
        type(model).restored(state, model.state_dict(), tmp_path)


def test_average_precision_is_of_the_positive_class():
    rng = np.random.default_rng(0)
    logits, truth = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    task = Classification(2, ["no", "yes"], Threshold(0.5, 0))
    expected = average_precision_score(truth == 0, task.probabilities(logits)[:, 0])
    part = Split(np.zeros((60, 1)), truth, truth)
    assert task.metric("average_precision", logits, part) == pytest.approx(expected)


def test_validation_rows_choose_without_folds_and_estimators_know_their_labels(frame):
    model, _ = fitted(frame, {"metric": "macro_f1"}, folds=None)
    assert model.threshold.costs is None
    given = {"validation": frame[frame.left == "no"], "training": {"threshold": {"costs": COSTS}}}
    with pytest.raises(ConfigError, match="both classes"):
        mlpengine.fit(frame, "left", **given)
    settings = {"training.threshold": {"costs": COSTS, "positive": "FALSE"}}
    estimator = MlpClassifier(epochs=3, folds=3, members="plain", settings=settings, random_state=0)
    x = frame[["a", "b"]].to_numpy()
    estimator.fit(x, frame.left == "yes")
    no = estimator.predict_proba(x)[:, 0] > estimator.threshold_
    assert (estimator.predict(x) != no).all()
    assert "threshold_" not in vars(estimator.set_params(settings=None).fit(x, frame.left))
    wrong = {"training.threshold": {"costs": COSTS, "positive": "maybe"}}
    with pytest.raises(UsageError, match="'no', 'yes'"):
        estimator.set_params(settings=wrong).fit(x, frame.left)


def test_booleans_have_one_spelling(frame):
    rows, asked = frame.assign(left=frame.left == "yes"), {"costs": COSTS, "positive": "FALSE"}
    given = {"data": {"classes": ["TRUE", "False"]}, "training": {"epochs": 1, "threshold": asked}}
    model, _ = mlpengine.fit(rows, "left", **given)
    assert (model.classes, model.threshold.positive) == ([True, False], 1)
    columns, _ = output_columns(model, model.outputs(rows), Sure())
    names = [*FORMATS["js"](model)[1].outputs]
    assert names == facts_of(model)["classes"] == model.explain(rows).outputs == ["true", "false"]
    assert {*columns} - {"left"} == {f"probability_{name}" for name in names}
    assert {f"recall of {name}" for name in names} < {*model.evaluate(rows)}


@pytest.mark.parametrize(
    ("threshold", "training", "words"),
    [
        ({"metric": "roc_auc"}, {}, "one of accuracy"),
        ({"metric": "macro_f1", "costs": COSTS}, {}, "metric or costs"),
        ({"metric": "macro_f1", "positive": "maybe"}, {}, "'no' or 'yes'"),
        ({"costs": {"miss": 1}}, {}, "false_negative"),
        ({"costs": dict.fromkeys(COSTS, 0)}, {}, "above 0"),
        ({"costs": COSTS}, {"folds": None, "early_stopping": False}, "validation rows"),
    ],
)
def test_what_gives_no_threshold_is_refused(frame, threshold, training, words):
    split = {"data": {"split": {"validation": 0.0}}} if training else {}
    training = {"epochs": 1, "threshold": threshold, **training}
    with pytest.raises((ConfigError, UsageError), match=words):
        mlpengine.fit(frame, "left", training=training, **split)
    with pytest.raises(ConfigError, match="two classes"):
        mlpengine.fit("penguins", training={"threshold": {"metric": "accuracy"}})
