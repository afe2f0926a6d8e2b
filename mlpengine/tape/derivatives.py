"""Jacobians, and second derivatives as differences of exact gradients.

Rules write into buffers and are not differentiable themselves, so there is no backward of a
backward.  A central difference of gradients in float64 is accurate to about ten digits, takes two
replays, and needs no further rules.  Every function here recomputes all intermediate values and
restores the program afterwards.
"""

from collections.abc import Callable

import numpy as np

from mlpengine.core.buffers import zeros
from mlpengine.core.errors import DtypeError, ShapeError, TapeError
from mlpengine.core.spec import Array, ArrayLike, Spec
from mlpengine.tape.program import Program
from mlpengine.tape.record import as_tuple
from mlpengine.tape.state import OpState
from mlpengine.tape.tape import Node

STEP = float(np.finfo(np.float64).eps) ** (1 / 3)
"""Half-width of a difference, relative to the point, that balances rounding and truncation."""


def jacobian(program: Program, leaf: Node, output: Node | None = None) -> Array:
    """Return the exact derivatives of an output by a leaf, with one backward per output entry.

    Shapes: the output's shape followed by the leaf's.
    Raises: TapeError unless `output` is an output of the program; it may be left out if there is
    only one.
    """
    position = _position(program, output)
    with program.preserved():
        value = as_tuple(program.forward())[position]
        seeds = [zeros(y.spec) for y in program.outputs]
        rows = np.empty((value.size, *leaf.shape), leaf.dtype)
        for i, row in enumerate(rows):
            seeds[position].flat[i] = 1
            program.backward(seeds if len(seeds) > 1 else seeds[0])
            row[...] = program.grad(leaf)
            seeds[position].flat[i] = 0
    return rows.reshape(*value.shape, *leaf.shape)


def hessian_vector_product(
    program: Program, vector: ArrayLike, leaf: Node | None = None, *, step: float = STEP
) -> Array:
    """Return the second derivatives, by a leaf, of the sum of all outputs, times a vector.

    Without `leaf` it is the Hessian of all parameters as one flat vector.
    Shapes: `vector` and the result are as the leaf, or as ``program.params.flat``.
    Raises: DtypeError unless the leaf is float64; ShapeError for another vector.
    """
    direction = np.asarray(vector, np.float64)
    with program.preserved():
        point, gradient = _gradient_at(program, leaf)
        return gradient_difference(gradient, point, direction, step=step)


def hessian_diagonal(program: Program, leaf: Node | None = None, *, step: float = STEP) -> Array:
    """Return the pure second derivatives of the sum of all outputs, with two replays per entry.

    Shapes: as the leaf, or as ``program.params.flat`` without one.
    Raises: DtypeError unless the leaf is float64.
    """
    with program.preserved():
        point, gradient = _gradient_at(program, leaf)
        direction, diagonal = np.zeros(point.shape), np.zeros(point.shape)
        for i in range(point.size):
            direction.flat[i] = 1
            difference = gradient_difference(gradient, point, direction, step=step)
            diagonal.flat[i] = difference.flat[i]
            direction.flat[i] = 0
    return diagonal


def gradient_difference(
    gradient: Callable[[], Array], point: Array, direction: Array, *, step: float = STEP
) -> Array:
    """Return the derivative along `direction` of the gradient that `gradient()` computes.

    `point` is the array that `gradient` reads; it is displaced both ways, then restored.
    Raises: DtypeError unless the point is float64, ShapeError unless the direction has its shape.
    """
    if point.dtype != np.float64:
        raise DtypeError(f"second derivatives: need float64 parameters (got {Spec.of(point)})")
    if direction.shape != point.shape:
        raise ShapeError(
            f"second derivatives: the direction must be as the point is "
            f"(direction {Spec.of(direction)}, point {Spec.of(point)})"
        )
    length = float(np.max(np.abs(direction), initial=0.0))
    if not length:
        return np.zeros(point.shape)
    half = step * max(1.0, float(np.max(np.abs(point)))) / length
    before = point.copy()
    try:
        np.add(before, half * direction, point)
        after = gradient().copy()
        np.subtract(before, half * direction, point)
        return np.asarray((after - gradient()) / (2 * half))
    finally:
        point[...] = before


def _gradient_at(program: Program, leaf: Node | None) -> tuple[Array, Callable[[], Array]]:
    """Return the array to displace, and a function that computes the gradient at it.

    Each call of the function starts from the state that the ops have now.
    """
    point = program.params.flat if leaf is None else program.value(leaf)
    result = program.grads.flat if leaf is None else program.grad(leaf)
    state = OpState(program.tape.records)

    def gradient() -> Array:
        state.restore()
        program.forward()
        program.backward()
        return result

    return point, gradient


def _position(program: Program, output: Node | None) -> int:
    """Return the position of an output; raise TapeError for arrays and for other nodes."""
    if output is None and len(program.outputs) == 1:
        return 0
    if isinstance(output, np.ndarray):
        raise TapeError(
            "jacobian: needs an output node, not an array. Gradients are plain arrays: rules that "
            "write into buffers are not differentiable themselves, see hessian_vector_product"
        )
    indices = [y.index for y in program.outputs]
    if output is None or output.index not in indices:
        raise TapeError(f"jacobian: needs one of the outputs {program.outputs} (got {output!r})")
    return indices.index(output.index)
