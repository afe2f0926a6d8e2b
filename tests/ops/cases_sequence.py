"""Rows of the scan, by a loop over time, and of dropout, by drawing the same numbers again."""

import numpy as np
from case import Case, distinct, normal, positive
from philox_bytes import philox_bytes

from mlpengine.ops import Dropout, Normal, Philox, SsmScan


def scanned(a, b, x, h0=None):
    h = np.zeros_like(x[..., 0, :]) if h0 is None else h0
    states = []
    for t in range(x.shape[-2]):
        h = a[..., t, :] * h + b[..., t, :] * x[..., t, :]
        states.append(h)
    return np.stack(states, axis=-2)


def scan(name, *shape, h0=True, extremes=(1e-12, 1e3)):
    """A row with a below 1 in size; `extremes` multiply a power of it."""

    def make(n):
        operands = (np.tanh(normal(n, *shape)), positive(n, *shape), distinct(n, *shape))
        return (*operands, normal(n, *shape[:-2], shape[-1]) if h0 else None)

    return Case(f"ssm_scan {name}", SsmScan(), make, scanned, extremes=extremes)


def hundred_steps(_):
    shape = (2, 100, 3)
    return np.tanh(normal(*shape)), positive(*shape), distinct(*shape), normal(2, 3)


def dropped(rate):
    rng = Philox(5)
    limit = round(rate * 256)

    def restore():
        rng.step = 0

    def draws(x):
        rows = np.zeros((len(x), -(-x.shape[1] // 16) * 16), np.uint8)
        rows.reshape(-1)[:] = philox_bytes(5, 1, 0, rows.size)
        return rows[:, : x.shape[1]]

    def value(x):
        return np.where(draws(x) < limit, 0, x / (1 - limit / 256))

    return Case(
        f"dropout {rate}",
        Dropout(rate, rng),
        lambda n: (normal(n, 4),),
        value,
        dtypes=("float64",),
        before=restore,
    )


def sampled(columns):
    rng = Philox(5)

    def restore():
        rng.step = 0

    def value(mean, deviation):
        pairs, rows = -(-columns // 2), len(mean)
        lines = np.zeros((rows, -(-pairs * 8 // 16) * 16), np.uint8)
        lines.reshape(-1)[:] = philox_bytes(5, 1, 0, lines.size)
        one, two = np.split(lines[:, : pairs * 8].copy().view(np.uint32).astype(float), 2, axis=1)
        radius, turn = np.sqrt(-2 * np.log((one + 1) / 2**32)), two / 2**32
        z = [radius * np.cos(2 * np.pi * turn), radius * np.sin(2 * np.pi * turn)]
        return mean + deviation * np.concatenate(z, axis=1)[:, :columns]

    return Case(
        f"normal of {columns} columns",
        Normal(rng),
        lambda n: (normal(n, columns), positive(n, columns)),
        value,
        before=restore,
    )


CASES = [
    sampled(4),
    sampled(5),
    scan("of five steps", 5, 3),
    scan("from zero", 4, 3, h0=False),
    scan("of one step", 1, 3),
    scan("of one step from zero", 1, 2, h0=False),
    scan("of 4 axes", 2, 3, 1),
    Case("ssm_scan of 100 steps", SsmScan(), hundred_steps, scanned, extremes=(1e-12, 1.0)),
    dropped(0.3),
    dropped(0.0),
]
