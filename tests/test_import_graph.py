"""No circle of imports inside the packages, and no read of another module's private attributes.

Imports in functions and under ``TYPE_CHECKING`` count: they hide a circle, they do not undo it.
"""

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

import pytest

import mlpengine
import mlpengine_cli

DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace"}
"""Underscored names that the standard library documents: `os._exit`, those of named tuples."""

parsed = cache(ast.parse)

PACKAGES = {m.__name__: Path(m.__path__[0]) for m in (mlpengine, mlpengine_cli)}


def sources() -> dict[str, str]:
    """Return the text of every module by its full name."""
    found = {}
    for name, root in PACKAGES.items():
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            stem = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join((name, *stem))] = path.read_text()
    return found


def imported(name: str, text: str, packages: Set[str]) -> Iterator[str]:
    """Yield the dotted names that the module `name` imports, anywhere in it."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # One dot is the package itself, each further one its parent.
            parts = name.split(".")
            base = parts[: len(parts) - node.level + (name in packages)] if node.level else []
            for alias in node.names:
                yield ".".join([*base, *filter(None, [node.module]), alias.name])


def import_graph(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which modules of `texts` each of them imports.

    A name imported from a package counts as an import of the package.
    """
    graph: dict[str, set[str]] = {name: set() for name in texts}
    packages = {name.rpartition(".")[0] for name in texts}
    for name, text in texts.items():
        for target in imported(name, text, packages):
            module = target if target in texts else target.rpartition(".")[0]
            if module in texts and module != name:
                graph[name].add(module)
    return graph


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the modules of a circle of imports, in order, or nothing."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for target in sorted(graph[name]):
            if found := visit(target, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


def private_reads(text: str) -> list[str]:
    """Return the private attributes that a module uses and does not define itself.

    Its own are those that it defines or assigns to `self` or `cls`: modules are what may look into
    each other's objects no further than the public names.
    """
    tree = parsed(text)
    own: set[str] = set()
    reads: list[tuple[int, str]] = []
    for node in ast.walk(tree):
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


def private_modules(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the imports of modules with an underscore by modules of another room."""
    return [
        f"{name} imports {target}"
        for name, targets in sorted(graph.items())
        for target in sorted(targets)
        if "._" in target and not name.startswith(target[: target.index("._")])
    ]


@pytest.mark.no_cover
def test_no_private_module_is_imported_by_another_room():
    assert private_modules(import_graph(sources())) == []
    assert private_modules({"p.a.b": {"p.a._c"}, "p.d": {"p.a._c"}}) == ["p.d imports p.a._c"]


@pytest.mark.no_cover
def test_no_circle_of_imports():
    graph = import_graph(sources())
    assert "mlpengine_cli.session" in graph["mlpengine_cli.train"]
    assert circle(graph) == []


@pytest.mark.no_cover
def test_no_private_attribute_is_read_across_modules():
    found = {name: reads for name, text in sources().items() if (reads := private_reads(text))}
    assert found == {}


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ({"a": "import b", "b": "import c", "c": ""}, []),
        ({"a": "import b", "b": "def f():\n    import a"}, ["a", "b"]),
        ({"a": "if TYPE_CHECKING:\n    from b import x", "b": "from a import y"}, ["a", "b"]),
        ({"p": "from p.a import x", "p.a": "from p.b import y", "p.b": "x = 1"}, []),
        ({"p": "from p.a import x", "p.a": "from p import y"}, ["p", "p.a"]),
        ({"p.a": "from p.b import c", "p.b": "", "p.b.c": "import p.a"}, ["p.a", "p.b.c"]),
        ({"p.a": "from .b import x", "p.b": "from . import a"}, ["p.a", "p.b"]),
        ({"p": "from .a import x", "p.a": "from p import y"}, ["p", "p.a"]),
        ({"p.q.a": "from ..b import x", "p.b": "from .q.a import y"}, ["p.b", "p.q.a"]),
    ],
)
def test_circles_are_found(texts, found):
    assert circle(import_graph(texts)) == found


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
