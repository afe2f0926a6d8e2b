"""Runs in MLflow; needs the extra ``mlflow``."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from time import time
from typing import Any

from mlpengine.core.errors import RunError, importing
from mlpengine.core.redaction import redacted
from mlpengine.core.wording import as_setting
from mlpengine.training.history import EpochRow
from mlpengine.training.loop import Callback, Loop, Result

with importing("logging to MLflow", "mlflow"):
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

AT_ONCE = 100
"""Maximum number of parameters in an MLflow request."""

LONGEST = 500
"""Maximum characters of a parameter in every MLflow store."""

_log = logging.getLogger("mlpengine")


class MlflowLog(Callback):
    """Logs a run to the MLflow server in ``MLFLOW_TRACKING_URI``.

    Metrics of epochs are ``train/loss``, ``validation/<metric>`` and ``epoch/...``; their step is
    the epoch.  A resumed run continues under the same id.  If MLflow fails after the start, there
    is a warning, and training continues without MLflow.

    Args:
        run: name of the run.
        experiment: name of the experiment; it is created if it does not exist.
        parameters: settings by dotted key.

    Attributes:
        run_id: id of the run in MLflow; empty before the start.

    Raises: RunError, when the training starts, if MLflow cannot be reached.
    """

    name = "mlflow"

    def __init__(
        self,
        run: str | None = None,
        *,
        experiment: str = "mlpengine",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._run, self._experiment = run, experiment
        self._parameters = dict(parameters or {})
        self.run_id, self._failed = "", False

    def on_train_start(self, loop: Loop) -> None:
        try:
            self._client = MlflowClient()
            if self.run_id:
                self._client.update_run(self.run_id, "RUNNING")
                return
            known = self._client.get_experiment_by_name(self._experiment)
            place = known.experiment_id if known else None
            place = place or self._client.create_experiment(self._experiment)
            self.run_id = self._client.create_run(place, run_name=self._run).info.run_id
            pairs = [
                Param(key, redacted(as_setting(value))[:LONGEST])
                for key, value in self._parameters.items()
            ]
            for start in range(0, len(pairs), AT_ONCE):
                self._client.log_batch(self.run_id, params=pairs[start : start + AT_ONCE])
        except (MlflowException, OSError) as error:
            raise RunError(f"mlflow: the run cannot be logged ({_line(error)})") from error

    def on_train_epoch_end(self, loop: Loop, row: EpochRow) -> None:
        values = {"train/loss": row.train_loss, "epoch/lr": row.lr}
        values |= {"epoch/gradient_norm": row.gradient_norm}
        values |= {f"validation/{name}": value for name, value in row.validation.items()}
        self._add(values, row.epoch)

    def on_exception(self, loop: Loop, error: Exception) -> None:
        with self._warning():
            self._client.set_terminated(self.run_id, "FAILED")

    def on_fit_end(self, loop: Loop, result: Result) -> None:
        with self._warning():
            self._client.set_tag(self.run_id, "ending", result.ending)
            self._client.set_terminated(self.run_id)

    def add_result(self, outcome: Mapping[str, Any], files: Iterable[Path] = ()) -> None:
        """Add the metrics of each part and the verdicts of a result, and files.

        Args:
            outcome: as in result.json.
            files: files to keep as artifacts, such as the model.
        """
        parts = ("train", "out_of_fold", "validation", "test")
        values = {
            f"final/{part}/{name}": value
            for part in parts
            for name, value in outcome.get(part, {}).items()
        }
        self._add(values, outcome.get("epochs", 0))
        with self._warning():
            names = ", ".join(one["name"] for one in outcome.get("verdicts", []))
            self._client.set_tag(self.run_id, "verdicts", names or "nothing unusual")
            for path in files:
                self._client.log_artifact(self.run_id, str(path))

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self.run_id}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.run_id = str(state["run_id"])

    def _add(self, values: Mapping[str, float | None], step: int) -> None:
        now = round(time() * 1000)
        known = [
            Metric(name, value, now, step)
            for name, value in values.items()
            if value is not None and isfinite(value)
        ]
        with self._warning():
            self._client.log_batch(self.run_id, metrics=known)

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Warn once if MLflow fails, and continue without it."""
        try:
            yield
        except (MlflowException, OSError) as error:
            if not self._failed:
                _log.warning("warning: mlflow: the run is not logged further (%s)", _line(error))
            self._failed = True


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
