"""The preprocessing in ONNX: from the columns of a table to the features of the network."""

import re
from collections.abc import Collection, Mapping
from functools import reduce
from math import nan, pi

import numpy as np

from mlpengine.data.features import Preprocessor
from mlpengine.data.features.bins import Bins
from mlpengine.data.features.categories import Category
from mlpengine.data.features.computed import ComputedColumn
from mlpengine.data.features.numbers import Numbers
from mlpengine.data.features.sources import PERIODS, Source
from mlpengine.data.features.thresholds import CLIP, CLIPPED_FROM
from mlpengine.export._onnx_feed import numeric_levels
from mlpengine.export._onnx_graph import Graph
from mlpengine.formula import onnx_node, variable, where

FLOAT32_ONLY = ("Erf", "Softplus")
"""Operators that onnxruntime has only for float32."""


def write_preprocessing(graph: Graph, preprocessor: Preprocessor) -> str:
    """Add an input for each column and the nodes of the features; return float32 (rows, features).

    Inputs of numbers, booleans (0 and 1), dates (seconds since 1970, UTC) and numeric categories
    are float64, with NaN for missing values.  Other categories are texts; texts that count as
    missing in tables, such as "NA", count as missing here, too.  The nodes repeat the operations of
    the preprocessor one by one.
    """
    numbers = preprocessor.fitted_numbers
    texts = {c.column for c in preprocessor.categories if numeric_levels(c) is None}
    for name in preprocessor.columns:
        graph.input(name, "string" if name in texts else "float64", 1)
    computed: dict[str, str] = {}
    for column in preprocessor.computed:
        computed[column.name] = _computed(graph, column, computed)
    blocks = _numbers(graph, numbers, computed) if numbers.sources else []
    for category in preprocessor.categories:
        blocks += _one_hot(graph, category, preprocessor.options.reading.missing)
    return blocks[0] if len(blocks) == 1 else graph.node("Concat", *blocks, axis=1)


def _computed(graph: Graph, column: ComputedColumn, computed: Mapping[str, str]) -> str:
    """Add a computed column; a value is missing where an operand of the formula is missing."""
    names = {name: computed.get(name, name) for name in column.reads}
    given = {variable(name): value for name, value in names.items()}
    formula = where(column.formula, 1, 0) if column.formula.is_mask else column.formula

    def node(operator: str, *inputs: str) -> str:
        if operator == "Cos":
            return _cosine(graph, *inputs)
        if operator not in FLOAT32_ONLY:
            return graph.node(operator, *inputs)
        return graph.cast(
            graph.node(operator, *(graph.cast(x, "float32") for x in inputs)), "float64"
        )

    values = onnx_node(formula, given, node, lambda number: _wide(graph, number))
    gaps = [graph.node("IsNaN", value) for value in names.values()]
    missing = reduce(lambda a, b: graph.node("Or", a, b), gaps)
    return graph.node("Where", missing, _wide(graph, nan), values)


def _numbers(graph: Graph, numbers: Numbers, computed: Mapping[str, str]) -> list[str]:
    """Return the scaled numbers and, if there are any, features of bins and missing indicators."""
    columns = [_source(graph, source, computed) for source in numbers.sources]
    raw = columns[0] if len(columns) == 1 else graph.node("Concat", *columns, axis=1)
    missing = graph.node("IsNaN", raw)
    filled = graph.node("Where", missing, graph.constant(numbers.fill), raw)
    x = graph.node("Sub", filled, graph.constant(numbers.center))
    x = graph.node("Mul", x, graph.constant(numbers.factor))
    if numbers.clip:
        x = _clipped(graph, x)
    blocks = [graph.cast(x, "float32")]
    if len(numbers.bins):
        blocks.append(graph.cast(_components(graph, numbers.bins, filled), "float32"))
    if numbers.flagged:
        places = graph.constant(np.array(numbers.flagged, np.int64))
        flags = graph.node("Gather", missing, places, axis=1)
        blocks.append(graph.cast(flags, "float32"))
    return blocks


def _components(graph: Graph, bins: Bins, x: str) -> str:
    """Return the features of quantile bins; the nodes repeat the operations of `Bins.encode`."""
    x = graph.node("Gather", x, graph.constant(bins.columns.astype(np.int64)), axis=1)
    x = graph.node("Sub", x, graph.constant(bins.left))
    x = graph.node("Max", x, graph.constant(bins.low))
    x = graph.node("Min", x, graph.constant(bins.high))
    return graph.node("Div", x, graph.constant(bins.width))


def _clipped(graph: Graph, x: str) -> str:
    """Return x / sqrt(1 + (x / CLIP)^2); the nodes repeat the operations of `smooth_clip`."""
    x = graph.node("Clip", x, _wide(graph, -CLIPPED_FROM), _wide(graph, CLIPPED_FROM))
    share = graph.node("Div", x, _wide(graph, CLIP))
    square = graph.node("Mul", share, share)
    length = graph.node("Sqrt", graph.node("Add", square, _wide(graph, 1.0)))
    return graph.node("Div", x, length)


def _source(graph: Graph, source: Source, computed: Mapping[str, str]) -> str:
    """Return an unscaled feature: a column, the time between two dates, or a sine of a date."""
    if source.minus:
        return graph.node("Sub", source.column, source.minus)
    if not source.part:
        return computed.get(source.column, source.column)
    period, wave = source.part.split()
    length, start = (_wide(graph, value) for value in PERIODS[period])
    x = graph.node("Add", source.column, start)
    whole = graph.node("Mul", graph.node("Floor", graph.node("Div", x, length)), length)
    share = graph.node("Div", graph.node("Sub", x, whole), length)
    angle = graph.node("Mul", _wide(graph, 2 * pi), share)
    return graph.node("Sin", angle) if wave == "sin" else _cosine(graph, angle)


def _cosine(graph: Graph, angle: str) -> str:
    """Return the cosine as a shifted sine, because onnxruntime < 1.29 has no float64 cosine."""
    return graph.node("Sin", graph.node("Add", angle, _wide(graph, pi / 2)))


def _one_hot(graph: Graph, category: Category, missing: Collection[str]) -> list[str]:
    """Return features of the levels, unknown levels and, if training had any, missing values."""
    x, numbers = category.column, numeric_levels(category)
    if numbers is not None:
        known = [graph.node("Equal", x, graph.constant(numbers[None, :]))]
        gaps = graph.node("IsNaN", x)
    else:
        known = [_matches(graph, x, [level]) for level in category.levels]
        gaps = _matches(graph, x, sorted({*missing} - {*category.levels}))
    value = graph.constant(np.array(category.value, np.float32))
    hot = [graph.node("Mul", graph.cast(one, "float32"), value) for one in [*known, gaps]]
    others = hot if category.gaps else hot[:-1]
    axis = graph.constant(np.array([1], np.int64))
    none = graph.node("Mul", hot[-1], graph.constant(np.array(0, np.float32)))
    taken = graph.node("ReduceSum", graph.node("Concat", none, *others, axis=1), axis, keepdims=1)
    return [*hot[:-1], graph.node("Sub", value, taken), *others[len(known) :]]


SPACES = r"[\s\x0b\x1c-\x1f\x85\p{Z}]*"
"""Regular expression (RE2) of the characters that `str.strip` removes."""


def _matches(graph: Graph, x: str, texts: Collection[str]) -> str:
    """Return which values of a column are one of `texts`, ignoring spaces around them."""
    any_of = "|".join(map(re.escape, texts))
    return graph.node("RegexFullMatch", x, pattern=f"{SPACES}(?:{any_of}){SPACES}")


def _wide(graph: Graph, value: float) -> str:
    return graph.constant(np.array(value, np.float64))
