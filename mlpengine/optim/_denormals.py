"""Flushing of moments, so that they never become denormal.

Without further gradients, a moment decays by beta at every step.  At 0.9 in float32 it falls below
the smallest normal number after about 850 steps.  Arithmetic on such denormal numbers is many times
slower, and NumPy cannot make the processor flush them to zero.  So every few steps

* a *signed* moment (a mean of gradients) has its entries below `threshold` set to zero;
* a *square* moment (a mean of squares) has its entries raised to at least `smallest_square`, which
  is also its initial value.

Between two flushes an entry decays by at most `MAX_DECAY`.  Both limits are so far above the
denormals that no decayed entry, and no difference of nearly equal entries, is denormal.

Square moments are never denormal.  Signed moments are never denormal if each entry of the gradient
is zero or at least `threshold` in size; denormals of smaller entries last until the next flush.
The limits are too small to change a parameter (1e-25 and 1e-32 in float32).  A flush depends only
on the step count, so a resumed run repeats it.
"""

from math import log

import numpy as np

from mlpengine.core.spec import Array, Call, Calls, call

MAX_DECAY = 1e-6
"""Largest decay of an entry from one flush to the next."""

INTERVAL = 64
"""Maximum steps between two flushes; a flush has four passes, a step has ten."""


def flush_interval(betas: list[float]) -> int:
    """Return the steps between flushes of moments that decay by `betas` (each less than one)."""
    steps = [int(log(MAX_DECAY) / log(beta)) for beta in betas if beta > 0.0]
    return max(1, min([INTERVAL, *steps]))


def threshold(dtype: np.dtype[np.floating]) -> float:
    """Return the size below which an entry of a signed moment counts as zero."""
    info = np.finfo(dtype)
    return float(info.tiny) / float(info.eps) / MAX_DECAY


def smallest_square(dtype: np.dtype[np.floating]) -> float:
    """Return the smallest entry of a square moment after a flush."""
    return float(np.finfo(dtype).tiny) / MAX_DECAY


def flush_signed(moment: Array, work: Array, mask: Array) -> Calls:
    """Yield the calls that set entries below `threshold` to 0, in `work` and `mask`."""
    yield call(np.absolute, moment, work)
    yield call(np.greater_equal, work, np.array(threshold(work.dtype), work.dtype), mask)
    # A product is faster than copyto(where=), and NaN stays NaN.
    yield call(np.multiply, moment, mask, moment)


def flush_square(moment: Array) -> Call:
    """Return the call that raises entries of `moment` to `smallest_square`."""
    limit = np.array(smallest_square(moment.dtype), moment.dtype)
    # NumPy 2.4 deprecates a positional out for maximum.
    return call(np.maximum, moment, limit, out=moment)
