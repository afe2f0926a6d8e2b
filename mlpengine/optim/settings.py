"""The options of an optimizer as a dataclass, for use before there is a model."""

from dataclasses import field, make_dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

from mlpengine.core.fields import check_options, options_of
from mlpengine.optim._optimizer import HasParams, Optimizer
from mlpengine.optim.schedules import ScheduleLike


class OptimizerSettings:
    """Base class of the options of an optimizer; `kind` is the optimizer's class.

    For example, ``settings_class(Adam)(lr=0.01)`` holds options of Adam.
    """

    kind: ClassVar[type[Optimizer]]
    name: ClassVar[str]

    if TYPE_CHECKING:  # fields of subclasses

        def __init__(self, **options: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def __post_init__(self) -> None:
        check_options(self, self.kind.__name__)

    def make(
        self,
        model: HasParams,
        schedule: ScheduleLike | None = None,
        average: float | None = None,
    ) -> Optimizer:
        """Return the optimizer of a model; `average` is the decay of the averaged parameters."""
        options = {name: getattr(self, name) for name in options_of(type(self))}
        if average is not None:
            options["average"] = average
        return self.kind(model, schedule=schedule, **options)

    def __reduce__(self) -> Any:
        return _made_again, (
            self.kind,
            {name: getattr(self, name) for name in options_of(type(self))},
        )


@cache
def settings_class(kind: type[Optimizer]) -> type[OptimizerSettings]:
    """Return the dataclass of an optimizer's options, with a field for each option."""
    options = [one for one in options_of(kind).values() if not one.given]
    made: Any = make_dataclass(
        f"{kind.__name__}Settings",
        [
            (one.name, one.type, field(default_factory=partial(_same, one.default)))
            for one in options
        ],
        bases=(OptimizerSettings,),
        namespace={"kind": kind, "name": kind.name, "__doc__": kind.__doc__},
        frozen=True,
        kw_only=True,
    )
    made.__module__ = __name__
    return made  # type: ignore[no-any-return]


def _same(value: Any) -> Any:
    return value


def _made_again(kind: type[Optimizer], options: dict[str, Any]) -> OptimizerSettings:
    return settings_class(kind)(**options)
