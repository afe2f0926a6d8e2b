"""Linear models of least loss, against scikit-learn; the networks that hold them."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from mlpengine import fit
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables.frames import as_table
from mlpengine.models import Model, linear
from mlpengine.models.card import card, facts_of
from mlpengine.models.linear import (
    PENALTIES,
    fit_linear,
    linear_network,
    linear_networks,
    minimize,
)
from mlpengine.models.members import NetworkMean
from mlpengine.models.task import Split
from mlpengine.nn import Mlp
from mlpengine.ops import MeanSquaredError, Poisson, SoftmaxCrossEntropy
from mlpengine_cli.summary import card_lines

RNG = np.random.default_rng(3)


def rows(count, features, outputs=2):
    """Return features of unlike scale and shift, and numbers that depend on them."""
    x = RNG.standard_normal((count, features)) * RNG.uniform(0.3, 2, features) + 1
    return x, x @ RNG.standard_normal((features, outputs)) + RNG.standard_normal((count, outputs))


@pytest.mark.parametrize(("count", "features", "weighted"), [(60, 4, True), (20, 40, False)])
def test_numbers_have_the_weights_of_ridge_regression(count, features, weighted):
    x, y = rows(count, features)
    weights = RNG.uniform(0.2, 2, count) if weighted else None
    fits = fit_linear(MeanSquaredError(), x, y, weights, 2)
    for penalty, (weight, bias) in zip(PENALTIES, fits, strict=True):
        # the loss is the mean over rows and both columns, the penalty is halved
        ridge = Ridge(penalty, solver="svd").fit(x, y, weights)
        np.testing.assert_allclose(weight, ridge.coef_, atol=3e-3 * np.abs(ridge.coef_).max())
        np.testing.assert_allclose(bias, ridge.intercept_, atol=1e-2)


def test_classes_have_the_probabilities_of_logistic_regression():
    x, scores = rows(120, 5, 3)
    y = (scores + RNG.gumbel(size=scores.shape) * 2).argmax(axis=1)
    weights = RNG.uniform(0.2, 2, 120)
    fits = fit_linear(SoftmaxCrossEntropy(), x, y, weights, 3)
    for penalty, (weight, bias) in zip(PENALTIES, fits, strict=True):
        model = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=1000).fit(x, y, weights)
        z = x @ weight.T + bias
        chances = np.exp(z - np.logaddexp.reduce(z, axis=1, keepdims=True))
        np.testing.assert_allclose(chances, model.predict_proba(x), atol=2e-3)


def test_any_loss_can_be_minimized():
    x, scores = rows(200, 4, 1)
    y = RNG.poisson(np.exp(0.3 * scores)).astype(float)
    model = PoissonRegressor(alpha=1 / 200, tol=1e-8, max_iter=1000).fit(x, y[:, 0])
    by_penalty = dict(zip(PENALTIES, fit_linear(Poisson(), x, y, None, 1), strict=True))
    weight, bias = by_penalty[1.0]
    np.testing.assert_allclose(np.exp(x @ weight.T + bias)[:, 0], model.predict(x), rtol=5e-3)


def test_a_linear_network_computes_the_product():
    reading, x = RNG.standard_normal((4, 3)), RNG.standard_normal((9, 4))
    weight, bias = RNG.standard_normal((3, 3)), RNG.standard_normal(3)
    mlp = Mlp([4, 5, 3], dtype="float64", reads=((1, 3),))
    made = linear_network(reading, weight, bias, mlp)
    np.testing.assert_allclose(made.predict(x), x @ reading @ weight.T + bias, 1e-9, 1e-9)
    picking = linear_network(np.array([2, 0, 1]), weight, bias, mlp)
    np.testing.assert_allclose(picking.predict(x), x[:, [2, 0, 1]] @ weight.T + bias, 1e-9, 1e-9)
    others = [mlp, Mlp([4, 3], output_activation="tanh"), Mlp([4, 3], reads=mlp.reads)]
    assert [one.is_linear for one in (made, *others)] == [True, False, False, False]


@pytest.mark.parametrize("shape", [(40, 90), (90, 40)])
def test_wide_and_long_tables_need_the_smaller_matrix(monkeypatch, shape):
    sizes, eigh = [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda a: sizes.append(a.shape) or eigh(a))
    x, y = rows(*shape, 1)
    fits = [*fit_linear(MeanSquaredError(), x, y, None, 1)]
    assert sizes == [(min(shape),) * 2]
    inner = x - x.mean(axis=0)
    for penalty, (weight, bias) in zip(PENALTIES, fits, strict=True):
        system = 2 * inner.T @ inner + penalty * np.eye(shape[1])
        right = 2 * inner.T @ (y - y.mean())
        np.testing.assert_allclose(weight.T, np.linalg.solve(system, right), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(bias, y.mean() - x.mean(axis=0) @ weight.T, rtol=1e-9)


def test_a_squared_error_of_one_output_takes_one_step(monkeypatch):
    counts = []

    def counting(function, start, tolerance):
        values = []
        end = minimize(lambda z: values.append(0) or function(z), start, tolerance)
        counts.append(len(values))
        return end

    monkeypatch.setattr(linear, "minimize", counting)
    x, y = rows(500, 6, 1)
    assert len([*fit_linear(MeanSquaredError(), x, y, None, 1)]) == len(PENALTIES)
    assert counts[0] == 2
    assert max(counts) == 2


def test_rows_out_of_fold_choose_the_penalty():
    x, y = rows(90, 60, 1)  # few rows for so many columns: a larger penalty is better
    folds = np.arange(90) % 3
    train = Split(x.astype("f4"), y.astype("f4"), y)
    networks, output = linear_networks(
        Mlp([60, 8, 1]), MeanSquaredError(), train, folds, [np.eye(60)],
        lambda output: float(np.mean((output - y) ** 2)),
    )  # fmt: skip
    errors = []
    for penalty in PENALTIES:
        fits = [
            Ridge(penalty / 2, solver="svd").fit(x[folds != k], y[folds != k]) for k in range(3)
        ]
        guess = np.stack([fits[k].predict(x[i : i + 1]).ravel() for i, k in enumerate(folds)])
        errors.append(np.mean((guess - y) ** 2))
    assert 0 < int(np.argmin(errors)) < len(PENALTIES) - 1
    assert np.mean((output - y) ** 2) == pytest.approx(min(errors), rel=1e-3)
    for k, network in enumerate(networks):
        np.testing.assert_allclose(
            network.predict(train.x[folds == k]), output[folds == k], 1e-3, 1e-3
        )


def test_numbers_that_are_clipped_do_not_bend_a_linear_truth():
    """The mean of the networks is as good as ridge regression, and bounded far away."""
    rng = np.random.default_rng(1)
    x = rng.laplace(0, 1, (800, 6))
    y = x @ rng.standard_normal(6) + 0.5 * rng.standard_normal(800)
    table = {f"x{k}": column for k, column in enumerate(x.T)}
    train = {name: column[:500] for name, column in table.items()} | {"y": y[:500]}
    new = {name: column[500:] for name, column in table.items()}
    model, _ = fit(
        train, "y", data={"encoding": "piecewise", "task": "regression", "split": {"test": 0}},
        model={"hidden": [4]}, diagnostics=False,
        training={"folds": 4, "members": ["plain", "linear"], "epochs": 1},
    )  # fmt: skip
    ridge = Ridge().fit(x[:500], y[:500]).predict(x[500:])
    errors = [np.sqrt(np.mean((guess - y[500:]) ** 2)) for guess in (model.predict(new), ridge)]
    assert errors[0] < 1.03 * errors[1]
    far = [model.predict([{f"x{k}": size for k in range(6)}]) for size in (1e6, 1e9)]
    assert far[0] == far[1]
    span = np.abs(x).max() * 3 * np.abs(model.predict(new)).max()
    assert np.abs(far[0]) < span


def test_a_linear_model_counts_its_own_parameters_alone():
    fitted = Preprocessor("y").fit(as_table({"a": [0.0, 1, 2], "y": [1.0, 2, 4]}))
    mlp = Mlp([n := fitted.n_features, 3, 1], reads=[(0, 1)], seed=0)
    networks = [mlp, linear_network(np.eye(n), np.ones((1, n)), np.zeros(1), mlp)]
    model = Model(mlp, fitted, "mse").with_mean(NetworkMean(networks, None, (0.25, 0.75)))
    known, used = facts_of(model), len(model.networks[0].params) + n + 1
    assert (known["networks"], known["linear_models"], known["parameters"]) == (1, 1, used)
    assert known["linear_weight"] == 0.75
    size = f"1 network of 1-3-1 and 1 linear model, {used} parameters"
    assert f"network {size}; " in repr(model)
    assert f"network   {size}, loss" in "\n".join(card_lines(card(model) | {"written": ""}))
