"""How much of ``MlpClassifier.fit`` on the digits is spent in training steps.

``python benchmarks/fit.py`` (``--smoke`` for a second; needs the extra ``sklearn``).  Fits the
scanned digits with the network of ``configs/digits.yaml``, with one of 64-128-10, and with the
defaults (eight networks), several times in turn: plainly, and with every step timed.  Prints the
share of the time inside steps, medians, and what all else costs for each step.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np
from against import add_option, compare
from machine import describe, restart_clean
from sklearn.datasets import load_digits

from mlpengine import TrainingStep
from mlpengine.estimators import MlpClassifier
from mlpengine.step.bound_step import BoundStep

DIGITS = {"hidden": (256, 128), "dropout": 0.3, "lr": 2e-3, "weight_decay": 0.05}
SMALL = {"hidden": (128,)}
EVERY_ROW = {"early_stopping": False, "epochs": 200, "batch_size": 32}
LONG = {"settings": {"training.early_stopping.patience": 1000}}
STOPPING = {"early_stopping": True, "epochs": 200, "batch_size": 32, **LONG}
FITS = {
    "digits.yaml, every row": DIGITS | EVERY_ROW,
    "digits.yaml, early stopping": DIGITS | STOPPING,
    "64-128-10, every row": SMALL | EVERY_ROW,
    "64-128-10, early stopping": SMALL | STOPPING,
    "defaults": {},
}
"""Parameters of the estimator."""


class Watch:
    """Adds up the time inside steps while it is open: single ones, and many in one call."""

    def __enter__(self) -> "Watch":
        self.seconds, self.steps = 0.0, 0
        self._originals = TrainingStep.run, TrainingStep.make_fused_steps
        run, make_fused_steps = self._originals

        def timed_run(step: TrainingStep, bound: BoundStep) -> float:
            start = time.perf_counter()
            value = run(step, bound)
            self.seconds += time.perf_counter() - start
            self.steps += 1
            return value

        def timed_fused_steps(step: TrainingStep, *args: Any, **options: Any) -> int:
            start = time.perf_counter()
            done = make_fused_steps(step, *args, **options)
            self.seconds += time.perf_counter() - start
            self.steps += done
            return done

        TrainingStep.run, TrainingStep.make_fused_steps = timed_run, timed_fused_steps
        return self

    def __exit__(self, *_: object) -> None:
        TrainingStep.run, TrainingStep.make_fused_steps = self._originals


def fit(x: np.ndarray, y: np.ndarray, **options: object) -> float:
    """Return the seconds that a fit takes."""
    classifier = MlpClassifier(random_state=0, **options)
    start = time.perf_counter()
    classifier.fit(x, y)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="two epochs, once")
    add_option(parser)
    args = parser.parse_args()
    describe()
    smoke = {"epochs": 2} if args.smoke else {}
    fits = {title: options | smoke for title, options in FITS.items()}
    if args.against:
        only, seconds = (["64-128-10"], 0.001) if args.smoke else ([""], 0.05)
        compare("fit", args.against, only=only, seconds=seconds, smoke=smoke)
        return
    x, y = load_digits(return_X_y=True)
    for title, options in fits.items():
        shares, rests = [], []
        for _ in range(1 if args.smoke else 7):
            plain = fit(x, y, **options)
            with Watch() as watch:
                total = fit(x, y, **options)
            shares.append(watch.seconds / total)
            rests.append((plain * (1 - shares[-1])) / watch.steps * 1e6)
        print(
            f"{title:28} {statistics.median(shares):6.1%} of fit in {watch.steps:,} steps, "
            f"{statistics.median(rests):.1f} us a step for the rest",
            flush=True,
        )


if __name__ == "__main__":
    restart_clean()
    main()
