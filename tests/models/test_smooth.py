"""Smooth networks: errors on new rows of a known function, folds, and models that hold them."""

from dataclasses import replace

import numpy as np
import pytest

from mlpengine import Model, fit
from mlpengine.core.errors import ConfigError
from mlpengine.models import members, smooth
from mlpengine.models.smooth import PARAMETERS, smooth_networks, smooth_units
from mlpengine.models.task import Split

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.7, 1.7, (300, 3))
FOLDS = np.arange(len(X)) % 2


def truth(x):
    return np.sin(x[:, 0] * x[:, 1]) + 0.3 * x[:, 2] ** 2


def part(weights=None):
    y = truth(X)[:, None]
    return Split(X.astype("f4"), y.astype("f4"), y, weights=weights)


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.fixture(autouse=True, params=[0, 300])
def few_steps(monkeypatch, request):
    """With and without several decays."""
    monkeypatch.setattr(smooth, "STEPS", 40)
    monkeypatch.setattr(smooth, "DECAYS", smooth.DECAYS[1:6:2])
    monkeypatch.setattr(smooth, "DECAY_ROWS", request.param)


@pytest.mark.parametrize("projection", [np.arange(3), 2.0 * np.eye(3) + 0.1])
def test_new_rows_have_small_errors(projection):
    networks = smooth_networks(part(), FOLDS, projection, 0, "f4")
    assert [(one.sizes, one.dtype) for one in networks] == [((3, 30, 1), np.dtype("f4"))] * 2
    new = RNG.uniform(-1.5, 1.5, (500, 3))
    errors = [rms(one.predict(new.astype("f4"))[:, 0] - truth(new)) for one in networks]
    assert max(errors) < 0.1 * truth(new).std()  # a linear function has .93


def test_a_network_does_not_see_its_fold(monkeypatch):
    monkeypatch.setattr(smooth, "STEPS", 9)
    monkeypatch.setattr(smooth, "DECAYS", [])  # all rows choose between decays
    changed = part()
    changed.y[FOLDS == 0] = 9.0
    one, other = (smooth_networks(rows, FOLDS, np.arange(3), 0, "f4") for rows in (part(), changed))
    np.testing.assert_array_equal(one[0].params.flat, other[0].params.flat)
    assert np.abs(one[1].params.flat - other[1].params.flat).max() > 0.1


@pytest.mark.parametrize(
    ("losses", "seeds", "used"),
    [
        ([17.0, 1.0, 2.0], [5, 6, 7], 1),
        ([19.0, 1.0, 2.0, 18.0], [5, 6, 7, 8], 4),
        ([19.0, 1.0, 2.0, 20.0], [5, 6, 7, 8], 1),
    ],
)
def test_a_network_in_a_local_minimum_is_trained_anew(losses, seeds, used, monkeypatch):
    trained, made, left = [], smooth.Mlp, iter(losses)

    def mlp(*sizes, seed=None, **options):
        trained.extend([] if seed is None else [seed])
        return made(*sizes, seed=seed, **options)

    def train(mlp, part, decays):
        mlp.weights[1].fill(len(trained))
        yield next(left)

    monkeypatch.setattr(smooth, "DECAY_ROWS", 0)
    monkeypatch.setattr(smooth, "Mlp", mlp)
    monkeypatch.setattr(smooth, "_training", train)
    networks = smooth_networks(part(), np.arange(len(X)) % 3, np.arange(3), 5, "f8")
    assert trained == seeds
    assert [one.weights[1][0, 0] for one in networks] == [used, 2, 3]


@pytest.mark.parametrize(("noise", "kept"), [(0.0, False), (0.1, True)])
def test_steps_without_regularization_follow_where_noise_is_small(noise, kept, monkeypatch):
    monkeypatch.setattr(smooth, "STEPS", 80)
    monkeypatch.setattr(smooth, "CLEAR_STEPS", 80)
    monkeypatch.setattr(smooth, "DECAY_ROWS", 0)
    rows, new = part(), RNG.uniform(-1.5, 1.5, (500, 3))
    rows.y[...] += noise * np.random.default_rng(1).standard_normal(rows.y.shape)

    def weights_and_error():
        networks = smooth_networks(rows, FOLDS, np.arange(3), 0, "f8")
        flats = [one.params.flat.copy() for one in networks]
        return flats, rms(np.mean([one.predict(new)[:, 0] for one in networks], 0) - truth(new))

    flats, error = weights_and_error()
    monkeypatch.setattr(smooth, "CLEAR", 0.0)
    regularized, larger = weights_and_error()
    assert np.array_equal(flats, regularized) == kept
    assert kept or error < 0.7 * larger


@pytest.mark.parametrize("held", [[3.0, 2.0], [1.0, 2.0]])
def test_held_out_losses_choose_the_steps_without_regularization(held, monkeypatch):
    def train(mlp, rows, decays):
        for loss in held:
            mlp.params.flat.fill(0.0)
            mlp.biases[1].fill(loss)
            yield 0.0

    monkeypatch.setattr(smooth, "DECAY_ROWS", 0)
    monkeypatch.setattr(smooth, "_training", train)
    rows = replace(part(), y=np.zeros_like(part().y))
    networks = smooth_networks(rows, FOLDS, np.arange(3), 0, "f8")
    assert [one.biases[1][0] for one in networks] == [min(held)] * 2


def test_rows_without_weight_do_not_count():
    away = np.arange(len(X)) % 6 < 2
    rows = part(weights=(~away).astype("f4"))
    rows.y[away] = 9.0
    for network in smooth_networks(rows, FOLDS, np.arange(3), 0, "f4"):
        assert rms(network.predict(X.astype("f4"))[:, 0] - truth(X)) < 0.2


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(smooth, "STEPS", 9)
    one, two = (smooth_networks(part(), FOLDS, np.arange(3), 5, "f8", threads=n) for n in (1, 2))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left.params.flat, right.params.flat)


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (6, 1), (40, 1), (40, 2), (100, 3)])
def test_parameters_are_limited(inputs, outputs):
    units = smooth_units(inputs, outputs)
    assert 0 < units * (inputs + 1 + outputs) + outputs <= PARAMETERS


def test_several_decays_train_again_before_they_give_up(monkeypatch):
    made, train, answers = [], smooth._training, iter([False, True])
    monkeypatch.setattr(smooth, "_training", lambda *a, **o: made.append(1) or train(*a, **o))
    help_once = {"helps": lambda _: next(answers)}
    networks = smooth_networks(part(), FOLDS, np.arange(3), 0, "f4", **help_once)
    assert (len(networks), len(made)) == ((2, 5) if smooth.DECAY_ROWS else (0, 1))
    assert not smooth_networks(
        part(), FOLDS, np.arange(3), 0, "f4", loss=0.1, helps=lambda _: False
    )
    assert len(made) == (6 if smooth.DECAY_ROWS else 2)


TABLE = dict(zip("abc", X.T, strict=True))
OPTIONS = {
    "data": {"encoding": "piecewise", "bins": 4, "split": {"test": 0}},
    "model": {"hidden": [4]},
    "diagnostics": False,
}


def test_a_model_holds_them(tmp_path):
    training = {"folds": 2, "members": ["plain", "smooth", "linear"], "epochs": 2}
    model, _ = fit(TABLE | {"y": truth(X)}, "y", **OPTIONS, training=training)
    assert (model.mlp.sizes[1:], len(model.networks)) == ((30, 1), 2)  # the others have weight 0
    assert rms(model.predict(TABLE) - truth(X)) < 0.1 * truth(X).std()
    plain, _ = fit(TABLE | {"y": truth(X)}, "y", **OPTIONS, training=training | {"members": []})
    both = [*plain.populations, *model.populations]
    mixed = replace(plain, ensemble_weights=(0.25, 0.75), populations=both)
    mixed.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    outputs = [one.predict(again.features(again.table(TABLE))) for one in again.networks]
    expected = np.average(outputs, axis=0, weights=[0.125, 0.125, 0.375, 0.375])
    np.testing.assert_allclose(again.forward(again.features(again.table(TABLE))), expected, 1e-5)
    np.testing.assert_array_equal(again.predict(TABLE), mixed.predict(TABLE))


@pytest.mark.parametrize(("first", "rows"), [(76, [150]), (75, [75, 150]), (37, [38, 150])])
def test_steps_on_few_rows_come_before_steps_on_all_rows(first, rows, monkeypatch):
    seen, train = [], smooth._train

    def keep(step, part, *limits, **options):
        seen.append(len(part[0]))
        return train(step, part, *limits, **options)

    monkeypatch.setattr(smooth, "_train", keep)
    monkeypatch.setattr(smooth, "DECAY_ROWS", 0)
    monkeypatch.setattr(smooth, "FIRST_ROWS", first)
    monkeypatch.setattr(smooth, "CLEAR", 0.0)
    smooth_networks(part(), FOLDS, np.arange(3), 0, "f4")
    assert seen == 2 * rows


@pytest.mark.parametrize(("early", "is_linear", "trained"), [(1, 0, 2), (1.01, 0, 0), (1, 1, 1)])
def test_smooth_networks_are_trained_if_they_may_help(early, is_linear, trained, monkeypatch):
    made, train = [], smooth._training
    monkeypatch.setattr(smooth, "_training", lambda *a, **o: made.append(1) or train(*a, **o))
    monkeypatch.setattr(members, "EARLY", early)  # the only epoch is the best one
    training = {"folds": 2, "members": ["plain", "smooth"] + is_linear * ["linear"], "epochs": 1}
    y = X.sum(axis=1) + np.random.default_rng(1).standard_normal(300) if is_linear else truth(X)
    model, _ = fit(TABLE | {"y": y}, "y", **OPTIONS, training=training)
    assert len(made) == trained
    assert (model.mlp.sizes[1] == 30) == (trained == 2)  # smooth is far better than one epoch


def test_other_losses_are_refused():
    training = {"folds": 2, "members": ["plain", "smooth"]}
    with pytest.raises(ConfigError, match="smooth needs the loss mse"):
        fit(TABLE | {"y": truth(X)}, "y", **OPTIONS, loss="mae", training=training)
    wide = {str(k): column for k, column in enumerate(RNG.standard_normal((123, len(X))))}
    with pytest.raises(ConfigError, match="at most 122 features"):
        fit(wide | {"y": truth(X)}, "y", **OPTIONS, training=training)
