"""Old names, which are accepted with a warning."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar
from warnings import warn

P = ParamSpec("P")
R = TypeVar("R")


def renamed_argument(old: str, new: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that accepts the keyword argument `new` under its old name, too."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def accept(*args: P.args, **kwargs: P.kwargs) -> R:
            if old in kwargs:
                if new in kwargs:
                    raise TypeError(f"{old} is the old name of {new}; give one of them")
                warn(f"{old} is called {new} now", DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return accept

    return decorate
