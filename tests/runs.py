"""A small classification run for tests of the loop: seeded, a few milliseconds."""

import numpy as np

from mlpengine import Adam, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.models.task import Classification, Split
from mlpengine.training.loop import EarlyStopping, Loop

CLASSES = 3


def part(rows, seed, *, noise=0.0, weights=False):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 4)).astype("float32")
    y = (x[:, :CLASSES] + noise * rng.standard_normal((rows, CLASSES))).argmax(axis=1)
    return Split(x, y, y, rng.uniform(0.5, 2, rows).astype("float32") if weights else None)


def make_loop(
    *,
    rows=50,
    batch_size=16,
    epochs=4,
    early_stopping=None,
    callbacks=(),
    validation=True,
    noise=0.0,
    schedule=None,
    lr=1e-2,
    weights=False,
    dropout=0.0,
    seed=3,
    optimizer=Adam,
    backend="numpy",
    drop_last=False,
):
    mlp = Mlp([4, 8, CLASSES], dropout=dropout, seed=seed)
    bound = optimizer(mlp, lr=lr, schedule=schedule)
    train = part(rows, 1, noise=noise, weights=weights)
    step = TrainingStep(
        mlp, SoftmaxCrossEntropy(), bound, batch_size, weighted=weights, backend=backend
    )
    return Loop(
        step,
        Classification(CLASSES),
        train,
        part(20, 2, noise=noise) if validation else None,
        epochs=epochs,
        early_stopping=early_stopping,
        seed=seed,
        callbacks=callbacks,
        drop_last=drop_last,
    )


__all__ = ["CLASSES", "EarlyStopping", "make_loop", "part"]
