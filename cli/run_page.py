"""The page of a run that has just ended."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlpengine.core.errors import RunError

from .outcome import shortest

if TYPE_CHECKING:
    from mlpengine.report import RunData

    from .session import Session

_log = logging.getLogger("mlpengine")


def write_run_page(session: "Session", outcome: Mapping[str, Any], failure: str = "") -> list[Path]:
    """Write the report of a run that has ended or failed, if the config asks for it.

    The run is complete even without a page; if it cannot be written, a warning says so.
    """
    if not session.data.file.config.report.html:
        return []
    from mlpengine.report import QUICK, REPORT_FILE, save_report

    run = _run(session, outcome, failure)
    path = session.directory.path / REPORT_FILE
    try:
        save_report(path, run, QUICK)
    except RunError as error:
        _log.warning("warning: %s", error)
        return []
    return [path]


def _run(session: "Session", outcome: Mapping[str, Any], failure: str = "") -> "RunData":
    """Return a run from memory."""
    from mlpengine.report import RunData

    core = getattr(session.diagnostics, "core", None)
    return RunData(
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
