"""The time of the parts of a run."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session

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
