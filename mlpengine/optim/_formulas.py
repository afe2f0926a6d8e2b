"""An optimizer's two methods as formulas, and the plan of its NumPy calls."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from mlpengine.core.errors import UsageError
from mlpengine.formula import Expr, Plan, constant, plan, variable, variables
from mlpengine.ops.op import parameters_of


class HasFormulas(Protocol):
    """The two methods of an optimizer."""

    def numbers(self, *lr_and_t: Any, **named: Any) -> dict[str, Any]: ...
    def update(self, *vectors: Any, **named: Any) -> dict[str, Any]: ...


class UpdateFormulas(NamedTuple):
    """Everything that is derived from the formulas of an optimizer.

    Attributes:
        numbers: of a step, by name, from ``lr``, ``t``, hyper-parameters and carried numbers.
        outputs: new moments and parameters by name, in the order of computation.
        constants: names of the hyper-parameters and numbers that they read.
        given: names of the plan's inputs, except the vectors that it overwrites.
        plan: of the NumPy calls.
    """

    numbers: Mapping[str, Expr]
    outputs: Mapping[str, Expr]
    constants: tuple[str, ...]
    given: tuple[str, ...]
    plan: Plan

    @staticmethod
    def of(
        optimizer: HasFormulas,
        hyper: Iterable[str],
        moments: Iterable[str],
        carried: Iterable[str],
    ) -> "UpdateFormulas":
        """Derive them; raise UsageError where a name is unknown or missing."""
        where = type(optimizer).__name__
        taken = ["lr", "t", *hyper, *carried]
        if [a.name for a in parameters_of(type(optimizer).numbers)] != taken:
            raise UsageError(f"{where}: the parameters of numbers must be {', '.join(taken)}")
        returned = optimizer.numbers(*map(variable, taken))
        numbers = {name: _formula(value) for name, value in returned.items()}
        vectors = ["p", "g", *moments]
        known = [*vectors, *hyper, *numbers]
        parameters = parameters_of(type(optimizer).update)
        asked = [a.name for a in parameters if a.name in known or a.default is a.empty]
        new = optimizer.update(**{name: variable(name) for name in asked})
        outputs = {name: _formula(value) for name, value in new.items()}
        wrong = [n for n in asked if n not in known]
        wrong += [n for n in outputs if n not in vectors or n == "g"]
        wrong += [n for n in carried if n not in numbers]
        if wrong or len(set(known)) < len(known):
            raise UsageError(
                f"{where}: update must read and return names that are known, each once "
                f"(unknown {wrong}, known {known})"
            )
        read = [n for n in variables(*outputs.values()) if n not in outputs]
        # The plan computes outputs last to first.
        outputs_of_plan = dict(reversed(outputs.items()))
        return UpdateFormulas(
            numbers,
            outputs_of_plan,
            tuple(n for n in read if n not in vectors),
            tuple(read),
            plan(
                [*outputs_of_plan.values()],
                [variable(name) for name in read],
                overwritten=[variable(name) for name in outputs_of_plan],
            ),
        )


def _formula(value: Any) -> Expr:
    return value if isinstance(value, Expr) else constant(value)
