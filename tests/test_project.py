"""The README's examples, what imports and starts load, and numbers that tests draw."""

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mlpengine

ROOT = Path(__file__).parents[1]


@pytest.fixture
def numpy_steps():
    """Examples take the backend that a user gets, unlike other tests (see conftest.py)."""


@pytest.mark.parametrize("text", ["README.md", "mlpengine/__init__.py"])
def test_examples_run(text):
    module = text.endswith(".py")
    result = (
        doctest.testmod(mlpengine)
        if module
        else doctest.testfile(str(ROOT / text), module_relative=False, optionflags=doctest.ELLIPSIS)
    )
    assert result.attempted > (5 if module else 3)
    assert result.failed == 0


def test_the_package_imports_what_is_used_when_it_is_used():
    code = "import sys, mlpengine; print(*(m for m in sys.modules if m.startswith('mlpengine')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    core = ("", ".lazy", ".errors", ".redaction", ".wording")
    assert set(found.stdout.split()) == {"mlpengine", *(f"mlpengine.core{end}" for end in core)}
    assert all(hasattr(mlpengine, name) for name in mlpengine.__all__)
    assert set(mlpengine.__all__) <= set(dir(mlpengine))
    assert mlpengine.optim.Sgd is mlpengine.Sgd
    assert all([mlpengine.export.export, mlpengine.data.features.Preprocessor])
    with pytest.raises(AttributeError, match="'mlpengine' has no attribute 'nothing'"):
        _ = mlpengine.nothing


RUN = """
import json, sys
started = []
sys.addaudithook(lambda event, args: started.append(args[0]) if event == "subprocess.Popen" else 0)
from mlpengine_cli.main import run
code = run(sys.argv[2:])
unused = sorted(set(json.loads(sys.argv[1])) & set(sys.modules))
made = [vars(one)["__dataclass_params__"] for name in sys.modules if name.startswith("mlpengine")
        for one in vars(sys.modules[name]).values() if isinstance(one, type)
        and one.__module__ == name and "__dataclass_params__" in vars(one)]
methods = sum(p.init + p.repr + p.eq * (1 + p.frozen) + 2 * p.frozen for p in made)
ours = sum(name.startswith("mlpengine") for name in sys.modules)
from pydantic import BaseModel
made_of = "mlpengine.settings.families"
sections = [one.__name__ for one in BaseModel.__subclasses__() if one.__module__ == made_of]
print(json.dumps([code, unused, started, sorted(sections), methods, ours]))
"""
GENERATED_METHODS = 720
"""The most methods that dataclasses of a run may generate: each takes 0.1 ms of the start."""
MODULES = 315
"""The most modules of ours that a run may load: each takes 0.3 ms of the start."""


def test_a_run_loads_what_it_needs_and_starts_no_process(tmp_path):
    """`platform.platform` would start one; records that nothing compares are named tuples.

    Of losses, optimizers, schedules and clipping rules only those of the config have models.
    """
    unused = ["asyncio", "mlpengine.config.fixed_config",
              "mlpengine.estimators", "mlpengine.export", "mlpengine_cli.compare",
              "multiprocessing", "numexpr", "optuna", "pandas", "pyarrow", "scipy",
              "sklearn", "torch", "xml"]  # fmt: skip
    command = ["train", str(ROOT / "configs" / "digits.yaml"), "--epochs", "6", "--quiet"]
    command += ["--out", str(tmp_path / "run"), "--set", "training.backend=numpy"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(unused), *command],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    *outcome, methods, modules = json.loads(done.stdout.splitlines()[-1])
    assert outcome == [0, [], [], ["AdamW", "CosineSchedule"]]
    assert 100 < methods <= GENERATED_METHODS
    assert 100 < modules <= MODULES
