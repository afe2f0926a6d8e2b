"""Every schedule of the table against its formula and PyTorch; warm-up, limits, errors."""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from math import cos, inf, nan, pi
from typing import Any

import numpy as np
import pytest

from mlpengine import Mlp, optim
from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.optim import (
    Adam,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    LinearSchedule,
    OneCycleSchedule,
    PlateauSchedule,
    Schedule,
    StepSchedule,
)


def one_cycle(step: int) -> float:
    """PyTorch's documented phases for 100 steps, 30 of them up."""
    low, end = 1 / 25, 1 / 250_000
    if step <= 29:
        return 1 + (low - 1) / 2 * (1 + cos(pi * step / 29))
    return end + (1 - end) / 2 * (1 + cos(pi * (min(step, 99) - 29) / 70))


TABLE: list[tuple[Schedule, Callable[[int], float]]] = [
    (ConstantSchedule(), lambda s: 1.0),
    (StepSchedule(30, 0.2), lambda s: [1.0, 0.2, 0.04, 0.008, 0.0016][s // 30]),
    (ExponentialSchedule(0.97), lambda s: np.exp(s * np.log(0.97))),
    (LinearSchedule(100), lambda s: max(0.0, (100 - s) / 100)),
    (LinearSchedule(80, final=1.5), lambda s: min(1.5, 1 + s / 160)),
    (CosineSchedule(100), lambda s: np.cos(pi * min(s, 100) / 200) ** 2),
    (CosineSchedule(100, final=0.2), lambda s: 0.2 + 0.8 * np.cos(pi * min(s, 100) / 200) ** 2),
    (OneCycleSchedule(100), one_cycle),
    (PlateauSchedule(), lambda s: 1.0),
]
every_schedule = pytest.mark.parametrize(
    ("schedule", "formula"),
    TABLE,
    ids=lambda v: "" if callable(v) and not hasattr(v, "warmup_steps") else repr(v),
)


def warmed(schedule: Schedule, warmup: int) -> Schedule:
    longer = {"warmup_epochs": float(warmup)}
    if hasattr(schedule, "total_steps"):
        longer["total_steps"] = schedule.total_steps + warmup
    return dataclasses.replace(schedule, **longer)


def test_every_schedule_has_a_row() -> None:
    public = [getattr(optim, name) for name in optim.__all__]
    schedules = {c for c in public if isinstance(c, type) and issubclass(c, Schedule)}
    assert schedules - {Schedule} == {type(schedule) for schedule, _ in TABLE}


@every_schedule
def test_factor_equals_the_formula(schedule: Schedule, formula: Callable[[int], float]) -> None:
    for step in range(130):
        assert schedule(step) == pytest.approx(formula(step), rel=1e-12, abs=1e-15)


@every_schedule
def test_warm_up_rises_to_the_schedule(schedule: Schedule, formula: Callable[[int], float]) -> None:
    slow = warmed(schedule, 8)
    ramp = [slow(step) for step in range(9)]
    assert ramp == pytest.approx([formula(0) * k / 9 for k in range(1, 10)])
    assert formula(0) == 0 or all(low < high for low, high in pairwise(ramp))
    for step in range(8, 120):
        assert slow(step) == schedule(step - 8)


@every_schedule
def test_the_next_rates_are_those_of_single_steps(
    schedule: Schedule, formula: Callable[[int], float]
) -> None:
    for one in (schedule, warmed(schedule, 8)):
        adam = Adam(Mlp([2, 1]), lr=0.3, schedule=one)
        adam.steps = 5
        assert list(adam.next_rates(300)) == [adam.scheduled_lr(step) for step in range(5, 305)]


@pytest.mark.parametrize(
    "schedule", [LinearSchedule(1), CosineSchedule(1), OneCycleSchedule(1), OneCycleSchedule(2)]
)
def test_shortest_run_starts_high(schedule: Schedule) -> None:
    assert schedule(0) == 1.0
    assert schedule(2) == pytest.approx(schedule.final)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ConstantSchedule(warmup_epochs=-1),
            "ConstantSchedule: warmup_epochs must be a finite number, at least 0 .got -1",
        ),
        (lambda: ExponentialSchedule(1.1), "factor must be .* at most 1 "),
        (lambda: LinearSchedule()(0), "total_steps is needed, such as LinearSchedule"),
        (lambda: LinearSchedule(10, warmup_epochs=10), "must be more than the steps of the"),
        (lambda: OneCycleSchedule(10, rise=1.0), "OneCycleSchedule: rise must"),
        (lambda: PlateauSchedule(factor=1.0), "PlateauSchedule: factor must be .* less than 1"),
    ],
)
def test_wrong_fields_are_refused(make: Callable[[], Schedule], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


# Plateau


def factors_after(schedule: PlateauSchedule, metrics: list[float]) -> list[float]:
    seen = []
    for metric in metrics:
        before = schedule(0)
        assert schedule.observe(metric) == (schedule(0) < before)
        seen.append(schedule(0))
    return seen


@pytest.mark.parametrize(
    ("schedule", "metrics", "expected"),
    [
        (
            PlateauSchedule(patience=1, factor=0.5),
            [3, 2, 2, 2, 1, 1, 1],
            [1, 1, 1, 0.5, *[0.5] * 2, 0.25],
        ),
        (
            PlateauSchedule(patience=0, factor=0.5, cooldown=2),
            [1, 1, 1, 1, 1],
            [1, 0.5, 0.5, 0.5, 0.25],
        ),
        (PlateauSchedule(patience=0, factor=0.5, min_factor=0.4), [1, 1, 1, 1], [1, 0.5, 0.4, 0.4]),
        (PlateauSchedule(patience=0, factor=0.5, threshold=0.1), [10, 9.5, 8.9], [1, 0.5, 0.5]),
        (
            PlateauSchedule(patience=0, factor=0.5, threshold=0.1),
            [-10, -10.5, -11.1],
            [1, 0.5, 0.5],
        ),
        (
            PlateauSchedule(patience=0, factor=0.5),
            [nan, inf, 5, 4, nan],
            [0.5, 0.25, 0.25, 0.25, 0.125],
        ),
    ],
)
def test_plateau_drops(
    schedule: PlateauSchedule, metrics: list[float], expected: list[float]
) -> None:
    assert factors_after(schedule, metrics) == pytest.approx(expected)


def test_plateau_state_makes_it_continue() -> None:
    metrics = list(np.random.default_rng(2).random(60))
    whole, first, second = (PlateauSchedule(patience=2, cooldown=1, factor=0.9) for _ in range(3))
    expected = factors_after(whole, metrics)
    assert factors_after(first, metrics[:30]) == expected[:30]
    second.load_state_dict(first.state_dict())
    assert factors_after(second, metrics[30:]) == expected[30:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bad": -1}, "'bad' must be a whole number"),
        ({"scale": nan}, "'scale' must be a number"),
        ({"more": 1}, r"unknown \['more'\]"),
    ],
)
def test_plateau_refuses_a_wrong_state(change: dict[str, Any], message: str) -> None:
    schedule = PlateauSchedule()
    with pytest.raises(CheckpointError, match=message):
        schedule.load_state_dict(schedule.state_dict() | change)
    assert schedule.state_dict() == PlateauSchedule().state_dict()
