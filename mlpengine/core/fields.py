"""Options of classes: the type, limits, default and description of each, declared once.

An option is a field of a dataclass, or a keyword-only parameter of a constructor.  Its type has its
limits (`annotated_types`); its description stands in the docstring, under ``Args:``.  Constructors
check options by `check_fields` and `fitting`; configs, their schema, reference pages and estimators
are made from `options_of`.
"""

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from inspect import Parameter, cleandoc, signature
from math import inf, isfinite
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Len, Lt

from mlpengine.core.errors import UsageError
from mlpengine.core.wording import plural, suggestion

Positive: TypeAlias = Annotated[float, Gt(0)]
NonNegative: TypeAlias = Annotated[float, Ge(0)]
Share: TypeAlias = Annotated[float, Ge(0), Le(1)]
Fraction: TypeAlias = Annotated[float, Ge(0), Lt(1)]
Count: TypeAlias = Annotated[int, Ge(1)]


class Given:
    """Marks an option that follows from the rows or the step, which no config or estimator has."""


@dataclass(frozen=True)
class ConfigKey:
    """Gives an option another name in configs than its class has for it."""

    name: str


@dataclass(frozen=True, eq=False)
class OneOf:
    """Limits a text to `names`, which may be a registry, or to what `others` does not refuse.

    `others` raises UsageError for a text that is wrong.  A registry that nothing has filled yet,
    as the module is not imported that does, refuses nothing.
    """

    names: Collection[str]
    others: Callable[[str], object] | None = None

    def __call__(self, text: str) -> str:
        """Return the text.  Raises: UsageError saying what it must be."""
        if text not in self.names and self.names:
            if self.others is None or text.replace("-", "_").isidentifier():
                known = ", ".join(self.names)
                near = suggestion(text, self.names)
                raise UsageError(f"must be one of {known} (got {text!r}){near}")
            self.others(text)
        return text


class Option(NamedTuple):
    """An option of a class; `default` is `MISSING` where it must be given."""

    name: str
    type: Any
    default: Any
    description: str

    @property
    def given(self) -> bool:
        """Whether the option follows from the rows or the step."""
        return Given in getattr(self.type, "__metadata__", ())

    @property
    def key(self) -> str:
        """The name of the option in configs."""
        marks = getattr(self.type, "__metadata__", ())
        return next((one.name for one in marks if isinstance(one, ConfigKey)), self.name)


def options_of(kind: Any) -> Mapping[str, Option]:
    """Return the options of a class by name, in the order of their declaration."""
    return _options_of(kind)


@cache
def _options_of(kind: Any) -> Mapping[str, Option]:
    texts = descriptions(kind)
    declared: Iterable[tuple[str, Any, Any]]
    if is_dataclass(kind):
        declared = (
            (
                one.name,
                one.type,
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
    return {name: Option(name, of, default, texts.get(name, "")) for name, of, default in declared}


def _keyword_only(kind: type) -> dict[str, Parameter]:
    """Return the keyword-only parameters of a constructor; with ``**others`` its base's, too."""
    parameters = signature(kind).parameters.values()
    own = {one.name: one for one in parameters if one.kind is Parameter.KEYWORD_ONLY}
    if any(one.kind is Parameter.VAR_KEYWORD for one in parameters) and kind.__base__:
        own |= {n: one for n, one in _keyword_only(kind.__base__).items() if n not in own}
    return own


def descriptions(kind: type) -> dict[str, str]:
    """Return the sentences under ``Args:`` in the docstrings of a class and its bases, by name."""
    known: dict[str, str] = {}
    for one in kind.__mro__:
        _, _, args = cleandoc(vars(one).get("__doc__") or "").partition("\nArgs:\n")
        for name, text in re.findall(r"^    (\w+): (.*(?:\n      .*)*)", args, re.MULTILINE):
            known.setdefault(name, " ".join(text.split()))
    return known


def summary(kind: type) -> str:
    """Return the first sentence of the docstring of a class."""
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


class Checked:
    """Base of frozen dataclasses whose fields are checked, and written in one form, when made."""

    def __post_init__(self) -> None:
        check_fields(self)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what is wrong between fields, each with the name of one of them."""
        yield from ()


def check_fields(owner: Any, where: str = "") -> None:
    """Check the fields of a dataclass against their types and limits, and each other.

    Raises: UsageError, led by `where` or the name of the class.
    """
    where = where or type(owner).__name__
    for name, option in options_of(type(owner)).items():
        value = getattr(owner, name)
        if value is not option.default:
            default = MISSING if option.given else option.default
            fit = fitting(f"{where}: {name}", option.type, value, default)
            object.__setattr__(owner, name, fit)
    if isinstance(owner, Checked):
        for name, text in owner.problems():
            raise UsageError(f"{where}: {name}: {text}")


def fitting(where: str, kind: Any, value: Any, default: Any = MISSING) -> Any:
    """Return a value in the form of a type: a float for a whole number, a tuple for a list.

    Raises: UsageError, led by `where`, for a value that the type or its limits refuse; it shows
        `default` as a value that fits.
    """
    try:
        return _fitting(kind, value)
    except _Misfit as error:
        name = where.rpartition(": ")[2]
        hint = "" if default in (MISSING, None, ()) else f"; write {name}={default!r}, say"
        if isinstance(value, str) and "number" in error.text:
            with suppress(ValueError):
                hint = f"; write {name}={float(value):g}"
            base = get_args(kind)[0] if get_origin(kind) is Annotated else kind
            if get_origin(base) is tuple and re.fullmatch(r"[1-9]\d*([, ]+\d+)+", value):
                hint = f"; write {name}=[{', '.join(re.findall('[0-9]+', value))}]"
        raise UsageError(f"{where}{error.at} {error.text}{hint}") from None


class _Misfit(Exception):  # noqa: N818
    """What a value must be, and the place of the wrong one within it."""

    def __init__(self, text: str, at: str = "") -> None:
        self.text, self.at = text, at


def _fitting(kind: Any, value: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        fit = _fitting(args[0], value) if get_args(args[0]) else _plain(kind, args[0], value)
        for limit in args[1:]:
            _check_limit(kind, limit, fit)
        return fit
    if origin in (Union, UnionType):
        return _of_several(kind, args, value)
    if origin is tuple:
        return _sequence(kind, args, value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _misfit(kind, value)
        return {key: _within(args[1], one, f"[{key!r}]") for key, one in value.items()}
    return _plain(kind, kind, value)


def _plain(kind: Any, base: Any, value: Any) -> Any:
    """Return a value of a type without parts; `kind` is the type with its limits."""
    number = not isinstance(value, bool)
    match base:
        case _ if base is float and number and isinstance(value, Real) and isfinite(value):
            return float(value)
        case _ if base is int and number and isinstance(value, Integral):
            return int(value)
        case _ if base is bool and isinstance(value, bool):
            return value
        case _ if get_origin(base) is Literal:
            good = any(value == one and type(value) is type(one) for one in get_args(base))
        case _ if get_origin(base) is not None:  # a function
            good = callable(value)
        case _:
            plain = base in (float, int, bool)
            good = base is Any or (not plain and isinstance(value, base or NoneType))
    if not good:
        raise _misfit(kind, value)
    return value


def _of_several(kind: Any, args: tuple[Any, ...], value: Any) -> Any:
    """Return a value of one of several types; that of a text says what is wrong with it."""
    for one in args:
        try:
            return _fitting(one, value)
        except _Misfit as error:
            if error.at or (isinstance(value, str) and "must be one of" in error.text):
                raise
    raise _misfit(kind, value)


def _sequence(kind: Any, args: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    single = isinstance(value, str) or not hasattr(value, "__iter__")
    if args[-1] is Ellipsis:
        if single:
            return (_fitting(args[0], value),)
        return tuple(_within(args[0], one, f"[{k}]") for k, one in enumerate(value))
    items = [] if single else [*value]
    if len(items) != len(args):
        raise _misfit(kind, value)
    return tuple(_within(args[k], one, f"[{k}]") for k, one in enumerate(items))


def _within(kind: Any, value: Any, at: str) -> Any:
    try:
        return _fitting(kind, value)
    except _Misfit as error:
        raise _Misfit(error.text, at + error.at) from None


def _misfit(kind: Any, value: Any) -> _Misfit:
    names = [one for one in get_args(kind) if isinstance(one, str)]
    near = suggestion(value, names) if get_origin(kind) is Literal else ""
    return _Misfit(f"must be {expected(kind)} (got {value!r}){near}")


LIMITS = {
    Ge: ("ge", operator.ge, "at least {:g}"),
    Gt: ("gt", operator.gt, "above {:g}"),
    Le: ("le", operator.le, "at most {:g}"),
    Lt: ("lt", operator.lt, "less than {:g}"),
}
"""The limits of numbers: the name of the bound, when a number is within, and words."""


def _check_limit(kind: Any, limit: Any, value: Any) -> None:
    good = True
    if type(limit) in LIMITS:
        name, within, _ = LIMITS[type(limit)]
        good = within(value, getattr(limit, name))
    elif isinstance(limit, Len):
        longest = inf if limit.max_length is None else limit.max_length
        good = limit.min_length <= len(value) <= longest
    elif callable(limit) and not isinstance(limit, type):
        try:
            limit(value)
        except UsageError as error:
            raise _Misfit(str(error)) from None
    if not good:
        raise _misfit(kind, value)


def expected(kind: Any) -> str:
    """Return what a value of a type must be, such as "a whole number, at least 1"."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        texts = [text for limit in args[1:] if (text := _limit_text(limit))]
        joint = " of " if args[0] is int else ", "
        return joint.join([expected(args[0]), *([" and ".join(texts)] if texts else [])])
    if origin in (Union, UnionType):
        return " or ".join(expected(one) for one in args)
    if origin is Literal:
        listed = ", ".join(map(str, args))
        return f"one of {listed}" if len(args) > 1 else listed
    if origin is tuple:
        if args[-1] is Ellipsis:
            return f"a sequence, each {expected(args[0])}"
        return f"{plural(len(args), 'value')}, each {expected(args[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a mapping"
    if origin is not None:
        return "a function"
    words = {float: "a finite number", int: "a whole number", bool: "True or False", str: "a text"}
    return "None" if kind in (None, NoneType) else words.get(kind, kind.__name__)


def _limit_text(limit: Any) -> str:
    """Return a limit in words; "" for a function."""
    if type(limit) in LIMITS:
        name, _, words = LIMITS[type(limit)]
        return "above zero" if limit == Gt(0) else words.format(getattr(limit, name))
    if not isinstance(limit, Len):
        return ""
    shortest, longest = limit.min_length, limit.max_length
    return f"{f'at least {shortest}' if longest is None else f'{shortest} to {longest}'} of them"
