"""What a caller is told who sets an attribute, or gives an argument, that there is not."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, currentframe, getattr_static, signature
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar, Union, get_args, get_origin

import numpy as np

from mlpengine.core.errors import CallError, UsageError
from mlpengine.core.wording import hint, nearest, plural, quoted, suggestion

P = ParamSpec("P")
R = TypeVar("R")

BY_PLACE = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD


class KnownAttributes:
    """Base of classes whose objects refuse attributes that the library does not set itself.

    A class of the caller's own may set what it likes, and so may names with an underscore at either
    end.  An assignment takes several times as long as without the check: what a hot loop writes
    stands in an object of its own.
    """

    _elsewhere: ClassVar[Mapping[str, str]] = {}
    """What a message says of members that objects of other libraries have, by their names."""

    _settable: ClassVar[frozenset[str] | None] = None
    """The attributes that callers may set, besides properties; None for a class with no limit."""

    _known: ClassVar[set[str]]
    """Names of the attributes, of a class with no limit, that have been set before."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let each name of `_elsewhere` be refused with its hint; a ``__getattr__`` slows reads."""
        super().__init_subclass__(**kwargs)
        cls._known = set()
        for name, text in vars(cls).get("_elsewhere", {}).items():
            if isinstance(getattr_static(cls, name, None), _Elsewhere | None):
                setattr(cls, name, _Elsewhere(name, text))

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self)
        if name[0] != "_" and name not in kind._known:
            frame = currentframe()
            caller = frame.f_back if frame else None
            del frame  # which would keep itself, and the caller's objects, in a cycle
            if caller is not None and not _is_ours(caller.f_globals.get("__name__", "")):
                _check_assignment(self, name, value)
            if kind._settable is None:
                kind._known.add(name)
        object.__setattr__(self, name, value)


def _check_assignment(owner: KnownAttributes, name: str, value: Any) -> None:
    """Raise UsageError unless a caller may set the attribute."""
    kind = type(owner)
    if not _is_ours(kind.__module__) or name[-1] == "_":
        return
    has = hasattr(owner, name)
    if kind._settable is not None and name not in kind._settable:
        made_of = name in signature(kind.__init__).parameters or name in vars(owner)
        if made_of and not hasattr(getattr(kind, name, None), "__set__"):
            raise UsageError(_bound_attribute(owner, name, value))
    if not has:
        raise UsageError(_unknown_attribute(owner, name, value))


class _Elsewhere:
    """A member that objects of other libraries have: to read it is an error with a hint."""

    def __init__(self, name: str, hint: str) -> None:
        self._name, self._hint = name, hint

    def __get__(self, owner: object, kind: type) -> NoReturn:
        text = f"{kind.__name__!r} object has no attribute {self._name!r}; {self._hint}"
        raise AttributeError(text, name=self._name, obj=owner)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "mlpengine"


def _bound_attribute(owner: object, name: str, value: Any) -> str:
    """Return the message for an attribute that is read only when the object is made."""
    kind = type(owner)
    option = f" with this {name}" * (name in signature(kind.__init__).parameters)
    text = f"{name} cannot be set afterwards (got {quoted(value)}); make a new {kind.__name__}"
    return f"{kind.__name__}: {text}{option}"


def _unknown_attribute(owner: KnownAttributes, name: str, value: Any) -> str:
    """Return the message, with the nearest attribute of the object or of what it refers to."""
    own = {n: v for n, v in vars(owner).items() if n[0] != "_"}
    within = {f"{n}.{name}": v for n, v in own.items() if isinstance(v, KnownAttributes)}
    elsewhere = type(owner)._elsewhere
    names = [n for n in (*own, *dir(type(owner))) if n[0] != "_" and n not in elsewhere]
    near = next((path for path, part in within.items() if hasattr(part, name)), None)
    hint = f" - did you mean {near!r}?" if near else suggestion(name, names)
    if not near and name in elsewhere:
        hint = f"; {elsewhere[name]}"
    text = f"has no attribute {name!r}, and setting it would change nothing"
    return f"{type(owner).__name__}: {text} (got {quoted(value)}){hint}"


def called_as(example: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: a call whose arguments do not fit is told how it reads.

    In `example` ``{name}`` is the name of the function, or of the class of a method's object.  A
    call costs a little more: hot methods have `needs_arguments`.
    Raises: CallError, from the decorated function, in place of Python's TypeError, or of the error
    of an argument that is not of the class of its annotation.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except CallError:
                raise
            except (TypeError, AttributeError):
                misfit, option = _misfit(function, args, kwargs)
                if not misfit:
                    raise
            name, where = function.__name__, function.__name__
            if owner := _owner(function, args):
                name = owner.__name__
                where = name if where in ("__init__", "__call__") else f"{name}.{where}"
            right = _with_option(example.format(name=name), option)
            raise CallError(f"{where}: {misfit}; write {right}")

        return call

    return decorate


def needs_arguments(example: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator as `called_as` for methods of hot loops, whose calls it does not slow.

    An argument that is left out is an object that raises CallError when it is used first; arguments
    of another class are for the method to refuse, by `refuse_arguments`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known: Any = function
        known.__signature__ = signature(function)
        _, *parameters = known.__signature__.parameters.values()
        required = [p.name for p in parameters if p.default is p.empty]
        called = function.__qualname__.removesuffix(".__call__")
        text = f"{called}: needs {', '.join(required)}; write {example}"
        known.__defaults__ = (*[_LeftOut(text)] * len(required), *(known.__defaults__ or ()))
        known.example = example
        return function

    return decorate


class _LeftOut:
    """What stands for an argument that a call leaves out: any use is refused."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> NoReturn:
        raise CallError(self._text)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise CallError(self._text)


def refuse_arguments(method: Callable[..., Any], *given: Any) -> None:
    """Raise CallError if an argument of a bound method is not of the class of its annotation."""
    if misfit := _odd_kind(method, dict(zip(signature(method).parameters, given, strict=False))):
        owner, example = type(method.__self__), method.example  # type: ignore[attr-defined]
        where = f"{owner.__name__}.{method.__name__}".removesuffix(".__call__")
        raise CallError(f"{where}: {misfit}; write {example}")


def _owner(function: Callable[..., Any], args: Sequence[Any]) -> type | None:
    """Return the class of a method's object, or the object that is a class; None of a function."""
    first = next(iter(signature(function).parameters), "")
    return {"self": type(args[0]), "cls": args[0]}.get(first) if args else None


def _with_option(example: str, option: str) -> str:
    """Return a call, which may be followed by words, with one more argument by name."""
    if not option or f"{option.partition('=')[0]}=" in example:
        return example
    call = re.match(r"[\w.]+\((?:[^()]|\([^()]*\))*(?=\))", example)
    return f"{call[0]}, {option}{example[call.end() :]}" if call else example


def answer_misfits(kinds: Iterable[type], **examples: object) -> None:
    """Let the constructors of classes tell a call whose arguments do not fit what they take.

    They show the default of an option, or its value in `examples`.
    """

    def __init__(self: object) -> None:  # noqa: N807
        """Make one, without options."""

    for kind in kinds:
        own = "__init__" in vars(kind)
        if own or not any("__init__" in vars(one) for one in kind.__mro__[:-1]):
            options = signature(kind).parameters if own else {}  # of `object` it would take 2 ms
            values = {n: examples.get(n, p.default) for n, p in options.items()}
            texts = [n if v is Parameter.empty else f"{n}={v!r}" for n, v in values.items()]
            shown = ", ".join(texts).replace("{", "{{").replace("}", "}}")
            example = f"{{name}}({shown})"
            type.__setattr__(
                kind, "__init__", called_as(example)(vars(kind).get("__init__", __init__))
            )


def _misfit(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[str, str]:
    """Return how arguments do not fit a function, or "", and an option that a right call has."""
    try:
        bound = signature(function).bind(*args, **kwargs)
    except TypeError:
        pass
    else:
        return _odd_kind(function, bound.arguments), ""
    parameters = dict(signature(function).parameters)
    given = args
    if _owner(function, args):
        del parameters[next(iter(parameters))]
        given = args[1:]
    if unknown := [name for name in kwargs if name not in parameters]:
        name, value = unknown[0], kwargs[unknown[0]]
        said = hint(name, parameters)
        near = parameters.get(nearest(name, parameters) or "") if "did you mean" in said else None
        option = _option(near, value) if near else ""
        return f"has no argument {name!r} (got {quoted(value)}){said}", option
    by_place = [n for n, p in parameters.items() if p.kind in BY_PLACE]
    shown = f"(got {', '.join(map(quoted, given)) or 'nothing'})"
    if len(given) > len(by_place):
        count = plural(len(by_place), "argument") if by_place else "no argument"
        return f"takes {count} by place{', '.join(['', *by_place])} {shown}", ""
    options = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
    required = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in options]
    missing = [n for n in required if n not in (*by_place[: len(given)], *kwargs)]
    return (
        f"needs {', '.join(missing)} {shown}" if missing else f"got an argument twice {shown}",
        "",
    )


def _option(near: Parameter, value: Any) -> str:
    """Return an argument as a call has it: with `value` if it can be that, else its default."""
    default = near.default
    if default is near.empty or (default is None and isinstance(value, str)):
        return ""
    fits = default is None or type(value) is type(default)
    if isinstance(value, Real) and value < 0:  # such as n_jobs=-1
        return "" if default is None else f"{near.name}={default!r}"
    return f"{near.name}={quoted(value if fits else default)}"


KINDS: dict[Any, tuple[type, str]] = {
    float: (Real, "a number"),
    int: (Integral, "a whole number"),
    np.ndarray: (np.ndarray, "an array"),
    Mapping: (Mapping, "a mapping"),
    Sequence: (Sequence, "a sequence"),
    NoneType: (NoneType, "None"),
}
"""What an annotation says that an argument must be."""


def _odd_kind(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Return which argument is not of the class of its annotation, or ""."""
    given = [
        (parameter, value)
        for name, several in arguments.items()
        for parameter in [signature(function).parameters[name]]
        for value in (several if parameter.kind is Parameter.VAR_POSITIONAL else [several])
        if parameter.kind is not Parameter.VAR_KEYWORD
    ]
    for parameter, value in given:
        said = parameter.annotation
        several = get_args(said) if get_origin(said) in (Union, UnionType) else [said]
        kinds = [known for one in several if (known := _kind(one))]
        if len(kinds) == len(several) and not isinstance(value, tuple(one for one, _ in kinds)):
            words = " or ".join(words for _, words in kinds)
            return f"{parameter.name} must be {words} (got {quoted(value)})"
    return ""


def _kind(said: Any) -> tuple[type, str] | None:
    """Return the class that an annotation stands for, and words for it; None for other ones."""
    said = said.__bound__ if isinstance(said, TypeVar) else get_origin(said) or said
    if said in KINDS:
        return KINDS[said]
    if isinstance(said, type) and _is_ours(said.__module__):
        return said, f"of the class {said.__name__}"
    return None
