"""Rows labeled by a teacher; a student learns from them instead of the training rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from mlpengine.core.errors import CheckpointError, UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import quoted
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.synthetic_rows import SyntheticRows
from mlpengine.data.features.targets import NumberTarget
from mlpengine.data.tables.table import Table
from mlpengine.models.calibration import ClassSets, Residuals
from mlpengine.models.task import (
    BinaryClassification,
    Classification,
    Regression,
    Split,
    Task,
    Threshold,
)
from mlpengine.models.threshold import restored_threshold
from mlpengine.nn.safetensors_file import check_finite, read_tensors, write_tensors

TRANSFER_FILE = "transfer.safetensors"
"""File name of a transfer set in a run directory."""

BESIDE = "beside"
"""Prefix for the names of other models' outputs in the file."""

CALIBRATION_ROWS = 4_096
"""Number of synthetic rows that calibrate a student, and are not used to train the student."""

SMALLEST_CHANCE = 1e-9
"""Lower bound of probabilities before the logarithm."""

Labeling = Callable[[SyntheticRows | None], tuple[Array, Array]]
"""Function from synthetic rows to targets and predictions; None stands for training rows."""


@dataclass(frozen=True, eq=False)
class CalibrationSet:
    """The calibration set of a student: synthetic rows, labeled by the teacher, not for training.

    `taught` are the teacher's predictions.  `drawn` are random targets.  For numbers, a target is
    the teacher's prediction plus a random out-of-fold error of the teacher.  For classes, a target
    has two numbers: a class, drawn with the predicted probabilities, and the teacher's out-of-fold
    probability of this class for a random row of this class.

    Shapes: x (rows, in_dim); taught (rows, targets or classes); drawn (rows, targets) or (rows, 2).
    """

    x: Array
    taught: Array
    drawn: Array

    def calibrate(self, task: Task, forward: Callable[[Array], Array]) -> dict[str, Any]:
        """Return the residuals or prediction sets of a student.

        The result combines the teacher's errors on new rows and the student's distance from the
        teacher.
        """
        if isinstance(task, Regression):
            predicted = task.predict(forward(self.x))
            return {"residuals": Residuals.of(self.drawn - predicted, predicted)}
        chances, rows = task.predicted_numbers(forward(self.x)), np.arange(len(self.x))
        classes = self.drawn[:, 0].astype(np.int64)
        student, teacher = _logit(chances[rows, classes]), _logit(self.taught[rows, classes])
        moved = 1 / (1 + np.exp(teacher - student - _logit(self.drawn[:, 1])))
        return {"sets": ClassSets.kept(moved, classes)}


@dataclass(frozen=True, eq=False)
class TransferSet:
    """Predictions of a teacher for training rows, and for synthetic rows made from training rows.

    The last rows of `synthetic`, without targets, are the calibration set, with `taught` and
    `drawn` as in `CalibrationSet`.  `threshold` is for teacher and student.

    `targets` are probabilities, or numbers in the units of the table.  `beside` holds outputs of
    other models by part and title.  `checksum` is the checksum of the training rows.

    Shapes: targets (training and synthetic rows, targets or classes); outputs (rows, out_dim).
    Source: Hinton, Vinyals and Dean 2015, "Distilling the knowledge in a neural network", section
        2, for the name and for probabilities as targets.
    """

    synthetic: SyntheticRows
    targets: Array
    taught: Array
    drawn: Array
    checksum: int
    beside: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    threshold: Threshold | None = None

    @classmethod
    def of(
        cls,
        fitted: Preprocessor,
        train: Split,
        label: Labeling,
        *,
        made: int,
        seed: int,
        errors: Residuals | ClassSets | None = None,
    ) -> "TransferSet":
        """Label the training rows, and `made` synthetic rows made from them.

        `errors` are the teacher's errors on new rows; None if there are none.
        """
        rng = np.random.Generator(np.random.PCG64([seed, 2]))
        calibrating = 0 if errors is None else CALIBRATION_ROWS
        synthetic = SyntheticRows.of(fitted, train.x, made + calibrating, rng)
        (own, _), (targets, predicted) = label(None), label(synthetic)
        taught = predicted[made:]
        if isinstance(errors, Residuals):
            drawn = errors.drawn(taught, rng)
        elif errors is not None:
            classes = (taught.cumsum(axis=1) < rng.random((calibrating, 1))).sum(axis=1)
            classes = np.minimum(classes, taught.shape[1] - 1)
            drawn = np.column_stack([classes, errors.drawn(classes, rng)])
        else:
            drawn = taught
        targets = np.concatenate([own, targets[:made]])
        return cls(synthetic, targets, taught, drawn, _checksum(train))

    def save(self, path: Path) -> None:
        """Write the set to a file, atomically."""
        arrays = {
            "base": self.synthetic.base,
            "other": self.synthetic.other,
            "swapped": np.packbits(self.synthetic.swapped, axis=1),
            "targets": self.targets,
            "taught": self.taught,
            "drawn": self.drawn,
        }
        for part, outputs in self.beside.items():
            arrays |= {f"{BESIDE}.{part}.{title}": output for title, output in outputs.items()}
        columns = list(self.synthetic.columns)
        header: dict[str, Any] = {"columns": columns, "checksum": self.checksum}
        if self.threshold is not None:
            header["threshold"] = self.threshold._asdict()
        write_tensors(path, arrays, {"transfer": header})

    @classmethod
    def load(cls, path: Path) -> "TransferSet":
        """Read a file from `save`.  Raises: CheckpointError for another or a damaged file."""
        arrays, header = read_tensors(path)
        try:
            columns = tuple(map(str, header["transfer"]["columns"]))
            names = ("base", "other", "targets", "taught", "drawn")
            base, other, targets, taught, drawn = (arrays[name] for name in names)
            swapped = np.unpackbits(arrays["swapped"], axis=1, count=len(columns)).astype(bool)
            checksum = int(header["transfer"]["checksum"])
            known = header["transfer"].get("threshold")
            threshold = restored_threshold(known) if known is not None else None
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path}: is not a transfer set ({quoted(str(error))})"
            ) from error
        numbers = {"targets": targets, "taught": taught, "drawn": drawn}
        check_finite(numbers, path)
        beside: dict[str, dict[str, Array]] = {}
        for name in sorted(arrays, reverse=True):  # the teacher first
            if name.startswith(BESIDE):
                _, part, title = name.split(".")
                beside.setdefault(part, {})[title] = arrays[name]
        synthetic = SyntheticRows(base, other, swapped, columns)
        return cls(synthetic, targets, taught, drawn, checksum, beside, threshold)

    def rows(
        self, table: Table, fitted: Preprocessor, task: Task, train: Split
    ) -> tuple[Split, CalibrationSet | None]:
        """Return the rows that train a student, and its calibration set or None.

        `table` has the training rows; `train` has the same rows as features and targets.
        Raises: UsageError if the teacher labeled other rows.
        """
        made, calibrating = len(self.targets) - len(train), len(self.taught)
        fits = len(self.synthetic) == made + calibrating and _checksum(train) == self.checksum
        width = train.y.shape[1] if isinstance(task, Regression) else fitted.n_outputs
        if not fits or self.targets.shape[1] != width:
            raise UsageError(
                "does not fit the training rows: they have changed since the teacher labeled them; "
                "distill again, or write null to train on the rows' own targets"
            )
        features = fitted.transform(self.synthetic.table(table), targets=False).features
        x = np.concatenate([train.x, np.asarray(features[:made], train.x.dtype)])
        weights = train.weights
        if weights is not None:
            weights = np.concatenate([weights, weights[self.synthetic.base[:made]]])
        truth = self.targets
        if isinstance(task, Classification):
            truth = truth.argmax(axis=1)
        elif not isinstance(task, Regression):
            truth = (truth > 0.5).astype(np.float64)
        y = np.ascontiguousarray(_learned(self.targets, fitted, task), train.x.dtype)
        learned = Split(x, y, truth, weights)
        if not calibrating:
            return learned, None
        unlearned = np.asarray(features[made:], train.x.dtype)
        return learned, CalibrationSet(unlearned, self.taught, self.drawn)


def _learned(targets: Array, fitted: Preprocessor, task: Task) -> Array:
    """Convert probabilities, or numbers in the table's units, to targets of the loss."""
    if isinstance(fitted.target, NumberTarget):
        return fitted.target.scaled(targets)
    return targets[:, 1:] if isinstance(task, BinaryClassification) else targets


def _checksum(train: Split) -> int:
    truth = np.ascontiguousarray(train.truth)
    return crc32(truth.data.cast("B"), crc32(np.ascontiguousarray(train.x).data.cast("B")))


def _logit(chances: Array) -> Array:
    inside = np.clip(chances, SMALLEST_CHANCE, 1 - SMALLEST_CHANCE)
    return np.asarray(np.log(inside) - np.log1p(-inside))
