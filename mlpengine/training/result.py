"""The result of a run, read from its directory and checked, because files may be damaged."""

from pathlib import Path
from typing import Any, NotRequired, TypeAlias

from typing_extensions import TypedDict

from mlpengine.core.errors import CheckpointError, RunError
from mlpengine.core.files import read_mapping
from mlpengine.settings.structure import conform
from mlpengine.training.run_directory import FAILURE_FILE, RESULT_FILE, resolved_config

Metrics: TypeAlias = dict[str, float | None]


OTHER_ROWS = "other rows"
"""Value of ``warm_start`` in a result, if the warm start had another table or split."""

TOO_GOOD = (
    "rows of this table may have trained the networks of the warm start, so scores and intervals "
    "are too good: evaluate the model on new rows"
)


class VerdictData(TypedDict):
    """A verdict in a result (see `Verdict.as_dict`)."""

    name: str
    layer: int | None
    layer_name: NotRequired[str]
    severity: NotRequired[str]
    headline: str
    evidence: str
    value: float | None
    threshold: float | None
    advice: str
    fix: dict[str, Any] | None
    no_fix: str
    text: str


RESULT_KINDS: dict[str, Any] = {
    **dict.fromkeys(("ending", "ended", "warm_start"), str),
    **dict.fromkeys(("epochs", "seconds", "parameters", "peak_bytes"), float),
    **dict.fromkeys(("best_epoch", "samples_per_second", "skipped_steps"), float | None),
    **dict.fromkeys(("networks", "linear_models", "max_epochs"), int),
    **dict.fromkeys(("best_epochs", "member_epochs"), list[int]),
    **dict.fromkeys(("train", "out_of_fold", "validation", "test"), Metrics),
    "spread": dict[str, dict[str, Metrics]],
    "verdicts": list[VerdictData],
}
"""Types of the values in a result."""


def read_result(path: Path, name: str = RESULT_FILE) -> dict[str, Any]:
    """Return the result.json of a run, or its failure.json.

    Raises: UsageError if there is no run; RunError if the run has no readable result.
    """
    file = path / name
    try:
        result = read_mapping(file)
        for key in RESULT_KINDS.keys() & result:
            conform(result[key], RESULT_KINDS[key], f"{file}: {key}")
    except CheckpointError as error:
        raise RunError(str(error)) from error
    except (OSError, ValueError) as error:
        reason = str(error)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            resolved_config(path)
            if name == RESULT_FILE and (failed := failure(path)):
                raise RunError(f"{path}: the run failed ({failed})") from error
            reason = "the run has not ended"
        raise RunError(f"{file}: cannot be read ({reason})") from error
    return result


def failure(path: Path) -> str:
    """Return the error of a failed run; "" for a run without a failure.json."""
    if not (path / FAILURE_FILE).is_file():
        return ""
    return str(read_result(path, FAILURE_FILE).get("error", "no reason is known"))
