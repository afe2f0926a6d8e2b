"""`mlpengine train --fix`: try the fixes of verdicts, and keep the best run."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlpengine.config import ConfigFile, Override, load_config
from mlpengine.config.baselines import ScoredRows, misjudged, scored_rows
from mlpengine.config.fixed_config import as_overrides, corrections, proposed_settings, repairs
from mlpengine.core.errors import ConfigError, DataError, NumericalError, UsageError
from mlpengine.core.wording import metric_text
from mlpengine.diagnostics.verdict import NOTE, Verdict
from mlpengine.models.baselines import METRICS
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import OUT_OF_FOLD
from mlpengine.report import paired
from mlpengine.training.measure import measure

from .compare import comparison
from .outcome import shortest
from .session import Session
from .starting import Shown, Start, epoch_lines, run_session
from .stopping import Stopping
from .streams import say

SHORT = 4
"""A short run has the epochs of the config divided by this number."""

FEWEST_EPOCHS = 10
"""Minimum epochs of a short run."""

MOST_TRIED = 5
"""Maximum number of repairs that are tried in short runs."""

CLOSE = 0.01
"""Relative difference below which scores of short runs are equal; then the first repair wins."""

LEAD = 0.5
"""A repair is kept if its score is higher by more than this many standard errors."""

UNRELIABLE = ("constant", "shifted", "too_good")
"""Verdicts that mean: scores on the validation rows are unreliable."""


class RunScore(NamedTuple):
    """A metric on out-of-fold or validation `rows`; a higher `value` is better."""

    metric: str = ""
    value: float = -inf
    rows: ScoredRows | None = None

    @classmethod
    def of(
        cls, metrics: Mapping[str, Mapping[str, float | None]], by_loss: bool = False
    ) -> "RunScore":
        """Return the score on out-of-fold or validation rows, from the `metrics` of each part."""
        known = metrics.get(OUT_OF_FOLD) or metrics.get("validation") or {}
        for name in ("macro_f1", "r2", *known) if not by_loss else ():
            value = known.get(name)
            if value is not None and isfinite(value) and name != "loss":
                return cls(name, value if higher_is_better(name) else -value)
        loss = known.get("loss")
        return cls() if loss is None or not isfinite(loss) else cls("loss", -loss)

    def beats(self, other: "RunScore") -> bool:
        """Return whether the score is higher.

        If both runs have predicted rows, it must be higher by more than `LEAD` standard errors.
        """
        pair = None
        if self.rows and other.rows and self.metric == other.metric and self.metric in METRICS:
            pair = paired(self.rows, other.rows, self.metric)
        return self.value - other.value > (LEAD * pair[1] if pair else 0.0)

    def __str__(self) -> str:
        value = self.value if higher_is_better(self.metric) else -self.value
        return f"{self.metric.replace('_', ' ')} {metric_text(value)}" if self.metric else "failed"


def run_and_fix(begin: Start, session: Session, state: Stopping, shown: Shown) -> None:
    """Run a session, then a second session with the best repair of the problems that were found.

    A repair is a set of settings.  If there are several repairs, short runs choose one.  If the
    second run does not score higher, or has further verdicts, a third run follows with the settings
    that `init` proposes.  A repair is kept only if its score is higher by more than `LEAD` standard
    errors.  Scores are on out-of-fold or validation rows, never on test rows.  Each repair includes
    the corrections of the data (a column that reveals the target, a wrong value); a repair with
    corrections is kept even if the score falls.  A failed first run is repaired, too.  JSON output
    has one line for each run and one line for the comparison.
    """
    first, failure, before = session.directory.path, None, RunScore()
    try:
        outcome = run_session(session, state, None, shown)
        before = score_of_run(session, outcome)
    except NumericalError as error:
        failure = error
    corrected, tried, reason = to_try(session.verdicts(), session.data.file)
    if failure and shown.as_json:
        told = [verdict.as_dict() for verdict in session.verdicts()]
        say(json.dumps({"run_dir": str(first), "error": str(failure), "verdicts": told}))
    if failure and not tried:
        raise failure
    if failure:
        say(f"failed   {failure}", err=True)
    if state.code or not tried:
        if not (shown.quiet or state.code):
            say(f"fix      {reason}", err=True)
        return
    repaired = [trained(begin, first, best_repair(begin, tried, shown), state, shown)]
    helped = corrected or repaired[0].score.beats(before)
    if (not helped or repaired[0].asks_more) and tried != [corrected] and not state.code:
        more = corrected | proposed_settings(session.data)
        repaired.append(trained(begin, first, more, state, shown))
    if state.code:
        return
    best = max(repaired, key=lambda one: one.score.value)
    trusted = corrected and isfinite(best.score.value)
    better = best.path if trusted or best.score.beats(before) else first
    text = f"fix      {shortest(better)} is kept: {best.score}, before {before}"
    if better is first:
        by_chance = " by more than half a standard error" * (best.score.value > before.value)
        scores = f"{best.score}, before {before}"
        text = f"fix      no better score{by_chance} ({scores}); {shortest(first)} is kept"
    elif corrected:
        unjudged = f"scores cannot judge {words(corrected)}"
        text += f"; {unjudged}: if the correction is wrong, keep {shortest(first)}"
    say(text, err=True)
    known: dict[str, Any] = {"runs": [str(first), str(best.path)], "better": str(better)}
    lines: list[str] = []
    if not failure and isfinite(best.score.value):
        data, lines = comparison(shortest(first), shortest(best.path))
        known = data | {"better": str(shortest(better))}
    if corrected:
        del lines[-1:]  # the line with the better run: scores cannot judge a correction
    with suppress(BrokenPipeError):
        say(json.dumps(known) if shown.as_json else "\n".join(["", *lines]))


def to_try(
    said: Sequence[Verdict], file: ConfigFile
) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Return corrections of the data, repairs to try, and the reason if there is no repair."""
    corrected, settings = corrections(said, file), repairs(said)
    reason = "no verdict has a fix that changes a setting"
    unfit = [one.name for one in said if one.name in UNRELIABLE and one.severity != NOTE]
    if unfit and settings:
        settings, reason = [], f"the validation rows cannot judge a repair ({unfit[0]})"
    tried = [corrected] if corrected else []
    return corrected, [*tried, *(corrected | one for one in settings[:MOST_TRIED])], reason


class Repaired(NamedTuple):
    """A run with a repair, its score, and whether its verdicts have further fixes."""

    path: Path
    score: RunScore
    asks_more: bool


def trained(
    begin: Start, first: Path, repair: Mapping[str, Any], state: Stopping, shown: Shown
) -> Repaired:
    """Run a config with the settings of a repair, in a directory beside `first`."""
    if not shown.quiet:
        say(f"\nfix      {words(repair)}", err=True)
    start = begin._replace(
        out=first.with_name(f"{first.name}-fixed"),
        overrides=[*begin.overrides, *as_overrides(repair)],
    )
    score = RunScore()
    with ExitStack() as opened:
        try:
            loaded = start.load()
        except (ConfigError, DataError, UsageError) as error:  # the repair does not fit the config
            say(f"fix      {error}", err=True)
            return Repaired(first, score, asks_more=True)
        session = start.session(*loaded, epoch_lines(shown.quiet), opened)
        with suppress(NumericalError):
            score = score_of_run(session, run_session(session, state, None, shown))
        return Repaired(session.directory.path, score, bool(repairs(session.verdicts())))


def score_of_run(session: Session, outcome: Mapping[str, Any]) -> RunScore:
    """Return the score of a finished run, with the predicted rows."""
    fitted, score = session.fitted, RunScore.of(outcome, misjudged(session.data))
    if fitted is None or not score.metric:
        return score
    return score._replace(rows=scored_rows(session.data, fitted.mean, test=False))


def words(repair: Mapping[str, Any]) -> str:
    """Return settings as text for a command line."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in repair.items())


def best_repair(
    begin: Start, tried: Sequence[Mapping[str, Any]], shown: Shown
) -> Mapping[str, Any]:
    """Try repairs in short runs; return the first one with a score within `CLOSE` of the best."""
    if len(tried) == 1:
        return tried[0]
    scores = [short_run(begin, one) for one in tried]
    if not shown.quiet:
        for one, score in zip(tried, scores, strict=True):
            say(f"tried    {words(one)}: {score}", err=True)
    best = max(score.value for score in scores)
    close = best - CLOSE * abs(best) if isfinite(best) else best
    return next(one for one, score in zip(tried, scores, strict=True) if score.value >= close)


def short_run(begin: Start, repair: Mapping[str, Any]) -> RunScore:
    """Train the first epochs with a repair, in memory; return the score."""
    try:
        overrides = [*begin.overrides, *as_overrides(repair)]
        epochs = load_config(begin.config, overrides).config.training.epochs
        fewer = str(max(FEWEST_EPOCHS, epochs // SHORT))
        overrides.append(Override("fix", ("training", "epochs"), fewer))
        data, trainer = begin._replace(overrides=overrides).load()
        parts = {name: part for name, part in data.parts.items() if name != "test"}
        with trainer.pinned(), np.errstate(all="ignore"):
            fitted = trainer.finish(trainer.loop().run())
            measured = measure(fitted, parts, data.folds, blocks=data.blocks).metrics
            return RunScore.of(measured, misjudged(data))
    except (ConfigError, DataError, NumericalError, UsageError):
        return RunScore()
