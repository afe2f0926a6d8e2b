"""A first config for a new table: the columns to use, and a network of suitable size."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mlpengine.config.reader import MAX_BYTES, MAX_VALUES, Document, parse_yaml
from mlpengine.config.sections import fill_missing, sections_of
from mlpengine.config.writer import quoted_yaml
from mlpengine.core.errors import DataError
from mlpengine.core.wording import plural, printable
from mlpengine.data.features import Profile, profile, split_rows
from mlpengine.data.features.checks import KEEP_IF
from mlpengine.data.features.leaks import DETERMINES
from mlpengine.data.features.splits import SPLIT_PARTS, dividing_values
from mlpengine.data.features.thresholds import FEW_LEVELS
from mlpengine.data.tables import DATASETS, Table
from mlpengine.data.tables.detect import Detected
from mlpengine.data.tables.dialect import DEFAULT, CsvDialect
from mlpengine.data.tables.rows import has_target
from mlpengine.optim import OPTIMIZERS, Adam, FullBatch
from mlpengine.settings.recipes import (
    encodes,
    folds_for,
    members_for,
    recipe,
    validation_share_for,
)
from mlpengine.settings.training import SMOOTH, MemberType, trained


class Division(NamedTuple):
    """The column that divides the rows, and its key in ``data.split``: group or time.

    Rows with equal values in the column stay together.  `blocks` is the number of distinct values;
    it limits the folds.  `has_lags` tells whether the table has columns of lags or windows.
    """

    key: str
    name: str
    blocks: int
    has_lags: bool = False

    @classmethod
    def of(cls, profile: Profile, key: str, name: str) -> "tuple[Profile, Division]":
        """Return the profile and the division.

        The returned profile lacks the column `name`, unless this is a time column of dates.
        """
        column = next(column for column in profile.columns if column.name == name)
        division = cls(key, name, column.distinct)
        if key == "time" and column.kind == "date":
            return profile, division
        return replace(
            profile,
            columns=[other for other in profile.columns if other is not column],
            drop={one: why for one, why in profile.drop.items() if one != name},
            leaks=[leak for leak in profile.leaks if leak.column != name],
        ), division


PROPOSED = ("model", "loss", "optimizer", "schedule", "training")
"""Sections of a recipe, in their order in a config."""

_log = logging.getLogger("mlpengine")

SCHEMA_LINE = "# yaml-language-server: $schema="


def fitting_division(
    profile: Profile, table: Table, division: Division, *, own_test: bool
) -> Division:
    """Return the division; reduce `blocks` until each fold gets a block of training rows.

    `table` has the rows with a target; `profile` is the result of `Division.of`.
    """
    values = dividing_values(table, division.key, division.name)
    given: Any = {f"{division.key}s": values}
    while True:
        shares = _shares(profile, division, own_test=own_test)
        parts = [1 - sum(shares.values()), *(shares.get(part, 0.0) for part in SPLIT_PARTS[1:])]
        train = split_rows(table.n_rows, parts, **given).train
        blocks, folds = len(np.unique(values[train])), folds_of(profile, division)
        if folds is None or folds <= blocks:
            return division
        division = division._replace(blocks=2 * blocks)


def propose(
    profile: Profile,
    target: Sequence[str],
    *,
    source: str,
    schema: str,
    test: str | None = None,
    reading: CsvDialect = DEFAULT,
    division: Division | None = None,
    event: str | None = None,
    others: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a commented YAML config that predicts `target` from the other columns.

    `test` is a separate file for the final score, instead of a fifth of the rows.  With a
    `division`, `profile` is the result of `Division.of`.  The column `event` is not in `profile`.
    `others` is the result of `other_settings`; these settings become comments.
    Columns with nothing to learn from, or with the target in another coding, are dropped with a
    comment.  Columns that explain nearly all of the target are kept with a comment.
    """
    if not {column.name for column in profile.columns} - {*target, *profile.drop}:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in profile.drop.items())
        text = f"no column is left to learn from ({reasons or 'there is none'})"
        raise DataError(f"{profile.source}: {text}")
    sections = sections_of(recipe(str(profile.task), profile.n_rows))
    encoded, members = _encoding_and_members(profile, target, division)
    lines = [
        f"{SCHEMA_LINE}{schema}",
        f"# Predicts {printable(', '.join(target))} from {printable(profile.source)}: "
        f"{plural(profile.n_rows, 'row')}, {plural(len(profile.columns), 'column')}.",
        "seed: 0",
        "",
        "data:",
        f"  source: {quoted_yaml(source)}",
        *(f"  {name}: {_flow(value)}" for name, value in reading.to_dict().items()),
        *([f"  test_source: {quoted_yaml(test)}"] if test else []),
        f"  target: {_flow(target[0] if len(target) == 1 else [*target])}",
        f"  task: {profile.task}",
        *([f"  event: {quoted_yaml(event)}  # 1: seen, 0: censored"] if event else []),
        *(f"  # {one}  # {why}" for one, why in others.items()),
        *_suspects(profile),
        *_drop(profile, target),
        *_missing(profile, target),
        *_balance(profile),
        *([ENCODING] if encoded else []),
        *(_line("data", key, value) for key, value in sections.get("data", {}).items()),
        *_split(profile, target, division, own_test=test is not None),
    ]
    for name in PROPOSED:
        if name in sections:
            gap = [""] if name not in ("loss", "schedule") else []
            lines += [*gap, *_section(name, sections[name])]
    folds = lines.index("training:") + 1
    lines[folds:folds] = _folds(folds_of(profile, division), members)
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > MAX_BYTES or len(lines) > MAX_VALUES:
        raise DataError(
            f"{profile.source}: a config would be too long to be read (it leaves out "
            f"{plural(len(profile.drop), 'column')}); remove these columns from the table"
        )
    return text


MEANINGS = {
    "plain": "a network",
    "piecewise": "a network with quantile-bin features",
    "linear": "a linear model",
    "smooth": "a small tanh network",
}
"""The ensemble member types in words."""

COMMENTS = {
    ("data", "transform_target"): "log of a skewed target, if a trial model then predicts better",
    ("schedule", "cosine"): "lr falls to zero over the epochs",
    ("training", "early_stopping"): "the best epoch's weights are kept",
}
"""Comments in a config, by section and key."""


def _section(name: str, options: Mapping[str, Any]) -> list[str]:
    """Return a section of a recipe as YAML, on one line if it has at most three short options."""
    if name == "schedule":
        shown = options["name"] if len(options) == 1 else _flow(options)
        return [f"schedule: {shown}  # {COMMENTS[name, options['name']]}"]
    if name == "loss" or (name == "optimizer" and len(options) <= 3):
        return [f"{name}: {_flow(options)}"]
    return [f"{name}:", *(_line(name, key, value) for key, value in options.items())]


def _line(section: str, key: str, value: Any) -> str:
    remark = f"  # {COMMENTS[section, key]}" if (section, key) in COMMENTS else ""
    return f"  {key}: {_flow(value)}{remark}"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str):
        return quoted_yaml(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def folds_of(profile: Profile, division: Division | None) -> int | None:
    """Return the number of folds for a table; None for a single network."""
    return folds_for(profile.n_rows, division and division.blocks)


def decisions(
    profile: Profile, target: Sequence[str], division: Division | None = None
) -> list[str]:
    """Return the decisions of `propose`, a line each, with the key that changes the decision."""
    run = recipe(str(profile.task), profile.n_rows)
    folds = folds_of(profile, division)
    lines = [
        f"{profile.task} of {printable(', '.join(target))} (data.task){_reading(profile, target)}"
    ]
    encoded, members = _encoding_and_members(profile, target, division)
    each = len(trained(members)) or 1
    one = "one network with"
    networks = f"{folds} folds of {plural(each, 'network')}, each with" if folds else one
    hidden = f"hidden layers of {' and '.join(map(str, run.network.hidden))} units"
    epochs = plural(run.training.epochs, "epoch")
    keys = "training.folds, model.hidden, training.epochs"
    lines.append(f"{networks} {hidden}, up to {epochs} ({keys})")
    if members:
        texts = (f"{one} ({MEANINGS[one]})" for one in members)
        lines.append(f"models in each fold (training.members): {', '.join(texts)}")
    elif encoded:
        lines.append("numbers also get quantile-bin features (data.encoding)")
    if division:
        kept = HOW[division.key]
        lines.append(f"{kept}: by {printable(division.name)} (data.split.{division.key})")
    elif dates := _dates(profile, target):
        lines.append(
            "the split is random; to predict the future, test on the newest rows instead "
            f"(data.split.time: {_one_line(dates[0])})"
        )
    dropped = [name for name in profile.drop if name not in target]
    if dropped:
        shown = ", ".join(dropped[:5]) + (", ..." if len(dropped) > 5 else "")
        lines.append(f"columns left out (data.drop): {_one_line(shown)}; check prints the reasons")
    return lines


def _reading(profile: Profile, target: Sequence[str]) -> str:
    """Return how a target with few distinct numbers is read, and the key that changes this."""
    column = next(column for column in profile.columns if column.name == target[0])
    number = plural(column.distinct, "different number")
    if column.kind not in ("number", "integer") or not 2 < column.distinct <= FEW_LEVELS:
        return ""
    if profile.task == "classification":
        return f": {number}, read as classes; to predict a number, set data.task: regression"
    if profile.task == "regression":
        return f": {number}, read as numbers; to predict classes, set data.task: classification"
    return ""


def doubts(profile: Profile, target: Sequence[str]) -> list[str]:
    """Return a line if a target with few distinct numbers may be classes or a quantity."""
    counts, reading = profile.classes.values(), _reading(profile, target)
    alike = len(counts) > 0 and max(counts) <= 2 * min(counts)
    return [f"column {target[0]!r}{reading}"] if reading and not alike else []


def complete_config(
    config: dict[str, Any],
    detected: Detected,
    kept: Collection[str] = (),
    facts: Profile | None = None,
) -> tuple[list[str], list[str]]:
    """Add the settings of `propose` that a config lacks; return `decisions` and logged warnings.

    If the table lacks the target, nothing is added.  If the config has validation rows or `seeds`,
    no folds are added.  `kept` are columns that must not be dropped.  `facts` is the profile of the
    table; by default it is computed.

    Raises: DataError for a target that cannot be learned, or as `propose`.
    """
    data = config["data"]
    named = data.get("target") or DATASETS.get(data["source"], ())
    target = [named] if isinstance(named, str) else list(named)
    table, reading = detected.table, detected.reading
    if not target or not {*target} <= {*table.names}:
        return [], []
    task, event = data.get("task", "auto"), data.get("event")
    if event is not None:
        task = "survival"
        table = table.select(name for name in table.names if name != event)
    if facts is None:
        facts = profile(table, target, task=None if task in ("auto", None) else task)
    used = {*kept, data.get("weight"), data.get("exposure")}
    facts = replace(
        facts,
        drop={n: why for n, why in facts.drop.items() if n not in used and "drop" not in data},
        columns=[replace(c, kind="category") if c.name in kept else c for c in facts.columns],
    )
    split, division = _section_of(data, "split"), None
    for key in ("group", "time"):
        if split.get(key) in table.names:
            facts, division = Division.of(facts, key, split[key])
            division = division._replace(has_lags=bool(data.get("lags") or data.get("rolling")))
    text = propose(
        facts,
        target,
        source="",
        schema="",
        test=data.get("test_source"),
        reading=reading,
        division=division,
    )
    proposed = parse_yaml(text, "init", Document("init"))
    lines = decisions(facts, target, division)
    if empty := table.n_rows - int(has_target(table, target).sum()):
        lines.append(f"{plural(empty, 'row')} of {table.n_rows:,} left out: no target value")
    doubted = doubts(facts, target) if task in ("auto", None) and "loss" not in config else []
    warnings = [*detected.notes, *doubted, *facts.misread()]
    left_out = {*target, *facts.drop, *data.get("drop", ())}
    if len({column.name for column in facts.columns} - left_out) == 1:
        said = [leak.column for leak in facts.suspects if leak.reason == DETERMINES]
        warnings += [f"column {name!r}: {DETERMINES}" for name in said]
    for line in warnings:
        _log.warning("warning: %s: %s", facts.source, line)
    if given := [*_given(config)]:
        lines.append(f"kept as you set them: {', '.join(given)}")
    if "loss" in config:
        proposed.pop("loss", None)
    drop_rates(proposed, config.get("optimizer"))
    training, share = _section_of(config, "training"), split.get("validation")
    one_network = training.get("folds", 2) is None
    alone = share, data.get("validation_source"), training.get("seeds")
    if one_network or any(alone):
        dropped = [proposed["training"].pop(key, None) for key in ("folds", "members")]
        if any(dropped):
            why = "training.folds" if one_network else "validation rows or training.seeds"
            lines.insert(-1, f"no folds and no ensemble member types, because of {why}")
    if training.get("folds"):
        proposed["data"].get("split", {}).pop("validation", None)
    if one_network and share == 0 and not data.get("validation_source"):
        proposed["training"].pop("early_stopping", None)
    members = proposed["training"].get("members", [])
    loss = config.get("loss", "mse")
    name = loss.get("name") if isinstance(loss, Mapping) else loss
    unfit = {"piecewise": data.get("encoding", "piecewise") != "piecewise", SMOOTH: name != "mse"}
    members[:] = [one for one in members if not unfit.get(one)]
    fill_missing(config, proposed)
    return lines, warnings


def _given(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings in a config that `propose` also writes, as ``section.key``."""
    for section, value in config.items():
        if section not in ("data", *PROPOSED):
            continue
        keys = value if isinstance(value, Mapping) else [""]
        for key in keys:
            if section != "data" or key not in ("source", "test_source", "target", "categorical"):
                yield f"{section}.{key}".removesuffix(".")


def _section_of(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


ENCODING = "  encoding: piecewise  # quantile-bin features, for members of type piecewise; or none"


def drop_rates(sections: dict[str, Any], optimizer: Any) -> None:
    """Remove from `sections` the settings that a config with this `optimizer` cannot have.

    A full-batch optimizer has no learning rate, gradient clipping or batch size.
    """
    name = optimizer.get("name") if isinstance(optimizer, Mapping) else optimizer
    if isinstance(name, str) and issubclass(OPTIMIZERS.get(name, Adam), FullBatch):
        for section in ("optimizer", "schedule"):
            sections.pop(section, None)
        for key in ("clip_norm", "batch_size"):
            sections["training"].pop(key, None)


def _encoding_and_members(
    profile: Profile, target: Sequence[str], division: Division | None
) -> tuple[bool, tuple[MemberType, ...]]:
    """Return whether numbers are encoded by quantile bins, and the ensemble member types.

    A table with lags gets only plain and linear members: a series may leave the range of its
    training rows, and the other types are nearly constant outside this range.
    """
    left_out = {*profile.drop, *target}
    columns = [column for column in profile.columns if column.name not in left_out]
    kinds = [column.kind for column in columns]
    numbers = sum(kind in ("number", "integer", "date") for kind in kinds)
    has_lags = division is not None and division.has_lags
    encoded = encodes(profile.n_rows, numbers) and not has_lags
    if folds_of(profile, division) is None:
        return encoded, ()
    features = sum(c.distinct if c.kind == "category" else 1 + (c.missing > 0) for c in columns)
    gaps = len(target) > 1 and any(c.missing for c in profile.columns if c.name in target)
    smooth = profile.task == "regression" and not gaps and not has_lags
    return encoded, members_for(
        profile.n_rows, len(kinds), encoded=encoded, smooth_features=features if smooth else None
    )


HOW = {"group": "rows of one group stay together", "time": "the newest rows are test rows"}


def _dates(profile: Profile, target: Sequence[str]) -> list[str]:
    """Return the names of the date columns among the features, except times without dates."""
    left_out = {*profile.drop, *target}
    dates = [c for c in profile.columns if c.kind == "date" and c.name not in left_out]
    return [c.name for c in dates if not c.is_of_one_day]


def _shares(profile: Profile, division: Division | None, *, own_test: bool) -> dict[str, float]:
    shares = {"validation": validation_share_for(profile.n_rows), "test": 0.2}
    if folds_of(profile, division):
        del shares["validation"]
    if own_test:
        del shares["test"]
    return shares


def _split(
    profile: Profile, target: Sequence[str], division: Division | None, *, own_test: bool
) -> list[str]:
    """Return the lines of a config about validation and test rows."""
    shares = _shares(profile, division, own_test=own_test)
    texts = [f"{name}: {share}" for name, share in shares.items()]
    how = "; stratified by class" if profile.task == "classification" else ""
    if division:
        texts.append(f"{division.key}: {quoted_yaml(division.name)}")
        how = f"; {HOW[division.key]}"
    rest = f"other rows are for training{how}"
    lines = [f"  split: {{{', '.join(texts)}}}  # {rest}"] if texts else []
    if division:
        return lines
    if dates := _dates(profile, target):
        timed = ", ".join([*texts, f"time: {quoted_yaml(dates[0])}"])
        lines.append(f"  # split: {{{timed}}}  # to predict the future: test on the newest rows")
    return lines


def _folds(count: int | None, members: Sequence[str]) -> list[str]:
    if count is None:
        return []
    line = f"  members: [{', '.join(members)}]  # one member of each type in each fold"
    return [
        f"  # {count}-fold cross-validation: each network trains without one fold. The mean of",
        "  # all networks predicts better than one network. Every row has an out-of-fold score.",
        f"  # To train one network, remove {'the next two lines' if members else 'the next line'}.",
        f"  folds: {count}",
        *([line] if members else []),
    ]


def _drop(profile: Profile, target: Sequence[str]) -> list[str]:
    texts = {column.name: "" for column in profile.columns if column.kind == "text"}
    reasons = {name: why for name, why in (texts | profile.drop).items() if name not in target}
    if not reasons:
        return ["  drop: []"]
    lines = ["  drop:  # remove a line to use that column"]
    how = "; or list it under categorical instead"
    return lines + [
        f"    - {quoted_yaml(name)}  # {_one_line(why)}{how * (name in texts)}"
        for name, why in reasons.items()
    ]


def _suspects(profile: Profile) -> list[str]:
    return [
        line
        for leak in profile.suspects
        for line in (
            f"  # LOOK AT {_one_line(leak.column)}: {_one_line(leak.reason)};",
            f"  # {KEEP_IF}.",
        )
    ]


def _missing(profile: Profile, target: Sequence[str]) -> list[str]:
    gaps = [
        column.name
        for column in profile.columns
        if column.missing
        and column.name not in {*profile.drop, *target}
        and column.kind in ("number", "integer", "boolean", "date")
    ]
    if not gaps:
        return []
    shown = ", ".join(gaps[:5]) + (", ..." if len(gaps) > 5 else "")
    what = "missing numbers become the mean, and a 0/1 feature marks them"
    return [f"  missing: indicator  # in {_one_line(shown)}: {what}"]


def _balance(profile: Profile) -> list[str]:
    if len(profile.classes) < 2:
        return []
    shown = sorted(profile.classes.items(), key=lambda pair: -pair[1])[:4]
    counts = ", ".join(f"{name} ({count:,})" for name, count in shown)
    more = ", ..." if len(profile.classes) > len(shown) else ""
    return [f"  class_weights: none  # or balanced; rows of each class: {_one_line(counts)}{more}"]


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())[:100]
