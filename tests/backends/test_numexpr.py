"""NumExpr's rules: found by name, chosen by size, right in both dtypes (parity: the op table)."""

import numpy as np
import pytest

from mlpengine import UsageError
from mlpengine.backends import CROSSOVER, NUMPY, Backend, find_backend
from mlpengine.backends.numexpr import NUMEXPR, fused
from mlpengine.ops import REGISTRY


@pytest.mark.parametrize("name", ["numpy", "numexpr"])
def test_backends_are_found_by_name(name):
    assert find_backend(name).name == name


def test_auto_takes_what_was_measured_to_win(monkeypatch):
    assert find_backend("auto") is NUMPY, "nothing did"
    key = ("tanh", "backward")
    monkeypatch.setitem(CROSSOVER, key, 100)
    found = find_backend("auto")
    assert (found.name, found.rules, found.smallest) == (
        "auto",
        {key: NUMEXPR.rules[key]},
        {key: 100},
    )


def test_an_unknown_backend_is_refused():
    with pytest.raises(UsageError, match=r"auto, numpy, numexpr.*'torch'"):
        find_backend("torch")


def test_a_rule_is_chosen_by_op_direction_and_size():
    op = REGISTRY["tanh"]()
    key = ("tanh", "backward")
    backend = Backend("made up", {key: NUMEXPR.rules[key]}, {key: 100})
    assert backend.rule(op, "backward", 99) == op.backward
    assert backend.rule(op, "backward", 100) != op.backward
    assert backend.rule(op, "forward", 100) == op.forward
    assert NUMPY.rule(op, "backward", 10**9) == op.backward


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_do_not_change_the_dtype(dtype):
    x = np.linspace(-3, 3, 1000).astype(dtype)
    out = np.full_like(x, np.nan)
    (bound,) = fused("half * x * x + half", out, x=x, half=0.5)
    bound()
    np.testing.assert_array_equal(out, np.asarray(0.5, dtype) * x * x + np.asarray(0.5, dtype))
    assert list(fused("x", out[:0], x=x[:0])) == []
