"""Every optimizer of the table against its formula and PyTorch; what all of them promise."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from optimizer_table import (
    CASES,
    GOLDEN,
    STEPS,
    WEIGHTS,
    Case,
    gradient,
    make_grads,
    make_model,
    start,
)

from mlpengine import optim
from mlpengine.core.errors import CheckpointError, DtypeError, ShapeError, UsageError
from mlpengine.core.fields import options_of
from mlpengine.core.spec import Array, Spec
from mlpengine.optim import (
    Adam,
    AdamW,
    ConstantSchedule,
    FullBatch,
    LinearSchedule,
    Lion,
    Optimizer,
    RmsProp,
    Sgd,
    numpy_update,
)
from mlpengine.tape.flat import Flat

OPTIMIZERS = {n: kind for n, kind in optim.OPTIMIZERS.items() if not issubclass(kind, FullBatch)}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_case_of_torch = pytest.mark.parametrize(
    "case", [case for case in CASES if case.torch_name], ids=lambda case: case.name
)


def test_every_optimizer_has_a_row() -> None:
    public = [getattr(optim, name) for name in optim.__all__]
    optimizers = {c for c in public if isinstance(c, type) and issubclass(c, Optimizer)}
    by_gradients = {kind for kind in optimizers if not issubclass(kind, FullBatch)}
    assert by_gradients - {Optimizer} == {case.make for case in CASES}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_shared_options_have_the_defaults_of_the_base_and_reach_it(make: Any) -> None:
    base, own = options_of(Optimizer), options_of(make)
    names = ["decay_biases", "schedule", "groups"]
    assert [own[name] for name in names] == [base[name] for name in names]
    options = {"decay_biases": True, "schedule": abs, "groups": {}}
    optimizer = make(make_model(), **options)
    assert {name: getattr(optimizer, name) for name in options} == options
    with pytest.raises(TypeError, match="decay_bias"):
        make(make_model(), decay_bias=True)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_mistyped_attribute_is_an_error(make: Any) -> None:
    optimizer = make(make_model())
    with pytest.raises(AttributeError, match="learning_rate"):
        optimizer.learning_rate = 0.1
    optimizer.lr = 0.25
    assert optimizer.scheduled_lr(0) == 0.25


# Values


@every_case
def test_every_step_equals_the_formula(case: Case) -> None:
    ours, expected = list(case.run(STEPS)), list(case.run_formula(STEPS))
    np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)


@every_case_of_torch
def test_golden_steps_equal_pytorch(case: Case) -> None:
    golden = json.loads(GOLDEN.read_text())[case.name]
    ours = [params for step, params in enumerate(case.run(STEPS), 1) if str(step) in golden]
    np.testing.assert_allclose(ours, list(golden.values()), rtol=1e-12, atol=1e-12)


@every_case
def test_blocks_change_no_bit(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(case.run(70))
    monkeypatch.setattr(numpy_update, "BLOCK_BYTES", 16)
    assert len(case.make(make_model(), **case.options)._numpy.blocks) > 1
    np.testing.assert_array_equal(list(case.run(70)), whole)


# Weight decay and learning rate


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("biases", [False, True])
def test_decay_is_decoupled_and_spares_biases(make: Any, biases: bool) -> None:
    model = make_model()
    optimizer = make(model, lr=0.1, weight_decay=0.5, decay_biases=biases)
    optimizer.step(model, make_grads(model))
    decayed = np.ones_like(WEIGHTS) if biases else WEIGHTS
    np.testing.assert_allclose(model.params.flat, start() * (1 - 0.05 * decayed), rtol=1e-15)


def test_learning_rate_is_base_times_schedule() -> None:
    model = make_model()
    adam = Adam(model, lr=0.5, schedule=LinearSchedule(4))
    grads = make_grads(model)
    seen = [adam.current_lr]
    for _ in range(5):
        adam.step(model, grads)
        seen.append(adam.current_lr)
    assert seen == [0.5, 0.5, 0.375, 0.25, 0.125, 0.0]
    assert (adam.steps, adam.lr) == (5, 0.5)


@every_case
def test_learning_rate_of_zero_moves_nothing(case: Case) -> None:
    model = make_model()
    optimizer = case.make(model, **case.options | {"lr": 0.0})
    grads = make_grads(model)
    grads.flat[...] = 1.0
    optimizer.step(model, grads)
    assert model.params.flat.tobytes() == start().tobytes()
    optimizer.lr = 0.1
    optimizer.step(model, grads)
    assert (model.params.flat != start()).all()


@pytest.mark.parametrize("make", [Adam, RmsProp])
def test_zero_gradient_without_eps_moves_nothing(make: Any) -> None:
    model = make_model("float32")
    before = model.params.flat.copy()
    optimizer = make(model, lr=0.1, eps=0.0)
    for _ in range(200):
        optimizer.step(model, make_grads(model))
    assert model.params.flat.tobytes() == before.tobytes()


# Binding


@every_case
def test_gradients_are_never_written(case: Case) -> None:
    model = make_model()
    grads = make_grads(model)
    grads.flat[...] = gradient(model.params.flat, 0)
    grads.flat.flags.writeable = False
    optimizer = case.make(model, **case.options)
    for _ in range(70):
        optimizer.step(model, grads)


def test_step_refuses_another_model() -> None:
    model, other = make_model(), make_model()
    with pytest.raises(UsageError, match=r"^Sgd: step needs the model it was made for"):
        Sgd(model).step(other, make_grads(other))


def test_gradients_must_be_laid_out_like_parameters() -> None:
    sgd = Sgd(make_model())
    with pytest.raises(ShapeError, match=r"gradients \(3,\), parameters \(13,\)"):
        sgd.calls(np.zeros(3))
    with pytest.raises(DtypeError, match="gradients float32, parameters float64"):
        sgd.calls(np.zeros(13, np.float32))


# State


def run_on(case: Case, model: SimpleNamespace, optimizer: Optimizer, steps: range) -> None:
    grads = make_grads(model)
    for step in steps:
        grads.flat[...] = gradient(model.params.flat, step)
        optimizer.step(model, grads)


@every_case
def test_an_average_follows_the_parameters(case: Case) -> None:
    model, plain = make_model(), [*case.run(30)]
    optimizer = case.make(model, **case.options, average=0.9)
    average = model.params.flat.copy()
    grads = make_grads(model)
    for step, expected in enumerate(plain):
        grads.flat[...] = gradient(model.params.flat, step)
        optimizer.step(model, grads)
        np.testing.assert_array_equal(model.params.flat, expected)
        average = 0.9 * average + 0.1 * expected
        np.testing.assert_allclose(optimizer.moments["average"], average, 1e-12, 1e-15)
    copied = optimizer.state_dict()["moments.average"]
    np.testing.assert_array_equal(copied, optimizer.moments["average"])


@every_case
def test_resume_is_exact_to_the_bit(case: Case) -> None:
    whole, half, resumed = make_model(), make_model(), make_model()
    run_on(case, whole, case.make(whole, **case.options), range(200))
    first = case.make(half, **case.options)
    run_on(case, half, first, range(64))
    state = first.state_dict()
    run_on(case, half, first, range(64, 70))  # a state is a copy
    resumed.params.flat[...] = list(case.run(64))[-1]
    second = case.make(resumed, **case.options | {"lr": 9.0})
    second.load_state_dict(state)
    assert (second.steps, second.lr, second.current_lr) == (64, case.lr, case.lr_at(63))
    run_on(case, resumed, second, range(64, 200))
    assert resumed.params.flat.tobytes() == whole.params.flat.tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"moments.first": None}, r"missing \['moments.first'\], unknown \[\]"),
        ({"moments.third": np.zeros(13)}, r"missing \[\], unknown \['moments.third'\]"),
        ({"moments.first": np.zeros(12)}, r"'moments.first' must be float64\[13\] .*float64\[12\]"),
        ({"moments.second": 3.0}, r"must be float64\[13\] \(got 3.0\)"),
        ({"steps": 1.5}, r"'steps' must be a whole number of at least 0 \(got 1.5\)"),
        ({"current_lr": float("nan")}, r"'current_lr' must be a number \(got nan\)"),
        ({"lr": -1.0}, r"'lr' must lie in 0 to [\d.e+]+ \(got -1.0\)"),
    ],
)
def test_state_that_does_not_fit_changes_nothing(change: dict[str, Any], message: str) -> None:
    model = make_model()
    adam = Adam(model, lr=0.25)
    new = {"lr": 0.5, "steps": 7, "moments.first": np.ones(13), "moments.second": np.ones(13)}
    state = {name: v for name, v in (adam.state_dict() | new | change).items() if v is not None}
    with pytest.raises(CheckpointError, match=rf"^Adam: .*{message}"):
        adam.load_state_dict(state)
    assert (adam.lr, adam.steps, adam.moments["first"].any()) == (0.25, 0, False)


# Usage


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Sgd, {"lr": float("nan")}, r"Sgd: lr must be .*, at least 0 .*\(got nan\)"),
        (Adam, {"betas": (0.9, 1.0)}, r"betas\[1\] must .* less than 1 \(got 1.0\)"),
        (AdamW, {"betas": 0.9}, r"AdamW: betas must be 2 numbers \(got 0.9\)"),
        (Adam, {"eps": -1e-8}, "eps must"),
        (RmsProp, {"alpha": 1.0}, "RmsProp: alpha must"),
        (Sgd, {"nesterov": True}, "Sgd: nesterov needs a momentum above zero"),
        (Sgd, {"weight_decay": -1.0}, "Sgd: weight_decay must"),
        (Sgd, {"schedule": 0.5}, r"Sgd: schedule must be callable \(got 0.5\)"),
    ],
)
def test_wrong_options_are_refused(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(make_model(), **options)


@pytest.mark.parametrize(
    ("name", "values"), [("lr", [float("nan")]), ("steps", [-1, 1.5, float("nan"), True])]
)
def test_wrong_numbers_cannot_be_set(name: str, values: list[Any]) -> None:
    adam = Adam(make_model(), schedule=ConstantSchedule())
    before = getattr(adam, name)
    for value in values:
        with pytest.raises(UsageError, match=f"Adam: {name} must"):
            setattr(adam, name, value)
    assert getattr(adam, name) == before


# Denormal numbers

DECAYING = [
    (Sgd, {"momentum": 0.8}),
    (Sgd, {"momentum": 0.8, "nesterov": True}),
    (Adam, {"betas": (0.8, 0.8)}),
    (Adam, {"betas": (0.3, 0.8)}),
    (Lion, {"betas": (0.9, 0.8)}),
    (RmsProp, {"alpha": 0.8}),
    (RmsProp, {"alpha": 0.8, "momentum": 0.8}),
    (Sgd, {"momentum": 0.8, "weight_decay": 0.2, "lr": 1.0}),
]


def denormals(array: Array) -> int:
    return int(((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)).sum())


def denormals_seen(make: Any, options: dict[str, Any], dtype: str) -> set[str]:
    """Return where denormals came up over many steps with a fifth of the gradients zero.

    There are as many as a factor of 0.9 (in float64 0.8) takes to the smallest number.
    """
    rng, size = np.random.default_rng(0), 200
    model = SimpleNamespace(params=Flat({"w": Spec((size, 1), np.dtype(dtype))}))
    model.params.flat[...] = rng.standard_normal(size)
    grads = make_grads(model)
    optimizer = make(model, **{"lr": 1e-3} | options)
    found = set()
    for step in range(1000 if dtype == "float32" else 4000):
        grads.flat[...] = rng.standard_normal(size) * 10.0 ** rng.integers(-9, 4, size)
        if step > 10:
            grads.flat[: size // 5] = 0.0
        optimizer.step(model, grads)
        arrays = optimizer.moments | {"params": model.params.flat}
        found |= {name for name, array in arrays.items() if denormals(array)}
    return found


@pytest.mark.parametrize(
    ("make", "options", "dtype"),
    [*((*row, "float32") for row in DECAYING), (*DECAYING[2], "float64")],
)
def test_nothing_decays_into_denormals(make: Any, options: dict[str, Any], dtype: str) -> None:
    assert denormals_seen(make, options, dtype) == set()


def test_square_moments_are_normal_whatever_the_gradients() -> None:
    model = make_model("float32")
    grads, adam = make_grads(model), Adam(model)
    rng = np.random.default_rng(1)
    for _ in range(1000):
        grads.flat[...] = 10.0 ** rng.uniform(-45, -15, 13)
        adam.step(model, grads)
        assert denormals(adam.moments["second"]) == 0


def test_not_a_number_survives_a_flush() -> None:
    model = make_model("float32")
    adam = Adam(model)
    adam.moments["first"][0] = adam.moments["second"][0] = np.nan
    for _ in range(130):
        adam.step(model, make_grads(model))
    assert np.isnan(adam.moments["first"][0])
    assert np.isnan(adam.moments["second"][0])
