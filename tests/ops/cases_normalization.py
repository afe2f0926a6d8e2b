"""Rows of normalizations, from `numpy.mean` and `numpy.var` over the documented axes."""

import numpy as np
from case import Case, normal, positive

from mlpengine.ops import BatchNorm, LayerNorm, RunningStatistics


def normalized(x, axes, eps):
    mean, variance = (f(x, axis=axes, keepdims=True) for f in (np.mean, np.var))
    return (x - mean) / np.sqrt(variance + eps)


def by_row(eps=1e-5):
    def value(x, scale=None, bias=None):
        y = normalized(x, -1, eps)
        y = y if scale is None else y * scale
        return y if bias is None else y + bias

    return value


def by_feature(standardized):
    def value(x, scale=None, bias=None):
        column = (-1, *(1,) * (x.ndim - 2))
        y = standardized(x)
        y = y if scale is None else y * scale.reshape(column)
        return y if bias is None else y + bias.reshape(column)

    return value


def running(features):
    statistics = RunningStatistics(features, "float64")
    statistics.mean[:] = np.linspace(-1, 1, features)
    statistics.variance[:] = np.linspace(0.5, 2, features)
    return statistics


def of_running(x):
    known = running(x.shape[1])
    column = (-1, *(1,) * (x.ndim - 2))
    return (x - known.mean.reshape(column)) / np.sqrt(known.variance.reshape(column) + 1e-5)


def layers(name, x, scale=None, bias=None, eps=1e-5):
    """A row of layer_norm; of x without its batch."""

    def make(n):
        return (normal(n, *x), scale and positive(*scale), bias and normal(*bias))

    return Case(f"layer_norm {name}", LayerNorm(eps), make, by_row(eps))


def features(name, x, scale=None, bias=None, op=None, **options):
    """A row of batch_norm in training, with two rows or more; `shape` is x without its batch."""

    def make(n):
        return (normal(n + 1, *x), scale and positive(*scale), bias and normal(*bias))

    options = {"empty": False} | options
    truth = by_feature(lambda x: normalized(x, (0, *range(2, x.ndim)), 1e-5))
    return Case(f"batch_norm {name}", op or BatchNorm(), make, truth, **options)


def evaluated(name, *shape):
    return Case(
        f"batch_norm in evaluation {name}",
        BatchNorm(running(shape[0]), training=False),
        lambda n: (normal(n, *shape), positive(shape[0]), normal(shape[0])),
        by_feature(of_running),
        dtypes=("float64",),
    )


CASES = [
    layers("plain", (5,), (5,), (5,)),
    layers("without bias", (5,), (5,)),
    layers("without scale", (2, 5), None, (5,), eps=0.1),
    layers("of 4 axes", (2, 1, 4)),
    layers("of one feature", (1,), (1,)),
    Case("layer_norm of a vector", LayerNorm(), lambda n: (normal(6), normal(6), None), by_row()),
    features("plain", (3,), (3,), (3,)),
    features("of images", (3, 2, 4), (3,), (3,)),
    features("of sequences without scale", (2, 3), None, (2,)),
    features("with running statistics", (3, 1, 2), op=BatchNorm(running(3)), dtypes=("float64",)),
    evaluated("plain", 3),
    evaluated("of images", 3, 2, 1),
]
