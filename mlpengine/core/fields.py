"""Options of classes, with limits and descriptions in their annotations.

An option is a field of a dataclass, or a keyword-only parameter of a constructor, such as
``delta: Annotated[Positive, "Where it turns linear."] = 1.0``.  `check_options` checks the options
of a new object.  `options_of` lists the options of a class for configs, the schema of configs and
the reference pages.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from inspect import Parameter, signature
from math import inf
from numbers import Integral, Real
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.wording import plural, quoted


@dataclass(frozen=True)
class Limits:
    """Limits of a number, for the annotation of an option (see `Positive`)."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    whole: bool = False

    def check(self, where: str, value: Any) -> Any:
        """Return `value` as a float (an int if `whole`); raise UsageError if it breaks a limit."""
        kind: Any = Integral if self.whole else Real
        if isinstance(value, kind) and not isinstance(value, bool):
            number = int(value) if self.whole else as_float(value)
            if self._allow(number):
                return number
        hint = ""
        with suppress(ValueError):
            hint = f"; write {where.split()[-1]}={float(value):g}" if isinstance(value, str) else ""
        raise UsageError(f"{where} must be {self} (got {quoted(value)}){hint}")

    def _allow(self, value: Any) -> bool:
        return (
            -inf < value < inf
            and (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and (self.below is None or value < self.below)
            and (self.at_most is None or value <= self.at_most)
        )

    def __str__(self) -> str:
        bounds = {
            "above": self.above,
            "at least": self.at_least,
            "less than": self.below,
            "at most": self.at_most,
        }
        texts = [f"{name} {bound:g}" for name, bound in bounds.items() if bound is not None]
        number = "a whole number" if self.whole else "a finite number"
        bound = (" of " if self.whole else ", ") * bool(texts) + " and ".join(texts)
        return f"{number}{bound}".replace("above 0", "above zero")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of a number with these limits."""
        bounds = {"gt": self.above, "ge": self.at_least, "lt": self.below, "le": self.at_most}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        finite = {} if self.whole else {"allow_inf_nan": False}
        number = {**handler(source), **given, **finite, "strict": True}
        return {"type": "function-before", "function": PLAIN_NUMBER, "schema": number}


PLAIN_NUMBER = {
    "type": "no-info",
    "function": lambda value: value.item() if isinstance(value, np.generic) else value,
}

PLAIN_TYPES: Mapping[Any, tuple[Any, str]] = {
    float: (Real, "a number"),
    int: (Integral, "a whole number"),
    str: (str, "text"),
}
"""Type of the values, and its name in messages, for options that are annotated without limits."""

COUNT = Limits(at_least=1, whole=True)
POSITIVE = Limits(above=0)

Positive: TypeAlias = Annotated[float, POSITIVE]
NonNegative: TypeAlias = Annotated[float, Limits(at_least=0)]
Share: TypeAlias = Annotated[float, Limits(at_least=0, at_most=1)]
Fraction: TypeAlias = Annotated[float, Limits(at_least=0, below=1)]
Count: TypeAlias = Annotated[int, COUNT]


class Given:
    """Annotation of an option that configs do not have: it is rare, or the data determine it."""


@dataclass(frozen=True)
class ConfigKey:
    """Annotation that gives an option the name `name` in config files."""

    name: str


class Option(NamedTuple):
    """An option of a class; `default` is `MISSING` if the option is required."""

    name: str
    type: Any
    default: Any

    @property
    def description(self) -> str:
        """Description of the option: a sentence, or "" if there is none."""
        return next((mark for mark in self._marks if isinstance(mark, str)), "")

    @property
    def given(self) -> bool:
        """Whether config files do not have the option (see `Given`)."""
        return Given in self._marks

    @property
    def key(self) -> str:
        """Name of the option in configs."""
        return next((mark.name for mark in self._marks if isinstance(mark, ConfigKey)), self.name)

    @property
    def plain_type(self) -> Any:
        """Type of the option without limits and description."""
        return get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type

    @property
    def _marks(self) -> tuple[Any, ...]:
        return getattr(self.type, "__metadata__", ())

    def check(self, where: str, value: Any) -> Any:
        """Return `value` converted to the type of the option; raise UsageError if it is invalid."""
        if isinstance(self.default, bool) and not isinstance(value, bool):
            raise UsageError(f"{where} must be True or False (got {quoted(value)})")
        limits = _limits_in(self.type)
        if limits is None and self.plain_type in PLAIN_TYPES:
            kind, text = PLAIN_TYPES[self.plain_type]
            if not isinstance(value, kind) or isinstance(value, bool):
                raise UsageError(f"{where} must be {text} (got {quoted(value)})")
            return as_float(value) if self.plain_type is float else self.plain_type(value)
        if value is None or limits is None:
            return value
        base = _tuple_in(self.type)
        if base is None:
            return limits.check(where, value)
        if isinstance(value, Real) and Ellipsis in get_args(base):
            value = (value,)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        count = None if Ellipsis in get_args(base) else len(get_args(base))
        if not isinstance(value, list | tuple) or len(value) != (count or len(value)):
            wanted = "a sequence of numbers" if count is None else plural(count, "number")
            raise UsageError(f"{where} must be {wanted} (got {quoted(value)})")
        return tuple(limits.check(f"{where}[{k}]", one) for k, one in enumerate(value))


def _limits_in(kind: Any) -> Limits | None:
    """Return the limits in an annotation, even within a union or a tuple; None without limits."""
    marks = (*getattr(kind, "__metadata__", ()), *map(_limits_in, get_args(kind)))
    return next((mark for mark in marks if isinstance(mark, Limits)), None)


def _tuple_in(kind: Any) -> Any:
    """Return the tuple type in an annotation, even within a union; None without a tuple."""
    if get_origin(kind) is tuple:
        return kind
    inner = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
    return next((one for one in map(_tuple_in, inner) if one is not None), None)


def as_float(number: Any) -> float:
    """Return a real number as a float; an integer too large for a float becomes infinite."""
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def options_of(kind: Any) -> Mapping[str, Option]:
    """Return the options of a class by name, in the order of their declaration."""
    return _options_of(kind)


@cache
def _options_of(kind: Any) -> Mapping[str, Option]:
    declared: Iterable[tuple[str, Any, Any]]
    if is_dataclass(kind):
        types = _types_of(kind)
        declared = (
            (
                one.name,
                types[one.name],
                one.default_factory() if callable(one.default_factory) else one.default,
            )
            for one in fields(kind)
            if one.init
        )
    else:
        declared = (
            (one.name, one.annotation, MISSING if one.default is Parameter.empty else one.default)
            for one in _keyword_only(kind).values()
        )
    return {name: Option(name, of, default) for name, of, default in declared}


def _types_of(kind: Any) -> Mapping[str, Any]:
    """Return the annotations of a class, even with ``from __future__ import annotations``."""
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise UsageError(f"{kind.__name__}: annotations of options: {error}; import it") from error


def _keyword_only(kind: type) -> dict[str, Parameter]:
    """Return the keyword-only parameters; ``**others`` adds the parameters of the base class."""
    parameters = signature(kind, eval_str=True).parameters.values()
    own = {one.name: one for one in parameters if one.kind is Parameter.KEYWORD_ONLY}
    if any(one.kind is Parameter.VAR_KEYWORD for one in parameters) and kind.__base__:
        own |= {n: one for n, one in _keyword_only(kind.__base__).items() if n not in own}
    return own


def check_options(owner: Any, where: str = "") -> None:
    """Check the fields of a dataclass against their limits, and convert their values.

    Raises: UsageError; the message begins with `where` or the name of the class.
    """
    where = where or type(owner).__name__
    for name, option in options_of(type(owner)).items():
        value = getattr(owner, name)
        if value is not option.default:
            object.__setattr__(owner, name, option.check(f"{where}: {name}", value))
