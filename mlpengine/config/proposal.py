"""A first config for a new table: the columns to use, and a network of suitable size."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from mlpengine.data import Profile
from mlpengine.data.checks import KEEP_IF
from mlpengine.data.reading import DEFAULT, Reading
from mlpengine.wording import plural, printable

SCHEMA_LINE = "# yaml-language-server: $schema="


@dataclass(frozen=True)
class Size:
    """Settings for tables of up to a number of rows."""

    rows: float
    hidden: str
    dropout: float
    lr: str
    weight_decay: str
    epochs: int
    batch_size: int
    patience: int
    validation: float


SIZES = (
    Size(500, "[16]", 0.0, "3e-3", "0.1", 200, 16, 50, 0.1),
    Size(2_000, "[32, 16]", 0.1, "3e-3", "0.1", 200, 16, 50, 0.1),
    Size(20_000, "[64, 32]", 0.05, "3e-3", "0.01", 100, 64, 25, 0.1),
    Size(float("inf"), "[256, 128]", 0.0, "2e-3", "0.01", 40, 256, 20, 0.05),
)
"""By number of rows: small tables get small nets with much weight decay, large ones large nets."""


def propose(
    profile: Profile,
    target: Sequence[str],
    *,
    source: str,
    schema: str,
    reading: Reading = DEFAULT,
) -> str:
    """Return a commented config, as YAML, that predicts `target` from the other columns.

    Columns that are the target in another coding, or cannot be learned from, are dropped with the
    reason; those that explain nearly all of the target stay, with a comment.
    """
    size = next(size for size in SIZES if profile.n_rows <= size.rows)
    lines = [
        f"{SCHEMA_LINE}{schema}",
        f"# Predicts {printable(', '.join(target))} from {printable(profile.source)}: "
        f"{plural(profile.n_rows, 'row')}, {plural(len(profile.columns), 'column')}.",
        "seed: 0",
        "",
        "data:",
        f"  source: {quoted(source)}",
        *_reading(reading),
        f"  target: {_list(target)}",
        f"  task: {profile.task}",
        *_suspects(profile),
        *_drop(profile),
        *_missing(profile, target),
        *_formulas(profile, target),
        *_balance(profile),
        f"  split: {{validation: {size.validation}, test: 0.2}}  # the other rows train"
        + ("; each class keeps its share" if profile.task == "classification" else ""),
        "",
        "model:",
        f"  hidden: {size.hidden}",
        "  activation: relu",
        f"  dropout: {size.dropout}",
        "",
        f"optimizer: {{name: adamw, lr: {size.lr}, weight_decay: {size.weight_decay}}}",
        "schedule: cosine  # lr falls to zero over the epochs",
        "",
        "training:",
        f"  epochs: {size.epochs}",
        f"  batch_size: {size.batch_size}",
        "  clip_norm: 1.0",
        f"  early_stopping: {{patience: {size.patience}}}  # the best epoch's weights are kept",
    ]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return text as YAML reads it back, in quotes unless it is a plain word."""
    plain = text.replace("_", "").replace("-", "").replace(".", "").replace("/", "")
    is_word = plain.isascii() and plain.isalnum() and text[:1].isalpha()
    reserved = text.lower() in ("null", "true", "false", "yes", "no", "on", "off")
    return text if is_word and not reserved else printable(json.dumps(text, ensure_ascii=False))


def _list(names: Sequence[str]) -> str:
    return quoted(names[0]) if len(names) == 1 else f"[{', '.join(map(quoted, names))}]"


def _reading(reading: Reading) -> list[str]:
    """Return how the cells are spelled, as far as it is not the default."""
    return [
        f"  {name}: "
        + (f"[{', '.join(map(quoted, value))}]" if isinstance(value, list) else quoted(value))
        for name, value in reading.to_dict().items()
    ]


def _drop(profile: Profile) -> list[str]:
    """Return the columns to leave out, one a line with the reason."""
    texts = {column.name: "" for column in profile.columns if column.kind == "text"}
    reasons = texts | profile.drop
    if not reasons:
        return ["  drop: []"]
    lines = ["  drop:  # remove a line to use that column"]
    return lines + [f"    - {quoted(name)}  # {_one_line(why)}" for name, why in reasons.items()]


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
    return [f"  missing: indicator  # the mean, and a 0/1 feature for: {_one_line(shown)}"]


def _formulas(profile: Profile, target: Sequence[str]) -> list[str]:
    """Return comments that show how to compute columns and choose rows, with a column's name."""
    for column in profile.columns:
        usable = column.name not in {*profile.drop, *target} and "`" not in column.name
        if usable and column.kind in ("number", "integer") and column.name.isprintable():
            name = column.name if column.name.isidentifier() else f"`{column.name}`"
            return [
                f"  # features: {{{quoted('log ' + column.name)}: {quoted(f'log({name})')}}}"
                "  # further columns, by formulas",
                f"  # where: {quoted(f'{name} > 0')}  # the rows to use, by a formula",
            ]
    return []


def _balance(profile: Profile) -> list[str]:
    if len(profile.classes) < 2:
        return []
    shown = sorted(profile.classes.items(), key=lambda pair: -pair[1])[:4]
    counts = ", ".join(f"{name} {count:,}" for name, count in shown)
    more = ", ..." if len(profile.classes) > len(shown) else ""
    return [f"  class_weights: none  # or balanced; rows: {_one_line(counts)}{more}"]


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())[:100]
