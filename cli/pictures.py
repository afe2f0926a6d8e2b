"""The pictures of a run, where the extra that draws them is installed."""

from pathlib import Path
from typing import TYPE_CHECKING

from mlpengine.train.loop import Result

if TYPE_CHECKING:
    from .session import Session

PLOTS = "plots"


def pictures(session: "Session", result: Result) -> list[Path]:
    """Draw the pictures of a run that has ended, if the config wants them; return their paths."""
    experiment, measured = session.experiment, session.measured.last
    if not session.draws or measured is None:
        return []
    from mlpengine.plots import save_plots

    _, part, output = measured
    return save_plots(
        session.directory.path / PLOTS,
        result.history,
        experiment.task,
        part,
        output,
        labels=experiment.model.preprocessor.classes,
        best_epoch=None if experiment.model.members else result.best_epoch or None,
    )
