"""Comparison of gradients with central differences in random directions."""

from collections.abc import Callable

import numpy as np

from mlpengine.core.errors import DtypeError, GradcheckError
from mlpengine.core.spec import Array, Spec
from mlpengine.ops import GradOp
from mlpengine.tape.operand import numeric
from mlpengine.tape.program import Program
from mlpengine.tape.record import as_tuple
from mlpengine.tape.state import OpState
from mlpengine.tape.tape import Node, Tape


def gradcheck(
    subject: GradOp | Program,
    *operands: Array | None,
    step: float = 1e-6,
    rtol: float = 1e-6,
    seed: int = 0,
) -> float:
    """Compare gradients with central differences of the values; return the largest error.

    Let f be the function, u random weights of its outputs, x a leaf, and v a random direction.  The
    check compares <v, gradient of x> with d/dt <u, f(x + t v)>, from two forwards for each leaf.

    Args:
        subject: an op to check on `operands`, or a program to check at the current values of its
            leaves.  The check restores leaves and random generators, but no other memory.
        operands: float64 arrays, or integer and bool arrays without a gradient; None for a
            missing operand.
        step: t, the half-width of the difference.
        rtol: largest allowed error, relative to max(1, abs(a), abs(b)) for compared numbers a, b.
        seed: seed of the generator that draws u and v.

    Raises:
        GradcheckError: a call of the op fails, or the gradient of the named leaf is wrong.
        DtypeError: a leaf is float32, so that rounding errors would exceed the tolerance.
    """
    program = subject if isinstance(subject, Program) else _program_of(subject, operands)
    rng = np.random.default_rng(seed)
    leaves = [n for n in program.tape.nodes if n.is_leaf and n.wants_grad]
    for node in leaves:
        if node.spec.dtype != np.float64:
            raise DtypeError(f"gradcheck: needs float64 leaves (got {node.name} {node.spec})")
    name = subject.name if isinstance(subject, GradOp) else "program"
    weights = [rng.standard_normal(n.spec.shape) for n in program.outputs]
    state = OpState(program.tape.records)

    def weighted() -> float:
        state.restore()
        values = as_tuple(program.forward())
        return sum(float(np.sum(u * y)) for u, y in zip(weights, values, strict=True))

    for node in leaves:
        program.grad(node).fill(np.nan)  # backward must overwrite this gradient
    try:
        weighted()
        program.backward(weights if len(weights) > 1 else weights[0])
    except (TypeError, ValueError) as error:  # NumPy refuses a call of an op of one's own
        raise GradcheckError(f"{name}: a call fails ({error})") from error
    errors = [_check(name, program, node, weighted, step, rtol, rng) for node in leaves]
    state.restore()
    return max(errors, default=0.0)


def _program_of(op: GradOp, operands: tuple[Array | None, ...]) -> Program:
    tape = Tape()
    nodes: list[Node | None] = []
    for position, operand in enumerate(operands):
        if operand is None:
            nodes.append(None)
            continue
        spec = Spec.of(numeric(operand, f"gradcheck: operand {position}"))
        leaf = tape.input(
            spec.shape, spec.dtype, name=f"operand {position}", wants_grad=spec.is_float
        )
        nodes.append(leaf)
    outputs = tape.apply(op, *nodes)
    program = Program(tape, *(outputs if isinstance(outputs, tuple) else (outputs,)))
    for node, operand in zip(nodes, operands, strict=True):
        if node is not None:
            program.inputs[node.name][...] = operand
    return program


def _check(
    name: str,
    program: Program,
    node: Node,
    weighted: Callable[[], float],
    step: float,
    rtol: float,
    rng: np.random.Generator,
) -> float:
    gradient = program.grad(node)
    array = program.value(node)
    direction = rng.standard_normal(array.shape)
    analytic = float(np.sum(direction * gradient))
    before = array.copy()
    ends = []
    for sign in (1, -1):
        array[...] = before + sign * step * direction
        ends.append(weighted())
    array[...] = before
    numeric = (ends[0] - ends[1]) / (2 * step)
    error = abs(numeric - analytic) / max(1.0, abs(numeric), abs(analytic))
    if not error <= rtol:
        raise GradcheckError(
            f"{name}: gradient of {node.name} must equal its differences to {rtol:g} "
            f"(gradient {analytic:.9g}, differences {numeric:.9g})"
        )
    return error
