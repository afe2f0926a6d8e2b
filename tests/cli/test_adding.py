"""What is added from outside, in one class, is known everywhere that built-in ones are."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import mlpengine as package
from mlpengine.config import json_schema
from mlpengine.core.fields import Fraction, Limits, NonNegative, Positive
from mlpengine.estimators import MlpRegressor
from mlpengine.ops import EntryLoss
from mlpengine.ops.op import REGISTRY
from mlpengine.optim import Optimizer, Schedule
from mlpengine.settings.families import LOSS, OPTIMIZER, SCHEDULE

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from reference_pages import config as reference

ROWS = "\n".join(["a,b,y", *(f"{i % 7},{i % 5},{(i % 7) - 2 * (i % 5)}" for i in range(80))])
SMALL = (
    "data: {source: rows.csv, target: y, task: regression}\nmodel: {hidden: [4]}\n"
    "report: false\ndiagnostics: false\n"
)


Rate = Annotated[NonNegative, "Learning rate."]
Push = Annotated[Fraction, "Share of the last step kept."]


def heavy_ball() -> type:
    class HeavyBall(Optimizer, name="heavy_ball"):
        """Gradient descent with a heavy ball."""

        def __init__(
            self, model: Any, *, lr: Rate = 0.02, push: Push = 0.25, **shared: Any
        ) -> None:
            super().__init__(model, lr=lr, hyper={"push": push}, signed={"ball": push}, **shared)

        def numbers(self, lr: Any, t: Any, push: Any) -> dict[str, Any]:
            return {"rate": lr}

        def update(self, p: Any, g: Any, ball: Any, push: Any, rate: Any) -> dict[str, Any]:
            ball = ball * push + g
            return {"ball": ball, "p": p - ball * rate}

    return HeavyBall


def halved() -> type:
    @dataclass(frozen=True)
    class Halved(Schedule, name="halved"):
        """Halved once, after so many epochs."""

        after: Annotated[Positive, "Epochs at the whole rate."] = 1.0

        def _factor(self, step: int) -> float:
            return 0.5 if step >= self.after * self.steps_per_epoch else 1.0

    return Halved


def power_loss() -> type:
    @dataclass(frozen=True)
    class Power(EntryLoss, name="power"):
        """A power of the absolute error."""

        tasks: ClassVar = ("regression",)

        exponent: Annotated[float, Limits(above=1, at_most=4), "Power of the error."] = 1.5

        def formula(self, y: Any, t: Any) -> Any:
            return abs(y - t) ** self.exponent

    return Power


ADDED = {
    "an optimizer": (heavy_ball, "optimizer", "push", 0.75, 1.0),
    "a schedule": (halved, "schedule", "after", 0.5, 0.0),
    "a loss": (power_loss, "loss", "exponent", 3.0, 5.0),
}


@pytest.fixture(autouse=True)
def _known_again():
    """Forget what a test has added."""
    registries = [REGISTRY, *(one.registry for one in (LOSS, OPTIMIZER, SCHEDULE))]
    before = [dict(registry) for registry in registries]
    yield
    for registry, known in zip(registries, before, strict=True):
        registry.clear()
        registry.update(known)
    json_schema()


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return a setting as the sections of a config."""
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize("what", ADDED)
def test_what_is_added_is_known_everywhere(what, mlpengine, tmp_path):
    make, key, option, value, wrong = ADDED[what]
    name = make().name
    (tmp_path / "rows.csv").write_text(ROWS)
    config = tmp_path / "c.yaml"

    # configs, their messages, schema and reference
    config.write_text(SMALL)
    given = {"name": name, option: value}
    setting = ["--set", f"{key}={json.dumps(given)}"]
    checked = mlpengine("check", config, *setting)
    assert checked.code == 0, checked.err
    refused = mlpengine("check", config, "--set", f"{key}={json.dumps(given | {option: wrong})}")
    assert f"{key}.{option}: must be" in refused.err
    config.write_text(SMALL + json.dumps(nested(key, given))[1:-1] + "\n")
    schema = Draft202012Validator(json_schema())
    whole = {"data": {"source": "rows.csv"}, **nested(key, given)}
    assert not [*schema.iter_errors(whole)]
    assert [*schema.iter_errors({**whole, **nested(key, given | {"opt": 1})})]
    assert f"| `{option}` |" in reference()

    # training in steps, by numpy and compiled, and after an interruption
    arguments = ["train", config, "-q", "--epochs"]
    trained = mlpengine(*arguments, 4, "--out", "whole")
    assert trained.code == 0, trained.err
    assert mlpengine(*arguments, 2, "--out", "part").code == 0
    assert mlpengine("train", "--resume", "part", "--epochs", 4, "-q").code == 0
    whole, part = (package.load(tmp_path / run) for run in ("whole", "part"))
    np.testing.assert_array_equal(part.mlp.params.flat, whole.mlp.params.flat)


def rows() -> list[list[str]]:
    return [line.split(",") for line in ROWS.split("\n")[1:]]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (heavy_ball, {"optimizer": "heavy_ball"}),
        (halved, {"settings": {"schedule": "halved"}}),
        (power_loss, {"loss": "power"}),
    ],
)
def test_an_estimator_takes_the_name_of_what_is_added(make, options):
    make()
    x = np.array(rows(), float)
    shared = {"hidden": 4, "epochs": 3, "early_stopping": False, "random_state": 0}
    own, usual = (MlpRegressor(**shared, **more).fit(x[:, :2], x[:, 2]) for more in (options, {}))
    assert (own.predict(x[:, :2]) != usual.predict(x[:, :2])).any()
