"""C code around a network: from the columns of a row to features, from outputs to predictions.

The statements compute with scalars (see `mlpengine.backends.scalar`) and repeat the operations of
the preprocessor one by one.  One operation differs: a mean is subtracted in two parts, so that
float32 loses no digits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import nan, pi

import numpy as np

from mlpengine.backends.compiled.statements import (
    Assign,
    ForLoop,
    If,
    Let,
    Scope,
    Statement,
    Variable,
    Whole,
    element,
    floor,
    is_nan,
    lets,
    not_finite,
    vselect,
    whole,
)
from mlpengine.backends.scalar.definitions import (
    Constants,
    Definition,
    FreshNames,
    Functions,
    ScalarFunction,
    comment_text,
    identifier,
    real_constant,
)
from mlpengine.backends.scalar.layer_functions import softmax_function
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import label_text
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.computed import ComputedColumn
from mlpengine.data.features.numbers import Numbers
from mlpengine.data.features.sources import PERIODS, Source
from mlpengine.data.features.targets import NumberTarget, Target, TimeTarget
from mlpengine.data.features.thresholds import CLIP, CLIPPED_FROM
from mlpengine.export.network_c import PredictionCode, Real
from mlpengine.formula import (
    Expr,
    clip,
    constant,
    cos,
    equal,
    exp,
    log,
    maximum,
    minimum,
    sigmoid,
    sin,
    sqrt,
    variable,
    where,
)
from mlpengine.models.model import Model
from mlpengine.models.task import BinaryClassification, Classification, MultiLabel, Regression

COLUMN_PHRASES = {
    "boolean": "0 or 1",
    "category": "the code of a category",
    "date": "seconds since 1970, UTC",
}
"""What a value of x means, by the kind of its column; other values are numbers."""


@dataclass(frozen=True)
class TableCode:
    """The code around a network.

    Attributes:
        macros: macros of a header: columns, codes of categories, targets and classes.
        definitions: the functions ``int features(x, f)``, which returns 0 for an unusable row,
            ``void predictions(o, out)`` and, if `scales_target`, ``void learned(y, t)``.
        inputs: number of columns of a row.
        targets: numbers in a row's target: one class index, or one number per output.
        outputs: numbers in a prediction: probabilities, or values in the target's units.
        about: description of a prediction.
    """

    macros: str
    definitions: list[Definition]
    inputs: int
    targets: int
    outputs: int
    scales_target: bool
    about: str


def table_code(
    model: Model, prefix: str, functions: Functions, *, real: Real, trains: bool
) -> TableCode:
    """Return the code around the network of a model; macros begin with ``PREFIX_``.

    Functions that the network also needs are added to `functions`.  `real` is the number type.
    `trains` tells whether targets are read.

    Raises: UsageError for values that `real` cannot hold.
    """
    preprocessor, task = model.preprocessor, model.task
    outputs, targets = task.outputs, task.outputs
    o, out = element("o", "i"), element("out", "i")
    about, constants = "the outputs", list[Definition]()
    body: list[Statement] = [ForLoop("i", 0, outputs, [Assign(out, o)])]
    learned: list[Statement] = []
    if isinstance(task, Regression):
        about, outputs = "the predictions of the targets", len(task.column_names)
        targets = task.target.n_outputs * task.loss.target_columns
        constants, body, learned = _units(task, real)
    elif isinstance(task, BinaryClassification):
        about, outputs, targets = "the probabilities of both classes", 2, 1
        first, (no, yes) = element("o", 0), (element("out", k) for k in range(2))
        body = [Assign(no, sigmoid(-first)), Assign(yes, sigmoid(first))]
    elif isinstance(task, Classification):
        about, targets = "the probabilities of the classes", 1
        body = [f"{softmax_function(functions)}(o, out, {outputs});"]
    elif isinstance(task, MultiLabel):
        about = "the probabilities of the labels"
        body = [ForLoop("i", 0, outputs, [Assign(out, sigmoid(o))])]
    text = "Converts outputs of the network to predictions."
    code = [*constants, ScalarFunction("predictions", {"o": "reads", "out": "writes"}, body, text)]
    if trains and learned:
        text = "Converts targets to the scaled targets of the network."
        code.append(ScalarFunction("learned", {"y": "reads", "t": "writes"}, learned, text))
    return TableCode(
        _macros(model, identifier(prefix, upper=True)),
        [*_features(preprocessor, real), *code],
        len(preprocessor.columns),
        targets,
        outputs,
        bool(learned),
        about,
    )


def _units(
    task: Regression, real: str
) -> tuple[list[Definition], list[Statement], list[Statement]]:
    """Return constants, and the bodies of ``predictions`` and ``learned`` (empty if unscaled)."""
    target, loss, count = task.target, task.loss, task.target.n_outputs
    names = "center", "center_low", "scale", "low", "high"
    center, center_low, scale, low, high = (element(f"target_{name}", "i") for name in names)
    constants, learned = list[Definition](), list[Statement]()
    if task.scaled:
        constants = _split("target_center", target.center, real)
        constants.append(_constants("target_scale", target.scale, "a target's scale", real))
        own = loss.target_columns
        for place in ["i"] if own == 1 else [f"i * {own} + {k}" for k in range(own)]:
            y = element("y", place)
            value = (log(maximum(y, low)) if target.log else y) - center - center_low
            learned.append(Assign(element("t", place), value / scale))
        learned = [ForLoop("i", 0, count, learned)]
    if target.bounds is not None:
        for name, values in zip(("low", "high"), target.bounds, strict=True):
            constants.append(_constants(f"target_{name}", values, "a bound", real))
    columns, predictions = range(loss.columns), loss.predictions
    body: list[Statement] = [
        *(Let(f"o{k}", element("o", f"i * {loss.columns} + {k}")) for k in columns),
        *lets(
            {f"p{k}": one.formula for k, one in enumerate(predictions)},
            {leaf: f"o{k}" for k, leaf in enumerate(loss.formulas.outputs)},
            "p_t",
        ),
    ]
    for k, prediction in enumerate(predictions):
        value = variable(f"p{k}")
        value = value * scale if task.scaled else value
        if task.scaled and prediction.location:
            value = value + center_low + center
        value = exp(value) if target.log else value
        out = element("out", f"i * {len(predictions)} + {k}")
        body.append(Assign(out, value))
        if target.bounds is not None and prediction.location:
            body.append(Assign(out, minimum(maximum(out, low), high)))
    if task.orders:
        body += _sorted(len(predictions))
    return constants, [ForLoop("i", 0, count, body)], learned


def _sorted(count: int) -> list[Statement]:
    """Return statements that sort the `count` quantiles of target i (bubble sort)."""
    below, above = (element("out", f"i * {count} + k + {k}") for k in range(2))
    swap: list[Statement] = [
        Let("least", minimum(below, above)),
        Assign(above, maximum(below, above)),
        Assign(below, variable("least")),
    ]
    return [ForLoop("pass", 1, count, [ForLoop("k", 0, count - 1, swap)])]


def _constants(name: str, values: Array, what: str, real: str) -> Constants:
    """Return constants.  Raises: UsageError if `real` cannot hold a value."""
    limit = float(np.finfo(np.float32 if real == "float" else np.float64).max)
    if values.size and np.abs(values).max() > limit:
        largest = np.abs(values).max()
        raise UsageError(f"export: {what} must fit a {real} ({largest:g}); {DOUBLE}")
    return Constants(name, values, by_name=True)


def _split(name: str, values: Array, real: str) -> list[Definition]:
    """Return two arrays that sum to `values`: the values rounded to float32, and the remainders."""
    high = _constants(name, values, name, real)
    if real == "float":
        high = high._replace(values=values.astype(np.float32).astype(np.float64))
    return [high, Constants(f"{name}_low", values - high.values, by_name=True)]


def prediction(forward: PredictionCode, outputs: int, *, has_table: bool) -> list[Statement]:
    """Return the body of the function that predicts a row, from ``x`` to ``out``.

    With `has_table`, ``x`` has the columns of a table: the body first computes features, and last
    converts the outputs to predictions.
    """
    out = element("out", "i")
    return [
        *forward.memory,
        Whole("usable", f"features(x, {forward.source})" if has_table else "1"),
        *forward.statements,
        *([f"predictions({forward.output}, out);"] if has_table else []),
        ForLoop("i", 0, outputs, [If(not_finite(out), [UNUSABLE])]),
        If("!usable", [ForLoop("i", 0, outputs, [Assign(out, constant(nan))])]),
        "return usable;",
    ]


UNUSABLE = "usable = 0;"
DOUBLE = "set training.dtype=float64, or pass real='double'"


# ---------------------------------------------------------------- features
def _features(preprocessor: Preprocessor, real: str) -> list[Definition]:
    """Return ``int features(x, f)`` and the definitions that this function needs."""
    numbers = preprocessor.fitted_numbers
    columns = {name: element("x", i) for i, name in enumerate(preprocessor.columns)}
    dates = [name for name, kind in preprocessor.kinds.items() if kind == "date"]
    if dates and real == "float":
        raise UsageError(
            f"export: a column of dates needs real double, as a float rounds seconds since 1970 to "
            f"minutes ({dates[0]!r}); {DOUBLE}"
        )
    tables, body = list[Definition](), list[Statement]()
    for i, column in enumerate(preprocessor.computed):
        body += _computed(column, columns, f"c{i}")
        columns[column.name] = variable(f"c{i}")
    if numbers.sources:
        more, lines = _numbers(numbers, columns, real)
        tables, body = tables + more, body + lines
    place = numbers.width
    for k, category in enumerate(preprocessor.categories):
        code, levels, gaps = columns[category.column], len(category.levels), int(category.gaps)
        if category.strict:
            body.append(If(is_nan(code), [UNUSABLE]))
        body.append(Let(f"code{k}", code))
        value = real_constant(category.value)
        body.append(f"one_hot(code{k}, {levels}, {gaps}, {value}, f + {place});")
        place += category.size
    if preprocessor.categories:
        tables.append(ONE_HOT)
    about = "Converts a row's columns to features; returns 0 if the row cannot be used."
    body = [Whole("usable", "1"), *body, "return usable;"]
    return [*tables, ScalarFunction("features", {"x": "reads", "f": "writes"}, body, about, "int")]


def _one_hot() -> ScalarFunction:
    code, place, levels = variable("code"), variable("place"), whole("levels")
    known = (code >= 0) & (code < levels) & equal(floor(code), code)
    hot = where(equal(whole("i"), place), variable("value"), 0)
    return ScalarFunction(
        "one_hot",
        {"code": "number", "levels": "count", "gaps": "count", "value": "number", "f": "writes"},
        [
            Variable("place", where(known, code, levels)),
            If(is_nan(code), [Assign(place, whole("levels + gaps"))]),
            ForLoop("i", 0, "levels + gaps + 1", [Assign(element("f", "i"), hot)]),
        ],
        "One feature for each level, for unknown levels and, if gaps is 1, for missing values.",
    )


ONE_HOT = _one_hot()


def _computed(column: ComputedColumn, columns: Mapping[str, Expr], name: str) -> list[Statement]:
    """Return the statements of a computed column; a missing operand gives NaN."""
    formula = where(column.formula, 1, 0) if column.formula.is_mask else column.formula
    given: dict[Expr, str | Expr] = {variable(read): columns[read] for read in column.reads}
    gaps = [is_nan(columns[read]) for read in column.reads]
    missing = reduce(lambda a, b: Expr("logical_or", (a, b)), gaps)
    value = variable(f"{name}_value")
    return [
        f"/* {comment_text(column.name)} = {comment_text(column.text)} */",
        *lets({f"{name}_value": formula}, given, f"{name}_t"),
        If(not_finite(value), [If(Expr("logical_not", (missing,)), [UNUSABLE])]),
        Let(name, vselect(missing, constant(nan), value)),
    ]


def _numbers(
    numbers: Numbers, columns: Mapping[str, Expr], real: str
) -> tuple[list[Definition], list[Statement]]:
    count, bins, flags = len(numbers.sources), len(numbers.bins), len(numbers.flagged)
    tables, body = _gathered(numbers.sources, columns)
    f = element("f", "i")
    if flags:
        tables.append(_places("flagged", numbers.flagged))
        gap = is_nan(element("f", "flagged[i]"))
        flag = element("f", f"{count + bins} + i")
        body.append(ForLoop("i", 0, flags, [Assign(flag, vselect(gap, constant(1), constant(0)))]))
    if bins:
        more, lines = _components(numbers, real)
        tables, body = tables + more, body + lines
    scaled = f
    if numbers.center.any() or (numbers.factor != 1.0).any():
        tables += _split("column_center", numbers.center, real)
        tables.append(_constants("column_factor", numbers.factor, "a factor", real))
        center, low, factor = (
            element(f"column_{name}", "i") for name in ("center", "center_low", "factor")
        )
        scaled = (f - center - low) * factor
    each: list[Statement] = []
    if numbers.strict:
        each.append(If(is_nan(f), [UNUSABLE]))
        if scaled is not f:
            each.append(Assign(f, scaled))
    else:
        filled = (numbers.fill - numbers.center) * numbers.factor
        tables.append(_constants("column_filled", filled, "a filled value", real))
        each.append(Assign(f, vselect(is_nan(f), element("column_filled", "i"), scaled)))
    each.append(If(not_finite(f), [UNUSABLE]))
    if numbers.clip:
        share = variable("share")
        each += [
            Assign(f, clip(f, -CLIPPED_FROM, CLIPPED_FROM)),
            Let("share", f / CLIP),
            Assign(f, sqrt(share * share + 1), "/"),
        ]
    return tables, [*body, ForLoop("i", 0, count, each)]


def _places(name: str, places: Sequence[int]) -> Constants:
    return Constants(name, np.array(places), "unsigned short", by_name=True)


def _gathered(
    sources: Sequence[Source], columns: Mapping[str, Expr]
) -> tuple[list[Definition], list[Statement]]:
    """Return the statements that copy the unscaled values of the sources to the first features."""
    places = {element("x", i): i for i in range(len(columns))}
    plain = {
        i: places[columns[s.column]]
        for i, s in enumerate(sources)
        if not s.part and not s.minus and columns[s.column] in places
    }
    tables, body = list[Definition](), list[Statement]()
    f, count = element("f", "i"), len(sources)
    if all(plain.get(i) == i for i in range(count)):
        body.append(ForLoop("i", 0, count, [Assign(f, element("x", "i"))]))
    elif plain:
        tables.append(_places("column_of", [plain.get(i, 0) for i in range(count)]))
        body.append(ForLoop("i", 0, count, [Assign(f, element("x", "column_of[i]"))]))
    for i, source in enumerate(sources):
        if i not in plain:
            body += _special(source, columns, element("f", i))
    return tables, body


def _special(source: Source, columns: Mapping[str, Expr], out: Expr) -> list[Statement]:
    """Return the statements of a computed column, a time between dates, or a part of a date."""
    value = columns[source.column]
    if source.minus:
        return [Assign(out, value - columns[source.minus])]
    if not source.part:
        return [Assign(out, value)]
    period, wave = source.part.split()
    length, start = PERIODS[period]
    since, past = variable("since"), variable("past")
    return [
        Scope(
            [
                Let("since", value + start),
                Let("past", since - floor(since / length) * length),
                Assign(out, (sin if wave == "sin" else cos)(past / length * (2 * pi))),
            ]
        )
    ]


def _components(numbers: Numbers, real: str) -> tuple[list[Definition], list[Statement]]:
    bins, count = numbers.bins, len(numbers.sources)
    tables: list[Definition] = [_places("bin_of", bins.columns.tolist())]
    tables += _split("bin_left", bins.left, real)
    for name, values in (("low", bins.low), ("high", bins.high), ("width", bins.width)):
        tables.append(_constants(f"bin_{name}", values, "an edge of a bin", real))
    names = "left", "left_low", "low", "high", "width"
    left, left_low, low, high, width = (element(f"bin_{name}", "i") for name in names)
    value, past, f = variable("value"), variable("past"), element("f", f"{count} + i")
    lines: list[Statement] = [
        Let("value", element("f", "bin_of[i]")),
        Let("past", value - left - left_low),
        Assign(f, minimum(maximum(past, low), high) / width),
    ]
    if not numbers.strict:
        filled = np.empty((1, len(bins)))
        bins.encode(numbers.fill[None, :], filled)
        tables.append(Constants("bin_filled", filled[0], by_name=True))
        lines.append(If(is_nan(value), [Assign(f, element("bin_filled", "i"))]))
    return tables, [ForLoop("i", 0, len(bins), lines)]


# ---------------------------------------------------------------- the header
def _macros(model: Model, upper: str) -> str:
    """Return macros for the positions of columns and targets, codes of categories, and classes."""
    preprocessor, names = model.preprocessor, FreshNames()
    lines: list[str] = []

    def define(name: str, value: float, about: str = "") -> None:
        chosen = names.add(f"{upper}_{identifier(name, upper=True)}")
        text = comment_text(about)
        lines.append(f"#define {chosen} {value}" + (f" /* {text} */" if text else ""))

    categories = {category.column: category for category in preprocessor.categories}
    lines.append("/* Indices of the columns in x.  NaN is a missing value. */")
    for place, name in enumerate(preprocessor.columns):
        kind = "category" if name in categories else preprocessor.kinds.get(name, "number")
        define(f"X_{name}", place, f"{name}: {COLUMN_PHRASES.get(kind, 'a number')}")
    for name, category in categories.items():
        lines.append(f"/* Codes of {comment_text(name)}; any other number is an unknown level. */")
        for code, level in enumerate(category.levels):
            define(f"CODE_{name}_{level}", code, level)
    if preprocessor.target is not None and preprocessor.classes:
        lines.append("/* Class indices, the targets of rows. */")
        for code, label in enumerate(preprocessor.classes):
            define(f"CLASS_{label}", code, label_text(label))
        if (threshold := model.threshold) is not None:
            lines.append("/* POSITIVE is predicted above the probability THRESHOLD. */")
            define("POSITIVE", threshold.positive)
            define("THRESHOLD", threshold.value)
    elif preprocessor.target is not None:
        lines.append("/* Indices of the targets in y. */")
        for place, (name, about) in enumerate(_meanings(preprocessor.target).items()):
            define(f"Y_{name}", place, about)
    if isinstance(model.task, Regression):
        lines.append("/* Indices of the predictions in out. */")
        for place, name in enumerate(model.task.column_names):
            define(f"OUT_{name}", place, name)
    if preprocessor.options.where is not None:
        lines.append(f"/* Trained on rows with {comment_text(preprocessor.options.where)}. */")
    return "\n".join(lines) + "\n"


def _meanings(target: Target) -> dict[str, str]:
    """Return the names of the numbers in y, and their meanings for a comment."""
    if isinstance(target, TimeTarget):
        (time,) = target.names
        return {
            time: f"{time}: the time of an event; or -low, if the event came after the time low",
            f"{time}_high": "INFINITY, or the latest time of an event after low",
        }
    if isinstance(target, NumberTarget) and target.exposure is not None:
        return {f"{n}_per_{target.exposure}": f"{n} / {target.exposure}" for n in target.columns}
    return {name: name for name in target.columns}
