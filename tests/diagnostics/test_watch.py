"""Training loops of others: from plain arrays, and of PyTorch where it is installed."""

import sys

import numpy as np
import pytest

from mlpengine.core.errors import MissingExtraError, UsageError
from mlpengine.diagnostics import Watch, table, watch

BROKEN = {
    "dead": "dead",
    "saturated": "saturated",
    "exploding": "start",
    "vanishing": "vanishing",
    "lr_high": "lr_high",
    "lr_low": "lr_low",
    "decay_high": "decay_high",
    "double_softmax": "output_clamped",
    "unscaled": "input_scale",
    "frozen": "frozen",
    "unlisted": "frozen",
    "detached": "detached",
    "loss_summed": "loss_summed",
    "shuffled": "labels",
}
"""The loops of torch_loops.py, and the verdict that tells why they do not learn."""
HEALTHY = ("plain", "with_functions", "regression", "two_classes")


@pytest.mark.torch
@pytest.mark.parametrize("name", [*BROKEN, *HEALTHY])
def test_the_first_verdict_on_a_loop_of_pytorch_is_right(name):
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    import torch_loops

    torch.manual_seed(0)
    names = [verdict.name for verdict in getattr(torch_loops, name)().verdicts()]
    assert names[:1] == ([BROKEN[name]] if name in BROKEN else [])


def trained(lr, steps=300, every=None, scale=1.0):
    """Train a network of NumPy with one hidden layer; return its watch, and the last arrays."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 6)).astype("f4")
    y = np.tanh(x[:, :1] + x[:, 1:2])
    x *= scale
    w = [(rng.standard_normal(s) / np.sqrt(s[1])).astype("f4") for s in ((16, 6), (1, 16))]
    seen = Watch("mse", every=every, lr=lr)
    for _ in range(steps):
        hidden = np.maximum(x @ w[0].T, 0)
        error = hidden @ w[1].T - y
        slope = 2 * error / len(x)
        grads = [((slope @ w[1]) * (hidden > 0)).T @ x, slope.T @ hidden]
        before = [one.copy() for one in w]
        for one, grad in zip(w, grads, strict=True):
            one -= lr * grad
        seen.record("hidden", weights=w[0], gradients=grads[0], activations=hidden,
                    activation="relu")  # fmt: skip
        seen.record("out", weights=w[1], gradients=grads[1], activations=error + y)
        seen.step(np.mean(error**2), inputs=x, targets=y)
    return seen, before, w, grads, hidden


def test_quantities_of_plain_arrays_are_those_of_float64_formulas():
    seen, before, after, grads, hidden = trained(0.05, steps=20, every=1)
    for number in (0, 1):
        old, update, grad = (
            np.float64(one).ravel()
            for one in (before[number], before[number] - after[number], grads[number])
        )
        size = np.linalg.norm
        assert seen.core.get("update_ratio", number) == pytest.approx(
            size(update) / size(old), rel=1e-5
        )
        assert seen.core.get("gradient_rms", number) == pytest.approx(
            np.sqrt(np.mean(grad**2)), rel=1e-5
        )
    assert seen.core.get("activation_std", 0) == pytest.approx(hidden.std(), rel=1e-5)
    norm = np.sqrt(sum(np.square(grad, dtype="f8").sum() for grad in grads))
    assert seen.core.get("gradient_norm") == pytest.approx(norm, rel=1e-5)
    assert "relu" in table(seen.core)
    seen, big = Watch(every=1), np.full((3, 6), 1e200)  # squares are beyond float64
    for number in (1, 2):
        seen.record("one", weights=number * big, gradients=big)
        seen.step(1.0)
    assert seen.core.get("update_ratio", 0) == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"lr": 0.05}, None),
        ({"lr": 1e-6}, "lr_low"),
        ({"lr": 1e-5, "scale": 100.0}, "input_scale"),
        ({"lr": 10.0}, "nonfinite"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*encountered")
def test_a_loop_of_numpy_gets_verdicts_in_words(options, name):
    seen = trained(**options)[0]
    found = seen.verdicts()
    assert [one.name for one in found[:1]] == ([name] if name else [])
    assert (str(seen) == "nothing unusual") == (name is None)
    for verdict in found:
        assert not verdict.fix
        assert not any(f"{one}." in verdict.advice for one in ("data", "optimizer", "training"))


@pytest.mark.parametrize("recorded", ["weights", "activations"])
def test_a_loss_that_is_not_finite_is_named(recorded):
    seen = Watch("mse")
    for loss in (1.0, float("nan"), float("nan")):
        seen.record("one", **{recorded: np.ones((2, 2))})
        seen.step(loss, targets=np.full((2, 2), loss))
    assert "nonfinite" in [one.name for one in seen.verdicts()]


def test_misuse_is_told_in_one_line():
    for loss, lr, text in (("msee", 1.0, "did you mean 'mse'"), ("mse", np.nan, "lr must be a f")):
        with pytest.raises(UsageError, match=text):
            Watch(loss, lr=lr)
    for call in (Watch().verdicts, Watch().epoch):
        with pytest.raises(UsageError, match="no step so far"):
            call()
    seen = Watch(every=1)
    with pytest.raises(UsageError, match="record"):
        seen.step(1.0)
    seen.record("one", weights=np.ones((2, 2)))
    for wrong in (np.ones(3), "1", None):
        with pytest.raises(UsageError, match="one number"):
            seen.step(wrong)
    seen.step(np.ones(1))
    with pytest.raises(UsageError, match="first step"):
        seen.record("two", weights=np.ones((2, 2)))


def test_without_pytorch_the_error_is_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "mlpengine.diagnostics.torch_watch", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'mlpengine\[torch\]'"):
        watch(None, None)


@pytest.mark.torch
def test_misuse_with_pytorch_is_told_in_one_line():
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    model = torch.nn.Linear(2, 1)
    with pytest.raises(UsageError, match=r"got Linear, int"):
        watch(model, 3)
    watcher = watch(model, torch.optim.SGD(model.parameters()))
    for loss in (1.0, model(torch.zeros(3, 2))):
        with pytest.raises(UsageError, match=r"item\(\)"):
            watcher.step(loss)
    bag = torch.nn.Sequential(torch.nn.EmbeddingBag(3, 2, sparse=True), model)
    watcher, loss = watch(bag, torch.optim.SGD(bag.parameters())), bag(torch.tensor([[0, 1]])).sum()
    loss.backward()
    watcher.step(loss)
