"""A few random configs of `benchmarks/fused.py`, which draws hundreds."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def fused(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "fused", raising=False)
    import fused

    return fused


@pytest.mark.parametrize("seed", [2, 8])  # whose programs are small
def test_a_random_config_is_one_program_with_the_numbers_of_numpy(fused, tmp_path, seed):
    source = fused.write_table(tmp_path)
    config = fused.draw(np.random.default_rng(seed), source)
    assert fused.problem_of(config, tmp_path) == ""


def stub(backend="compiled", *, fused=True, weight=1.0, outputs=0.0):
    flat = np.array([1.0, weight])
    params = SimpleNamespace(flat=flat)
    mlp = SimpleNamespace(params=params)
    return SimpleNamespace(backend=backend, fused=fused, mlp=mlp, outputs=outputs)


@pytest.mark.parametrize(
    ("compiled", "problem"),
    [
        (stub("numpy"), "is not compiled"),
        (stub(fused=False), "is split"),
        (stub(weight=1.00001), "differs by 1e-05"),
        (stub(weight=np.nan), "differs by nan"),
        (stub(outputs=1e-5), "computes outputs that differ by 1e-05"),
        (stub(outputs=np.nan), "computes outputs that differ by nan"),
        (stub(), ""),
    ],
)
def test_the_comparison_notices(fused, tmp_path, monkeypatch, compiled, problem):
    steps = {"numpy": stub("numpy"), "compiled": compiled}
    monkeypatch.setattr(fused, "trained", lambda path, backend: steps[backend])
    monkeypatch.setattr(fused, "outputs_apart", lambda step: step.outputs)
    assert fused.problem_of({}, tmp_path) == problem


def test_an_exception_needs_its_setting(fused, tmp_path, monkeypatch):
    steps = {"numpy": stub("numpy"), "compiled": stub(fused=False)}
    monkeypatch.setattr(fused, "trained", lambda path, backend: steps[backend])
    monkeypatch.setattr(fused, "EXCEPTIONS", {'"name": "odd"': "only NumPy has it"})
    assert fused.problem_of({"loss": {"name": "odd"}}, tmp_path) == ""
    assert fused.problem_of({"loss": {"name": "mse"}}, tmp_path) == "is split"
