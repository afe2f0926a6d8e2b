"""`train --fix`: try the repairs that verdicts ask for, and keep the best one."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

from mlpengine.config import Override
from mlpengine.config.fixed_config import as_overrides, repairs
from mlpengine.core.errors import ConfigError, NumericalError, UsageError
from mlpengine.core.wording import metric_text
from mlpengine.models.metrics import higher_is_better
from mlpengine.models.task import OUT_OF_FOLD
from mlpengine.training.measure import measure

from .compare import comparison
from .outcome import shortest
from .session import Session
from .starting import Shown, Start, epoch_lines, run_session
from .stopping import Stopping
from .streams import say

SHORT = 4
"""The epochs of a trial are a config's epochs divided by this number."""

FEWEST_EPOCHS = 10
"""Fewest epochs of a trial."""

MOST_TRIED = 5
"""Largest number of repairs that are tried."""


class Judged(NamedTuple):
    """A metric on out-of-fold or validation rows; `value` is higher where the run is better."""

    metric: str = ""
    value: float = -inf

    @classmethod
    def of(cls, metrics: Mapping[str, Mapping[str, float | None]]) -> "Judged":
        """Return the metric that judges a run, from its metrics by part; test rows do not judge."""
        known = metrics.get(OUT_OF_FOLD) or metrics.get("validation") or {}
        for name in ("macro_f1", "r2", *known):
            value = known.get(name)
            if value is not None and isfinite(value) and name != "loss":
                return cls(name, value if higher_is_better(name) else -value)
        loss = known.get("loss")
        return cls() if loss is None or not isfinite(loss) else cls("loss", -loss)

    def __str__(self) -> str:
        value = self.value if higher_is_better(self.metric) else -self.value
        return f"{self.metric.replace('_', ' ')} {metric_text(value)}" if self.metric else "failed"


def run_and_fix(begin: Start, session: Session, state: Stopping, shown: Shown) -> None:
    """Run a session, and once more with the best of the repairs that its verdicts ask for.

    Of several repairs, short runs choose one.  Out-of-fold or validation rows judge them, never
    test rows.  A first run that failed is run again, too.  With JSON the output has a line for
    each run, also for one that failed, and one for the comparison.
    """
    first, failure, before = session.directory.path, None, Judged()
    try:
        outcome = run_session(session, state, None, shown)
        before = Judged.of(outcome)
    except NumericalError as error:
        failure = error
    tried = [] if state.code else repairs(session.verdicts())
    if failure and shown.as_json:
        told = [verdict.as_dict() for verdict in session.verdicts()]
        say(json.dumps({"run_dir": str(first), "error": str(failure), "verdicts": told}))
    if failure and not tried:
        raise failure
    if failure:
        say(f"failed   {failure}", err=True)
    if not tried:
        if not shown.quiet and not state.code:
            say("fix      no verdict asks for a setting", err=True)
        return
    chosen = best_repair(begin, tried[:MOST_TRIED], shown)
    other, after = first.with_name(f"{first.name}-fixed"), Judged()
    if chosen:
        with suppress(NumericalError):
            after = Judged.of(run_repaired(begin._replace(out=other), chosen, state, shown))
    if state.code:
        return
    honest = "data.drop" in chosen  # without a leak the score may only fall
    better = other if chosen and (honest or after.value > before.value) else first
    text = f"fix      {shortest(better)} is kept: {after}, before {before}"
    if better is first:
        text = f"fix      nothing helped; {shortest(first)} is kept"
    say(text, err=True)
    known: dict[str, Any] = {"runs": [str(first), str(other)], "better": str(better)}
    lines: list[str] = []
    if chosen and not failure and isfinite(after.value):
        data, lines = comparison(shortest(first), shortest(other))
        known = data | {"better": str(shortest(better))}
    with suppress(BrokenPipeError):
        say(json.dumps(known) if shown.as_json else "\n".join(["", *lines]))


def run_repaired(
    begin: Start, repair: Mapping[str, Any], state: Stopping, shown: Shown
) -> dict[str, Any]:
    """Run a config with the settings of a repair, in the directory `begin.out`."""
    if not shown.quiet:
        say(f"\nfix      {words(repair)}", err=True)
    start = begin._replace(overrides=[*begin.overrides, *as_overrides(repair)])
    with ExitStack() as opened:
        session = start.session(*start.load(), epoch_lines(shown.quiet), opened)
        return run_session(session, state, None, shown)


def words(repair: Mapping[str, Any]) -> str:
    """Return settings as words of a command line."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in repair.items())


def best_repair(
    begin: Start, tried: Sequence[Mapping[str, Any]], shown: Shown
) -> Mapping[str, Any]:
    """Return the repair of the best short run; empty if the config without one does best."""
    if len(tried) == 1 or any("data.drop" in one for one in tried):
        return tried[0]
    scores = [short_run(begin, one) for one in ({}, *tried)]
    if not shown.quiet:
        for one, score in zip(tried, scores[1:], strict=True):
            say(f"tried    {words(one)}: {score}", err=True)
    best = int(np.argmax([score.value for score in scores[1:]]))
    return tried[best] if scores[best + 1].value > scores[0].value else {}


def short_run(begin: Start, repair: Mapping[str, Any]) -> Judged:
    """Train the first epochs with a repair, in memory, and return the score."""
    try:
        start = begin._replace(overrides=[*begin.overrides, *as_overrides(repair)])
        data, trainer = start.load()
        if "training.epochs" not in repair:
            epochs = max(FEWEST_EPOCHS, trainer.settings.training.epochs // SHORT)
            fewer = Override("fix", ("training", "epochs"), str(epochs))
            data, trainer = start._replace(overrides=[*start.overrides, fewer]).load()
        parts = {name: part for name, part in data.parts.items() if name != "test"}
        with trainer.pinned(), np.errstate(all="ignore"):
            fitted = trainer.finish(trainer.loop().run())
            return Judged.of(measure(fitted, parts, data.folds, blocks=data.blocks).metrics)
    except (ConfigError, NumericalError, UsageError):
        return Judged()
