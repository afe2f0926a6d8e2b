"""Check that each extra is enough: what needs it works with the packages that it brings alone.

``python .ci/extras.py``, where all of `USES` are installed; exit with 1 where one is not enough, or
where its packages are not missed without it.
"""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
USES = {
    "tensorboard": "import mlpengine.training.tensorboard",
    "sklearn": "import mlpengine.estimators",
    "onnx": "import mlpengine.export._onnx",
    "sweep": "import mlpengine_cli.study",
    "serve": "import mlpengine_cli.server",
    "docs": "import reference_pages as pages; pages.commands(), pages.config(), pages.python(); "
    "[__import__(name) for name in pages.MODULES]",
}

ONLY = """
import sys
from importlib.machinery import PathFinder

class Only(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in {blocked} else super().find_spec(name, path, target)

sys.meta_path = [Only if finder is PathFinder else finder for finder in sys.meta_path]
sys.path[:0] = {paths}
"""
"""Lets a process find no modules of some names."""


def brought(own: str) -> set[str]:
    """Return the names of mlpengine, with an extra or without, and of what comes with it."""
    pending, met = [Requirement(own)], set()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for one, extra in met if one == name}:
            met.add((name, extra))
            pending += [
                one
                for one in map(Requirement, required(name, extra))
                if one.marker is None or one.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in met}


def required(name: str, extra: str) -> list[str]:
    """Return what a distribution requires, which the marker of an extra may restrict."""
    if name == "mlpengine":
        return PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:  # a tool of an extra, which no test needs
        return []


def run_with(own: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code where only what comes with mlpengine, with an extra or without, can be imported."""
    allowed = brought(own)
    blocked = {
        module
        for module, names in importlib.metadata.packages_distributions().items()
        if allowed.isdisjoint(map(canonicalize_name, names))
    }
    start = ONLY.format(blocked=blocked, paths=[str(ROOT), str(ROOT / "docs")])
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True)


TRY = """
try:
    exec({code!r})
except ImportError as error:
    print({extra!r}, error)
"""


def problems() -> list[str]:
    """Return a line for each extra that is not enough, or not needed."""
    runs = {extra: run_with(f"mlpengine[{extra}]", code) for extra, code in USES.items()}
    wrong = [f"{extra}: {done.stderr}" for extra, done in runs.items() if done.stderr]
    without = run_with("mlpengine", "".join(TRY.format(code=c, extra=e) for e, c in USES.items()))
    missed = {
        line.split()[0] for line in without.stdout.splitlines() if "needs an optional" in line
    }
    return wrong + [
        f"{extra}: its packages are not missed without it" for extra in USES.keys() - missed
    ]


if __name__ == "__main__":
    found = problems()
    print(*found, sep="\n")
    sys.exit(bool(found))
