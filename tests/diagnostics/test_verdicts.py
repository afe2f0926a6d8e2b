"""Verdicts: a short form of the corpus, what they say, and the table."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import corpus
import numpy as np
import pytest
from corpus_setups import healthy
from threadpoolctl import threadpool_limits

from mlpengine import Adam, AdamW, MeanSquaredError, Mlp, SoftmaxCrossEntropy
from mlpengine.config.load import check_config
from mlpengine.config.reader import Document
from mlpengine.diagnostics import (
    Diagnostics,
    Verdict,
    baseline_loss,
    loss_of_zeros,
    table,
    verdicts,
)
from mlpengine.diagnostics.baselines import Baselines, BaselineScore
from mlpengine.diagnostics.constant_loss import (
    ExtremeValue,
    extreme_feature,
    extreme_target,
    feature_sizes,
    lowest_loss,
)
from mlpengine.diagnostics.layer_table import noise_sentence
from mlpengine.diagnostics.rules import LAST_RESORT
from mlpengine.diagnostics.verdict import percent, two_digits
from mlpengine.ops import BinaryCrossEntropyWithLogits
from mlpengine.ops.losses import MeanAbsoluteError
from mlpengine.settings import Fix, NetworkSettings
from mlpengine.settings.fix import by_key
from mlpengine.settings.run import VERDICTS

FIRST = [setup for setup in corpus.SETUPS if setup.half == corpus.FIRST]
SLOW = ("full batch, sgd", "100 epochs", "200 epochs", "dropout, adamw, cosine", "eps 1")
SETUPS = [
    *(s for s in FIRST if s.reasons and s.name not in SLOW),
    *[s for s in FIRST if not s.reasons and s.name not in SLOW][::3],
]
"""A sample of the first half, which takes seconds."""


def check_text(verdict):
    """Check that one line names the number, what it should be and the way out."""
    text = str(verdict)
    assert len(text) < 160, text
    assert " - " in text
    assert verdict.advice
    assert "should" in text
    assert "... - " not in text
    assert any(c.isdigit() for c in verdict.finding), text
    assert "..." not in text.split(": ")[0], text
    assert (not verdict.fix) == bool(verdict.no_fix), text
    assert verdict.name in VERDICTS


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_verdicts_speak_when_they_should(setup):
    with threadpool_limits(1):
        outcome = corpus.run(setup)
    assert corpus.is_right(setup, outcome), list(map(str, outcome.verdicts))
    for verdict in outcome.verdicts:
        check_text(verdict)
    fixed = {**setup.settings, **setup.broken, **corpus.settings_of(outcome)}
    document = Document("fixed", data=corpus.sections(setup, 1, fixed))
    document.places[()] = ("fixed", 0)
    check_config(Path("fixed"), document)  # it takes the settings


def test_the_corpus_is_whole():
    parts = ("first", "second", "unseen", "healthy")
    halves = {half: [s for s in corpus.SETUPS if s.half == half] for half in parts}
    sound, unseen = halves.pop("healthy"), halves.pop("unseen")
    assert len(corpus.HEALTHY) == 44
    assert len(corpus.BROKEN) == 62
    assert not any(s.reasons for s in corpus.HEALTHY)
    assert {s.data for s in sound} == corpus.further.TABLES.keys()
    assert len({str(s) for s in sound}) == len(sound) == 30
    assert not any(s.reasons for s in sound)
    new = corpus.held_out.TABLES.keys() | corpus.further.TABLES.keys()
    assert len(corpus.TABLES) == 12 + len(corpus.held_out.TABLES) + len(corpus.further.TABLES)
    kinds = {half: Counter(s.reasons for s in setups) for half, setups in halves.items()}
    assert kinds["first"] == kinds["second"]
    for setups in halves.values():
        assert {s.data for s in setups} == corpus.TABLES.keys() - new
        assert len({str(s) for s in setups}) == len(setups) == 53
    assert {s.data for s in unseen} == corpus.held_out.TABLES.keys()
    assert len({str(s) for s in unseen}) == len(unseen)
    assert sum(not s.reasons for s in unseen) >= 20
    assert sum(bool(s.reasons) for s in unseen) >= 30
    made_up = {"exploding", "spikes", "nothing_learned"}  # are checked below
    assert frozenset().union(*(s.reasons for s in corpus.BROKEN)) | made_up == set(VERDICTS)
    checked = frozenset().union(*(s.reasons for s in SETUPS))  # by check_text, as those below
    assert checked | made_up | {"overfitting", "eps_large", "noise_scale"} == set(VERDICTS)
    made_up = {"spikes", "nothing_learned", "behind_linear"}  # the last is newer than the unseen
    assert frozenset().union(*(s.reasons for s in unseen)) | made_up == set(VERDICTS)


def test_the_judge_can_fail():
    by_name = {str(s): s for s in FIRST}
    broken, sound = by_name["penguins, lr x 100"], by_name["penguins, relu"]
    assert not corpus.judge(replace(broken, reasons=frozenset()))[0]
    assert not corpus.judge(replace(sound, reasons=frozenset({"dead"})))[0]


def test_a_verdict_names_layer_number_threshold_and_way_out():
    verdict = Verdict("dead", 2, "41 % of the units never fired", 0.41, 0.4, "lower lr")
    assert str(verdict) == "layer 2: 41 % of the units never fired - lower lr"
    assert verdict.as_dict()["text"] == str(verdict)
    assert verdict.as_dict()["threshold"] == 0.4


def test_a_verdict_without_a_number_is_plain_json():
    verdict = Verdict("nonfinite", None, "step 3: not finite", float("nan"), float("inf"), "stop")
    assert json.loads(json.dumps(verdict.as_dict(), allow_nan=False))["value"] is None


@pytest.mark.parametrize(
    ("value", "text"), [(0.41, "41 %"), (1.0, "100 %"), (0.997, "99.7 %"), (0.0, "0 %")]
)
def test_percent(value, text):
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.00035, "0.00035"), (430.0, "430"), (58700.0, "59,000"), (3e-5, "3e-05")]
)
def test_power(value, text):
    assert two_digits(value) == text


def seen_with(**values):
    """Return diagnostics of two relu layers after samples with these net quantities."""
    seen = Diagnostics(Mlp([3, 4, 2]), baseline=1.0)
    for step in range(1, 6):
        for quantity, value in values.items():
            seen.values[seen.columns.index(quantity)] = value
        seen.sampled = step
        seen.series.append(step, seen.values)
    return seen


def names(seen):
    return [verdict.name for verdict in verdicts(seen)]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"input_mean": 0.0, "input_std": 40.0}, "input_scale"),
        ({"input_mean": 0.0, "input_std": 0.001}, "input_scale"),
        ({"depth_slope": -2.5}, "vanishing"),
        ({"depth_slope": 2.5}, "exploding"),
        ({"clipped_share": 1.0, "gradient_norm": 5.0, "clipped_norm": 0.01}, "clip_low"),
    ],
)
def test_rules_on_made_up_numbers(values, name):
    seen = seen_with(**values)
    assert names(seen) == [name]
    check_text(verdicts(seen)[0])


def epochs(train, validation):
    """Return diagnostics after epochs with these losses; a constant prediction has loss 1."""
    seen = Diagnostics(Mlp([3, 4, 2]), baseline=1.0, validation_baseline=1.0)
    for one, other in zip(train, validation, strict=True):
        seen.close_epoch(one, other)
    return seen


FALLING = np.geomspace(0.9, 0.1, 20)


@pytest.mark.parametrize(
    ("train", "validation", "expected"),
    [
        (FALLING, np.maximum(FALLING, 0.4), []),
        (FALLING, [0.7, 0.66, 0.64, *np.linspace(0.65, 0.77, 17)], ["overfitting"]),
        (FALLING, [0.7, 0.66, 0.64, *np.linspace(0.65, 0.69, 17)], []),
        (FALLING, FALLING / 10 + np.linspace(0, 0.01, 20), []),
        (FALLING, 0.0123 * np.linspace(10, 80, 20), ["overfitting"]),
        (np.linspace(1, 0.97, 20), np.full(20, 1.04), ["labels"]),
        (np.linspace(1, 0.6, 20), np.linspace(0.92, 1.1, 20), ["labels"]),
        (np.linspace(1, 0.97, 20), np.linspace(1, 0.98, 20), []),
        (np.full(20, 1.0), np.full(20, 1.0), ["nothing_learned"]),
    ],
)
def test_curves_of_epochs(train, validation, expected):
    seen = epochs(train, validation)
    assert names(seen) == expected
    for verdict in verdicts(seen):
        check_text(verdict)


def test_numbers_learned_by_heart_are_overfitting():
    seen = epochs(np.geomspace(0.9, 0.001, 20), np.maximum(np.geomspace(0.9, 0.001, 20), 0.2))
    assert names(seen) == []  # of classes
    seen.target_rms = 1.0
    (verdict,) = verdicts(seen)
    assert verdict.name == "overfitting"
    check_text(verdict)


@pytest.mark.parametrize(
    ("signal", "expected"), [(0.0, ["labels"]), (0.3, ["overfitting"]), (np.nan, ["labels"])]
)
def test_simple_models_tell_overfitting_from_targets_of_other_rows(signal, expected):
    seen = epochs(FALLING, np.linspace(0.95, 1.6, 20))
    seen.baselines = Baselines(signal=signal)
    assert names(seen) == expected


LINEAR = [Fix(NetworkSettings, "hidden", ())]
BEHIND = BaselineScore("accuracy", "validation rows", 0.801, 0.852, 0.44, 0.013, LINEAR)


@pytest.mark.parametrize(
    ("score", "spoken"),
    [
        (BEHIND, True),
        (BEHIND._replace(error=0.02), False),
        (BEHIND._replace(linear=0.807, error=0.001), False),  # by less than matters
        (BEHIND._replace(value=0.9), False),
        (BEHIND._replace(fix=()), True),
        (None, False),
    ],
)
def test_a_network_behind_a_linear_prediction(score, spoken):
    seen = seen_with()
    seen.baseline_score = score
    assert names(seen) == ["behind_linear"] * spoken
    for verdict in verdicts(seen):
        check_text(verdict)
        assert (
            "accuracy on validation rows is 0.801, behind a linear prediction by 0.051 +- 0.013"
            in (verdict.finding)
        )
    seen.loss = SoftmaxCrossEntropy(class_weights=(1.0, 2.0))
    assert names(seen) == []


def test_a_rare_class_is_called_by_its_name():
    seen = epochs(FALLING, np.maximum(FALLING, 0.4))
    seen.class_counts, seen.recalls = np.array([60, 900]), np.array([0.04, 1.0])
    (unnamed,) = verdicts(seen)
    assert "class 0" in unnamed.finding
    seen.class_names = ["drizzle", "sun"]
    (verdict,) = verdicts(seen)
    assert verdict.finding.startswith("'drizzle', 60 of 960 training rows, is predicted for 4 % ")
    assert "(should be above 12 %)" in verdict.finding


def test_decay_does_not_say_that_nothing_is_learned():
    """A network whose loss is near that of a constant prediction may be right in most rows."""
    seen = seen_with(lr=1e-3)
    seen.optimizer, seen.baseline = AdamW(seen.mlp, lr=1e-3, weight_decay=100.0), 0.69
    for _ in range(300):
        seen.close_epoch(0.64, 0.64)
    verdict = next(verdict for verdict in verdicts(seen) if verdict.name == "decay_high")
    check_text(verdict)
    assert "the loss is 0.93 of a constant prediction's" in verdict.finding


@pytest.mark.parametrize(
    ("train", "validation", "signal", "expected"),
    [
        (FALLING, np.maximum(FALLING, 0.4), 0.5, ["imbalance"]),
        (np.linspace(1, 0.97, 20), np.full(20, 1.04), 0.0, ["labels"]),
        (np.linspace(1, 0.985, 20), np.linspace(1, 0.99, 20), 0.0, ["labels"]),
        (np.full(20, 1.0), np.full(20, 1.0), np.nan, ["nothing_learned"]),
    ],
)
def test_a_rare_class_is_missed_only_where_something_is_learned(
    train, validation, signal, expected
):
    seen = epochs(train, validation)
    seen.class_counts, seen.recalls = np.array([900, 60]), np.array([1.0, 0.0])
    seen.baselines = Baselines(signal=signal)
    assert names(seen) == expected


def test_an_eps_that_hides_the_second_moment():
    seen = seen_with(gradient_norm=1e-3)
    seen.optimizer = Adam(seen.mlp, eps=0.01)
    (verdict,) = verdicts(seen)
    assert verdict.name == "eps_large"
    check_text(verdict)


@pytest.mark.parametrize(("scale", "expected"), [(10.0, ["noise_scale"]), (100.0, [])])
def test_a_batch_far_above_the_noise_scale(scale, expected):
    seen = seen_with(noise_scale=scale)
    seen.batch_size, seen.steps_per_epoch = 1000, 100
    for _ in range(10):
        seen.close_epoch(0.5, 0.5)
    assert names(seen) == expected
    for verdict in verdicts(seen):
        check_text(verdict)


@pytest.mark.parametrize("column", [-1, 1])
def test_a_value_far_from_all_others_is_an_outlier(column):
    seen = seen_with()
    seen.extreme = ExtremeValue(7, column, 400.0)
    (verdict,) = verdicts(seen)
    assert (verdict.name, verdict.value) == ("outlier", 400.0)
    assert ("target" if column < 0 else "feature '1'") in verdict.finding
    check_text(verdict)


@pytest.mark.parametrize("column", [0, 2])
def test_the_most_extreme_value_is_found(column):
    x = np.random.default_rng(0).normal(size=(500, 3))
    x[17, column] = -900.0
    usual = np.sort(np.abs(x[:, column]))[-5]
    found = extreme_feature(x, feature_sizes(x))
    assert (found.row, found.column) == (17, column)
    assert found.times == pytest.approx(900 / usual)
    found = extreme_target(x[:, column : column + 1])
    assert (found.row, found.column) == (17, -1)
    assert extreme_feature(x[:5], feature_sizes(x)).times == 0


@pytest.mark.parametrize(("batch", "rows"), [(2, 1), (16, 8), (1000, 33)])
def test_a_run_of_few_steps_behind_a_simple_model_needs_smaller_batches(batch, rows):
    seen = epochs(np.linspace(0.81, 0.8, 20), np.linspace(0.81, 0.8, 20))
    seen.batch_size = batch
    assert names(seen) == []
    seen.baselines = Baselines(0.9, 0.2, "nearest neighbors", 0.01, 0.8)
    (verdict,) = verdicts(seen)
    assert verdict.name == "few_steps"
    assert by_key(verdict.fix) == {"training.batch_size": rows}


def watched(mlp, lr, **options):
    """Return diagnostics of 300 steps, shown as a loop of one's own shows them."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((32, mlp.sizes[0])).astype("f4"), rng.integers(0, 2, 32)
    scratch, grads, loss = mlp.scratch(32), mlp.gradients(32), SoftmaxCrossEntropy()
    adam, seen = Adam(mlp, lr=lr), Diagnostics(mlp, **options)
    for step in range(1, 301):
        mlp.forward(x, scratch)
        value = loss(scratch.output, y, grads.d_output)
        mlp.backward(scratch, grads)
        adam.step(mlp, grads)
        seen.after_step(scratch, grads, step, loss=value)
    return seen, value


@pytest.mark.parametrize("baseline", [{}, {"baseline": None}, {"baseline": 0.69}])
@pytest.mark.parametrize("epochs", [0, 6])
@pytest.mark.parametrize(("lr", "expected"), [(1e-7, ["lr_low"]), (3e-3, []), (3.0, ["lr_high"])])
def test_a_loop_of_ones_own_gets_verdicts(baseline, epochs, lr, expected):
    seen, value = watched(Mlp([4, 16, 2], activation="tanh", seed=0), lr, **baseline)
    for _ in range(epochs):
        seen.close_epoch(value, None)
    assert [name for name in names(seen) if name.startswith("lr")] == expected


def test_dropout_is_not_taken_for_large_weights():
    mlp = Mlp([4, 32, 32, 2], dropout=0.9, seed=0)
    seen, _ = watched(mlp, 1e-3, baseline=0.69)
    assert names(seen) == ["dropout_high"]
    in_one_layer, _ = watched(Mlp([4, 32, 32, 2], dropout=[0.0, 0.9], seed=0), 1e-3, baseline=0.69)
    in_one_layer.epochs = [(0.69, 0.69)]
    assert "dropout_high" in names(in_one_layer)
    seen.epochs, seen.first_loss = [(0.3, 0.3)], 20.0
    assert names(seen) == []


def test_raw_features_are_not_taken_for_large_weights():
    seen = seen_with(input_mean=0.0, input_std=5.0)
    seen.first_loss = 30.0
    (verdict,) = verdicts(seen)
    assert verdict.name == "start"
    assert "standardize the features" in verdict.advice
    seen.feature_sizes = np.array([1.5, 78.0, 0.0])
    (verdict,) = verdicts(seen)
    assert verdict.name == "input_scale"
    assert "10 % of the values of '1' are beyond 78" in verdict.finding


@pytest.mark.parametrize(("loss", "expected"), [(0.01, []), (0.9, ["dead"])])
def test_units_that_die_after_the_fit_are_not_called_dead(loss, expected):
    seen = Diagnostics(Mlp([3, 4, 2]), baseline=1.0)
    for step, dead in enumerate([0.0, 0.0, 0.1, 0.5, 0.75], start=1):
        seen.values[seen.columns.index("loss")] = 1.0 if step < 3 else loss
        seen.values[seen.columns.index("dead_share", 0)] = dead
        seen.sampled = step
        seen.series.append(step, seen.values)
    assert names(seen) == expected


def test_a_signal_that_vanishes_on_its_way_forward_is_reported():
    mlp = Mlp([4, *[16] * 12, 2], activation="tanh", seed=0)
    for weight in mlp.weights:
        weight *= 0.25
    seen, _ = watched(mlp, 1e-3)
    assert "vanishing" in names(seen)


def test_nothing_is_said_before_anything_is_seen():
    assert names(Diagnostics(Mlp([3, 4, 2]))) == []
    assert table(Diagnostics(Mlp([3, 4, 2]))) == "no step was sampled"


def test_spikes_and_outliers():
    seen = seen_with()
    seen.spikes.count, seen.spikes.steps = 30, 1000
    assert names(seen) == ["spikes"]
    check_text(verdicts(seen)[0])


def test_the_last_resort_speaks_alone():
    seen = seen_with()
    for _ in range(5):
        seen.close_epoch(1.0, 1.0)
    assert names(seen) == [LAST_RESORT.__name__]
    check_text(verdicts(seen)[0])
    seen.spikes.count, seen.spikes.steps = 30, 1000
    assert names(seen) == ["spikes"]


@pytest.mark.parametrize(
    ("variance", "squared", "text"),
    [
        (400.0, 1.0, "gradient noise scale 400 rows at batch size 32"),
        (1.0, 1.0, "gradient noise scale 1 rows at batch size 32"),
        (1.0, 0.0, "far above the batch size of 32"),
    ],
)
def test_what_the_noise_scale_means(variance, squared, text):
    seen = Diagnostics(Mlp([3, 4, 2]))
    seen.batch_size = 32
    seen.noise.variance, seen.noise.squared_norm = variance, squared
    assert text in noise_sentence(seen)
    seen.sampled = 1
    lines = table(seen).splitlines()
    assert max(map(len, lines)) <= 80
    assert noise_sentence(seen) in " ".join(line.strip() for line in lines)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_lowest_loss_is_the_entropy_of_the_smoothed_labels(smoothing):
    loss = SoftmaxCrossEntropy(label_smoothing=smoothing)
    shares = np.array([1 - smoothing + smoothing / 4, *[smoothing / 4] * 3])
    wanted = -sum(p * np.log(p) for p in shares if p)
    assert lowest_loss(loss, np.array([0, 2, 3, 1]), 4) == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        (SoftmaxCrossEntropy(), "classes"),
        (SoftmaxCrossEntropy(label_smoothing=0.1), "classes"),
        (SoftmaxCrossEntropy(class_weights=(1.0, 2.0, 5.0)), "classes"),
        (BinaryCrossEntropyWithLogits(), "binary"),
        (BinaryCrossEntropyWithLogits(positive_weight=3.0), "binary"),
        (MeanSquaredError(), "numbers"),
        (MeanAbsoluteError(), "numbers"),
    ],
)
def test_no_constant_beats_the_baseline(loss, kind, weighted):
    rng = np.random.default_rng(0)
    y = {
        "classes": rng.choice(3, 101, p=[0.6, 0.3, 0.1]),
        "binary": (rng.random((101, 3)) < 0.3).astype(float),
        "numbers": rng.exponential(size=(101, 3)),
    }[kind]
    weights = rng.uniform(0, 2, 101) ** 3 if weighted else None
    best = baseline_loss(loss, y, 3, weights)
    assert best < loss_of_zeros(loss, y, 3, weights)
    assert 0 <= lowest_loss(loss, y, 3) < best
    for _ in range(200):
        constant = rng.normal(0.0, 1.0, 3)
        other = loss(np.tile(constant, (101, 1)), y, None, weights)
        assert best <= other


def test_the_table_has_a_line_for_each_layer():
    setup = healthy("waves", "tanh", corpus.net(64, 64, activation="tanh"))
    watcher = corpus.run(replace(setup, settings={**setup.settings, "training.epochs": 2})).watcher
    lines = watcher.table().splitlines()
    assert lines[0].split()[:3] == ["layer", "units", "activation"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["0", "64", "tanh"],
        ["1", "64", "tanh"],
        ["2", "2", "-"],
    ]
    assert "gradient norm" in lines[4]
    assert any("noise scale" in line for line in lines[5:])
