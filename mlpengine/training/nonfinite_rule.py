"""The rule for a loss or gradient that is not finite: stop the run, or skip the step."""

from collections.abc import Mapping
from typing import Any, get_args

from mlpengine.core.errors import CheckpointError, NumericalError
from mlpengine.core.fields import COUNT, one_of
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.models.task import RowOrigins
from mlpengine.settings.training import Action
from mlpengine.step.fault import listed_rows
from mlpengine.step.step import TrainingStep


class NonfiniteRule:
    """Stops at the first step that is not finite, or skips up to `limit` of them.

    In either case parameters and optimizer are as before the step.

    Attributes:
        skipped: number of steps skipped so far.

    Raises: UsageError for another action or a limit below 1.
    """

    name = "nonfinite"

    def __init__(self, action: Action = "stop", *, limit: int = 10) -> None:
        one_of("on_nonfinite", action, get_args(Action))
        self.action: Action = action
        self.limit: int = COUNT.check("nonfinite_limit", limit)
        self.skipped = 0

    def handle(
        self,
        error: NumericalError,
        step: TrainingStep,
        rows: Array,
        places: RowOrigins | None = None,
    ) -> None:
        """Count a step that failed with `error`, or raise the error that ends the run.

        `rows` are the numbers of the batch's rows in the training part, `places` its origin.
        Raises: NumericalError naming step, layer, direction and the rows at fault.
        """
        text = f"{error}{name_rows(step, rows, places)}"
        if self.action == "stop":
            raise NumericalError(text) from error
        if self.skipped == self.limit:
            raise NumericalError(
                f"{text}; {plural(self.skipped, 'step was', 'steps were')} skipped already"
            ) from error
        self.skipped += 1

    def state_dict(self) -> dict[str, Any]:
        """Return how many steps were skipped."""
        return {"skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""
        skipped = state.get("skipped")
        if not isinstance(skipped, int) or skipped < 0:
            raise CheckpointError(f"nonfinite: saved 'skipped' must be a count (got {skipped!r})")
        self.skipped = skipped


def name_rows(step: TrainingStep, rows: Array, places: RowOrigins | None = None) -> str:
    """Return the training rows at fault in a step that failed on `rows`, or "" if none is."""
    bad = rows[step.bad_rows]
    if not bad.size:
        return ""
    origin = f" ({places.row(int(bad[0]))})" if places else ""
    return f"; training {listed_rows(bad.tolist())}{origin}"
