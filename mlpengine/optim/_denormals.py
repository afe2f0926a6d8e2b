"""Flushing of moments before they become denormal.

If gradients are zero, a moment is multiplied by beta at every step.  With beta = 0.9 in float32, an
entry of 1 falls below the smallest normal number after about 830 steps.  Arithmetic on denormal
numbers is many times slower than on normal numbers, and NumPy cannot make the processor flush them
to zero.  Therefore, every few steps

* the entries of *signed* moments (means of gradients) below `threshold` are set to zero;
* the entries of *square* moments (means of squares) are raised to at least `smallest_square`, the
  initial value of these moments.

From one flush to the next, decay multiplies an entry by at least `MAX_DECAY`.  Both limits are so
far above the denormals that no decayed entry, and no difference of nearly equal entries, is
denormal.

Square moments are never denormal.  Signed moments are never denormal if each entry of the gradient
is zero or at least `threshold` in size; smaller gradients can cause denormals until the next flush.
The limits (1e-25 and 1e-32 in float32) are too small to change a parameter.  Flushes depend only on
the step count, so a resumed run repeats them.
"""

from math import log

import numpy as np

from mlpengine.core.spec import Array, Call, Calls, call

MAX_DECAY = 1e-6
"""Smallest product of the decay factors from one flush to the next."""

INTERVAL = 64
"""Maximum steps between two flushes; a flush takes four NumPy calls, a step of Adam ten."""


def flush_interval(betas: list[float]) -> int:
    """Return the steps between flushes of moments that decay by `betas` (each less than one)."""
    steps = [int(log(MAX_DECAY) / log(beta)) for beta in betas if beta > 0.0]
    return max(1, min([INTERVAL, *steps]))


def threshold(dtype: np.dtype[np.floating]) -> float:
    """Return the size below which a flush sets an entry of a signed moment to zero."""
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
