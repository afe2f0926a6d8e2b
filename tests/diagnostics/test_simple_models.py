"""What simple models reach on rows, against explicit computations."""

import numpy as np
import pytest

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.data.features.statistics import standardized
from mlpengine.diagnostics import Diagnostics
from mlpengine.diagnostics.baselines import (
    RandomUnits,
    alone,
    baselines,
    class_gain,
    contradictions,
    copies_of,
    linear_predictions,
    moved_target,
    nearest_rows,
    shifts_between,
    strongest_link,
)
from mlpengine.diagnostics.thresholds import NEIGHBORS, RIDGE
from mlpengine.models.task import Classification, Split
from mlpengine.training.diagnose import LoopDiagnostics, Trained, measure_rows
from mlpengine.training.learner import Learner
from mlpengine.training.loop import Loop

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4)) @ RNG.normal(size=(4, 4))
LINEAR = X @ [[1.0], [-2.0], [0.5], [0.0]] + 0.1 * RNG.normal(size=(150, 1))
SIDES = (LINEAR[:, 0] > 0).astype(np.int64)


def test_the_linear_model_is_fitted_without_the_row_that_it_predicts():
    features, wide = standardized(X), LINEAR - LINEAR.mean(axis=0)
    predictions = linear_predictions(features, wide)
    extended = np.column_stack([features, np.ones(150)])
    penalty = np.diag([RIDGE * 150] * 4 + [0.0])
    for row in (0, 17, 149):
        others = np.arange(150) != row
        # the exact fit without the row; its weights have the penalty of the fit to all rows
        gram = extended[others].T @ extended[others] + penalty
        weights = np.linalg.solve(gram, extended[others].T @ wide[others])
        assert predictions[row] == pytest.approx(extended[row] @ weights, rel=1e-6)


def test_neighbors_have_the_smallest_distances():
    features = standardized(X)
    distances = np.linalg.norm(features[:, None] - features, axis=2)
    np.fill_diagonal(distances, np.inf)
    expected = np.argsort(distances, axis=1)[:, :NEIGHBORS]
    near = nearest_rows(features)
    assert near.sum(axis=1).tolist() == [NEIGHBORS] * len(X)
    assert [set(np.flatnonzero(row)) for row in near] == [set(row) for row in expected.tolist()]


def test_rows_as_near_as_the_last_neighbor_are_neighbors_too():
    features = np.repeat([[0.0], [3.0]], [NEIGHBORS + 5, 3], axis=0)
    near = nearest_rows(features)
    assert near.sum(axis=1).tolist() == [NEIGHBORS + 4] * (NEIGHBORS + 5) + [NEIGHBORS + 7] * 3
    assert (near.diagonal()[: NEIGHBORS + 5] == 0).all()


def test_shifts_are_those_of_the_two_sample_test():
    one, two = RNG.normal(size=(200, 3)), RNG.normal(size=(90, 3)) * [1, 1, 2] + [0, 0.8, 0]
    one[:, 0], two[:, 0] = one[:, 0].round(), two[:, 0].round()
    shifts, limit = shifts_between(one, two)
    for k, shift in enumerate(shifts):
        points = np.concatenate([one[:, k], two[:, k]])
        below = ((part[:, k, None] <= points).mean(axis=0) for part in (one, two))
        assert shift == pytest.approx(np.abs(np.subtract(*below)).max())
        size, j = 200 * 90 / 290, np.arange(1, 50)
        chance = 2 * ((-1.0) ** (j - 1) * np.exp(-2 * j**2 * size * shift**2)).sum()
        assert (shift > limit) == (chance < 1e-4 / 3)


def test_random_units_are_fitted_without_the_row_that_they_predict():
    x = np.random.default_rng(0).normal(size=(400, 2))
    xor = (np.sign(x[:, :1]) * np.sign(x[:, 1:])) - 0.0
    wide, features = xor - xor.mean(axis=0), standardized(x)
    predictions = RandomUnits(features).predict(wide)
    assert np.square(wide - predictions).mean() < 0.5 * np.square(wide).mean()
    assert np.square(wide - linear_predictions(features, wide)).mean() > 0.9
    changed = xor.copy()
    changed[7] += 0.5  # which moves what the other rows are predicted, and not its own
    again = RandomUnits(features).predict(changed - changed.mean(axis=0))
    moved = again + changed.mean(axis=0) - (predictions + xor.mean(axis=0))
    assert abs(moved[7, 0]) < 1e-3 < np.abs(moved).max()


@pytest.mark.parametrize(("overlap", "share"), [(0.0, 0.3), (0.0, 0.0), (0.7, 0.0)])
def test_wrong_labels_contradict_where_a_model_is_sure_and_overlapping_classes_do_not(
    overlap, share
):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 3))
    classes = (x[:, 0] + overlap * rng.normal(size=2000) > 0).astype(np.int64)
    wrong = rng.choice(2000, round(share * 2000), replace=False)
    classes[wrong] = 1 - classes[wrong]
    known = baselines(x, classes, classes, np.arange(2000), None)
    assert known.contradicted == pytest.approx(share, abs=0.05)
    assert known.doubtful > known.contradicted - 0.05
    assert not share or np.isin(known.contradicting_rows, wrong).mean() > 0.9


def test_contradictions_of_three_rows():
    guess = np.array([[0.4, -0.4], [-0.4, 0.4], [0.4, -0.4]])
    share, error, rows = contradictions(np.array([0, 0, 1]), guess, np.ones(3, np.bool_))
    assert (share, rows.tolist()) == (pytest.approx(2 / 3), [1, 2])
    assert error == pytest.approx((2 / 3 * 1 / 3 / 3) ** 0.5)
    share, _, rows = contradictions(np.array([0, 0, 1]), guess, np.array([True, False, True]))
    assert (share, rows.tolist()) == (pytest.approx(1 / 2), [2])
    assert np.isnan(contradictions(np.array([0, 0, 1]), guess, np.zeros(3, np.bool_))[:2]).all()


def test_rows_with_the_features_of_others_are_not_alone():
    x = np.array([[1, 2], [1, 3], [1, 2], [0, 0]], np.float32)
    assert alone(x).tolist() == [False, True, False, True]


@pytest.mark.parametrize("truth", [SIDES, LINEAR], ids=["classes", "numbers"])
def test_baselines_tell_a_good_network_from_a_poor_one(truth):
    rows = 10 * np.arange(150)
    good = baselines(X, truth, truth, rows, X)
    assert good.error == 0
    assert good.best < 0.3
    assert good.best_name == "a linear model"
    assert good.signal > 0.5
    assert max(good.shifts) == 0
    constant = np.bincount(truth).argmax() if truth.ndim == 1 else truth.mean(axis=0)
    poor = baselines(X, truth, np.broadcast_to(constant, truth.shape), rows, None)
    assert poor.error == pytest.approx(1.0)
    assert poor.best == good.best
    shuffled = truth[np.random.default_rng(5).permutation(150)]
    assert baselines(X, shuffled, shuffled, rows, None).signal < 0.1


@pytest.mark.parametrize("case", ["few rows", "one class", "not finite"])
def test_rows_that_say_nothing_have_no_baselines(case):
    x, truth = X.copy(), SIDES
    if case == "few rows":
        x, truth = x[:40], truth[:40]
    if case == "one class":
        truth = np.zeros_like(truth)
    if case == "not finite":
        x[:110, 0] = np.nan
    assert np.isnan(baselines(x, truth, truth, np.arange(len(x)), None).error)


def loop(truth=SIDES, folds=None, epochs=2, loss=None):
    mlps = [Mlp([4, 2, 2], seed=0) for _ in range(1 if folds is None else 2)]
    steps = [TrainingStep(mlp, loss or SoftmaxCrossEntropy(), Adam(mlp), 30) for mlp in mlps]
    part = Split(X.astype("f4"), truth, truth)
    watcher = LoopDiagnostics()
    options = {"validation": part} if folds is None else {"folds": folds}
    running = Loop(steps, Classification(2), part, epochs=epochs, callbacks=[watcher], **options)
    running.run()
    return running, watcher


def test_verdicts_do_not_depend_on_the_time_of_a_run(monkeypatch):
    _, watcher = loop()
    watcher.verdicts()
    known = watcher.core.baselines
    assert known.error > known.best
    monkeypatch.setattr(Learner, "seconds", 100.0)
    _, watcher = loop()
    watcher.verdicts()
    assert watcher.core.baselines == known


def test_each_row_is_predicted_by_a_network_that_was_trained_on_it():
    part, fold = Split(X.astype("f4"), SIDES, SIDES), SIDES
    networks = [
        Trained(lambda x, k=k: np.eye(2)[np.full(len(x), k)], np.flatnonzero(fold == k), None)
        for k in range(2)
    ]
    core = Diagnostics(Mlp([4, 2, 2], seed=0))
    measure_rows(core, Classification(2), part, networks)
    assert core.baselines.error == 0
    measure_rows(core, Classification(2), part, networks[:1])  # knows rows of one class only
    assert np.isnan(core.baselines.error)


def test_losses_of_several_networks_are_means():
    running, watcher = loop(folds=(np.arange(len(X)) >= 10).astype(int))
    both = [[row.train_loss for row in one.history.rows] for one in running.members]
    assert [train for train, _ in watcher.core.epochs] == np.mean(both, axis=0).tolist()


def test_codes_have_no_order_and_counts_have_one():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 2))
    turn = np.arctan2(*x.T)
    codes = np.array([3.0, 0, 4, 1, 2])[np.digitize(turn, np.linspace(-2, 2, 4))]
    units = RandomUnits(x)
    assert class_gain(units, codes[:, None]) > 0.2
    assert class_gain(units, np.rint(2 * x[:, :1])) < 0.05
    assert class_gain(units, (codes[:, None] > 2).astype(float)) == 1
    assert np.isnan(class_gain(units, x[:, :1]))


def test_links_beyond_chance_are_correlations():
    x = np.random.default_rng(1).standard_normal((400, 20))
    y = x[:, :1] + 4 * np.random.default_rng(2).standard_normal((400, 1))
    z = max(abs(np.corrcoef(column, y[:, 0])[0, 1]) for column in x.T) * 20
    assert strongest_link(x - x.mean(0), y - y.mean()) == pytest.approx(z / 4.07, rel=1e-2)


@pytest.mark.parametrize("way", [1, -1])
def test_a_target_beside_its_row_is_found(way):
    for target in (np.exp(2 * LINEAR), SIDES):
        units, has = RandomUnits(standardized(X)), np.arange(150) % 3 > 0
        own, *beside = [np.roll(target, step, axis=0) for step in (0, -1, 1)]
        assert moved_target(units, own, [(one, has) for one in beside])[0] < 0
        moved = [(np.roll(one, way, axis=0), has) for one in beside]
        for one, _ in moved:
            one[~has] = one[0]  # a third of the adjacent rows is in another part
        times, (own, other, side) = moved_target(units, np.roll(own, way, axis=0), moved)
        assert times > 3.5
        assert side == way
        assert own < 0.1 < 0.5 < other


@pytest.mark.parametrize("columns", [1, 4])
def test_copies_are_counted_beyond_chance(columns):
    rng = np.random.default_rng(3)
    x, new = rng.random((300, columns)), rng.random((60, columns))
    near, equal = copies_of(x, new)
    assert near < 0.2
    assert equal == 0
    assert copies_of(x, x[:60] + 1e-6).near > 0.9
    assert copies_of(x, np.concatenate([x[:45], new[:15]])).equal == 0.75
    assert copies_of(np.rint(9 * x[:, :1]), np.rint(9 * new[:, :1])).equal == 0
