"""Numbers at the limits: no rows, rates beyond the dtype, warnings that NumPy would print."""

import warnings

import numpy as np
import pytest

import mlpengine
from mlpengine import Adam, Mlp, Program, Sgd, Tape, TrainingStep
from mlpengine.core.errors import CheckpointError, DataError, NumericalError, ShapeError, UsageError
from mlpengine.core.spec import Spec
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.sources import Source
from mlpengine.data.features.statistics import Statistics
from mlpengine.data.tables.table import Table
from mlpengine.estimators import MlpRegressor
from mlpengine.ops import REGISTRY, Loss
from mlpengine.tape import from_inner

FORMULAS = {"formula": "abs(y - t) ** 1.5"}
LOSSES = {
    name: cls(*[FORMULAS[n] for n in [name] if n in FORMULAS])
    for name, cls in REGISTRY.items()
    if issubclass(cls, Loss)
}


def step_of(loss: Loss, backend: str = "numpy", **options: object) -> TrainingStep:
    mlp = Mlp([3, 4, 2], seed=1)
    return TrainingStep(mlp, loss, Sgd(mlp, **options), 4, backend=backend)


def target_of(loss: Loss, rows: int) -> np.ndarray:
    spec = loss.target_spec(Spec((rows, 2), np.dtype("f4")))
    return np.zeros(spec.shape, spec.dtype)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_no_rows_is_refused(name):
    loss = LOSSES[name]
    empty = np.zeros((0, 2), "f4")
    with pytest.raises(ShapeError, match=rf"{name}: output needs at least one entry"):
        loss(empty, target_of(loss, 0))
    tape = Tape()
    output, target = tape.input((0, 2)), tape.constant(target_of(loss, 0))
    with pytest.raises(ShapeError, match="at least one entry"):
        tape.apply(loss, output, target)


@pytest.mark.parametrize(("dtype", "lr"), [("f4", 1e39), ("f4", np.inf), ("f8", np.inf)])
def test_a_rate_beyond_the_dtype_is_refused(dtype, lr):
    mlp = Mlp([3, 2], dtype=dtype)
    with pytest.raises(UsageError, match="lr must be a finite number"):
        Sgd(mlp, lr=lr)
    made = Sgd(mlp, lr=1.0)
    with pytest.raises(UsageError, match="lr must be a finite number"):
        made.lr = lr
    with pytest.raises(CheckpointError, match="'lr' must lie in 0 to"):
        made.load_state_dict({**made.state_dict(), "lr": lr})
    with pytest.raises(UsageError, match="weight_decay must be a finite number"):
        Sgd(mlp, lr=1.0, weight_decay=lr)
    assert Sgd(Mlp([3, 2], dtype="f8"), lr=1e39).lr == 1e39


FACTORS = {
    "a schedule of ours": mlpengine.optim.OneCycleSchedule(5, initial=1e20),
    "a negative factor": lambda step: -float(step == 0),
    "no number": lambda step: float("nan"),
}


@pytest.mark.parametrize("name", FACTORS)
def test_a_schedule_that_leaves_the_dtype_is_refused(name):
    with pytest.raises(UsageError, match=r"lr times schedule must lie in 0 to 3.4\d*e\+38 \(lr 1e"):
        Sgd(Mlp([3, 2]), lr=1e20, schedule=FACTORS[name])


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_a_schedule_that_leaves_the_dtype_later_stops_before_the_step(backend):
    step = step_of(
        mlpengine.MeanSquaredError(), backend, lr=0.1, schedule=lambda n: 1e40 * (n == 2)
    )
    x, y = np.ones((4, 3), "f4"), np.ones((4, 2), "f4")
    step(x, y)
    step(x, y)
    before = step.mlp.params.flat.copy()
    for attempt in (lambda: step(x, y), lambda: step.run_many(x, y, np.arange(4))):
        with pytest.raises(UsageError, match="factor 1e\\+40 after 2 steps"):
            attempt()
        np.testing.assert_array_equal(step.mlp.params.flat, before)
    assert step.optimizer.steps == 2


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_squares_of_gradients_that_overflow_are_refused(backend):
    mlp = Mlp([3, 2], seed=1)
    step = TrainingStep(mlp, mlpengine.MeanSquaredError(), Adam(mlp), 4, backend=backend)
    with pytest.raises(NumericalError, match=r"weight is 1e\+18"):
        step(np.ones((4, 3), "f4"), np.full((4, 2), 1e18, "f4"))


HUGE = np.float32(3e38)


def by_hand() -> None:
    mlp = Mlp([3, 4, 2], activation="silu", seed=1)
    scratch, grads = mlp.scratch(4), mlp.gradients(4)
    loss, adam = mlpengine.MeanSquaredError(), Adam(mlp)
    for _ in range(3):
        mlp.forward(np.full((4, 3), 1e300), scratch)
        loss(scratch.output, np.full((4, 2), -1e300), grads.d_output)
        mlp.backward(scratch, grads)
        grads.flat.fill(1e30)
        grads.clip_global_norm_params(1.0)
        adam.step(mlp, grads)
    mlp.predict(np.full((4, 3), np.inf, "f4"))


def program() -> None:
    tape = Tape()
    x = tape.input((2,), name="x", wants_grad=True)
    replayed = Program(tape, x.log() * x.exp())
    replayed.forward(x=[0.0, HUGE])
    replayed.backward()


def eager() -> None:
    x = from_inner(np.array([0.0, HUGE])).require_grad()
    (x.log() * x.exp()).sum().backward()


def bound_step() -> None:
    with pytest.raises(NumericalError, match="step 1: loss and gradients must be finite"):
        step_of(mlpengine.MeanSquaredError())(np.full((4, 3), HUGE), np.full((4, 2), HUGE))


@pytest.mark.parametrize("compute", [by_hand, program, eager, bound_step])
def test_numbers_that_overflow_raise_no_warnings(compute):
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        compute()
    assert [str(w.message) for w in raised] == []
    assert np.geterr()["over"] == "warn"  # the caller's settings are as before


def test_a_feature_of_tiny_numbers_has_a_deviation():
    """Squares of such numbers are 0: the column was taken for a constant."""
    scale = 1e-298
    x = np.random.default_rng(0).standard_normal((200, 2))
    stats = Statistics(Table.from_arrays(x * scale), [Source("x0"), Source("x1")], True, None)
    np.testing.assert_allclose(stats.deviation, (x * scale / 2.0**-900).std(axis=0) * 2.0**-900)


@pytest.mark.parametrize("scaling", ["standard", "minmax", "robust"])
def test_a_feature_of_subnormal_numbers_is_constant(scaling):
    table = Table.from_arrays(np.arange(60.0)[:, None] * 1e-320)
    assert Preprocessor(standardize=scaling).fit(table).constant == ["x0"]


@pytest.mark.parametrize("scale", [1e-40, 1e-310])
def test_a_target_of_tiny_numbers_is_refused(scale):
    x = np.random.default_rng(0).standard_normal((50, 2))
    with pytest.raises(DataError, match=r"y: the target's range is too small \(it is .*e-\d+"):
        MlpRegressor().fit(x, x[:, 0] * scale)
