"""Every op as a method of nodes and tensors."""

from collections.abc import Callable
from functools import cache
from inspect import Signature, signature
from typing import Any

from mlpengine import ops
from mlpengine.ops.op import parameters_of
from mlpengine.tape.operand import apply


@cache
def method(op: Any) -> Callable[..., Any]:
    """Return a function of the operands, then the options of an op; losses: options by keyword."""
    init: Callable[..., Any] = op
    options = list(signature(init).parameters.values())
    operands = list(parameters_of(op.formula if issubclass(op, ops.Elementwise) else op.infer))
    if issubclass(op, ops.Loss):
        options = [p.replace(kind=p.KEYWORD_ONLY) for p in options]
    count = len(operands)

    def function(*args: Any, **named: Any) -> Any:
        missing = [named.pop(p.name, None) for p in operands[len(args) :]]
        made = op(*map(_as_option, args[count:]), **{n: _as_option(v) for n, v in named.items()})
        return apply(made, *args[:count], *missing)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.__doc__
    function.__signature__ = Signature([*operands, *options])  # type: ignore[attr-defined]
    return function


def _as_option(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
