"""The report of a run or of a sweep: all numbers as data, and one HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING

from mlpengine.core.files import keep_other_kinds, write_atomically
from mlpengine.core.lazy import lazy_names

from .collect import (
    QUICK,
    THOROUGH,
    Collected,
    ReportBudget,
    RunData,
    collect,
    read_run,
)
from .page import run_page

if TYPE_CHECKING:
    from .comparison import lead_of, paired
    from .sweep import collect_sweep, sweep_page

REPORT_FILE = "report.html"

__all__ = [
    "QUICK",
    "REPORT_FILE",
    "THOROUGH",
    "Collected",
    "ReportBudget",
    "RunData",
    "collect",
    "collect_sweep",
    "lead_of",
    "paired",
    "read_run",
    "run_page",
    "save_report",
    "sweep_page",
    "write_page",
]

__getattr__, __dir__ = lazy_names(  # imported at first use; most runs do not need these
    __name__,
    {"comparison": ("lead_of", "paired"), "sweep": ("collect_sweep", "sweep_page")},
)


def save_report(path: Path, run: RunData, effort: ReportBudget = THOROUGH) -> None:
    """Write the page of one run completely or not at all.  Raises: RunError."""
    write_page(path, run_page(collect(run, effort).data))


def write_page(path: Path, page: str) -> None:
    """Write a page completely or not at all.

    Raises: RunError; UsageError if the page would replace a file that is not .html.
    """
    keep_other_kinds(path, ".html")
    write_atomically(path, page.encode(errors="backslashreplace"))
