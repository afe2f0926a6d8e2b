"""Checks between the calls of a replay that a number has not become infinite or NaN."""

from collections.abc import Iterable, Sequence
from math import isfinite

import numpy as np

from mlpengine.errors import NumericalError
from mlpengine.spec import Array, Calls, call
from mlpengine.tape.binding import Instruction


def require_finite(array: Array, what: str) -> None:
    """Raise NumericalError, naming `what` and the first place, unless all of `array` is finite."""
    if isfinite(np.add.reduce(array, None)):
        return
    wrong = ~np.isfinite(array)  # a sum may overflow where no entry is infinite
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise NumericalError(f"{what} must be finite ({array[place]} at {place})")


def checked_forward(instructions: Iterable[Instruction]) -> Calls:
    """Yield the calls of a forward replay, each op's followed by a check of what it wrote."""
    for step in instructions:
        yield from step.calls
        for y in step.writes:
            if y is not None and y.dtype.kind == "f":
                yield call(require_finite, y, f"forward: the value of {step.text}")


def checked_backward(
    instructions: Sequence[Instruction], gradients: Iterable[tuple[str, Array]]
) -> Calls:
    """Yield the calls of a backward replay, each op's preceded by a check of what reaches it.

    `gradients` are the leaves' names and gradients, which are checked in the end.
    """
    for step in instructions:
        if step.kind == "backward":
            arriving = step.reads[0]
            for dy in arriving if isinstance(arriving, tuple) else (arriving,):
                if dy is not None:
                    yield call(
                        require_finite, dy, f"backward: the gradient that reaches {step.text}"
                    )
        yield from step.calls
    for name, gradient in gradients:
        yield call(require_finite, gradient, f"backward: the gradient of {name}")
