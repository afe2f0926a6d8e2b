"""The two ends of a model in C: from the columns of a row to features, from outputs to predictions.

The functions print C for scalars of type ``real`` (see `mlpengine.backends.scalar`); arithmetic is
that of the preprocessor, operation by operation, except that a center is subtracted in two parts,
so that nothing is lost in float32.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import pi

import numpy as np

from mlpengine.backends.scalar.functions import softmax_function
from mlpengine.backends.scalar.text import (
    Functions,
    Names,
    array,
    comment_text,
    constants,
    identifier,
    indented,
    real_constant,
)
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.computed import ComputedColumn
from mlpengine.data.features.numbers import CLIP, CLIPPED_FROM, Numbers
from mlpengine.data.features.sources import PERIODS, Source
from mlpengine.export.network_c import PredictionCode, Real
from mlpengine.formula import c_statements, variable, where
from mlpengine.models.model import Model
from mlpengine.models.task import BinaryClassification, Classification, MultiLabel, Regression

ONE_HOT = """\
/* One feature for each level, then unknown, then, where training had gaps, missing. */
static void one_hot(real code, size_t levels, size_t gaps, real value, real *f)
{
  size_t place = levels;
  if (is_nan(code)) place = levels + gaps;
  else if (code >= 0 && code < R(levels) && R((size_t)code) == code) place = (size_t)code;
  for (size_t i = 0; i <= levels + gaps; i++) f[i] = i == place ? value : R(0);
}

"""


COLUMN_PHRASES = {
    "boolean": "0 or 1",
    "category": "the code of a category",
    "date": "seconds since 1970, UTC",
}
"""What a row holds for a column, by its kind; otherwise a number."""


@dataclass(frozen=True)
class TableCode:
    """What surrounds a network in C.

    Attributes:
        definitions: macros for a header: columns, codes of categories, targets and classes.
        text: the functions ``int features(x, f)``, which returns 0 for a row that cannot be used,
            ``void predictions(o, out)`` and, where `scales_target`, ``void learned(y, t)``.
        inputs: number of columns of a row.
        targets: numbers in a row's target: one class number, or one for each output.
        outputs: numbers in a prediction: probabilities, or values in the target's units.
        about: what a prediction holds, in words.
    """

    definitions: str
    text: str
    inputs: int
    targets: int
    outputs: int
    scales_target: bool
    about: str


def table_code(
    model: Model, prefix: str, functions: Functions, *, real: Real, trains: bool
) -> TableCode:
    """Return the C around the network of a model; macros begin with ``PREFIX_``.

    `functions` gets those that it shares with the network; `real` is the type for which the code is
    meant, ``float`` or ``double``; `trains` tells whether targets are read.

    Raises: UsageError for what `real` cannot hold.
    """
    preprocessor, task = model.preprocessor, model.task
    outputs, targets = task.outputs, task.outputs
    about = "the outputs"
    body = f"  for (size_t i = 0; i < {outputs}; i++) out[i] = o[i];\n"
    text = learned = ""
    if isinstance(task, Regression):
        about, outputs = "what is predicted of the targets", len(task.column_names)
        targets = len(task.target.columns)
        text, body, learned = _units(task, real)
    elif isinstance(task, BinaryClassification):
        about, outputs, targets = "the probabilities of both classes", 2, 1
        body = "  out[0] = v_sigmoid(-o[0]);\n  out[1] = v_sigmoid(o[0]);\n"
    elif isinstance(task, Classification):
        about, targets = "the probabilities of the classes", 1
        body = f"  {softmax_function(functions)}(o, out, {outputs});\n"
    elif isinstance(task, MultiLabel):
        about = "the probabilities of the labels"
        body = f"  for (size_t i = 0; i < {outputs}; i++) out[i] = v_sigmoid(o[i]);\n"
    text += "/* From outputs of the network to predictions. */\n"
    text += f"static void predictions(const real *o, real *out)\n{{\n{body}}}\n\n"
    if trains and learned:
        text += "/* From targets in their own units to targets as the network learns them. */\n"
        text += f"static void learned(const real *y, real *t)\n{{\n{learned}}}\n\n"
    return TableCode(
        _definitions(model, identifier(prefix, upper=True)),
        _features(preprocessor, real) + text,
        len(preprocessor.columns),
        targets,
        outputs,
        bool(learned),
        about,
    )


def _units(task: Regression, real: str) -> tuple[str, str, str]:
    """Return constants, and the bodies of predictions and learned, which is empty without scale."""
    target, loss = task.target, task.loss
    text = learned = ""
    loop = f"  for (size_t i = 0; i < {len(target.columns)}; i++)"
    if task.scaled:
        text = _split("target_center", target.center, real)
        text += _constants("target_scale", _fitting(target.scale, "a target's scale", real))
        given = "v_log(vmax(y[i], target_low[i]))" if target.log else "y[i]"
        unscaled = f"{given} - target_center[i] - target_center_low[i]"
        learned = f"{loop}\n    t[i] = ({unscaled}) / target_scale[i];\n"
    if target.bounds is not None:
        for name, values in zip(("low", "high"), target.bounds, strict=True):
            text += _constants(f"target_{name}", _fitting(values, "a bound", real))
    leaves = {leaf: f"o{k}" for k, leaf in enumerate(loss.formulas.outputs)}
    values = {f"p{k}": one.formula for k, one in enumerate(loss.predictions)}
    lines = [
        *(f"const real o{k} = o[i * {loss.columns} + {k}];" for k in range(loss.columns)),
        *c_statements(values, leaves, 8, "real", "p_t"),
    ]
    for k, prediction in enumerate(loss.predictions):
        scaled = f"p{k} * target_scale[i]" if task.scaled else f"p{k}"
        if task.scaled and prediction.location:
            scaled += " + target_center_low[i] + target_center[i]"
        if target.log:
            scaled = f"v_exp({scaled})"
        if target.bounds is not None and prediction.location:
            scaled = f"vmin(vmax({scaled}, target_low[i]), target_high[i])"
        lines.append(f"out[i * {len(values)} + {k}] = {scaled};")
    body = indented(lines, "    ")
    return text, f"{loop} {{\n{body}  }}\n", learned


def _constants(name: str, values: Iterable[float]) -> str:
    """Return the definition of a constant array that statements read by its name."""
    return constants(name, values, "IN_FLASH real")


def _split(name: str, values: Array, real: str) -> str:
    """Return two arrays that sum to `values`: the numbers rounded to float32, and what is left."""
    high = np.array(_fitting(values, name, real))
    high = high.astype(np.float32).astype(np.float64) if real == "float" else high
    return _constants(name, high.tolist()) + _constants(f"{name}_low", (values - high).tolist())


def _fitting(values: Array, what: str, real: str) -> list[float]:
    """Return the numbers; raise UsageError if they are too large for `real`."""
    limit = float(np.finfo(np.float32 if real == "float" else np.float64).max)
    if values.size and np.abs(values).max() > limit:
        largest = np.abs(values).max()
        raise UsageError(f"export: {what} must fit a {real} ({largest:g}); export real double")
    numbers: list[float] = values.tolist()
    return numbers


def prediction(forward: PredictionCode, outputs: int, *, has_table: bool) -> str:
    """Return the body of the function that predicts a row, from ``x`` to ``out``.

    With a table, features of ``x`` are what the network reads, and its outputs become predictions.
    """
    usable = f"features(x, {forward.source})" if has_table else "1"
    lines = [*forward.memory, f"int usable = {usable};", *forward.statements]
    lines += [f"predictions({forward.output}, out);"] if has_table else []
    lines += [
        f"for (size_t i = 0; i < {outputs}; i++) usable &= is_finite(out[i]);",
        f"for (size_t i = 0; i < {outputs} && !usable; i++) out[i] = R(NAN);",
        "return usable;",
    ]
    return indented(lines)


# ---------------------------------------------------------------- features
def _features(preprocessor: Preprocessor, real: str) -> str:
    """Return ``int features(x, f)`` and what it needs."""
    numbers = preprocessor.fitted_numbers
    columns = {name: f"x[{i}]" for i, name in enumerate(preprocessor.columns)}
    dates = [name for name, kind in preprocessor.kinds.items() if kind == "date"]
    if dates and real == "float":
        raise UsageError(
            f"export: a column of dates needs real double, as a float rounds seconds since 1970 to "
            f"minutes ({dates[0]!r})"
        )
    tables, body = "", []
    for i, column in enumerate(preprocessor.computed):
        body += _computed(column, columns, f"c{i}")
        columns[column.name] = f"c{i}"
    if numbers.sources:
        more, lines = _numbers(numbers, columns, real)
        tables, body = tables + more, body + lines
    place = numbers.width
    for category in preprocessor.categories:
        code, levels, gaps = columns[category.column], len(category.levels), int(category.gaps)
        if category.strict:
            body.append(f"if (is_nan({code})) usable = 0;")
        body.append(f"one_hot({code}, {levels}, {gaps}, R({category.value!r}), f + {place});")
        place += category.size
    if preprocessor.categories:
        tables += ONE_HOT
    text = indented(body)
    return (
        f"{tables}/* From a row's columns to features; returns 0 if the row cannot be used. */\n"
        f"static int features(const real *x, real *f)\n{{\n  int usable = 1;\n{text}"
        "  return usable;\n}\n\n"
    )


def _computed(column: ComputedColumn, columns: Mapping[str, str], name: str) -> list[str]:
    """Return the statements of a column that a formula computes, NaN where a cell is missing."""
    formula = where(column.formula, 1, 0) if column.formula.is_mask else column.formula
    given = {variable(read): columns[read] for read in column.reads}
    missing = " || ".join(f"is_nan({columns[read]})" for read in column.reads)
    return [
        f"/* {comment_text(column.name)} = {comment_text(column.text)} */",
        *c_statements({f"{name}_value": formula}, given, 8, "real", f"{name}_t"),
        f"const int {name}_missing = {missing};",
        f"if (!{name}_missing && !is_finite({name}_value)) usable = 0;",
        f"const real {name} = {name}_missing ? R(NAN) : {name}_value;",
    ]


def _numbers(numbers: Numbers, columns: Mapping[str, str], real: str) -> tuple[str, list[str]]:
    """Return the constants and the statements of the numeric features."""
    count, bins, flags = len(numbers.sources), len(numbers.bins), len(numbers.flagged)
    tables, body = _gathered(numbers.sources, columns)
    if flags:
        tables += array("IN_FLASH unsigned short", "flagged", map(str, numbers.flagged))
        body.append(f"for (size_t i = 0; i < {flags}; i++)")
        body.append(f"  f[{count + bins} + i] = R(is_nan(f[flagged[i]]));")
    if bins:
        more, lines = _components(numbers, real)
        tables, body = tables + more, body + lines
    scaled = "f[i]"
    if numbers.center.any() or (numbers.factor != 1.0).any():
        tables += _split("column_center", numbers.center, real)
        tables += _constants("column_factor", _fitting(numbers.factor, "a factor", real))
        scaled = "(f[i] - column_center[i] - column_center_low[i]) * column_factor[i]"
    body.append(f"for (size_t i = 0; i < {count}; i++) {{")
    if numbers.strict:
        body.append("  if (is_nan(f[i])) usable = 0;")
        if scaled != "f[i]":
            body.append(f"  f[i] = {scaled};")
    else:
        filled = (numbers.fill - numbers.center) * numbers.factor
        tables += _constants("column_filled", _fitting(filled, "a filled value", real))
        body.append(f"  f[i] = is_nan(f[i]) ? column_filled[i] : {scaled};")
    body.append("  if (!is_finite(f[i])) usable = 0;")
    if numbers.clip:
        body += [
            f"  f[i] = vmin(vmax(f[i], {real_constant(-CLIPPED_FROM)}), "
            f"{real_constant(CLIPPED_FROM)});",
            f"  const real share = f[i] / {real_constant(CLIP)};",
            "  f[i] /= v_sqrt(1 + share * share);",
        ]
    return tables, [*body, "}"]


def _gathered(sources: Sequence[Source], columns: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return what copies the raw values of the sources to the first features."""
    plain = {
        i: int(columns[s.column][2:-1])
        for i, s in enumerate(sources)
        if not s.part and not s.minus and columns[s.column].startswith("x[")
    }
    tables, body = "", []
    if all(plain.get(i) == i for i in range(len(sources))):
        body.append(f"for (size_t i = 0; i < {len(sources)}; i++) f[i] = x[i];")
    elif plain:
        places = [str(plain.get(i, 0)) for i in range(len(sources))]
        tables += array("IN_FLASH unsigned short", "column_of", places)
        body.append(f"for (size_t i = 0; i < {len(sources)}; i++) f[i] = x[column_of[i]];")
    for i, source in enumerate(sources):
        if i not in plain:
            body += _special(source, columns, f"f[{i}]")
    return tables, body


def _special(source: Source, columns: Mapping[str, str], out: str) -> list[str]:
    """Return the statements of a computed column, a time since another, or a part of a date."""
    value = columns[source.column]
    if source.minus:
        return [f"{out} = {value} - {columns[source.minus]};"]
    if not source.part:
        return [f"{out} = {value};"]
    period, wave = source.part.split()
    length, start = (real_constant(number) for number in PERIODS[period])
    return [
        "{",
        f"  const real since = {value} + {start};",
        f"  const real past = since - M(floor)(since / {length}) * {length};",
        f"  {out} = v_{wave}({real_constant(2 * pi)} * (past / {length}));",
        "}",
    ]


def _components(numbers: Numbers, real: str) -> tuple[str, list[str]]:
    """Return the constants and the statements of the components of bins."""
    bins, count = numbers.bins, len(numbers.sources)
    tables = array("IN_FLASH unsigned short", "bin_of", map(str, bins.columns.tolist()))
    tables += _split("bin_left", bins.left, real)
    for name, values in (("low", bins.low), ("high", bins.high), ("width", bins.width)):
        tables += _constants(f"bin_{name}", _fitting(values, "an edge of a bin", real))
    lines = [
        f"for (size_t i = 0; i < {len(bins)}; i++) {{",
        "  const real value = f[bin_of[i]], past = value - bin_left[i] - bin_left_low[i];",
        f"  f[{count} + i] = vmin(vmax(past, bin_low[i]), bin_high[i]) / bin_width[i];",
        "}",
    ]
    if not numbers.strict:
        filled = np.empty((1, len(bins)))
        bins.encode(numbers.fill[None, :], filled)
        tables += _constants("bin_filled", filled[0].tolist())
        lines.insert(3, f"  if (is_nan(value)) f[{count} + i] = bin_filled[i];")
    return tables, lines


# ---------------------------------------------------------------- the header
def _definitions(model: Model, upper: str) -> str:
    """Return macros for the places of columns and targets, codes of categories, and classes."""
    preprocessor, names = model.preprocessor, Names()
    lines: list[str] = []

    def define(name: str, value: int, about: str = "") -> None:
        chosen = names.add(f"{upper}_{identifier(name, upper=True)}")
        text = comment_text(about)
        lines.append(f"#define {chosen} {value}" + (f" /* {text} */" if text else ""))

    categories = {category.column: category for category in preprocessor.categories}
    lines.append("/* Places of the columns in a row; NaN where a cell is missing. */")
    for place, name in enumerate(preprocessor.columns):
        kind = "category" if name in categories else preprocessor.kinds.get(name, "number")
        define(f"X_{name}", place, f"{name}: {COLUMN_PHRASES.get(kind, 'a number')}")
    for name, category in categories.items():
        lines.append(f"/* Codes of {comment_text(name)}; any other number is an unknown level. */")
        for code, level in enumerate(category.levels):
            define(f"CODE_{name}_{level}", code, level)
    if preprocessor.target is not None and preprocessor.classes:
        lines.append("/* Classes: the target of a row is its number. */")
        for code, label in enumerate(preprocessor.classes):
            define(f"CLASS_{label}", code, str(label))
    elif preprocessor.target is not None:
        lines.append("/* Places of the targets in y. */")
        for place, name in enumerate(preprocessor.target.columns):
            define(f"Y_{name}", place, name)
    if isinstance(model.task, Regression):
        lines.append("/* Places of the predictions in out. */")
        for place, name in enumerate(model.task.column_names):
            define(f"OUT_{name}", place, name)
    if preprocessor.options.where is not None:
        lines.append(f"/* Trained on rows with {comment_text(preprocessor.options.where)}. */")
    return "\n".join(lines) + "\n"
