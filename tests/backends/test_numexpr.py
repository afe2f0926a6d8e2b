"""NumExpr's rules: found by name, derived from the formulas (parity: the op table)."""

import numpy as np
import pytest

from mlpengine.backends.backend import NUMPY, find_backend
from mlpengine.backends.numexpr import fused
from mlpengine.core.errors import UsageError
from mlpengine.formula import parse, variable
from mlpengine.ops import REGISTRY


@pytest.mark.parametrize("name", ["numpy", "numexpr"])
def test_backends_are_found_by_name(name):
    assert find_backend(name).name == name


@pytest.mark.parametrize("name", ["torch", "auto", "compiled"])
def test_a_backend_that_has_no_rules_is_refused(name):
    with pytest.raises(UsageError, match=f"numpy or numexpr.*'{name}'"):
        find_backend(name)


def test_a_rule_is_fused_where_numpy_takes_several_calls_and_numexpr_knows_the_functions():
    backend = find_backend("numexpr")
    silu, gelu = REGISTRY["silu"](), REGISTRY["gelu"]()
    assert backend.rule(silu, "forward") != silu.forward  # NumPy takes two calls
    assert backend.rule(silu, "backward") != silu.backward
    for op in (gelu, REGISTRY["exp"](), REGISTRY["softmax"]()):
        assert backend.rule(op, "forward") == op.forward
    assert NUMPY.rule(silu, "backward") == silu.backward


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_do_not_change_the_dtype(dtype):
    x = np.linspace(-3, 3, 1000).astype(dtype)
    out = np.full_like(x, np.nan)
    formula = parse("0.5 * x * x + 0.5", ["x"])
    (bound,) = fused(formula, out, {variable("x"): x})
    bound()
    np.testing.assert_array_equal(out, np.asarray(0.5, dtype) * x * x + np.asarray(0.5, dtype))
    assert list(fused(formula, out[:0], {variable("x"): x[:0]})) == []
