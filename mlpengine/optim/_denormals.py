"""Flushing of moments, to keep them out of the denormal range.

A moment without further gradients decays by beta at every step.  In float32 and at 0.9 it falls
below the smallest normal number after about 850 steps and stays there, where arithmetic is many
times slower; NumPy cannot make the processor flush such numbers to zero.  So every few steps

* a *signed* moment (a mean of gradients) has its entries below `threshold` set to zero;
* a *square* moment (a mean of squares) has its entries raised to at least
  `smallest_square`, also its initial value.

Between two flushes an entry decays by at most `MAX_DECAY`.  Both limits are far enough
above the denormals that neither a decayed entry nor the difference of two nearly equal ones is
denormal.

Square moments are never denormal.  Signed moments are never denormal if each entry of the gradient
is zero or at least `threshold` in size; denormals from smaller entries last until the next flush.
Both limits are too small to change a parameter (1e-25 and 1e-32 in float32).  A flush depends on
the step count alone, so a resumed run repeats it.
"""

from math import log

import numpy as np

from mlpengine.core.spec import Array, Call, Calls, call

MAX_DECAY = 1e-6
"""Largest decay of an entry from one flush to the next."""

INTERVAL = 64
"""Maximum steps between two flushes: four passes in 64 steps, beside ten passes in each step."""


def flush_interval(betas: list[float]) -> int:
    """Return the steps between flushes of moments that decay by `betas` (all less than one)."""
    steps = [int(log(MAX_DECAY) / log(beta)) for beta in betas if beta > 0.0]
    return max(1, min([INTERVAL, *steps]))


def threshold(dtype: np.dtype[np.floating]) -> float:
    """Return the size below which an entry of a signed moment counts as zero."""
    info = np.finfo(dtype)
    return float(info.tiny) / float(info.eps) / MAX_DECAY


def smallest_square(dtype: np.dtype[np.floating]) -> float:
    """Return the minimum of a square moment after a flush, also its initial value."""
    return float(np.finfo(dtype).tiny) / MAX_DECAY


def flush_signed(moment: Array, work: Array, mask: Array) -> Calls:
    """Yield the calls that set entries of `moment` below the threshold to zero.

    Shapes: all of one size; `work` has the dtype of `moment`, `mask` is bool; both are overwritten.
    """
    yield call(np.absolute, moment, work)
    yield call(np.greater_equal, work, np.array(threshold(work.dtype), work.dtype), mask)
    # A product rather than copyto(where=): faster, and NaN stays NaN.
    yield call(np.multiply, moment, mask, moment)


def flush_square(moment: Array) -> Call:
    """Return the call that raises entries of `moment` to the floor."""
    limit = np.array(smallest_square(moment.dtype), moment.dtype)
    # NumPy 2.4 deprecates a positional out for maximum.
    return call(np.maximum, moment, limit, out=moment)
