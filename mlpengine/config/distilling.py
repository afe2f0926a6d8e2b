"""Distillation: a small network, the student, learns to predict what a teacher predicts.

A teacher is a model, or any function that predicts a table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mlpengine.config.build import LoadedData
from mlpengine.config.load import ConfigFile, check_config
from mlpengine.config.reader import Document, parse_yaml
from mlpengine.config.schema import TOP_SECTIONS
from mlpengine.config.sections import sections_of
from mlpengine.config.writer import with_short_lists, yaml_text
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import listed_labels, quoted
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.synthetic_rows import SyntheticRows
from mlpengine.data.tables import Table
from mlpengine.models.calibration import ClassSets, Residuals
from mlpengine.models.model import Model
from mlpengine.models.task import (
    BinaryClassification,
    CensoredTimes,
    Classification,
    MultiLabel,
    Regression,
)
from mlpengine.ops import GaussianNll, Loss, Quantile, Survival
from mlpengine.ops.cross_entropy import PROBABILITY_TOLERANCE
from mlpengine.settings.recipes import encodes, made_rows_for, recipe, student_recipe
from mlpengine.training.measure import DIRECT, TEACHER
from mlpengine.training.trainer import Trainer
from mlpengine.training.transfer import SMALLEST_CHANCE, TRANSFER_FILE, TransferSet

DIRECT_VALIDATION = 10
"""Rows per validation row of the network that `_direct` trains on the true targets."""

Predict = Callable[[Any], Any]
"""Function from rows without targets to numbers, or to probabilities of the sorted classes."""

RowsOf = Callable[[str, Array], Array]
"""Function from a column name and the row indices of a part to the rows to read instead; so one
column can be permuted alone."""


STUDENT_SECTIONS = ("model", *TOP_SECTIONS, "training")
"""Config sections in which a student differs from its teacher."""

KEPT_TRAINING = ("backend", "checkpoint", "dtype", "metrics", "threads")
"""Training settings that a student takes from its teacher's run."""


NUMBERS = "regression", "survival"
"""Tasks that predict numbers; a student of such a task has its teacher's loss."""


def student_sections(rows: int) -> dict[str, Any]:
    """Return the config sections of a student for this number of training rows."""
    return sections_of(student_recipe(rows))


def student_config(file: ConfigFile, teacher: Model, rows: int, name: str) -> ConfigFile:
    """Return the config of a student, made from its teacher's config.

    `rows` is the number of training rows, and `name` the file name of the new config.
    """
    plain, sections = file.plain(), student_sections(rows)
    fitted, data = teacher.preprocessor, plain["data"]
    kept = {name: plain[name] for name in ("seed", "diagnostics", "report")}
    data |= {"class_weights": "none", "transfer_set": TRANSFER_FILE}
    numbers = len(fitted.numbers.sources) if fitted.numbers else 0
    if encodes(rows, numbers):
        data["encoding"] = "piecewise"
    if fitted.task in NUMBERS:
        kept["loss"] = plain["loss"]
    training = {name: plain["training"][name] for name in KEPT_TRAINING}
    sections["training"] |= training
    tree = {"name": f"{plain['name'][:90]}-student", **kept, "data": data, **sections}
    text = yaml_text(with_short_lists(tree))
    document = Document(name, text.encode())
    document.data = parse_yaml(text, name, document)
    return check_config(file.path.with_name(name), document)


@dataclass(frozen=True, eq=False)
class Teacher:
    """A model or a function with predictions that a student learns.

    `frames` are the caller's tables by part; a function gets rows of these tables.
    """

    predict: Model | Predict
    data: LoadedData
    frames: Mapping[str, Any] = field(default_factory=dict)

    def transfer_set(self, made: int | None = None) -> TransferSet:
        """Return predictions for training, test (or validation) and `made` synthetic rows."""
        data, train = self.data, self.data.parts["train"]
        transfer = TransferSet.of(
            data.tables.preprocessor,
            train,
            self._label,
            made=made_rows_for(len(train)) if made is None else made,
            seed=data.file.config.seed,
            errors=self._errors(),
        )
        if isinstance(self.predict, Model):
            transfer = replace(transfer, threshold=self.predict.threshold)
        part = next((name for name in ("test", "validation") if name in data.parts), None)
        if part is None:
            return transfer
        outputs = {DIRECT: _direct(data)(data.parts[part].x)}
        if not isinstance(data.task, Regression) or data.task.loss.columns == 1:
            predicted = self._predicted(part, lambda _, rows: rows)
            outputs = {TEACHER: _outputs(data, predicted), **outputs}
        return replace(transfer, beside={part: outputs})

    def reads(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that the teacher uses: permuting their values changes predictions."""
        plain, rng = self._predicted("train", lambda _, rows: rows), np.random.default_rng(0)
        read = []
        for name in columns:
            order = rng.permutation(len(plain))

            def rows_of(column: str, rows: Array, name: str = name, order: Array = order) -> Array:
                return rows[order] if column == name else rows

            if not np.array_equal(self._predicted("train", rows_of), plain):
                read.append(name)
        return read

    def _errors(self) -> Residuals | ClassSets | None:
        """Return a model's out-of-fold errors, or a function's errors on validation rows."""
        model, validation = self.predict, self.data.parts.get("validation")
        if isinstance(model, Model):
            return model.residuals or model.sets
        if validation is None or isinstance(self.data.task, MultiLabel):
            return None
        predicted = self._predicted("validation", lambda _, rows: rows)
        if isinstance(self.data.task, CensoredTimes):
            return None
        if isinstance(self.data.task, Regression):
            return Residuals.of(validation.truth - predicted, predicted)
        return ClassSets.of(predicted, validation.truth)

    def _label(self, synthetic: SyntheticRows | None) -> tuple[Array, Array]:
        """Return what the student learns and what the teacher predicts, for `synthetic` rows.

        If `synthetic` is None, the rows are the training rows.  Both results are equal, except for
        losses with several outputs per target: there, the student's targets are drawn.
        """

        def rows_of(column: str, rows: Array) -> Array:
            return rows if synthetic is None else rows[synthetic.sources([column])[column]]

        predicted, loss = self._predicted("train", rows_of), self.data.loss
        if not isinstance(loss, GaussianNll | Quantile | Survival) or loss.columns == 1:
            return predicted, predicted
        model = self.predict
        if not isinstance(model, Model) or _form(model.plain_loss) != _form(loss):
            raise UsageError(
                f"distill: the loss {loss.name} needs a teacher that was trained with it; write "
                "loss='mse'"
            )
        columns = model.predict_columns(self._table("train", rows_of))
        values = np.stack([*columns.values()], axis=1).reshape(*predicted.shape, -1)
        rng = np.random.Generator(np.random.PCG64([self.data.file.config.seed, 3]))
        return _drawn(loss, values, rng), predicted

    def _predicted(self, part: str, rows_of: RowsOf) -> Array:
        """Return the checked predictions (rows, targets or classes) for rows of a part."""
        fitted, model = self.data.tables.preprocessor, self.predict
        if not isinstance(model, Model):
            rows = self._frame(part, rows_of)
            return _checked(model(rows), len(rows_of("", self._rows(part))), fitted)
        if (model.target, model.preprocessor.task) != (self._targets, fitted.task):
            told = f"{model.preprocessor.task} of {', '.join(map(repr, model.target))}"
            raise UsageError(
                f"distill: the teacher must predict the same target (it is for {told})"
            )
        if model.classes != fitted.classes and fitted.task == "classification":
            both = model.classes, fitted.classes
            text = "; the training rows hold ".join(map(listed_labels, both))
            raise UsageError(f"distill: the teacher must know the same classes (it has {text})")
        table = self._table(part, rows_of)
        output = model.forward(model.preprocessor.features_of(table))
        chances = model.task.probabilities(output)
        predicted = model.task.predict(output) if chances is None else chances
        return _checked(predicted, table.n_rows, fitted)

    @property
    def _targets(self) -> list[str]:
        target = self.data.tables.preprocessor.target
        return [] if target is None else target.columns

    def _rows(self, part: str) -> Array:
        return self.data.tables.parts[part][1]

    def _table(self, part: str, rows_of: RowsOf) -> Table:
        table, rows = self.data.tables.parts[part]
        columns = {name: table[name].take(rows_of(name, rows)) for name in table.names}
        return Table(columns, table.source, first_line=table.first_line, origin=rows_of("", rows))

    def _frame(self, part: str, rows_of: RowsOf) -> Any:
        """Return rows of a part without targets, as a data frame of the caller's type."""
        frame, rows = self.frames.get(part, self.frames.get("train")), self._rows(part)
        if isinstance(frame, Mapping) or not hasattr(frame, "columns"):
            table = self._table(part, rows_of)
            names = [name for name in table.names if name not in self._targets]
            return {name: _cells(table, name) for name in names}
        is_arrow = hasattr(frame, "column_names") and not hasattr(frame, "iloc")
        cells = {}
        for name in frame.column_names if is_arrow else frame.columns:
            if name not in self._targets:
                column, taken = frame[name], rows_of(str(name), rows)
                if is_arrow:
                    cells[name] = column.take(taken)
                else:
                    cells[name] = column.array[taken] if hasattr(column, "array") else column[taken]
        return type(frame).from_pydict(cells) if is_arrow else type(frame)(cells)


def _cells(table: Table, name: str) -> Array:
    """Return the values of a column: numbers, texts with None for missing values, or dates."""
    column = table[name]
    if column.kind == "text":
        return np.array([*column.levels, None], object)[column.values]
    if column.kind != "date":
        return column.values
    dates = np.full(len(column.values), np.datetime64("NaT"), "datetime64[us]")
    known = ~column.missing
    dates[known] = (column.values[known] * 1e6).astype(np.int64).astype("datetime64[us]")
    return dates


def _checked(given: Any, rows: int, fitted: Preprocessor) -> Array:
    """Return predictions as a float64 array of shape (rows, targets or classes)."""
    predicted = np.asarray(given)
    if predicted.ndim == 1 and fitted.n_outputs == 1:
        predicted = predicted[:, None]
    wanted, kind = (rows, fitted.n_outputs), predicted.dtype.kind
    classes = fitted.task not in NUMBERS
    if kind not in "biuf" or predicted.shape != wanted:
        what = "in each row a probability for each class" if classes else "a number for each row"
        listed = f" ({listed_labels(fitted.classes)})" if fitted.classes else ""
        advice = "; write predict=model.predict_proba" if classes else ""
        raise UsageError(
            f"distill: predict must return an array of shape {wanted}: {what}{listed} "
            f"(got {quoted(given)}{'' if predicted.shape == wanted else f', {predicted.shape}'})"
            f"{advice}"
        )
    predicted = predicted.astype(np.float64)
    wrong = ~np.isfinite(predicted)
    if classes:
        wrong |= (predicted < 0) | (predicted > 1 + PROBABILITY_TOLERANCE)
    if fitted.task == "classification":
        sums = predicted.sum(axis=1, keepdims=True)
        wrong |= ~(np.abs(sums - 1) <= PROBABILITY_TOLERANCE)
        predicted = predicted / np.where(sums > 0, sums, 1.0)
    if wrong.any():
        row = int(np.flatnonzero(wrong.any(axis=1))[0])
        values = ", ".join(f"{value:g}" for value in np.asarray(given, float).reshape(wanted)[row])
        what = "probabilities from 0 to 1" if classes else "finite numbers"
        also = " with a sum of 1" if fitted.task == "classification" else ""
        raise UsageError(f"distill: predict must return {what}{also} (row {row + 1} has {values})")
    return predicted


def _form(loss: Loss) -> tuple[str, object]:
    """Return the name and the levels or distribution of a loss: they define its outputs."""
    return loss.name, getattr(loss, "levels", getattr(loss, "distribution", ()))


def _drawn(
    loss: GaussianNll | Quantile | Survival, values: Array, rng: np.random.Generator
) -> Array:
    """Draw targets (rows, targets) from a teacher's predictions (rows, targets, predictions).

    A student has the smallest expected loss on these targets if it predicts as the teacher.  For a
    mean and a deviation, a target is the mean plus or minus the deviation, with equal chances; for
    a survival time, one of two times (see `Survival.drawn`).  For quantiles, targets have a uniform
    density between neighboring quantiles.
    """
    if isinstance(loss, Survival):
        return loss.drawn(values, rng)
    if isinstance(loss, GaussianNll):
        sides = rng.choice([-1.0, 1.0], values.shape[:2])
        return np.asarray(values[..., 0] + sides * values[..., 1])
    levels, order = np.array(loss.levels), np.sort(values, axis=2)
    first = order[..., :1] - (order[..., 1:2] - order[..., :1]) * levels[0] / (
        levels[1] - levels[0]
    )
    tail = (1 - levels[-1]) / (levels[-1] - levels[-2])
    last = order[..., -1:] + (order[..., -1:] - order[..., -2:-1]) * tail
    ends, places = np.concatenate([first, order, last], axis=2), np.r_[0.0, levels, 1.0]
    share = rng.random(values.shape[:2])
    k = np.searchsorted(places, share, side="right") - 1
    low, high = (np.take_along_axis(ends, (k + i)[..., None], 2)[..., 0] for i in (0, 1))
    return np.asarray(low + (high - low) * (share - places[k]) / (places[k + 1] - places[k]))


def _outputs(data: LoadedData, predicted: Array) -> Array:
    """Return the network outputs that give these predictions."""
    task, kind = data.task, data.parts["train"].x.dtype
    if isinstance(task, Regression):
        outputs = task.target.scaled(predicted)
        if task.log_link:
            outputs = np.log(np.maximum(outputs, SMALLEST_CHANCE))
    else:
        inside = np.clip(predicted, SMALLEST_CHANCE, 1 - SMALLEST_CHANCE)
        outputs = np.log(inside)
        if isinstance(task, BinaryClassification):
            outputs = outputs[:, 1:] - outputs[:, :1]
        elif not isinstance(task, Classification):
            outputs -= np.log1p(-inside)
    return np.ascontiguousarray(outputs, kind)


def _direct(data: LoadedData) -> Callable[[Array], Array]:
    """Train a network of the student's size on the table's targets; return its forward pass."""
    train, settings = data.parts["train"], data.file.config.settings
    usual = recipe(str(data.tables.preprocessor.task), len(train)).training
    training = replace(
        settings.training,
        loss=data.loss,
        optimizer=usual.optimizer,
        schedule=usual.schedule,
        epochs=usual.epochs,
        batch_size=usual.batch_size,
        early_stopping=usual.early_stopping,
    )
    rng = np.random.Generator(np.random.PCG64([settings.seed, 4]))
    rows, count = rng.permutation(len(train)), -(-len(train) // DIRECT_VALIDATION)
    chooses, learned = train.rows(np.sort(rows[:count])), train.rows(np.sort(rows[count:]))
    settings = replace(settings, training=training, diagnostics=None)
    numbers = data.tables.preprocessor.numbers
    trainer = Trainer(settings, data.task, learned, chooses, numbers=numbers)
    return trainer.fit().mean.forward
