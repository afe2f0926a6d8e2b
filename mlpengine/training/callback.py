"""Callbacks of a training loop."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from mlpengine.core.errors import UsageError
from mlpengine.core.wording import quoted, suggestion
from mlpengine.settings import EarlyStopping
from mlpengine.training.history import EpochRow

if TYPE_CHECKING:
    from mlpengine.training.loop import Loop, Result


class SkipBudget(NamedTuple):
    """Number of `steps` without a callback; a gradient norm above `norm` ends them early."""

    steps: float = inf
    norm: float = inf


class Callback:
    """Base class of the callbacks of a `Loop`.  A hook that is not overridden takes no time.

    The hooks are named as in PyTorch Lightning.  `on_train_start` is called first; in each epoch
    `on_train_batch_end` after each step and `on_train_epoch_end` after validation; then
    `on_train_end`, and last `on_fit_end`, or `on_exception` if the run failed.

    If a callback overrides `state_dict` and `load_state_dict`, checkpoints store its state under
    its `name`; the state is loaded before `on_train_start`.

    Attributes:
        name: key of the state in checkpoints; by default the name of the class.
        order: callbacks with a lower number are called first, equal numbers in the order given.
        watches_first: of several networks, whether the hooks of steps are called for the first one,
            perhaps in another thread; else they are not called.

    Raises: UsageError if a subclass defines a method ``on_...`` that is not a hook.
    """

    name: ClassVar[str] = ""
    order: ClassVar[int] = 0
    watches_first: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for attribute in dir(cls):
            if attribute.startswith("on_") and attribute not in HOOKS:
                near = suggestion(attribute, HOOKS)
                raise UsageError(f"{cls.__name__}: Callback has no hook {attribute!r}{near}")

    def on_train_start(self, loop: "Loop") -> None:
        """Called once, after a state was loaded and before the first step."""

    def on_train_batch_end(self, loop: "Loop") -> None:
        """Called after each step that is not skipped by `skip_budget`."""

    def on_steps_skipped(self, loop: "Loop", norms: list[float]) -> None:
        """Called after steps without `on_train_batch_end`, with their gradient norms."""

    def on_train_epoch_end(self, loop: "Loop", row: EpochRow) -> None:
        """Called after each whole epoch and its validation; `row` holds the measurements."""

    def on_train_end(self, loop: "Loop") -> None:
        """Called after the last step, also after an error; networks hold the last weights."""

    def on_exception(self, loop: "Loop", error: Exception) -> None:
        """Called after `on_train_end` if the run failed with this NumericalError."""

    def on_fit_end(self, loop: "Loop", result: "Result") -> None:
        """Called last; networks hold the best weights."""

    def skip_budget(self, loop: "Loop") -> SkipBudget:
        """Return how many of the next steps need no `on_train_batch_end`.

        If the step is compiled, these steps run in a single call, which is faster.  Without an
        override, a callback that overrides `on_train_batch_end` is called after each step.
        """
        return SkipBudget(0)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs, as `pack` takes it."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def overrides(callback: Callback, name: str) -> bool:
    """Return whether the class of a callback has a method of its own."""
    return getattr(type(callback), name) is not getattr(Callback, name)


def in_order(callbacks: object) -> list[Callback]:
    """Return callbacks in the order of their calls.  Raises: UsageError for others."""
    given = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    for one in given:
        if not isinstance(one, Callback):
            raise UsageError(
                f"callbacks: must be instances of Callback (got {quoted(one)}){_advice_on(one)}"
            )
    if given is not callbacks:
        raise UsageError("callbacks: must be a list (got a callback); write callbacks=[callback]")
    return sorted(given, key=lambda callback: callback.order)


def by_name(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Return the callbacks that keep a state.  Raises: UsageError for two of one name."""
    states: dict[str, Callback] = {}
    for callback in callbacks:
        if overrides(callback, "state_dict"):
            name = callback.name or type(callback).__name__
            if name in states:
                raise UsageError(f"callbacks: two keep a state under one name ({name!r})")
            states[name] = callback
    return states


def _advice_on(given: object) -> str:
    """Return what to write in place of a callback that is none, or ""."""
    if isinstance(given, EarlyStopping):
        return (
            "; write early_stopping=EarlyStopping(patience=20) for a Loop, "
            "training={'early_stopping': {'patience': 20}} for fit"
        )
    if isinstance(given, type) and issubclass(given, Callback):
        return f"; write callbacks=[{given.__name__}()]"
    return "; write a class with the hook, such as on_train_epoch_end(self, loop, row)"
