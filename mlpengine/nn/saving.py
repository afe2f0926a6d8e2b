"""Files of networks.  They hold the class's name, its settings and parameters, but no code."""

import logging
from collections.abc import Mapping
from inspect import Parameter, signature
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from mlpengine.core.errors import CheckpointError, MlpEngineError, UsageError
from mlpengine.core.spec import Array, ArrayLike
from mlpengine.core.structure import check_keys, of_type
from mlpengine.core.wording import quoted
from mlpengine.nn.safetensors_file import check_finite, read_tensors, write_tensors
from mlpengine.tape.flat import Flat

_log = logging.getLogger("mlpengine")

NETWORK_KEY = "network"
"""Key of a network's class and settings in the header of a file."""

_REFUSALS = (MlpEngineError, TypeError, ValueError, LookupError, ArithmeticError, MemoryError)
"""Errors that a constructor may raise for wrong settings."""


class _Unsaved(NamedTuple):
    """A placeholder for a value that JSON cannot hold; `text` describes the value."""

    text: str


class Saved:
    """Base of networks: files describe a network by its class and constructor arguments."""

    __slots__ = ("__weakref__", "_arguments", "_expected", "_made_with", "params")

    params: Flat

    _made_with: tuple[tuple[Any, ...], dict[str, Any]]
    _arguments: tuple[list[Any], dict[str, Any]]
    """The constructor's arguments as JSON-able data, copied before ``__init__`` runs."""
    _expected: Mapping[str, Array] | None
    """Parameters from a file.  The constructor compares shapes before it allocates memory."""

    def __new__(cls, *args: Any, **named: Any) -> Self:
        """Return an object that keeps its arguments; ``__init__`` fills it."""
        network = super().__new__(cls)
        network._made_with = args, named
        network._arguments, network._expected = (_plain(args), _plain(named)), None
        return network

    def like(self, **changes: Any) -> Self:
        """Return a new network with the arguments of this one, except for `changes`.

        The new network draws new initial values.  The same parameters are frozen.
        Raises: UsageError for an argument that the class does not take.
        """
        kind, (args, named) = type(self), self._made_with
        bound = signature(kind.__init__).bind(self, *args, **named)
        kinds = {name: p.kind for name, p in bound.signature.parameters.items()}
        other = next((n for n, k in kinds.items() if k is Parameter.VAR_KEYWORD), None)
        for name, value in changes.items():
            if name in kinds:
                bound.arguments[name] = value
            elif other is not None:
                bound.arguments[other] = {**bound.arguments.get(other, {}), name: value}
            else:
                raise UsageError(
                    f"{kind.__name__}: must take {name}; write __init__(self, ..., **options), and "
                    "super().__init__(..., **options)"
                )
        network = kind(*bound.args[1:], **bound.kwargs)
        network.params.frozen = self.params.frozen
        return network

    def describe(self) -> Mapping[str, Any]:
        """Return class and settings as JSON-able data, from which `restored` makes a network.

        The settings are the constructor's arguments, including defaults.
        Raises: UsageError for an argument that no file can hold.
        """
        name, (args, named) = type(self).__name__, self._arguments
        form = signature(type(self))
        unnamed = Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY
        if lost := [p.name for p in form.parameters.values() if p.kind in unnamed]:
            raise UsageError(
                f"{name}.save: needs a constructor with named arguments ({', '.join(lost)} must "
                "not be positional-only or *args)"
            )
        bound = form.bind(*args, **named)
        bound.apply_defaults()
        settings: dict[str, Any] = {}
        for parameter in form.parameters.values():
            value = _plain(bound.arguments[parameter.name])
            several = parameter.kind is Parameter.VAR_KEYWORD
            settings |= value if several else {parameter.name: value}
        for key, value in settings.items():
            if unsaved := _unsaved(value):
                raise UsageError(
                    f"{name}.save: {key} must be a number, a text, or a list or mapping of these "
                    f"(got {unsaved}); save network.state_dict() instead"
                )
        return {"name": name, "settings": settings}

    @classmethod
    def restored(cls, description: Mapping[str, Any], state: Mapping[str, Array]) -> Self:
        """Return the network of `description`, with the parameters `state`.

        Raises: CheckpointError for another class, for settings that the constructor refuses, or for
        parameters with other names or shapes.
        """
        check_keys(description, "network", ("name", "settings"))
        name = of_type(description["name"], str, "network.name")
        settings = of_type(description["settings"], dict, "network.settings")
        if name != cls.__name__:
            raise CheckpointError(f"holds a network of the class {name}; write {name}.load(path)")
        try:
            arguments = cls._constructed(settings)
            network = cls.__new__(cls, **arguments)
            network._expected = state
            network.__init__(**arguments)  # type: ignore[misc]
        except CheckpointError:
            raise
        except _REFUSALS as error:
            given = ", ".join(f"{key}={value!r}" for key, value in settings.items())
            text = f"{name} must take the settings of the file"
            raise CheckpointError(f"{text} ({given:.200}): {error}") from error
        network.load_state_dict(state)
        return network

    if TYPE_CHECKING:

        def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None: ...

    @classmethod
    def _constructed(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the constructor's arguments for the settings of a file."""
        return settings

    def save(self, path: str | Path) -> None:
        """Write class, settings and parameters to a safetensors file, atomically.

        Raises: UsageError for an argument that no file can hold.
        """
        write_tensors(path, self.params.views, {NETWORK_KEY: self.describe()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the network in a file that `save` wrote, or the network of a saved model.

        Raises: CheckpointError for another class, other settings or shapes, or a damaged file.
        """
        arrays, header = read_tensors(path)
        if "step" in header:
            raise CheckpointError(f"{path}: holds a training step; write step.load({str(path)!r})")
        if NETWORK_KEY not in header:
            raise CheckpointError(
                f"{path}: must describe a network (its header has no key {NETWORK_KEY!r})"
            )
        try:
            network = cls.restored(header[NETWORK_KEY], arrays)
        except MlpEngineError as error:
            raise CheckpointError(f"{path}: {error}") from error
        check_finite(arrays, path)
        if "preprocessing" in header:
            _log.warning(
                "warning: %s: holds a model; %s.load reads only its network; mlpengine.load also "
                "reads the preprocessing",
                path,
                cls.__name__,
            )
        return network


def _plain(value: Any) -> Any:
    """Return a value as JSON data; an `_Unsaved` replaces a part that JSON cannot hold."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.dtype) or value is float:
        return np.dtype(value).name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, _Unsaved) or value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(one) for key, one in value.items()}
    return _Unsaved(quoted(value))


def _unsaved(value: Any) -> str:
    """Return the text of the first `_Unsaved` in `value`, or ""."""
    if isinstance(value, _Unsaved):
        return value.text
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, map(_unsaved, parts)), "")
