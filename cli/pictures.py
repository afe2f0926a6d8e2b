"""The page and the pictures of a run; the latter where the extra that draws them is installed."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlpengine.errors import RunError
from mlpengine.train.loop import Result

from .outcome import shortest

if TYPE_CHECKING:
    from .session import Session

PLOTS = "plots"

_log = logging.getLogger("mlpengine")


def page(session: "Session", outcome: Mapping[str, Any], failure: str = "") -> list[Path]:
    """Write the report of a run that has ended or failed, if the config wants it.

    The run is complete without: if the page cannot be written, a warning says so.
    """
    if not session.data.file.config.report.html:
        return []
    from mlpengine.report import QUICK, REPORT_FILE, Run, save_report

    core = getattr(session.diagnostics, "core", None)
    run = Run(
        shortest(session.directory.path),
        outcome,
        session.data,
        session.model,
        trained=not failure,
        series=core.series if core else None,
        known=session.measured.last,
        score=session.score,
        failure=failure,
    )
    path = session.directory.path / REPORT_FILE
    try:
        save_report(path, run, QUICK)
    except RunError as error:
        _log.warning("warning: %s", error)
        return []
    return [path]


def pictures(session: "Session", result: Result) -> list[Path]:
    """Draw the pictures of a run that has ended, if the config wants them; return their paths."""
    model, measured = session.model, session.measured.last
    if not session.draws or measured is None:
        return []
    from mlpengine.plots import save_plots

    _, part, output = measured
    return save_plots(
        session.directory.path / PLOTS,
        result.history,
        session.data.task,
        part,
        output,
        labels=model.preprocessor.classes,
        best_epoch=None if model.members else result.best_epoch or None,
    )
