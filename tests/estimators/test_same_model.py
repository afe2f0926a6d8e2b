"""Estimators, `fit`, and `init` with `train`: at their defaults the same model, to the last bit."""

from pathlib import Path

import numpy as np
import pytest

import mlpengine
from mlpengine.data.tables import Table, load_dataset
from mlpengine.estimators import MlpClassifier, MlpRegressor
from mlpengine_cli.main import run

ROWS, EPOCHS = 600, 5


def three_models(table, target, classes, folder, **divided_by):
    """Yield what estimator, `fit` and command line predict of the first rows of a table.

    `divided_by` is ``group`` or ``time`` with a column, by which folds are made.
    """
    left_out = {target, *divided_by.values()}
    names = [name for name in table.names if name not in left_out]
    columns = {name: table[name].values[:ROWS] for name in table.names}
    given = table[target]
    if given.kind == "text":
        columns[target] = np.array(given.levels)[columns[target]]
    x, y = np.stack([columns[name] for name in names], axis=1).astype("f8"), columns[target]
    of = "predict_proba" if classes else "predict"
    estimator = (MlpClassifier if classes else MlpRegressor)(epochs=EPOCHS, random_state=0)
    together = {f"{key}s": columns[name] for key, name in divided_by.items()}
    yield getattr(estimator.fit(x, y, **together), of)(x)
    new = {name: columns[name] for name in names}
    task = "classification" if classes else "regression"
    model, _ = mlpengine.fit(
        columns,
        target,
        data={"split": {"test": 0.0, **divided_by}, "task": task},
        training={"epochs": EPOCHS},
    )
    yield getattr(model, of)(new)
    rows, config, out = (str(folder / name) for name in ("rows.csv", "c.yaml", "run"))
    lines = [
        ",".join(map(str, row)) for row in zip(*(columns[n].tolist() for n in columns), strict=True)
    ]
    Path(rows).write_text("\n".join([",".join(columns), *lines]) + "\n")
    options = [word for key, name in divided_by.items() for word in (f"--{key}", name)]
    assert run(["init", rows, "--target", target, "-o", config, *options]) == 0
    settings = (
        "data.split.test=0",
        f"data.task={task}",
        f"training.epochs={EPOCHS}",
        "report=false",
    )
    options = [word for setting in settings for word in ("--set", setting)]
    assert run(["train", config, "-q", "--out", out, *options]) == 0
    yield getattr(mlpengine.load(out), of)(new)


def test_three_views_make_one_model(tmp_path):
    table, target = load_dataset("digits"), "digit"
    few = [n for n in table.names if n == target or len(table[n].distinct()) > 8]
    table = table.select(few).rows(np.arange(300))  # pixels that are not always the same
    first, *others = three_models(table, target, True, tmp_path)
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("key", ["group", "time"])
def test_three_views_make_one_model_of_groups_and_times(key, tmp_path):
    rng = np.random.default_rng(5)
    of, x = rng.integers(0, 12, 240), rng.standard_normal((240, 2))
    y = x[:, 0] + of + 0.1 * rng.standard_normal(240)
    table = Table.from_arrays(np.column_stack([x, of, y]), names=["a", "b", "of", "y"])
    first, *others = three_models(table, "y", False, tmp_path, **{key: "of"})
    for other in others:
        np.testing.assert_array_equal(other, first)
    alone = MlpRegressor(epochs=EPOCHS, random_state=0).fit(x, y)
    assert not np.array_equal(alone.predict(x), first)
