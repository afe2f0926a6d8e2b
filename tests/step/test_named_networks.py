"""Networks with several inputs, outputs and losses train by `TrainingStep` and `Loop`."""

import numpy as np
import pytest
from own_networks import BATCH, IN_DIM, SEVERAL, Gated, TwoTables, data, make_step, part

from mlpengine import Adam, Loop, MeanSquaredError, TrainingStep
from mlpengine.core.errors import MlpEngineError, NumericalError
from mlpengine.data.features import NumberTarget
from mlpengine.models import Classification, LossOnly, Regression, Split
from mlpengine.nn import Network
from mlpengine.settings import EarlyStopping
from mlpengine.training.diagnose import LoopDiagnostics

BACKENDS = ("numpy", "compiled")


def test_two_losses_and_their_gradients_are_those_of_the_formulas(monkeypatch):
    monkeypatch.setattr(TwoTables, "rate", 0.0)
    step = make_step("two tables", dtype="float64", clip_norm=None)
    p = step.mlp.state_dict()
    x, y = data("two tables", BATCH, "float64")
    before = step.mlp.predict(x)
    loss = step(x, y)
    h = np.tanh(x["left"] @ p["left"].T + x["image"].reshape(BATCH, -1) @ p["image"].T)
    price, logits = h @ p["price.weight"].T, h @ p["class.weight"].T
    np.testing.assert_allclose(before["price"], price, rtol=1e-12)
    np.testing.assert_allclose(before["class"], logits, rtol=1e-12)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    hot = np.eye(3)[y["class"]]
    parts = {
        "price": np.square(price - y["price"]).mean(),
        "class": -np.log((chances * hot).sum(axis=1)).mean(),
    }
    assert step.losses == pytest.approx(parts, rel=1e-12)
    assert loss == pytest.approx(parts["price"] + 0.3 * parts["class"], rel=1e-12)
    d_price, d_logits = 2 * (price - y["price"]) / BATCH, 0.3 * (chances - hot) / BATCH
    dz = (d_price @ p["price.weight"] + d_logits @ p["class.weight"]) * (1 - h**2)
    expected = {
        "price.weight": d_price.T @ h,
        "class.weight": d_logits.T @ h,
        "class.bias": d_logits.sum(axis=0),
        "left": dz.T @ x["left"],
        "bias": dz.sum(axis=0),
    }
    for name, gradient in expected.items():
        np.testing.assert_allclose(step.grads.views[name], gradient, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_order_of_names_does_not_matter(backend):
    class Pair(Network):
        def __init__(self):
            super().__init__({"a": 3, "b": 3}, {"w": (2, 3), "v": (2, 3)}, seed=1)

        def record(self, tape, a, b):
            w, v = map(tape.parameter, "wv")
            return {"one": a.linear(w) + b.linear(v), "two": a.linear(w).tanh()}

    x = {n: np.random.default_rng(i).random((64, 3), "f4") for i, n in enumerate("ab")}
    y = {"one": x["a"][:, :2], "two": x["b"][:, :2] * 0.1}
    turned = [dict(reversed(part.items())) for part in (x, y)]
    results = []
    for features, targets in ((x, y), turned):
        network = Pair()
        losses = {"two": MeanSquaredError(), "one": MeanSquaredError()}
        step = TrainingStep(network, losses, Adam(network), BATCH, backend=backend)
        split = Split(
            *(
                [
                    {n: np.ascontiguousarray(v) for n, v in p.items()}
                    for p in (features, targets, targets)
                ]
            )
        )
        Loop(step, LossOnly(), split, split, epochs=2).run()
        step.run_many(split.x, split.y, np.arange(64))
        results.append((network.params.flat.copy(), network.predict(features)["two"]))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_sample_weights_weigh_every_loss(monkeypatch):
    monkeypatch.setattr(TwoTables, "rate", 0.0)
    x, y = data("two tables", BATCH)
    weights = np.repeat(np.float32([0, 2]), BATCH // 2)
    step = make_step("two tables", weighted=True)
    half = make_step("two tables", batch=BATCH // 2)
    second = slice(BATCH // 2, None)
    expected = half(part(x, second), part(y, second))
    assert step(x, y, weights) == pytest.approx(expected, rel=1e-5)


def test_a_number_that_is_not_finite_is_located_by_the_inputs_name():
    step = make_step("two tables")
    x, y = data("two tables", BATCH)
    x["left"][5, 1] = np.nan
    with pytest.raises(
        NumericalError, match="input 'left' is not, in row 5 of the batch: column 1"
    ):
        step(x, y)


def step_of(losses, network=None, **options):
    network = network or TwoTables()
    return TrainingStep(network, losses, Adam(network), BATCH, backend="numpy", **options)


LOSSES = SEVERAL["two tables"][1]
X, Y = data("two tables", BATCH)


def own(record, **options):
    kind = type("Own", (Network,), {"record": lambda self, tape, x: record(tape, x)})
    return kind(3, {"w": (2, 3)}, **options)


REFUSED = {
    "one loss": (lambda: step_of(MeanSquaredError()), ("price", "class")),
    "losses of one output": (lambda: step_of(LOSSES, Gated()), ("one loss", "'price', 'class'")),
    "a weight of 0": (lambda: step_of(LOSSES, loss_weights={"class": 0}), ("'class'", "got 0")),
    "weights in order": (lambda: step_of(LOSSES, loss_weights=[1, 2]), ("factors by", "[1, 2]")),
    "no names": (lambda: step_of(LOSSES)(X["left"], Y), ("x must be arrays by name", "left")),
    "other names": (
        lambda: step_of(LOSSES)({"left": X["left"]}, Y),
        ("left, image", "got left"),
    ),
    "other rows": (lambda: step_of(LOSSES)(X, {**Y, "class": Y["class"][:3]}), ("(16,)", "(3,)")),
    "another shape": (
        lambda: step_of(LOSSES)({**X, "left": X["left"][:, :2]}, Y),
        ("x['left']", "(16, 6)", "(16, 2)"),
    ),
    "names for one array": (
        lambda: Loop(step_of(MeanSquaredError(), Gated()), LossOnly(), Split(X, X, X), epochs=1),
        ("x must be one array", "left, image"),
    ),
    "a program of its own": (lambda: TwoTables().compile(), ("one input and one output",)),
    "one task": (
        lambda: Loop(step_of(LOSSES), Classification(3), Split(X, Y, Y), epochs=1),
        ("price, class", "LossOnly()"),
    ),
    "a task of no output": (
        lambda: Loop(step_of(LOSSES), {"clas": LossOnly()}, Split(X, Y, Y), epochs=1),
        ("'class'?",),
    ),
    "no truth": (
        lambda: Loop(
            step_of(LOSSES),
            {"class": Classification(3)},
            Split(X, Y, {"price": X["left"]}),
            epochs=1,
        ),
        ("truth", "got price"),
    ),
    "a metric of no output": (
        lambda: loop_by_output("accuracy of price", epochs=1),
        ("'accuracy of class'?",),
    ),
    "one node twice": (
        lambda: own(lambda tape, x: dict.fromkeys("ab", x.linear(tape.parameter("w")))).scratch(4),
        ("different nodes", "a, b"),
    ),
}


def loop_by_output(monitor="loss", **options):
    """Return a loop of two tasks by output; the units of prices are those of the table."""
    target = NumberTarget(["price"], [5.0], [2.0])
    tasks = {"price": Regression(target), "class": Classification(3)}
    parts = []
    for count, seed in ((60, 0), (20, 5)):
        x, y = data("two tables", count, seed=seed)
        parts.append(Split(x, y, {**y, "price": 5 + 2 * y["price"].astype("f8")}))
    stopping = EarlyStopping(patience=50, monitor=monitor)
    return Loop(make_step("two tables"), tasks, *parts, early_stopping=stopping, **options)


def test_a_loop_measures_each_output_and_stops_by_one_of_them():
    loop = loop_by_output("macro_f1 of class", epochs=6)
    result = loop.run()
    history = [row.validation for row in loop.history.rows]
    scores = [row["macro_f1 of class"] for row in history]
    assert result.best_epoch == 1 + scores.index(max(scores))
    held = loop.validation
    output, best = loop.step.mlp.predict(held.x), history[result.best_epoch - 1]
    off = 5 + 2 * output["price"].astype("f8") - held.truth["price"]
    expected = {
        "mae of price": np.abs(off).mean(),
        "rmse of price": np.sqrt(np.square(off).mean()),
        "r2 of price": 1 - np.square(off).mean() / held.truth["price"].var(),
        "accuracy of class": (output["class"].argmax(axis=1) == held.truth["class"]).mean(),
    }
    assert {name: best[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert {"loss", "loss of price", "loss of class"} < best.keys()


def test_diagnostics_of_a_loop_know_the_features_and_constants_of_all_tables():
    watch = LoopDiagnostics()
    loop = loop_by_output(epochs=1, callbacks=[watch])
    loop.train.x["image"][7, 0, 1, 2] = 1e3
    loop.run()
    core, y = watch.core, loop.train.y
    shares = np.bincount(y["class"]) / len(y["class"])
    entropy = -(shares * np.log(shares)).sum()
    assert core.baseline == pytest.approx(y["price"].var() + 0.3 * entropy, rel=1e-6)
    assert core.feature_names[IN_DIM - 1 : IN_DIM + 2] == ("left 5", "image 0", "image 1")
    assert (core.extreme.row, core.feature_names[core.extreme.column]) == (7, "image 6")
    rows = np.concatenate([loop.train.x["left"], loop.train.x["image"].reshape(60, 16)], axis=1)
    expected = np.quantile(np.abs(rows), 0.9, axis=0)
    np.testing.assert_allclose(core.feature_sizes, expected, rtol=0.02)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_one_clear_error(name):
    make, parts = REFUSED[name]
    with pytest.raises(MlpEngineError) as error:
        make()
    assert [part for part in parts if part not in str(error.value)] == []
