"""The interface of every op.

An op is a class with three methods, called rules: `infer` (shapes), `forward` (values) and
`backward` (gradients).  The NumPy code of an op is its definition.  A backend may replace a rule by
a faster rule with the same result.

A rule is called once, with the buffers as arguments, and does not compute anything yet.  The rule
yields bound calls, and a `Program` runs these calls in every step::

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

Views such as ``w.T`` and constants are therefore made only once.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

from mlpengine.core.spec import Calls, Spec

Direction = Literal["forward", "backward"]

REGISTRY: dict[str, type["GradOp"]] = {}
"""Every op by its name, filled by `GradOp.__init_subclass__`.

If a notebook defines a class again, the new class replaces the old class."""


class Signature(NamedTuple):
    """The operands, residuals and work buffers of an op, for the planner.

    Attributes:
        operands: names of the operands.
        required: number of operands without a default; these come first.
        is_variadic: whether the op takes any number of operands, as in ``infer(self, *xs)``.
        residuals: positional parameters of `backward` in order; ``dy`` is the first.
        work: names of the work buffers, by direction.
    """

    operands: tuple[str, ...]
    required: int
    is_variadic: bool
    residuals: tuple[str, ...]
    work: Mapping[Direction, tuple[str, ...]]


class GradOp:
    """A differentiable function of arrays that writes into given buffers.

    Declare a subclass as ``class Tanh(GradOp, name="tanh")``.  Hyper-parameters are fields of a
    ``@dataclass(frozen=True)``.  The planner reads the signatures:

    * The parameters of `infer` are the operands.  A parameter with default None is an optional
      operand; if it is missing, every rule gets None.
    * The positional parameters of `backward` are its residuals: ``dy`` (always first), ``y`` and
      names of operands.  Only these values stay in memory until backward.
    * The keyword-only parameters of `forward` and `backward`, except ``out``, are buffers from
      `work`.  A buffer that is a parameter of both keeps its content from forward to backward.
      Other buffers are overwritten after the rule.

    Every rule satisfies the following conditions.  The table of ops in ``tests/ops`` checks them:

    * The rule overwrites all of `out`, and writes into nothing else but its work buffers.  If a
      value has several consumers, the program adds their gradients.
    * If a slot of `out` is None, the rule does not compute the gradient of this operand.
    * The calls allocate nothing that grows with the operands.
    * `out` shares no memory with an operand, except as `in_place` allows.
    """

    name: ClassVar[str]

    broadcasts: ClassVar[bool] = False
    """Whether operands broadcast as in NumPy.

    If so, every slot of `backward` has the shape of the *output*.  The program sums the slot over
    the axes along which the operand was broadcast."""

    in_place: ClassVar[tuple[Direction, ...]] = ()
    """Directions in which a rule may overwrite an operand with a result of equal size.

    In forward, `out` may be the buffer of the first operand.  In backward, the first slot of `out`
    may be the buffer of ``dy``.  A program reuses the buffer if no later step reads it."""

    view: ClassVar[bool] = False
    """Whether the output has the bytes of the operand in another shape, as in a reshape.

    The program uses one buffer for operand and output, so the rules have nothing to copy."""

    stops_gradient: ClassVar[bool] = False
    """Whether no gradient flows to the operands."""

    cheap: ClassVar[bool] = True
    """Whether backward may compute the op again to save memory (balanced rematerialization).

    True for memory-bound ops; False for products, convolutions and ops that draw random numbers."""

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if name is None:
            return  # an abstract base class
        known = REGISTRY.get(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"op {name!r} is already registered by {known.__name__}")
        cls.name = name
        REGISTRY[name] = cls

    @property
    def signature(self) -> Signature:
        """The operands, residuals and work buffers, read from the parameters of the rules."""
        kind: Any = type(self)  # `Any`, because mypy considers the class unhashable
        return _signature_of(kind)

    def infer(self, *operands: Any) -> Spec | tuple[Spec, ...]:
        """Return the spec of the output, or a tuple of specs; raise ShapeError for wrong shapes."""
        raise NotImplementedError(f"{self.name}: infer is not defined")

    def work(self, *operands: Any) -> dict[str, Spec]:
        """Return the specs of the work buffers, by their names in the rules."""
        return {}

    def forward(self, *operands: Any, **buffers: Any) -> Calls:
        """Yield the calls that write the value into `out` (a tuple for several outputs)."""
        raise NotImplementedError(f"{self.name}: forward is not defined")

    def backward(self, *residuals: Any, **buffers: Any) -> Calls:
        """Yield the calls that write each operand's gradient into its slot of `out`."""
        raise NotImplementedError(f"{self.name}: backward is not defined")


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
