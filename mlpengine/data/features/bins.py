"""The piecewise-linear encoding of numeric features: the position of a value in each bin."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mlpengine.core.spec import Array


class Bins:
    """Encodes numeric features by bins; `edges` has the increasing bin edges of each feature.

    A value x has one component for each bin [a, b]: (x - a) / (b - a), clipped to the range 0 to 1.
    In the first bin the lower limit is -1, and in the last bin the upper limit is 2.  Values
    outside all bins thus stay different, but a very large value cannot dominate a prediction.

    Source: Gorishniy et al. 2022, arXiv 2203.05556, section 3.2.1 (limits of the outer bins added).
    """

    def __init__(self, edges: Sequence[Array] = ()) -> None:
        self.edges = edges
        counts = [max(0, len(each) - 1) for each in edges]
        self.columns = np.repeat(np.arange(len(edges)), counts)
        """The feature index of each component."""
        self.left = np.concatenate([each[:-1] for each in edges]) if edges else np.empty(0)
        self.width = np.concatenate([np.diff(each) for each in edges]) if edges else np.empty(0)
        change = np.flatnonzero(np.diff(self.columns, prepend=-1, append=-1))
        self.low, self.high = np.zeros_like(self.width), self.width.copy()
        """For each component, the limits of x - a before the division by b - a."""
        self.low[change[:-1]] = -self.width[change[:-1]]
        self.high[change[1:] - 1] *= 2.0

    def __len__(self) -> int:
        return len(self.columns)

    def names(self, features: Sequence[str]) -> list[str]:
        """Return the names of the components, such as `carat[0.4..0.7]`."""
        names = []
        for feature, edges in zip(features, self.edges, strict=bool(self.edges)):
            texts = _short(edges)
            names += [f"{feature}[{a}..{b}]" for a, b in pairwise(texts)]
        return names

    def encode(self, values: Array, out: Array) -> None:
        """Write the components (rows, components) of `values` (rows, features), without NaN."""
        values.take(self.columns, 1, out, "clip")
        np.subtract(out, self.left, out=out)
        np.maximum(out, self.low, out=out)  # np.clip with a row of limits takes longer
        np.minimum(out, self.high, out=out)
        np.divide(out, self.width, out=out)


def _short(edges: Array) -> list[str]:
    """Return numbers as distinct texts, with as few digits as possible but at least three."""
    for digits in range(3, 18):
        texts = [f"{edge:.{digits}g}" for edge in edges]
        if len(set(texts)) == len(texts):
            break
    return texts
