"""Every name of ours in the tables of docs/reference/migration.md exists in the code."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mlpengine
from mlpengine import models, nn, ops, optim
from mlpengine.config.problems import key_paths
from mlpengine.config.schema import Config
from mlpengine.core.fields import options_of
from mlpengine.estimators import MlpClassifier, MlpRegressor

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "migration.md"
ROOMS = (mlpengine, nn, ops, optim, models)
OBJECTS = {
    "mlp": mlpengine.Mlp,
    "step": mlpengine.TrainingStep,
    "grads": nn.Gradients,
    "optimizer": optim.Optimizer,
    "estimator": MlpClassifier(epochs=1, early_stopping=True).fit([[0.0], [1.0]] * 9, [0, 1] * 9),
}
"""The objects that the page calls so, or their classes."""

NAMES = {*nn.ACTIVATIONS, *nn.INITIALIZERS, *ops.LOSSES, *optim.schedules.SCHEDULES, *OBJECTS}
WORDS = {"train", "early_stopping", "record", "initial", "final", *optim.OPTIMIZERS}
"""What the page says of arguments that stand beside, and values."""


def tables(text: str) -> Iterator[tuple[str, str]]:
    """Yield the codes in the columns of ours, each with the head of its column."""
    head: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = cells
        elif {*line} - {*"| -"}:
            for title, cell in zip(head[1:], cells[1:], strict=True):
                yield from ((title, code) for code in re.findall("`([^`]+)`", cell))


def class_of(name: str) -> Any:
    return next((getattr(room, name) for room in ROOMS if name in room.__all__), None)


def takes(kind: Any, call: ast.Call) -> bool:
    """Return whether a class or method takes the arguments of a call."""
    options = options_of(kind).keys() if isinstance(kind, type) else ()
    parameters = inspect.signature(kind.__init__ if isinstance(kind, type) else kind).parameters
    named = {one.arg for one in call.keywords} <= {*parameters, *options}
    by_place = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return named and len(call.args) < len(by_place)  # the first is self


def is_ours(title: str, code: str) -> bool:
    """Return whether a name, an option, a key or a call exists."""
    if title == "estimator":
        return all(code in kind().get_params() for kind in (MlpClassifier, MlpRegressor))
    if title == "config key":
        return tuple(code.split(".")) in {*key_paths(Config)}
    if code in NAMES | WORDS:
        return True
    for node in ast.walk(ast.parse(code, mode="eval")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            kind = OBJECTS["step"].__call__ if node.func.id == "step" else class_of(node.func.id)
            if kind is None or not takes(kind, node):
                return False
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = OBJECTS.get(node.value.id) or class_of(node.value.id)
            if not hasattr(owner, node.attr):
                return False
    return not code.isidentifier() or class_of(code) is not None


CODES = [*tables(PAGE.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("title", "code"), CODES, ids=[f"{title}: {code}" for title, code in CODES]
)
def test_names_of_ours_exist(title, code):
    if title != "remarks":
        assert is_ours(title, code)


def test_there_are_tables():
    assert len(CODES) > 100


@pytest.mark.parametrize(
    ("title", "code"),
    [
        ("estimator", "hidden_layer_sizes"),
        ("config key", "training.max_iter"),
        ("here", "Mlp([4, 3], units=3)"),
        ("here", "Adam(mlp, 1, 2)"),
        ("here", "mlp.fit(x)"),
        ("here", "Dense"),
    ],
)
def test_the_check_can_fail(title, code):
    assert not is_ours(title, code)
