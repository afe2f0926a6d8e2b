"""Tuned numbers stand in the table of their room, with unit, meaning and origin, and only there."""

import ast
from pathlib import Path

import pytest

from mlpengine.core.tuned import BY_HAND

ROOT = Path(__file__).parents[1]
ROOMS = ["mlpengine/diagnostics", "mlpengine/data/features"]
OTHERS = {"STATE_VERSION"}
"""Numbers that are no threshold: versions of formats."""


def is_number(node: ast.expr) -> bool:
    """Return whether an expression is made of literal numbers alone."""
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(map(is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def numbers(text: str) -> set[str]:
    """Return the UPPER_CASE names that a module, or a class of it, gives literal numbers."""
    tree = ast.parse(text)
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    found = set()
    for node in (one for body in bodies for one in body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and is_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id for one in targets for n in ast.walk(one) if isinstance(n, ast.Name)}
    return {name for name in found if name.isupper()}


def test_the_check_finds_numbers():
    text = """
LIMIT = 3
_LOW, HIGH = -0.5, 1 << 10
RATES: tuple[float, ...] = (0.1, 0.2)
NAME, names, lower = "three", [1], 4
CHOSEN = tuned(3, "rows", "meaning")

class Window:
    DECAY = 0.9
"""
    assert numbers(text) == {"LIMIT", "_LOW", "HIGH", "RATES", "DECAY"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_tuned_number_stands_elsewhere(room):
    found = {path.name: numbers(path.read_text()) - OTHERS for path in (ROOT / room).glob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_each_has_unit_meaning_and_origin(room):
    text = (ROOT / room / "thresholds.py").read_text()
    names = dict.fromkeys(n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name))
    scripts = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    used = "\n".join(
        p.read_text() for p in ROOT.glob("mlpengine/**/*.py") if p.parent.name != "core"
    )
    assert len(calls) > 50
    for call in calls:
        _, unit, meaning, *origin = call.args
        assert ast.literal_eval(unit)
        assert ast.literal_eval(meaning)
        for one in origin:
            script = scripts[one.id] if isinstance(one, ast.Name) else ast.literal_eval(one)
            assert script == BY_HAND or (ROOT / script).exists()
    for name in names:
        assert name == "tuned" or used.count(name) > 1, name
