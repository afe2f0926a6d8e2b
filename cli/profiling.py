"""The time of the parts of a run, and a dry run that writes nothing."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpengine.config.build import LoadedData
from mlpengine.training.trainer import Trainer

if TYPE_CHECKING:
    from .session import Session

DRY_RUN_STEPS = 20
"""Steps of a dry run; the fastest is the estimate."""

STEP_ROW, GATHERING = "training step", "  of it gathering its rows"


class Profiler:
    """Measures the parts of a run, from construction until `saved`; the page comes after it."""

    def __init__(self, session: "Session") -> None:
        self.seconds: dict[str, float] = {}
        for loop in session.loop.members:
            self._time(loop.step, "run", STEP_ROW)
            self._time(loop, "fill", GATHERING)
            if loop.fused_steps is not None:
                self._time(loop.fused_steps, "make", STEP_ROW)
            self._time(loop.evaluator, "run", "evaluation")
        for saver in session.checkpointers:
            self._time(saver.checkpoints, "save", "checkpoints")
        self._began = self._saved = perf_counter()

    def _time(self, owner: object, name: str, title: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)
        self.seconds.setdefault(title, 0.0)

        def timed(*args: Any, **options: Any) -> Any:
            began = perf_counter()
            try:
                return inner(*args, **options)
            finally:
                self.seconds[title] += perf_counter() - began

        setattr(owner, name, timed)

    def saved(self) -> None:
        """Record the time at which the model is trained, measured and saved."""
        self._saved = perf_counter()

    def table(self) -> str:
        """Return seconds and shares of everything since the data were loaded."""
        total = self._saved - self._began
        parts = dict(self.seconds)
        parts["everything else"] = max(0.0, total - sum(parts.values()))
        parts[STEP_ROW] += parts[GATHERING]
        lines = [f"{'time after loading':<30}{total:>9.3f} s"]
        lines += [
            f"  {title:<28}{spent:>9.3f} s{100 * spent / total:>7.1f} %"
            for title, spent in parts.items()
        ]
        writing = perf_counter() - self._saved
        return "\n".join([*lines, f"{'page, after that':<30}{writing:>9.3f} s"])


def dry_run(data: LoadedData, trainer: Trainer) -> dict[str, Any]:
    """Make a few steps and return the memory and time that the whole run would need.

    Raises: NumericalError if a step fails.
    """
    members = len(trainer.members)
    loop = trainer.loop()
    first, step = loop.members[0], loop.step
    spent = float("inf")
    bound = step.bound(step.batch_size)
    indices = first.batches.order[: step.batch_size]
    with trainer.pinned(), np.errstate(over="ignore", invalid="ignore"):
        for _ in range(DRY_RUN_STEPS):
            began = perf_counter()
            first.fill(bound, indices)
            step.run(bound)
            spent = min(spent, perf_counter() - began)
    steps = len(first.batches)
    return {
        "parameters": sum(len(mlp.params) for mlp in trainer.networks),
        "members": members,
        "rows": data.tables.rows,
        "features": trainer.networks[0].sizes[0],
        "batch_size": step.batch_size,
        "steps_per_epoch": steps,
        "epochs": loop.epochs,
        "steps": steps * loop.epochs * members,
        "bytes": bound.scratch.planned_bytes,
        "seconds_per_step": spent,
        "seconds": spent * steps * loop.epochs * -(-members // trainer.threads),
        "threads": trainer.threads,
    }
