"""What the range of an activation says of its units, against formulas of where it ends."""

from math import atanh, inf, log, sqrt

import pytest

from mlpengine.diagnostics.units import rectifies, saturation
from mlpengine.formula import clip, exp
from mlpengine.ops import REGISTRY, Activation, FormulaActivation


class _Bump(Activation):
    """At its greatest value at 0, and near its least one on both sides."""

    range = (0.0, 1.0)

    def formula(self, x):
        return exp(-x * x)


class _Capped(Activation):
    """A rectifier with an upper end."""

    range = (0.0, 6.0)

    def formula(self, x):
        return clip(x, 0, 6)


class _Wrong(Activation):
    """Never near the range that it claims."""

    range = (-1e6, 1e6)

    def formula(self, x):
        return x


@pytest.mark.parametrize(
    ("op", "magnitude"),
    [
        (REGISTRY["tanh"](), atanh(0.97)),
        (REGISTRY["sigmoid"](), 2 * atanh(0.97)),
        (REGISTRY["softsign"](), 0.97 / 0.03),
        (_Bump(), sqrt(-log(0.015))),
        (_Wrong(), inf),
        *((op, inf) for op in (REGISTRY["relu"](), FormulaActivation("x * x"), None)),
    ],
)
def test_where_an_activation_saturates(op, magnitude):
    assert saturation(op) == pytest.approx(magnitude, rel=1e-9)


def test_what_is_zero_below_zero_rectifies():
    names = "relu", "softplus", "sigmoid", "leaky_relu"
    ops = [_Capped(), _Bump(), *(REGISTRY[name]() for name in names)]
    assert [rectifies(op) for op in ops] == [True, False, True, False, False, False]
