"""Rows of convolution and pooling: `scipy.signal.correlate`, and loops over windows."""

from dataclasses import replace
from itertools import product

import numpy as np
from case import Case, distinct, normal
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import correlate

from mlpengine.ops import Conv2d, MaxPool2d


def pairs(value):
    return value if isinstance(value, tuple) else (value, value)


def images(n, size):
    """Return fewer images than rows for the many rows that only the memory check asks for."""
    return min(n, 64 + n * 12 // (size[0] * size[1]))


def correlated(stride=1, padding=0, dilation=1, groups=1):
    """Return the sum over channels of SciPy's correlations with the dilated kernel."""
    (sy, sx), (py, px), (dy, dx) = pairs(stride), pairs(padding), pairs(dilation)

    def value(x, w, b=None):
        outputs, inputs, kh, kw = w.shape
        wide = np.zeros((outputs, inputs, (kh - 1) * dy + 1, (kw - 1) * dx + 1))
        wide[:, :, ::dy, ::dx] = w
        x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)))
        shape = [n - k + 1 for n, k in zip(x.shape[2:], wide.shape[2:], strict=True)]
        y = np.zeros((len(x), outputs, *shape))
        for image, out, channel in product(range(len(x)), range(outputs), range(inputs)):
            source = out // (outputs // groups) * inputs + channel
            y[image, out] += correlate(x[image, source], wide[out, channel], "valid", "direct")
        y = y[:, :, ::sy, ::sx]
        return y if b is None else y + b[:, None, None]

    return value


def windows(x, kernel, stride, padding, dilation=1, fill=0.0):
    """Return a view (batch, channels, rows, columns, kh, kw) of what each window sees."""
    (sy, sx), (py, px), (dy, dx) = pairs(stride), pairs(padding), pairs(dilation)
    if py or px:
        x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)), constant_values=fill)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, (dy, dx), strict=True)]
    return sliding_window_view(x, spans, (2, 3))[:, :, ::sy, ::sx, ::dy, ::dx]


def convolution(name, inputs=2, outputs=3, kernel=(3, 2), bias=True, size=(6, 5), **options):
    groups = options.get("groups", 1)

    def make(n):
        n = images(n, size)
        w = normal(groups * outputs, inputs, *kernel)
        operands = (normal(n, groups * inputs, *size), w)
        return (*operands, normal(groups * outputs) if bias else None)

    return Case(
        f"conv2d {name}",
        Conv2d(**options),
        make,
        correlated(**options),
    )


def largest(kernel, stride=None, padding=0):
    (kh, kw), (sy, sx), (py, px) = pairs(kernel), pairs(stride or kernel), pairs(padding)

    def value(x):
        x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)), constant_values=-np.inf)
        rows, columns = (x.shape[2] - kh) // sy + 1, (x.shape[3] - kw) // sx + 1
        y = np.empty((*x.shape[:2], rows, columns))
        for i, j in np.ndindex(rows, columns):
            y[:, :, i, j] = x[:, :, i * sy : i * sy + kh, j * sx : j * sx + kw].max(axis=(2, 3))
        return y

    return value


def pooling(name, size=(6, 5), **options):
    return Case(
        f"max_pool2d {name}",
        MaxPool2d(**options),
        lambda n: (distinct(images(n, size), 2, *size),),
        largest(**options),
    )


CASES = [
    convolution("plain"),
    convolution("without bias", bias=False),
    convolution("padded and strided", padding=(1, 2), stride=(2, 1)),
    convolution("dilated", dilation=(2, 3), padding=2),
    convolution("in groups", groups=2, inputs=1, outputs=2, padding=1),
    convolution("by channel", groups=3, inputs=1, outputs=1),
    convolution("of 1 x 1", kernel=(1, 1)),
    convolution("of one channel over the whole image", inputs=1, outputs=1, kernel=(6, 5)),
    convolution("of 1 x 1 images", size=(1, 1), kernel=(1, 1)),
    replace(
        convolution("that skips rows", stride=4, kernel=(2, 2)), memory_rows=(16400, 32800)
    ),  # it reads few of them
    pooling("plain", kernel=2),
    pooling("overlapping", kernel=3, stride=1),
    pooling("padded", kernel=(3, 2), stride=(2, 1), padding=1),
    pooling("with gaps", kernel=1, stride=2),
    pooling("padded by half of the kernel", kernel=2, padding=1),
    pooling("of 1 x 1 images", size=(1, 1), kernel=1),
]
