"""The size of the configs, and what an import may load."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIG_LINES = 40


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


HEAVY = {"click", "pydantic", "ruamel", "numexpr", "sklearn", "torch"}


def test_import_loads_nothing_heavy():
    assert loaded_by("import mlpengine; mlpengine.Mlp") & HEAVY == set()
    assert "click" in loaded_by("import click") & HEAVY  # the probe does see a module
