"""Conversion of nested state to named arrays and JSON; files of a training step."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.core.errors import CheckpointError, NumericalError
from mlpengine.core.spec import Array
from mlpengine.core.wording import differing, quoted
from mlpengine.nn.network import Network
from mlpengine.nn.safetensors_file import read_tensors, write_tensors
from mlpengine.nn.saving import NETWORK_KEY
from mlpengine.optim import Optimizer

_ARRAY, _FLOAT = "$array", "$float"


@contextmanager
def restoring() -> Iterator[None]:
    """Turn KeyError, TypeError and similar errors in this context into CheckpointError."""
    try:
        yield
    except (CheckpointError, NumericalError):
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        cause = f"it has no {error}" if isinstance(error, KeyError) else repr(error)
        raise CheckpointError(f"checkpoint: does not fit this run ({cause})") from error


def pack(tree: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays in `tree` by name, such as "optimizer.m", and the rest as JSON data."""
    arrays: dict[str, Array] = {}

    def plain(value: Any, name: str) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(below, f"{name}.{key}") for key, below in value.items()}
        if isinstance(value, list | tuple):
            return [plain(below, f"{name}.{i}") for i, below in enumerate(value)]
        if isinstance(value, np.ndarray):
            arrays[name] = value
            return {_ARRAY: name}
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not isfinite(value):
            return {_FLOAT: str(value)}
        return value

    return arrays, {key: plain(value, key) for key, value in tree.items()}


def unpack(arrays: Mapping[str, Array], plain: Any) -> Any:
    """Return the tree passed to `pack`.  Raises: CheckpointError if an array is missing."""
    if isinstance(plain, list):
        return [unpack(arrays, below) for below in plain]
    if not isinstance(plain, dict):
        return plain
    if plain.keys() == {_FLOAT}:
        with restoring():
            return float(plain[_FLOAT])
    if plain.keys() == {_ARRAY}:
        if not isinstance(plain[_ARRAY], str) or plain[_ARRAY] not in arrays:
            raise CheckpointError(f"checkpoint: the array {plain[_ARRAY]!r} is missing")
        return arrays[plain[_ARRAY]]
    return {key: unpack(arrays, below) for key, below in plain.items()}


def _check(state: Mapping[str, Any], params: Iterable[str]) -> None:
    """Raise CheckpointError unless `state` has the weights of a `TrainingStep.state_dict`."""
    if not isinstance(state, Mapping) or "weights" not in state:
        given = quoted(state)
        if isinstance(state, Mapping):
            own = state.keys() <= {*params}
            given = "a network's state" if own else f"the keys {', '.join(map(repr, state))}"
        raise CheckpointError(
            f"training step: state must come from step.state_dict() (got {given:.100}); "
            "write mlp.load_state_dict(state) for weights alone"
        )


def set_state(
    state: Mapping[str, Any], before: Mapping[str, Any], mlp: Network, optimizer: Optimizer
) -> None:
    """Set a step's weights, dropout seed and optimizer; after an error, restore `before`."""
    try:
        _set(state, mlp, optimizer)
    except CheckpointError:
        _set(before, mlp, optimizer)
        raise


def _set(state: Mapping[str, Any], mlp: Network, optimizer: Optimizer) -> None:
    with restoring():
        _check(state, mlp.params.views)
        mlp.load_state_dict(state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        mlp.rng.seed = state["dropout"]["seed"]


def save_step(path: str | Path, mlp: Network, state: Mapping[str, Any]) -> None:
    """Write the state of a step to a safetensors file, atomically."""
    arrays, plain = pack(state)
    write_tensors(path, arrays, {"step": plain, NETWORK_KEY: mlp.to_dict()})


def load_step(path: str | Path, mlp: Network, load: Callable[[Any], None]) -> None:
    """Read a file of `save_step`, and call `load` with the state."""
    arrays, header = read_tensors(path)
    if "step" not in header:
        raise CheckpointError(
            f"{path}: must be written by TrainingStep.save; Mlp.load and mlpengine.load read models"
        )
    own, saved = differing(mlp.to_dict(), header.get(NETWORK_KEY))
    if own != saved:
        raise CheckpointError(f"{path}: must be of the same network (got {saved}, not {own})")
    try:
        load(unpack(arrays, header["step"]))
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
