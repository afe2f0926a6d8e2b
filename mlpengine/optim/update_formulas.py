"""Recording of an optimizer's `numbers` and `update` as formulas, for all backends."""

from collections.abc import Iterable
from typing import Any

from mlpengine.core.errors import UsageError
from mlpengine.formula import Expr, constant, variable
from mlpengine.ops.op import parameters_of


def update_formulas(
    optimizer: Any,
    hyper: Iterable[str],
    moments: Iterable[str],
    average: float | None,
) -> tuple[dict[str, Expr], dict[str, Expr]]:
    """Return the formulas of the optimizer's `numbers` and of its `update`.

    With `average`, the moment ``average`` is also updated, with this decay.
    Raises: UsageError for an unknown or missing name.
    """
    where = type(optimizer).__name__
    taken = ["lr", "t", *hyper]
    if [a.name for a in parameters_of(type(optimizer).numbers)] != taken:
        raise UsageError(f"{where}: the arguments of numbers() must be {', '.join(taken)}")
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
    if wrong or len(set(known)) < len(known):
        raise UsageError(
            f"{where}: update must read and return known names, each once "
            f"(unknown {wrong}, known {known})"
        )
    if average is not None:
        outputs["average"] = variable("average") * average + outputs["p"] * (1.0 - average)
    return numbers, dict(reversed(outputs.items()))


def _formula(value: Any) -> Expr:
    return value if isinstance(value, Expr) else constant(value)
