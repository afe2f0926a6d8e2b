"""Flushing of moments before they become denormal.

While gradients are zero, each step multiplies a moment by beta.  With beta = 0.9 in float32, an
entry of 1 falls below the smallest normal number after about 830 steps.  Arithmetic on denormal
numbers is many times slower than on normal numbers, and NumPy has no switch that treats them as
zero.  Therefore, every few steps

* the entries of *signed* moments (means of gradients) below `threshold` are set to zero;
* the entries of *square* moments (means of squares) are raised to at least `smallest_square`, the
  initial value of these moments.

From one flush to the next, decay multiplies an entry by at least `SMALLEST_DECAY`.  Both limits are
far above the denormal numbers: a decayed entry is not denormal, and neither is a difference of
nearly equal entries.

Square moments are never denormal.  Signed moments are never denormal if each entry of the gradient
is zero or at least `threshold` in size; smaller gradients can cause denormals until the next flush.
The limits (1e-25 and 1e-32 in float32) are too small to change a parameter.  Flushes depend only on
the step count, so a resumed run repeats them.
"""

from math import log

import numpy as np

from mlpengine.core.spec import Array, Call, Calls, call

SMALLEST_DECAY = 1e-6
"""Minimum of beta ** (steps between two flushes)."""

INTERVAL = 64
"""Maximum steps between two flushes.  A flush takes 4 NumPy calls; a step of Adam takes 10."""


def flush_interval(betas: list[float]) -> int:
    """Return the number of steps between two flushes of moments that decay by `betas` (< 1)."""
    steps = [int(log(SMALLEST_DECAY) / log(beta)) for beta in betas if beta > 0.0]
    return max(1, min([INTERVAL, *steps]))


def threshold(dtype: np.dtype[np.floating]) -> float:
    """Return the size below which a flush sets an entry of a signed moment to zero."""
    info = np.finfo(dtype)
    return float(info.tiny) / float(info.eps) / SMALLEST_DECAY


def smallest_square(dtype: np.dtype[np.floating]) -> float:
    """Return the smallest entry of a square moment after a flush."""
    return float(np.finfo(dtype).tiny) / SMALLEST_DECAY


def flush_signed(moment: Array, work: Array, mask: Array) -> Calls:
    """Yield the calls that set entries below `threshold` to 0; they overwrite `work` and `mask`."""
    yield call(np.absolute, moment, work)
    yield call(np.greater_equal, work, np.array(threshold(work.dtype), work.dtype), mask)
    # A product is faster than copyto(where=), and NaN stays NaN.
    yield call(np.multiply, moment, mask, moment)


def flush_square(moment: Array) -> Call:
    """Return the call that raises entries of `moment` to at least `smallest_square`."""
    limit = np.array(smallest_square(moment.dtype), moment.dtype)
    # NumPy 2.4 deprecates a positional out for maximum.
    return call(np.maximum, moment, limit, out=moment)
