"""Rows of functions of one operand; what NumPy evaluates is formed from other functions."""

from functools import partial

import numpy as np
from case import away_from, positive
from cases_arithmetic import unary

from mlpengine.ops import Abs, Clamp, Cos, Exp, Log, Log2, LogEps, Rsqrt, Sin, Sqrt

CASES = [
    *unary("exp", Exp(), lambda x: np.exp2(x / np.log(2)), extremes=(1e-12, 10.0)),
    *unary("log", Log(), lambda x: np.arcsinh((x - 1 / x) / 2), positive),
    *unary("log2", Log2(), lambda x: np.log(x) / np.log(2), positive),
    *unary("log_eps", LogEps(0.1), lambda x: np.log(x + 0.1), positive),
    *unary("sin", Sin(), lambda x: np.exp(1j * x).imag),
    *unary("cos", Cos(), lambda x: np.exp(1j * x).real),
    *unary("sqrt", Sqrt(), lambda x: x**0.5, positive),
    *unary("rsqrt", Rsqrt(), lambda x: x**-0.5, positive),
    *unary("abs", Abs(), lambda x: np.where(x < 0, -x, x), partial(away_from, [0]), rtol=1e-4),
    *unary(
        "clamp",
        Clamp(-0.5, 1.0),
        lambda x: np.where(x < -0.5, -0.5, np.where(x > 1, 1, x)),
        partial(away_from, [-0.5, 1.0]),
        rtol=1e-4,
    ),
]
