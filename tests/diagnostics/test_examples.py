"""Hard rows: their norms against explicit ones, and shuffled labels among them."""

import numpy as np
import pytest
from explicit import explicit

from mlpengine import (
    Adam,
    BinaryCrossEntropyWithLogits,
    MeanSquaredError,
    Mlp,
    SoftmaxCrossEntropy,
    TrainingStep,
)
from mlpengine.data.features import Preprocessor, split_rows
from mlpengine.data.tables import load_dataset
from mlpengine.diagnostics import example_norms, row_losses

CASES = {
    "softmax_cross_entropy": SoftmaxCrossEntropy(),
    "bce_with_logits": BinaryCrossEntropyWithLogits(),
    "mse": MeanSquaredError(),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", CASES)
def test_norms_and_losses_of_rows(loss, weighted):
    rng = np.random.default_rng(0)
    rows = 300  # more than pass through the net at once
    mlp = Mlp([4, 6, 3], activation="tanh", seed=1, dtype="float64", dropout=0.5)
    x = rng.standard_normal((rows, 4))
    y = rng.integers(0, 3, rows) if loss == "softmax_cross_entropy" else rng.random((rows, 3))
    weights = rng.uniform(0.5, 2, rows) if weighted else None
    norms = example_norms(mlp, CASES[loss], x, y, weights)
    losses = row_losses(mlp, CASES[loss], x, y, weights)
    truth = explicit(
        mlp.weights, mlp.biases, "tanh", loss, x, y, weights, [w + 1 for w in mlp.weights]
    )
    np.testing.assert_allclose(norms, truth.norms, rtol=1e-12)
    assert losses.mean() == pytest.approx(truth.loss, rel=1e-12)


def digits_with_noise(share, seed):
    """Return features, labels of which a share was shuffled, and which of them are wrong now."""
    table = load_dataset("digits")
    preprocessor = Preprocessor("digit")
    split = split_rows(table.n_rows, seed=0, labels=table["digit"].values)
    preprocessor.fit(table, split.train)
    data = preprocessor.transform(table, split.train)
    rng = np.random.default_rng(seed)
    labels = data.target.copy()
    chosen = rng.choice(len(labels), round(share * len(labels)), replace=False)
    labels[chosen] = rng.permutation(labels[chosen])
    return data.features, labels, np.flatnonzero(labels != data.target)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shuffled_labels_are_among_the_hardest_rows(seed):
    x, y, wrong = digits_with_noise(0.05, seed)
    mlp = Mlp([x.shape[1], 64, 10], seed=seed)
    step = TrainingStep(mlp, SoftmaxCrossEntropy(), Adam(mlp, lr=1e-3), 32)
    rng = np.random.default_rng(seed)
    for _ in range(10):
        order = rng.permutation(len(x))
        for start in range(0, len(x), 32):
            rows = order[start : start + 32]
            step(x[rows], y[rows])
    norms = example_norms(mlp, step.loss, x, y)
    hardest = np.argsort(norms)[::-1][:50]
    assert np.isin(hardest, wrong).mean() >= 0.7
