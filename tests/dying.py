"""A run that dies while it saves a checkpoint."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mlpengine.training.checkpoint import Checkpoints


@contextmanager
def saving_until(dies: Callable[[int, dict[str, Any]], bool]) -> Iterator[None]:
    """Interrupt the first checkpoint for whose step and state `dies` is true, and all later ones.

    As little is cleaned up as by any exception.
    """
    real = Checkpoints.save

    def save(store, step, state, *args, **options):
        if dies(step, state):
            raise KeyboardInterrupt
        return real(store, step, state, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        yield
