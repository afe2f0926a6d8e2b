"""The contract of every op.

An op is one class with three rules, in this order: the shape, the value and the gradients.  Its
NumPy code is the definition; a backend may replace a rule with a faster one that computes the same.

A rule does not compute.  It receives the buffers once, when a program is bound, and yields calls;
the program replays these calls at every step::

    class Linear(GradOp, name="linear"):
        def infer(self, x, w, b):
            ...
            return Spec((x.shape[0], w.shape[0]), x.dtype)

        def forward(self, x, w, b, *, out):
            yield call(np.dot, x, w.T, out)
            yield call(np.add, out, b, out)

        def backward(self, dy, x, w, *, out):
            dx, dw, db = out
            if dx is not None:
                yield call(np.dot, dy, w, dx)
            ...

So views (``w.T``) and constants are made, and decisions are taken, once, while binding.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

from mlpengine.core.spec import Calls, Spec

Direction = Literal["forward", "backward"]

REGISTRY: dict[str, type["GradOp"]] = {}
"""Every op by its name.  `GradOp.__init_subclass__` fills it; a class that is defined again, as in
a notebook, replaces the one before."""


class Signature(NamedTuple):
    """The names and counts that the planner reads of an op.

    Attributes:
        operands: their names.
        required: how many of them, the first ones, must not be left out.
        is_variadic: whether there may be any number, as ``infer(self, *xs)`` says.
        residuals: what `backward` reads, in the order it takes it, from ``dy`` on.
        work: the names of the work buffers of the rule of each direction.
    """

    operands: tuple[str, ...]
    required: int
    is_variadic: bool
    residuals: tuple[str, ...]
    work: Mapping[Direction, tuple[str, ...]]


class GradOp:
    """A differentiable function of arrays that writes into buffers it is given.

    A subclass is declared as ``class Tanh(GradOp, name="tanh")``.  Hyper-parameters are the fields
    of a ``@dataclass(frozen=True)``.  The planner reads the signatures:

    * The parameters of `infer` are the operands.  A parameter with the default None is an operand
      that may be left out; then every rule gets None in its place.
    * The positional parameters of `backward` are its residuals: ``dy`` (always first), ``y`` and
      the names of operands.  Only what is named is kept alive until then.
    * The keyword-only parameters of `forward` and `backward`, ``out`` aside, are buffers declared
      by `work`.  One that both name lives from forward to backward; one that a single rule names
      lives during that rule.

    Every rule satisfies these conditions; the op table in ``tests/ops`` checks them for each op:

    * It overwrites all of `out` and writes nothing else but its work buffers.  Adding up the
      gradients of several consumers is the program's job.
    * A None slot of `out` is a gradient that is not wanted; it is not computed.
    * Its calls allocate nothing that grows with the operands.
    * `out` shares no memory with an operand, except as `in_place` allows.
    """

    name: ClassVar[str]

    broadcasts: ClassVar[bool] = False
    """Operands broadcast as in NumPy: every slot of `backward` has the shape of the *output*, and
    the program sums it over the broadcast axes back to the operand's shape."""

    in_place: ClassVar[tuple[Direction, ...]] = ()
    """Directions in which `out` may be the buffer of an operand of the same size: the first operand
    in forward, ``dy`` for the first slot in backward.  The program shares the buffer where that
    operand is not read afterwards."""

    view: ClassVar[bool] = False
    """The value has the bytes of the operand and another shape (reshape).

    The program gives both one buffer.  The rules copy only if the two do not share memory."""

    stops_gradient: ClassVar[bool] = False
    """No gradient flows to the operands: they have none unless other ops read them."""

    cheap: ClassVar[bool] = True
    """Whether balanced rematerialization may compute the op twice: True for memory-bound ops, False
    for products, convolutions, and ops that must not run twice, such as random draws."""

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if name is None:
            return  # an abstract base of a family
        known = REGISTRY.get(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"op {name!r} is already registered by {known.__name__}")
        cls.name = name
        REGISTRY[name] = cls

    @property
    def signature(self) -> Signature:
        """The parameters of the rules."""
        kind: Any = type(self)  # to mypy a class of ops is not hashable
        return _signature_of(kind)

    def infer(self, *operands: Any) -> Spec | tuple[Spec, ...]:
        """Return the spec of the output, or of each; raise ShapeError naming the operands."""
        raise NotImplementedError

    def work(self, *operands: Any) -> dict[str, Spec]:
        """Return the work buffers by their names in the rules."""
        return {}

    def forward(self, *operands: Any, **buffers: Any) -> Calls:
        """Yield the calls that write the value into `out` (a tuple for several outputs)."""
        raise NotImplementedError

    def backward(self, *residuals: Any, **buffers: Any) -> Calls:
        """Yield the calls that write each operand's gradient into its slot of `out`."""
        raise NotImplementedError


@cache
def parameters_of(rule: Callable[..., object]) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a rule without ``self``."""
    return tuple(inspect.signature(rule).parameters.values())[1:]


@cache
def _signature_of(op: Any) -> Signature:
    infer, forward, backward = map(parameters_of, (op.infer, op.forward, op.backward))

    def work(rule: tuple[inspect.Parameter, ...]) -> tuple[str, ...]:
        return tuple(p.name for p in rule if p.kind is p.KEYWORD_ONLY and p.name != "out")

    return Signature(
        operands=tuple(p.name for p in infer),
        required=sum(p.default is p.empty for p in infer),
        is_variadic=any(p.kind is p.VAR_POSITIONAL for p in infer),
        residuals=tuple(p.name for p in backward if p.kind is p.POSITIONAL_OR_KEYWORD),
        work={"forward": work(forward), "backward": work(backward)},
    )
