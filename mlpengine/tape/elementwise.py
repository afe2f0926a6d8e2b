"""Element-wise ops and losses as methods of nodes and tensors, with their registry names.

The parameters of a method are the operands of the op and then the options of its class.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from inspect import Signature, signature
from typing import Any

from mlpengine import ops
from mlpengine.ops.op import parameters_of
from mlpengine.tape.operand import apply


def names() -> list[str]:
    """Return the names of all element-wise ops and losses."""
    kinds = ops.Elementwise | ops.EntryLoss
    return [name for name, op in ops.REGISTRY.items() if issubclass(op, kinds)]


def method(name: str) -> Callable[..., Any]:
    """Return the method for the op with this name."""
    op: Any = ops.REGISTRY[name]
    return _function(op)


@cache
def _function(op: Any) -> Callable[..., Any]:
    """Return a function of an op's operands and options; options of losses are keyword-only."""
    init: Callable[..., Any] = op
    options = list(signature(init).parameters.values()) if is_dataclass(op) else []
    is_loss = issubclass(op, ops.EntryLoss)
    operands = list(parameters_of(op.infer if is_loss else op.formula))
    if is_loss:
        options = [p.replace(kind=p.KEYWORD_ONLY) for p in options]
    count = len(operands)

    def function(*args: Any, **named: Any) -> Any:
        return apply(op(*args[count:], **named), *args[:count])

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.__doc__
    function.__signature__ = Signature([*operands, *options])  # type: ignore[attr-defined]
    return function
