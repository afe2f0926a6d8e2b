"""Which activations rectify."""

from mlpengine.diagnostics.units import rectifies
from mlpengine.formula import clip, exp
from mlpengine.ops import REGISTRY, Activation


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


def test_what_is_zero_below_zero_rectifies():
    names = "relu", "softplus", "sigmoid", "leaky_relu"
    ops = [_Capped(), _Bump(), *(REGISTRY[name]() for name in names)]
    assert [rectifies(op) for op in ops] == [True, False, True, False, False, False]
