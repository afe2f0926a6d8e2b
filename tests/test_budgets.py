"""The size budgets of the project, and what an import may load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(p for top in ("mlpengine", "cli") for p in (ROOT / top).rglob("*.py"))
FILE_LINES, FUNCTION_LINES, OP_LINES = 300, 40, 40
CONFIG_LINES = 40


def oversized(path: Path, source: str) -> list[str]:
    """Return a line for everything in `source` that exceeds its budget."""
    found = []
    if (lines := len(source.splitlines())) > FILE_LINES:
        found.append(f"{path}: {lines} lines, the budget is {FILE_LINES}")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            budget = FUNCTION_LINES
        elif isinstance(node, ast.ClassDef) and any(k.arg == "name" for k in node.keywords):
            budget = OP_LINES
        else:
            continue
        length = code_lines(node)
        if length > budget:
            found.append(f"{path}:{node.lineno} {node.name}: {length} lines, budget {budget}")
    return found


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Return the lines of a definition, its own docstring not counted."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes_stay_within_budget(path):
    assert oversized(path.relative_to(ROOT), path.read_text(encoding="utf-8")) == []


def test_the_size_check_can_fail():
    body = "    x = 1\n" * FUNCTION_LINES
    source = f"def long():\n{body}\nclass Big(GradOp, name='big'):\n{body}"
    problems = oversized(Path("made_up.py"), source)
    assert [p.split(": ")[0] for p in problems] == ["made_up.py:1 long", "made_up.py:43 Big"]
    assert oversized(Path("made_up.py"), "x = 1\n" * (FILE_LINES + 1)) == [
        "made_up.py: 301 lines, the budget is 300"
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_configs_are_short_and_commented(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < CONFIG_LINES
    assert any("#" in line for line in lines)


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after `code`."""
    probe = f"import sys\n{code}\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


HEAVY = {"click", "pydantic", "rich", "ruamel", "numexpr", "matplotlib", "sklearn", "torch"}


def test_import_loads_nothing_heavy():
    assert loaded_by("import mlpengine; mlpengine.Mlp") & HEAVY == set()
    assert "click" in loaded_by("import click") & HEAVY  # the probe does see a module


def test_help_loads_only_click():
    code = (
        "from mlpengine_cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print()"
    )
    loaded = loaded_by(code)
    assert "click" in loaded
    assert loaded & (HEAVY - {"click"} | {"numpy"}) == set()
