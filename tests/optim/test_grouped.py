"""An optimizer for each group of parameters, in one training step."""

import copy
import pickle

import numpy as np
import pytest

from mlpengine import Adam, Loop, MeanSquaredError, Mlp, Sgd, TrainingStep
from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.models import LossOnly, Split
from mlpengine.nn import Network
from mlpengine.optim import AdamW, CosineSchedule, Group, NAdam, RmsProp

IN_DIM, ROWS = 5, 20


class Headed(Network):
    """A body and a head, each a group."""

    def __init__(self, **options):
        shapes = {"w": (7, IN_DIM), "b": 7, "w2": (7, 7), "head.w": (2, 7), "head.b": 2}
        groups = {"body": ["w", "b", "w2"], "head": ["head.w", "head.b"]}
        super().__init__(IN_DIM, shapes, groups=groups, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w"), p("b")).tanh().linear(p("w2")).tanh()
        return h.linear(p("head.w"), p("head.b"))


def two(network, schedule=None):
    """Adam's and SGD's learning rates, decays and momentums, for both and for PyTorch."""
    head = AdamW(network, lr=3e-3, weight_decay=0.1, schedule=schedule)
    return {"head": head, "body": Sgd(network, lr=0.05, momentum=0.9, schedule=schedule)}


def three(network):
    groups = {"weights": Group(lr=0.5)}
    parts = {"head": NAdam(network, groups=None), "body": RmsProp(network, groups=groups)}
    return {**parts, "body": Sgd(network, lr=0.1, groups=groups, weight_decay=0.01)}


def rows(count=ROWS, dtype="float64"):
    x = np.random.default_rng(1).standard_normal((count, IN_DIM)).astype(dtype)
    return x, np.sin(2 * x[:, :2])


def make_step(backend="numpy", make=two, dtype="float64", **options):
    network = Headed(seed=2, dtype=dtype)
    options = {"clip_norm": 0.3, "backend": backend, **options}
    return TrainingStep(network, MeanSquaredError(), make(network), ROWS, **options)


def losses(step, count=60):
    x, y = rows(dtype=step.mlp.dtype)
    return [step(x, y) for _ in range(count)]


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_each_group_moves_as_by_its_own_optimizer(backend):
    """By the formulas, from the gradients of the step, clipped by their global norm."""
    step = make_step(backend)
    x, y = rows()
    first, second, velocity = 0.0, 0.0, 0.0
    for t in range(1, 31):
        before = step.mlp.state_dict()
        step(x, y)
        g = {name: view.copy() for name, view in step.grads.views.items()}
        norm = np.sqrt(sum((v**2).sum() for v in g.values()))
        assert step.clipped_norm == pytest.approx(min(step.grad_norm, 0.3), rel=1e-5)
        assert norm == pytest.approx(step.clipped_norm, rel=1e-5)
        first, second = 0.9 * first + 0.1 * g["head.w"], 0.999 * second + 0.001 * g["head.w"] ** 2
        mean, square = first / (1 - 0.9**t), second / (1 - 0.999**t)
        head = before["head.w"] * (1 - 3e-3 * 0.1) - 3e-3 * mean / (np.sqrt(square) + 1e-8)
        velocity = 0.9 * velocity + g["w2"]
        now = step.mlp.state_dict()
        np.testing.assert_allclose(now["head.w"], head, rtol=1e-9)
        np.testing.assert_allclose(now["w2"], before["w2"] - 0.05 * velocity, rtol=1e-9)


@pytest.mark.torch
def test_steps_are_those_of_two_optimizers_of_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: optimizers NOT compared")
    f, step = torch.nn.functional, make_step("compiled")
    p = {n: torch.tensor(v, requires_grad=True) for n, v in step.mlp.state_dict().items()}
    weights = {"params": [p["head.w"]], "weight_decay": 0.1}
    biases = {"params": [p["head.b"]], "weight_decay": 0}
    body = [p[name] for name in step.mlp.groups["body"]]
    both = torch.optim.AdamW([weights, biases], lr=3e-3), torch.optim.SGD(body, 0.05, momentum=0.9)
    x, y = (torch.tensor(v) for v in rows())
    for ours in losses(step):
        h = torch.tanh(f.linear(torch.tanh(f.linear(x, p["w"], p["b"])), p["w2"]))
        loss = f.mse_loss(f.linear(h, p["head.w"], p["head.b"]), y)
        assert ours == pytest.approx(loss.item(), rel=1e-9)
        for each in both:
            each.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 0.3)
        for each in both:
            each.step()


@pytest.mark.parametrize("make", [two, three])
def test_compiled_steps_are_one_program_and_those_of_numpy(make):
    expected, step = losses(make_step(make=make)), make_step("compiled", make)
    np.testing.assert_allclose(losses(step), expected, rtol=1e-9)
    assert step.fused
    assert expected[-1] < expected[0]


def test_many_steps_in_one_call_have_the_bits_of_single_ones():
    schedule = CosineSchedule(40)
    alone, many = (make_step("compiled", lambda n: two(n, schedule)) for _ in range(2))
    x, y = rows()
    order = np.tile(np.arange(ROWS), 40)
    expected = [alone(x, y) for _ in range(40)]
    assert many.run_many(x, y, order)[0].tolist() == expected
    assert many.mlp.params.flat.tobytes() == alone.mlp.params.flat.tobytes()
    assert many.optimizer.current_lr == alone.optimizer.current_lr


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@pytest.mark.parametrize("make", [two, three])
def test_a_step_goes_on_from_its_file_byte_for_byte(backend, make, tmp_path):
    whole, half = make_step(backend, make), make_step(backend, make)
    expected = losses(whole, 40)
    assert losses(half, 20) == expected[:20]
    half.save(tmp_path / "half.safetensors")
    other = make_step(backend, make)
    other.load(tmp_path / "half.safetensors")
    copies = [copy.deepcopy(half), pickle.loads(pickle.dumps(half))]
    for each in (other, half, *copies):
        assert losses(each, 20) == expected[20:]
        assert each.mlp.params.flat.tobytes() == whole.mlp.params.flat.tobytes()
        for name, moment in each.optimizer.moments.items():
            assert moment.tobytes() == whole.optimizer.moments[name].tobytes(), name
    with pytest.raises(CheckpointError, match=r"missing \[.*moments"):
        make_step(make=lambda n: Adam(n)).load(tmp_path / "half.safetensors")


def test_the_learning_rate_of_the_first_leads_those_of_the_others():
    step = make_step()
    step.optimizer.lr = 2 * step.optimizer.lr
    before = step.mlp.state_dict()
    step(*rows())
    moved = before["w2"] - step.mlp.state_dict()["w2"]
    np.testing.assert_allclose(moved, 0.1 * step.grads.views["w2"], rtol=1e-9)
    assert step.optimizer.moments.keys() == {"head.first", "head.second", "body.velocity"}
    assert "update    adamw, sgd" in step.summary()


def test_a_loop_trains_with_both():
    step = make_step("compiled")
    x, y = rows(60)
    data = Split(x, y, truth=y)
    result = Loop(step, LossOnly(), data, data, epochs=5, seed=1).run()
    assert result.history.rows[-1].lr == pytest.approx(3e-3)
    assert step.optimizer.steps == 15


def test_groups_of_an_mlp_and_frozen_layers():
    mlp = Mlp([IN_DIM, 6, 2], seed=0)
    mlp.freeze([0])
    optimizer = {"weights": Sgd(mlp, lr=0.1), "biases": Adam(mlp)}
    step = TrainingStep(mlp, MeanSquaredError(), optimizer, ROWS, backend="numpy")
    before = mlp.state_dict()
    step(*rows(dtype="float32"))
    same = [name for name, old in before.items() if (old == mlp.state_dict()[name]).all()]
    assert set(same) == mlp.params.frozen


WRONG = {
    "groups must be of the network's, weights, biases, body, head": lambda n: {"heat": Adam(n)},
    "each parameter must be in a group": lambda n: {"head": Adam(n)},
    "no parameter in common": lambda n: {"weights": Adam(n), "biases": Adam(n), "head": Sgd(n)},
    "must have an optimizer of this network": lambda n: {"head": Adam(Headed()), "body": Sgd(n)},
    r"must have an optimizer of this network \(got <class": lambda n: {
        "head": Adam,
        "body": Sgd(n),
    },
    "all must have one schedule": lambda n: {
        "head": Adam(n, schedule=CosineSchedule(3)),
        "body": Sgd(n),
    },
    "the first must have an lr above 0": lambda n: {"head": Adam(n, lr=0), "body": Sgd(n)},
    r"\(got none\)": lambda n: {},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_go_together_is_refused(message):
    with pytest.raises(UsageError, match=message):
        make_step(make=WRONG[message])
