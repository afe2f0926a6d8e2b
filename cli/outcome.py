"""The result of a run as text, on stdout."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlpengine.core.files import pasted
from mlpengine.core.spec import Array
from mlpengine.core.wording import (
    best_text,
    columns_of,
    cut,
    cut_apart,
    left,
    metric_text,
    plural,
    printable,
    spaced,
)
from mlpengine.models.members import networks_text
from mlpengine.models.metrics import commonest_mistakes, confusion_matrix
from mlpengine.models.model import MODEL_FILE
from mlpengine.models.task import OUT_OF_FOLD, Classification, Regression, Split, Task
from mlpengine.settings.training import LINEAR
from mlpengine.training.learner import ENDINGS
from mlpengine.training.loop import Result
from mlpengine.training.measure import DEVIATION, DIRECT, OF_MEAN, ONE_NETWORK, SPREADS
from mlpengine.training.result import TOO_GOOD

if TYPE_CHECKING:
    from .session import Session

NOT_MET = 3
"""Exit code if a result does not meet --drift or --require."""

SHOWN_PARTS = ("train", OUT_OF_FOLD, "validation", "test")
SHOWN_CLASSES = 10
"""Maximum classes for a confusion matrix; with more, only the commonest mistakes are listed."""

SHOWN_MISTAKES = 5
MOSTLY_LINEAR = 0.8
"""If linear models have at least this weight, the result says that hidden layers add little."""

ROW_OF_METRICS = 5
"""Maximum metrics of ten letters in a table with a row for each part; else, parts are columns."""


def outcome_data(session: "Session", result: Result, outcome: Mapping[str, Any]) -> str:
    """Return the result as text: metrics of all parts, mistakes, verdicts, path of the model."""
    data, fitted = session.data, session.fitted
    sizes = {name: len(part) for name, part in data.parts.items()}
    for name in (OUT_OF_FOLD, "validation"):
        sizes.setdefault(name, sizes["train"])
    measured = {name: outcome[name] for name in SHOWN_PARTS if outcome.get(name)}
    in_time = data.file.config.data.split.time is not None
    warm, spreads = data.warm_start is not None, session.measured.spreads
    lines = metrics_table(measured, sizes, data.task, spreads, in_time=in_time, warm_start=warm)
    if fitted and fitted.ensemble_weights:
        weights = fitted.ensemble_weights.items()
        lines.append(f"ensemble weights: {', '.join(f'{n} {w:.2f}' for n, w in weights)}")
        size = plural(session.model.n_parameters, "parameter")
        without = " (members of weight 0 are left out)" * (0 in dict(weights).values())
        lines.append(f"model: {networks_text(session.model.networks)}, {size}{without}")
        linear = fitted.ensemble_weights.get(LINEAR, 0.0)
        if linear >= MOSTLY_LINEAR:
            share = f"linear models have {100 * linear:.0f} % of the weight"
            lines.append(f"{share}: hidden layers improve predictions little")
    error = session.measured.calibration_error
    if error is not None:
        of = "expected calibration error of out-of-fold probabilities"
        lines.append(f"{of}: {error:.3f} (0 is best)")
    if fitted and fitted.temperature != 1:
        divided = f"logits divided by {fitted.temperature:.2f}"
        lines.append(f"{divided} (training.calibration); the loss is computed from the true labels")
    if session.measured.last:
        name, part, output = session.measured.last
        told = mistakes(session.model.task, part, output, part_title(name))
        lines += ["", *told] if told else []
    lines += ["", *map(str, session.verdicts())] if outcome["verdicts"] else []
    ending = ENDINGS[result.ending]
    best = f"; {best_text(result.best_epochs)}" if result.best_epoch else ""
    rate = f", {result.samples_per_second:,.0f} rows/s" if result.samples_per_second else ""
    path = shortest(session.directory.path)
    lines += ["", f"{plural(result.epochs, 'epoch')} in {result.seconds:.1f} s{rate}{ending}{best}"]
    if result.ending in ("time", "interrupted") and session.checkpointers:
        lines.append(f"resume with: mlpengine train --resume {pasted(path)}")
    return "\n".join([*lines, str(path / MODEL_FILE)])


def metrics_table(
    measured: Mapping[str, Mapping[str, float | None]],
    rows: Mapping[str, int],
    task: Task,
    spreads: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None,
    *,
    in_time: bool = False,
    warm_start: bool = False,
) -> list[str]:
    """Return a table of metrics with a row for each part; with many metrics, parts are columns.

    `spreads` has further rows of metrics below a part, by part and title.  `in_time` tells whether
    each fold is a period of time.  `warm_start` tells whether the networks of a warm start may have
    been trained on the measured rows.
    """
    if not measured:
        return []
    names = list(next(iter(measured.values())))
    scaled = isinstance(task, Regression) and task.scaled
    titles = cut_apart(["loss*" if n == "loss" and scaled else spaced(n) for n in names], 60)
    counts = {part_title(part): f"{rows[part]:,}" for part in measured}
    wide = [max(10, len(one)) for one in titles]
    if sum(wide) > 10 * ROW_OF_METRICS:  # a row would be longer than 80 characters
        columns: list[tuple[str, str, Mapping[str, float | None]]] = []
        for part, values in measured.items():
            columns.append((part_title(part), counts[part_title(part)], values))
            columns += ((name, "", more) for name, more in (spreads or {}).get(part, {}).items())
        heads, sizes, every = zip(*columns, strict=True)
        lines = [_line("", 20, *heads), _line("rows", 20, *sizes)]
        for one, name in zip(titles, names, strict=True):
            texts = (metric_text(values.get(name)) for values in every)
            lines.append(_line(one, 20, *texts))
    else:
        subtitles = [one for part in (spreads or {}).values() for one in part]
        width = max(10, *(len(part) for part in counts), *(len(one) + 2 for one in subtitles))
        lines = [_line("", width, "rows", *titles)]
        for part, values in measured.items():
            cells = map(str.rjust, (metric_text(values[name]) for name in names), wide)
            lines.append(_line(part_title(part), width, counts[part_title(part)], *cells))
            for subtitle, further in (spreads or {}).get(part, {}).items():
                cells = map(str.rjust, (metric_text(further.get(name)) for name in names), wide)
                lines.append(_line(f"  {subtitle}", width, "", *cells))
    for title in (ONE_NETWORK, DIRECT):
        if any(title in part for part in (spreads or {}).values()):
            lines.append(SPREADS[title])
    if warm_start:
        lines.append(f"warning: {TOO_GOOD}")
    elif OUT_OF_FOLD in measured:
        estimates = (spreads or {}).get(OUT_OF_FOLD, {})
        note = f" ({DEVIATION}: standard error)" if estimates else ""
        lines.append(f"out-of-fold: each row predicted by networks not trained on it{note}")
        mean = "usually, the mean of all networks predicts new rows better"
        if OF_MEAN in estimates:
            mean = SPREADS[OF_MEAN]
        elif in_time:
            mean = "newer rows may have larger errors; compare with the test rows"
        lines.append(mean)
    if isinstance(task, Regression) and scaled:
        by_mean = "* loss of scaled targets: divided by their mean"
        targets = "logarithms of targets" if task.target.log else "targets"
        standard = f"* loss of standardized {targets} (mean 0, standard deviation 1)"
        lines.append(by_mean if task.loss.log_link else standard)
    return lines


def part_title(part: str) -> str:
    """Return the title of a part in a table."""
    return part.replace("_", "-")


def mistakes(task: Task, part: Split, output: Array, name: str) -> list[str]:
    """Return a confusion matrix, the commonest confusions, or a summary of the residuals."""
    lines = _mistakes(task, part, output, name)
    if lines and part.weights is not None:
        lines.append("each row counts once, whatever its weight")
    return lines


def _mistakes(task: Task, part: Split, output: Array, name: str) -> list[str]:
    predicted = task.predict(output)
    if isinstance(task, Regression) and task.has_errors:
        rows = slice(None) if part.weights is None else part.weights > 0
        return _residuals(part.truth[rows], predicted[rows], task.target.names, name)
    if not isinstance(task, Classification):
        return []
    labels = task.labels
    if len(labels) > SHOWN_CLASSES:
        return _commonest(part.truth.astype(np.int64), predicted, labels, name)
    counts = confusion_matrix(part.truth, predicted, len(labels)).astype(np.int64)
    texts = [printable(label) for label in labels]
    if task.threshold is not None:
        limit, positive = task.threshold.value, texts[task.threshold.positive]
        name += f" at a threshold of {limit:.3f} for {cut(positive)}"
        if costs := task.threshold.costs:
            name += " (costs: false_negative {:g}, false_positive {:g})".format(*costs)
    heads, sides = cut_apart(texts, 12), cut_apart(texts, 20)
    width = max(7, *(columns_of(text) + 2 for text in heads))
    first = max(map(columns_of, sides)) + 2
    lines = [f"{name}: rows are true classes, columns are predicted classes"]
    lines.append(" " * first + "".join(left("", width - columns_of(text)) + text for text in heads))
    lines += [
        left(text, first) + "".join(f" {count:>{width - 1},}" for count in row)
        for text, row in zip(sides, counts, strict=True)
    ]
    return lines


def shortest(path: Path) -> Path:
    """Return a path relative to the working directory if it is below that directory."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _commonest(truth: Array, predicted: Array, labels: Sequence[str], name: str) -> list[str]:
    wrong = int((truth != predicted).sum())
    lines = [f"{name}: {wrong:,} of {len(truth):,} rows are wrong; the most frequent confusions:"]
    for *pair, rows in commonest_mistakes(truth, predicted, SHOWN_MISTAKES):
        actual, taken = (printable(labels[number]) for number in pair)
        lines.append(f"  {cut(actual)} predicted as {cut(taken)}: {rows:,}")
    return lines


def _residuals(truth: Array, predicted: Array, columns: Sequence[str], name: str) -> list[str]:
    titles = ("mean", "5 %", "median", "95 %", "largest")
    lines = [f"{name}: predicted - true" + "".join(title.rjust(11) for title in titles)]
    width = len(lines[0]) - 11 * len(titles)
    for i, column in enumerate(columns):
        off = (predicted - truth)[:, i]
        off = off[~np.isnan(truth[:, i])]
        texts = ["-"] * len(titles)
        if len(off):
            quantiles = np.quantile(off, (0.05, 0.5, 0.95))
            texts = [metric_text(v) for v in (off.mean(), *quantiles, off[np.abs(off).argmax()])]
        lines.append(_line(f"  {printable(column)}"[:width], width, *texts))
    return lines


def _line(first: str, width: int, *texts: str) -> str:
    return first.ljust(width) + "".join(f" {text:>10}" for text in texts)
