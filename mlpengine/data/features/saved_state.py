"""The structure of a preprocessor's saved state, checked because files may be wrong."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from mlpengine.core.errors import CheckpointError
from mlpengine.core.wording import quoted
from mlpengine.data.features.column_kinds import FeatureKind
from mlpengine.data.features.computed import FormulaColumn
from mlpengine.data.features.options import Options
from mlpengine.data.features.sources import DATE_PARTS
from mlpengine.data.features.summary import SummaryState, check_summary
from mlpengine.data.features.targets import Label
from mlpengine.settings.structure import conform

STATE_VERSION = 1
"""The only version of saved states that can be read."""


class NumbersState(TypedDict):
    """The result of `Numbers.state_dict`."""

    sources: list[tuple[str, str, str]]
    center: list[float]
    factor: list[float]
    fill: list[float]
    flagged: list[int]
    strict: bool
    clip: bool
    edges: list[list[float]]


class CategoryState(TypedDict):
    """The result of `Category.state_dict`."""

    column: str
    levels: list[str]
    gaps: bool
    strict: bool
    text: bool
    value: float


class ClassState(TypedDict):
    """The result of `ClassTarget.state_dict`."""

    task: Literal["classification"]
    columns: tuple[str]
    classes: list[Label]


class NumberState(TypedDict):
    """The result of `NumberTarget.state_dict`."""

    task: Literal["regression"]
    columns: list[str]
    center: list[float]
    scale: list[float]
    bounds: NotRequired[tuple[list[float], list[float]]]
    log: NotRequired[Literal[True]]
    exposure: NotRequired[str]


class TimeState(TypedDict):
    """The result of `TimeTarget.state_dict`."""

    task: Literal["survival"]
    columns: list[str]
    center: tuple[float]
    scale: tuple[float]
    event: str | None


class MultiLabelState(TypedDict):
    """The result of `MultiLabelTarget.state_dict`."""

    task: Literal["multilabel"]
    columns: list[str]


class PreprocessorState(TypedDict):
    """The result of `Preprocessor.state_dict`."""

    version: int
    options: Options
    kinds: dict[str, FeatureKind]
    numbers: NumbersState
    categories: list[CategoryState]
    target: ClassState | NumberState | TimeState | MultiLabelState | None
    reads: list[str]
    operands: dict[str, FormulaColumn]
    summary: SummaryState


def checked_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check the structure of a preprocessor's state and whether its parts agree; return the state.

    In files, `features`, `kinds` and `operands` are lists of pairs, because files do not keep the
    order of mappings.  In the returned state, these lists are mappings.
    """
    if isinstance(state, dict) and state.get("version") != STATE_VERSION:
        raise CheckpointError(
            f"preprocessing: must be of version {STATE_VERSION} "
            f"(got {quoted(state.get('version'))})"
        )
    if isinstance(state, dict) and isinstance(options := state.get("options"), dict):
        features = _in_order(options.get("features"))
        ordered = {name: _in_order(state.get(name)) for name in ("kinds", "operands")}
        state = {**state, **ordered, "options": {**options, "features": features}}
    conform(state, PreprocessorState, "preprocessing")
    kinds, target = state["kinds"], state["target"]
    _check_numbers(state["numbers"], kinds)
    encoded = [category["column"] for category in state["categories"]]
    _demand(
        sorted(encoded) == sorted(name for name, kind in kinds.items() if kind == "category"),
        "categories must be the columns of kind category",
    )
    if target is not None:
        _check_target(target, kinds)
    levels = {category["column"]: len(category["levels"]) for category in state["categories"]}
    check_summary(state["summary"], levels, list(kinds))
    computed = state["options"]["features"]
    _demand(
        all(kinds.get(name, "number") in ("number", "integer", "empty") for name in computed),
        "options.features must be columns of numbers",
    )
    return state


def _in_order(pairs: Any) -> Any:
    """Return pairs of a name and a value as a mapping; return anything else unchanged."""
    if isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs):
        return {str(name): value for name, value in pairs}
    return pairs


def _check_numbers(numbers: NumbersState, kinds: Mapping[str, FeatureKind]) -> None:
    sources, edges = numbers["sources"], numbers["edges"]
    of_each = [numbers["center"], numbers["factor"], numbers["fill"], edges or sources]
    _demand({*map(len, of_each)} == {len(sources)}, "numbers must have an entry for each source")
    _demand(
        all(len(each) != 1 and all(a < b for a, b in pairwise(each)) for each in edges),
        "numbers.edges must be increasing numbers, at least two (or no edges)",
    )
    for column, part, minus in sources:
        dates = (not part or part in DATE_PARTS) and (not minus or kinds.get(minus) == "date")
        plain = not part and not minus
        _demand(
            column in kinds and (plain or (kinds[column] == "date" and dates)),
            f"numbers.sources must be columns or parts of dates ({(column, part, minus)})",
        )
    usable = {name for name, kind in kinds.items() if kind not in ("category", "text", "mixed")}
    _demand(
        {source[0] for source in sources} == usable
        and not any(kind in ("text", "mixed") for kind in kinds.values()),
        "numbers.sources and categories must be the columns in kinds",
    )
    _demand(
        all(0 <= number < len(sources) for number in numbers["flagged"]),
        "numbers.flagged must be indices of sources",
    )


def _check_target(target: Mapping[str, Any], kinds: Mapping[str, FeatureKind]) -> None:
    columns = target["columns"]
    _demand(
        bool(columns) and not kinds.keys() & {*columns},
        "target.columns must name columns that are not features",
    )
    if target["task"] == "classification":
        labels = [str(label) for label in target["classes"]]
        _demand(len({*labels}) == len(labels) > 1, "target.classes must be two or more")
    elif target["task"] in ("regression", "survival"):
        low, high = target.get("bounds", (target["center"],) * 2)
        is_pair = target["task"] == "survival" and target["event"] is None
        _demand(len(columns) == 2 or not is_pair, "target.columns must be two bounds")
        _demand(
            len(
                {
                    len(one)
                    for one in (columns[is_pair:], target["center"], target["scale"], low, high)
                }
            )
            == 1,
            "target.center, target.scale and target.bounds must have an entry for each column",
        )
        _demand(
            min(target["scale"]) > 0.0 and (not target.get("log") or "bounds" in target),
            "target.scale must be positive, and target.log needs target.bounds",
        )


def _demand(true: bool, text: str) -> None:
    if not true:
        raise CheckpointError(f"preprocessing: {text}")
