"""No module reads the private attributes of another module's objects."""

import ast
from pathlib import Path

import pytest

import mlpengine
import mlpengine_cli

DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace"}
"""Underscored names that the standard library documents: `os._exit`, those of named tuples."""


def private_reads(text: str) -> list[str]:
    """Return the private attributes that a module uses and does not define itself.

    It defines what it names in a statement, or assigns to `self` or `cls`.
    """
    own: set[str] = set()
    reads: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls"):
                reads.append((node.lineno, node.attr))
            elif isinstance(node.ctx, ast.Store):
                own.add(node.attr)
    own |= DOCUMENTED
    return [
        f"line {line}: {name}"
        for line, name in sorted(reads)
        if name not in own and not name.endswith("__")
    ]


@pytest.mark.no_cover
def test_no_private_attribute_is_read_across_modules():
    roots = (Path(package.__path__[0]) for package in (mlpengine, mlpengine_cli))
    files = (path for root in roots for path in root.rglob("*.py"))
    found = {path.name: reads for path in files if (reads := private_reads(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x):\n    return x._hidden", ["line 2: _hidden"]),
        ("class A:\n    def f(self, other):\n        self._n = other._n", []),
        ("class A:\n    _n = 1\ndef f(a):\n    return a._n + self._m + a.__name__", []),
        ("import m\nm._secret()", ["line 2: _secret"]),
        ("def f(x):\n    x._n = 1\n    return x._n", ["line 2: _n", "line 3: _n"]),
    ],
)
def test_private_reads_are_found(text, found):
    assert private_reads(text) == found
