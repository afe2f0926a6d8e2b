"""The project's own files agree with each other: packages, README commands, public names."""

import doctest
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mlpengine

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_installed():
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "mlpengine").rglob("__init__.py")
    }
    listed = set(SETTINGS["tool"]["setuptools"]["packages"])
    assert listed == found | {"mlpengine_cli"}
    folders = {path.parent for path in (ROOT / "mlpengine").rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders)


def test_public_names_are_sorted_and_exist():
    assert mlpengine.__all__ == sorted(mlpengine.__all__)
    assert all(hasattr(mlpengine, name) for name in mlpengine.__all__)
    assert all(getattr(mlpengine, name).__doc__ for name in mlpengine.__all__)


def test_the_version_is_written_once_and_is_the_newest_of_the_changelog():
    assert SETTINGS["project"]["dynamic"] == ["version"]
    attribute = SETTINGS["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert attribute == "mlpengine.__version__"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## ([0-9.]+)", changelog, re.MULTILINE)[0] == mlpengine.__version__


@pytest.mark.parametrize("text", ["README.md", "mlpengine/__init__.py"])
def test_examples_run(text):
    module = text.endswith(".py")
    result = (
        doctest.testmod(mlpengine)
        if module
        else doctest.testfile(str(ROOT / text), module_relative=False, optionflags=doctest.ELLIPSIS)
    )
    assert result.attempted > 5
    assert result.failed == 0


def test_readme_names_every_extra_and_what_it_brings():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    extras = SETTINGS["project"]["optional-dependencies"].keys() - {"test", "dev"}
    named = set(re.findall(r"^\| `(\w+)` \| \S", readme, re.MULTILINE))
    assert named == extras
    assert "source .venv/bin/activate" in readme


def test_benchmarks_of_speed_start_in_a_clean_environment():
    texts = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "benchmarks").glob("*.py")}
    timed = {name for name, text in texts.items() if "median(" in text and "__main__" in text}
    assert timed
    assert {name for name in timed if "restart_clean()" not in texts[name]} == set()


def test_readme_names_real_files():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"(?:configs|benchmarks|tests)/[\w./]+\.(?:yaml|py|csv)", readme)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_package_imports_what_is_used_when_it_is_used():
    code = "import sys, mlpengine; print(*(m for m in sys.modules if m.startswith('mlpengine')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == {"mlpengine", "mlpengine.errors"}
    assert all(hasattr(mlpengine, name) for name in mlpengine.__all__)
    assert set(mlpengine.__all__) <= set(dir(mlpengine))
    assert mlpengine.optim.Sgd is mlpengine.Sgd
    with pytest.raises(AttributeError, match="'mlpengine' has no attribute 'nothing'"):
        _ = mlpengine.nothing
