"""The promises of an op, each a function of a row that fails where the op breaks it."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from bound import Bound
from case import ROWS, Case, Operands
from traced import least_peak

from mlpengine.core.spec import Array
from mlpengine.tape import Program, Tape, gradcheck

GROWTH = 1024
"""Bytes by which the peak of a replay may differ between few and many rows."""

AGREEMENT = {"float64": 1e-12, "float32": 5e-6}
"""Between NumExpr and NumPy, relative and absolute."""


def check_value(case: Case, rows: int = ROWS) -> None:
    """The value equals an independent formula, in float64 and, less exactly, in float32."""
    for dtype in case.dtypes:
        operands = case.operands(rows, dtype)
        case.prepare()
        values = Bound(case.op, operands).forward()
        case.prepare()
        expected = tupled(case.expect(*(widened(x) for x in operands)))
        tolerance = 1e-12 if dtype == "float64" else case.tolerance
        assert len(values) == len(expected)
        for y, formula in zip(values, expected, strict=True):
            formula = np.asarray(formula)
            assert y.shape == formula.shape
            np.testing.assert_allclose(y, formula, rtol=tolerance, atol=tolerance)


def check_gradient(case: Case) -> None:
    """Gradients are the derivatives of the value, along random directions, in float64.

    Of an op that stops them, they are 0.
    """
    if case.op.stops_gradient:
        _, gradients = by_program(case, case.operands())
        assert not any(np.any(g) for g in gradients)
        return
    gradcheck(case.op, *case.operands(), rtol=case.rtol)


def check_float32_gradient(case: Case) -> None:
    """Gradients in float32 are those in float64 up to rounding."""
    if "float32" not in case.dtypes:
        return
    single = case.operands(dtype="float32")
    double = tuple(widened(x) for x in single)
    (_, exact), (_, rounded) = (direct(case, x) for x in (double, single))
    for g64, g32 in zip(exact, rounded, strict=True):
        scale = max(1.0, np.abs(g64).max(initial=0.0))
        np.testing.assert_allclose(g32, g64, rtol=0, atol=case.gradient_tolerance * scale)


def check_sizes(case: Case) -> None:
    """One row has the value of the formula; no row has a value and a gradient without a word."""
    check_value(case, 1)
    if case.empty:
        check_value(case, 0)
        direct(case, case.operands(0))


def check_overwrite(case: Case) -> None:
    """Rules fill all of `out`, whatever was in it and in the work, and write nothing else.

    Leaving out any of the gradients changes no bit of the others.
    """
    operands = case.operands()
    bound = Bound(case.op, operands).random_dy()
    operands = (*operands, *(None,) * (len(bound.operands) - len(operands)))
    case.prepare()
    values, gradients, dy = bound.forward(), bound.slots, [d.copy() for d in bound.dy]
    assert same(bound.operands, operands), "forward wrote an operand"
    kept = [y.copy() for y in values]
    bound.backward()
    assert same(bound.operands, operands), "backward wrote an operand"
    assert same(bound.y, kept), "backward wrote the value"
    assert same(bound.dy, dy), "backward wrote dy"
    assert not any(np.isnan(a).any() for a in (*values, *gradients) if a is not None), "not filled"
    first = [None if g is None else g.copy() for g in gradients]
    case.prepare()
    bound.forward()
    bound.backward()
    assert same(bound.y, kept), "forward adds to what is there"
    assert same(bound.slots, first), "backward adds to what is there"
    for wanted in subsets(gradients):
        part = Bound(case.op, operands, wanted=wanted).random_dy()
        case.prepare()
        part.forward()
        part.backward()
        chosen = [g if w else None for g, w in zip(first, wanted, strict=True)]
        assert same(part.slots, chosen), f"gradients {wanted} differ from the same among all"


def check_in_place(case: Case) -> None:
    """Where `in_place` allows it, out may be the operand's or dy's buffer: not a bit changes."""
    operands = case.operands()
    for direction in case.op.in_place:
        reference = Bound(case.op, operands).random_dy()
        target = reference.y[0] if direction == "forward" else reference.slots[0]
        source = operands[0] if direction == "forward" else reference.dy[0]
        if source.size != target.size or source.dtype != target.dtype:
            continue
        aliased = Bound(case.op, operands, aliased=direction).random_dy()
        for bound in (reference, aliased):
            case.prepare()
            bound.forward()
        assert same(aliased.y, reference.y), "forward in place differs"
        if direction == "backward":
            reference.backward()
            aliased.backward()
            assert same(aliased.slots, reference.slots), "backward in place differs"


def check_memory(case: Case) -> None:
    """A replay holds no memory that grows with the batch."""
    few, many = case.memory_rows
    for _ in range(3):  # other threads of the process, a test runner's say, allocate too
        growth = peak_bytes(case, many) - peak_bytes(case, few)
        if growth < GROWTH:
            return
    assert growth < GROWTH, f"{growth} bytes more at {many} rows than at {few}"


def check_extremes(case: Case) -> None:
    """Value and gradients are finite, and nothing overflows, for tiny and for huge operands."""
    for dtype, scale in product(case.dtypes, case.extremes):
        operands = case.operands(dtype=dtype, scale=scale)
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            values, gradients = direct(case, operands)
        for a in (*values, *gradients):
            assert np.isfinite(a).all(), f"not finite in {dtype} times {scale:g}"


def check_backends(case: Case) -> None:
    """NumExpr agrees with the op's own rules."""
    for dtype in case.dtypes:
        operands = case.operands(64, dtype)
        own, other = (by_program(case, operands, backend=b) for b in ("numpy", "numexpr"))
        for a, b in zip((*own[0], *own[1]), (*other[0], *other[1]), strict=True):
            scale = max(1.0, np.abs(a).max(initial=0.0))
            np.testing.assert_allclose(b, a, rtol=0, atol=AGREEMENT[dtype] * scale)


CHECKS: tuple[Callable[[Case], None], ...] = (
    check_value,
    check_gradient,
    check_float32_gradient,
    check_sizes,
    check_overwrite,
    check_in_place,
    check_memory,
    check_extremes,
    check_backends,
)


def direct(case: Case, operands: Operands) -> tuple[tuple[Array, ...], list[Array]]:
    """Return values and all gradients of the bare rules, dy random."""
    bound = Bound(case.op, operands).random_dy()
    case.prepare()
    return bound.forward(), bound.backward()


def by_program(
    case: Case,
    operands: Operands,
    *,
    backend: str = "numpy",
) -> tuple[list[Array], list[Array]]:
    """Return values and gradients of a program, seeded with ones."""
    tape = Tape()
    nodes = []
    for i, x in enumerate(operands):
        if x is None:
            nodes.append(None)
        else:
            nodes.append(tape.input(x.shape, x.dtype, name=f"x{i}", wants_grad=is_float(x)))
    outputs = tupled(tape.apply(case.op, *nodes))
    program = Program(tape, *outputs, backend=backend)
    inputs = {n.name: x for n, x in zip(nodes, operands, strict=True) if n is not None}
    case.prepare()
    values = [y.copy() for y in tupled(program.forward(**inputs))]
    leaves = dict.fromkeys(n for n in nodes if n is not None and n.wants_grad)
    if leaves:
        program.backward()
    return values, [program.grad(n).copy() for n in leaves]


def peak_bytes(case: Case, rows: int) -> int:
    """Return the peak of traced memory during a replay of the bare rules."""
    bound = Bound(case.op, case.operands(rows, case.dtypes[-1])).random_dy()

    def replay() -> None:
        case.prepare()
        bound.forward()
        bound.backward()

    return least_peak(replay)  # the first fills caches that stay


def subsets(slots: list[Array | None]) -> Iterator[tuple[bool, ...]]:
    """Yield every choice of the gradients there are, but all and none of them."""
    present = [g is not None for g in slots]
    for choice in product((False, True), repeat=sum(present)):
        if any(choice) and not all(choice):
            picks = iter(choice)
            yield tuple(p and next(picks) for p in present)


def same(some: object, others: object) -> bool:
    """Return whether both hold the same bits, None where None."""
    pairs = list(zip(some, others, strict=True))
    return all(
        a is b if a is None or b is None else a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in pairs
    )


def widened(x: Array | None) -> Array | None:
    return x.astype(np.float64) if is_float(x) else x


def is_float(x: Array | None) -> bool:
    return x is not None and x.dtype.kind == "f"


def tupled(value: object) -> tuple:
    return value if isinstance(value, tuple) else (value,)
