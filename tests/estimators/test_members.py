"""Estimators with several member types in each fold."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from scipy.special import softmax

from mlpengine.core.errors import UsageError
from mlpengine.estimators import MlpClassifier, MlpRegressor

KINDS = ["plain", "piecewise", "linear"]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4)).round(2)
X[:, 3] = X[:, 3] > 0  # two values have no bins
NUMBERS = X[:, 0] + np.abs(X[:, 1]) + 0.3 * RNG.standard_normal(len(X))
LABELS = np.array(["a", "b", "c"])[np.digitize(NUMBERS, [0.3, 1.2])]
FOLDED = {"hidden": 6, "folds": 3, "epochs": 8, "batch_size": 16, "lr": 0.01, "random_state": 3}
SETTINGS = {"training.dtype": "float64"}
FOLDED |= {"settings": SETTINGS}
NEUTRAL = {
    "optimizer": "adam",
    "settings": SETTINGS | {"schedule": "constant", "training.clip_norm": None},
}
"""The defaults of configs without a preset."""

TARGETS = {MlpClassifier: LABELS, MlpRegressor: NUMBERS}


def predicted(model, x=X):
    return model.predict_proba(x) if isinstance(model, MlpClassifier) else model.predict(x)


@pytest.mark.parametrize("estimator", TARGETS)
def test_the_prediction_is_the_mean_by_ensemble_weights(estimator):
    model = estimator(members=KINDS, **FOLDED).fit(X, TARGETS[estimator])
    used = {kind: share for kind, share in model.ensemble_weights_.items() if share}
    assert sum(used.values()) == pytest.approx(1)
    assert [mlp.is_linear for mlp in model.mlps_] == [k == "linear" for k in used for _ in range(3)]
    assert len(model.best_epochs_) == 6
    scaled = (X - X.mean(0)) / X.std(0)
    edges = [np.unique(np.quantile(column, np.linspace(0, 1, 13))) for column in X[:, :3].T]
    parts = [
        np.clip((column[:, None] - e[:-1]) / np.diff(e), *ends_of(len(e) - 1))
        for column, e in zip(X.T, edges, strict=False)
    ]
    features = np.hstack([scaled / np.sqrt(1 + (scaled / 3) ** 2), *parts])
    outputs = np.array([mlp.predict(features) for mlp in model.mlps_])
    y = TARGETS[estimator]
    expected = np.average(outputs.astype("f8"), 0, np.repeat([*used.values()], 3) / 3)
    if estimator is MlpClassifier:
        expected = softmax(expected, axis=1)
    else:
        expected = expected[:, 0] * y.std() + y.mean()
    np.testing.assert_allclose(predicted(model), expected, 1e-9)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(predicted(twin), predicted(model))
    np.testing.assert_allclose(predicted(model, X[:1]), predicted(model)[:1], 1e-9)
    np.testing.assert_allclose(predicted(model, scipy.sparse.csr_matrix(X)), predicted(model))


def ends_of(bins):
    """Return the lowest and the highest value of each component of so many bins."""
    low, high = np.zeros(bins), np.ones(bins)
    low[0], high[-1] = -1, 2
    return low, high


def test_several_targets_and_labels_have_several_members():
    numbers = np.column_stack([NUMBERS, X[:, 1]])
    model = MlpRegressor(members=KINDS, **FOLDED).fit(X, numbers)
    low, high = model.predict_interval(X)
    assert (low < model.predict(X)).all()
    assert model.predict(X).shape == high.shape == numbers.shape
    labels = (numbers > 0.5).astype(int)
    several = MlpClassifier(members=KINDS, **FOLDED).fit(X, labels)
    assert (several.predict(X) == labels).mean() > 0.8
    with pytest.raises(UsageError, match="predict_set: must be for one label"):
        several.predict_set(X)
