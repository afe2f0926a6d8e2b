"""What a caller is told who sets an attribute, or gives an argument, that there is not."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, currentframe, signature
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar

from mlpengine.common.wording import plural, suggestion
from mlpengine.errors import CallError, UsageError

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
        for name, hint in vars(cls).get("_elsewhere", {}).items():
            setattr(cls, name, _Elsewhere(name, hint))

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self)
        if name[0] != "_" and name not in kind._known:
            frame = currentframe()
            caller = frame and frame.f_back
            if caller is not None and not _is_ours(caller.f_globals["__name__"]):
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

    In `example` ``{name}`` is the name of the function, or of the class of a method's object.
    Raises: CallError, from the decorated function, in place of Python's TypeError.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError:
                misfit = _misfit(function, args, kwargs)
                if not misfit:
                    raise
            name, where = function.__name__, function.__name__
            if "self" in signature(function).parameters:
                name = type(args[0]).__name__
                where = name if function.__name__ == "__init__" else f"{name}.{where}"
            raise CallError(f"{where}: {misfit}; write {example.format(name=name)}")

        return call

    return decorate


def answer_misfits(kinds: Iterable[type]) -> None:
    """Let the constructors of classes tell a call whose arguments do not fit what they take."""

    def __init__(self: object) -> None:  # noqa: N807
        """Make one, without options."""

    for kind in kinds:
        if "__init__" in vars(kind) or not any(
            "__init__" in vars(one) for one in kind.__mro__[:-1]
        ):
            options = [*signature(kind).parameters.values()]
            texts = [
                one.name if one.default is one.empty else f"{one.name}={one.default!r}"
                for one in options
            ]
            shown = ", ".join(texts).replace("{", "{{").replace("}", "}}")
            example = f"{{name}}({shown})"
            type.__setattr__(
                kind, "__init__", called_as(example)(vars(kind).get("__init__", __init__))
            )


def _misfit(function: Callable[..., Any], args: Any, kwargs: Any) -> str:
    """Return how the arguments do not fit the signature of a function, or ""."""
    try:
        signature(function).bind(*args, **kwargs)
    except TypeError:
        pass
    else:
        return ""
    parameters = {n: p for n, p in signature(function).parameters.items() if n != "self"}
    given = args[1:] if "self" in signature(function).parameters else args
    if unknown := [name for name in kwargs if name not in parameters]:
        near = suggestion(unknown[0], parameters)
        return f"has no argument {unknown[0]!r} (got {quoted(kwargs[unknown[0]])}){near}"
    by_place = [n for n, p in parameters.items() if p.kind in BY_PLACE]
    shown = f"(got {', '.join(map(quoted, given)) or 'nothing'})"
    if len(given) > len(by_place):
        names = ", ".join(by_place)
        return f"takes {plural(len(by_place), 'argument')} by place, {names} {shown}"
    options = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
    required = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in options]
    missing = [n for n in required if n not in (*by_place[: len(given)], *kwargs)]
    return f"needs {', '.join(missing)} {shown}" if missing else f"got an argument twice {shown}"


def quoted(value: object) -> str:
    """Return a value as a message quotes it: an array by dtype and shape, a class by its name."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(shape := getattr(value, "shape", None), tuple):
        return f"{type(value).__name__} {getattr(value, 'dtype', '')}{[*shape]}"
    text, name = repr(value), type(value).__name__
    if len(text) <= 60:
        return text
    return f"{name}(...)" if text.startswith(f"{name}(") else f"{name} {text[:40]}..."
