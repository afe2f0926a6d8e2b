"""Every row of the op table, timed: forward, backward, and the forward pass in plain NumPy.

Run ``python benchmarks/ops.py`` (``--smoke`` for seconds, ``--only gelu`` for some rows).  Forward,
plain and backward of a row run in turn, window by window, so that a change of the machine's speed
hits them alike; medians over the windows are printed, of processor time, which neighbors disturb
least.  The project's promise is a forward pass of at most twice the plain one; rows beyond it are
listed at the end, but for rows of a few elements, where nothing but the number of calls is timed.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from against import add_option, compare
from machine import describe, in_turn, restart_clean
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "ops"))

from bound import Bound
from cases import CASES

from mlpengine.core.spec import Call

PROMISE = 2.0
"""Largest ratio of a forward pass to the plain expression."""

SIZES = (1024, 262_144)
"""Elements of the largest operand, about."""

MIN_ELEMENTS = 100
"""Elements from which the promise counts: a NumPy call on one number costs what a call costs."""

MAX_ROWS = 65_536


@dataclass(frozen=True)
class Result:
    """Microseconds of one row at one size; `plain` is None where the row has no expression."""

    name: str
    elements: int
    dtype: str
    forward: float
    backward: float
    plain: float | None
    ratio: float | None

    def __str__(self) -> str:
        plain = "" if self.plain is None else f"{self.plain:10.1f} {self.ratio:6.2f}"
        return (
            f"{self.name:<48.48} {self.dtype} {self.elements:>9,} "
            f"{self.forward:10.1f} {self.backward:10.1f} {plain:>17}"
        )


def rows_for(case, elements: int) -> int:
    """Return how many rows of the batch make the largest operand about that large."""
    largest = max((x.size for x in case.operands(8) if x is not None), default=8)
    return max(1, min(MAX_ROWS, elements * 8 // max(largest, 1)))


def replayed(calls: tuple[Call, ...]) -> Callable[[], None]:
    def run() -> None:
        for bound in calls:
            bound()

    return run


def timed(case, elements: int, dtype: str, seconds: float, windows: int) -> Result:
    operands = case.operands(rows_for(case, elements), dtype)
    bound = Bound(case.op, operands).random_dy()
    contestants: dict[str, Callable[[], object]] = {"forward": replayed(bound.forward_calls)}
    if case.plain is not None:
        contestants["plain"] = lambda: case.plain(*operands)
    contestants["backward"] = replayed(bound.backward_calls)
    times = in_turn(contestants, seconds, windows, time.process_time)
    plain, ratio = times.get("plain"), None
    if plain is not None:
        ratio = median(f / p for f, p in zip(times["forward"], plain, strict=True))
    size = max((x.size for x in operands if x is not None), default=0)
    return Result(
        case.id,
        size,
        dtype,
        median(times["forward"]),
        median(times["backward"]),
        None if plain is None else median(plain),
        ratio,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few milliseconds a row")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--dtype", nargs="+", default=["float32"], help="float32, float64")
    parser.add_argument("--elements", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each contestant of a row")
    add_option(parser)
    args = parser.parse_args()
    describe()
    if args.against:
        rows = {"elements": args.elements, "dtypes": args.dtype}
        seconds = 0.001 if args.smoke else 0.01
        compare("ops", args.against, only=[args.only], seconds=seconds, **rows)
        return
    seconds, windows = (0.001, 3) if args.smoke else (args.seconds, 15)
    rows = [c for c in CASES if args.only in c.id]
    slow = []
    print(f"{'row':<48} {'dtype':<7} {'elements':>9} {'forward':>10} {'backward':>10}", end="")
    print(f"{'plain':>11} {'ratio':>6}   (us)")
    with threadpool_limits(1), np.errstate(all="ignore"):
        for elements in args.elements[:1] if args.smoke else args.elements:
            for case in rows:
                for dtype in (d for d in args.dtype if d in case.dtypes):
                    result = timed(case, elements, dtype, seconds, windows)
                    print(result, flush=True)
                    counts = result.elements >= MIN_ELEMENTS and result.ratio is not None
                    if counts and result.ratio > PROMISE:
                        slow.append(result)
    print(f"\n{len(slow)} rows above {PROMISE:g} times the plain expression")
    for result in slow:
        print(result)


if __name__ == "__main__":
    restart_clean()
    main()
