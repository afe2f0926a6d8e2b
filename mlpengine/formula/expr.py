"""The expression graph, and the table of its functions.

Equal subexpressions are the same `Expr` object (hash consing), so ``is`` compares formulas.  Each
row of `FUNCTIONS` has the derivative of a function, its cost, and its code for each target.
"""

from collections.abc import Callable, Iterable, Sequence
from math import log as natural_log
from math import pi
from math import sqrt as root
from typing import Any, NamedTuple, Union
from weakref import WeakValueDictionary

import numpy as np

from mlpengine.core.errors import FormulaError
from mlpengine.core.fork_locks import process_lock
from mlpengine.core.spec import Array, Calls, call
from mlpengine.formula import numpy_functions as pieces

Number = Union["Expr", float]


def _operator(name: str) -> "Callable[[Expr, Number], Expr]":
    return lambda a, b: make(name, a, b)


def _reflected(name: str) -> "Callable[[Expr, Number], Expr]":
    return lambda a, b: make(name, b, a)


class Expr:
    """A node: a function with its arguments, a variable, or a constant.

    Arithmetic and the comparisons ``<``, ``<=``, ``>``, ``>=`` make nodes (see `make`).  ``==``
    tells whether two nodes are the same object; `equal` makes a node that compares values.
    """

    __slots__ = ("__weakref__", "args", "leaf", "name")

    name: str
    args: "tuple[Expr, ...]"
    leaf: str | float | None

    def __new__(
        cls, name: str, args: "tuple[Expr, ...]" = (), leaf: str | float | None = None
    ) -> "Expr":
        key = (name, tuple(map(id, args)), repr(leaf))  # tells 0.0 from -0.0
        with _lock:
            node = _nodes.get(key)
            if node is None:
                node = object.__new__(cls)
                node.name, node.args, node.leaf = name, args, leaf
                _nodes[key] = node
        return node

    @property
    def is_mask(self) -> bool:
        """Whether the value is a bool, not a number."""
        return self.name in FUNCTIONS and FUNCTIONS[self.name].is_mask

    @property
    def number(self) -> float | None:
        """The number of a constant; None for any other node."""
        return self.leaf if self.name == "constant" else None  # type: ignore[return-value]

    def __reduce__(self) -> tuple[object, ...]:
        return Expr, (self.name, self.args, self.leaf)

    def __repr__(self) -> str:
        return self._shown(3)

    def _shown(self, levels: int) -> str:
        """Return the node as text; arguments more than `levels` deep are "..."."""
        if not self.args:
            return str(self.leaf)
        if not levels:
            return "..."
        return f"{self.name}({', '.join(a._shown(levels - 1) for a in self.args)})"

    def __bool__(self) -> bool:
        raise FormulaError("formula: has no truth value while it is built; use where(cond, a, b)")

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __pow__ = _operator("pow")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __and__, __or__ = _operator("logical_and"), _operator("logical_or")

    def __neg__(self) -> "Expr":
        return make("neg", self)

    def __abs__(self) -> "Expr":
        return make("abs", self)

    def __invert__(self) -> "Expr":
        return make("logical_not", self)


_nodes: WeakValueDictionary[object, Expr] = WeakValueDictionary()
_lock = process_lock()  # re-entrant, because garbage collection may remove a key under the lock


def variable(name: str) -> Expr:
    """Return the variable with this name."""
    return Expr("variable", (), name)


def constant(value: float) -> Expr:
    """Return the node of a number; generated code rounds it to the dtype of the operands."""
    return Expr("constant", (), float(value))


def power(base: Number, exponent: Number) -> Expr:
    """Return the node of base**exponent without simplification; both may be formulas."""
    args = (x if isinstance(x, Expr) else constant(x) for x in (base, exponent))
    return Expr("pow", tuple(args))


def make(name: str, *args: Number) -> Expr:
    """Return the node of a function of `FUNCTIONS`, simplified where possible.

    Constants are folded in float64.  Further simplifications are exact for NaN, infinities and both
    zeros: x - 0, x + (-0.0), x * 1, x / 1, x ** 1, x ** 0, -(-x), x * -1, where(c, a, a).  0 * x
    and x + 0 are not simplified, because 0 * inf is NaN, and -0.0 + 0 is 0.0.  Powers with the
    exponents 2, 4, 0.5, -0.5, -1 and -2 become products, square roots and quotients, as in PyTorch.
    expm1(minimum(x, 0)) becomes the faster function expm1_below_0.

    If a function takes numbers, a bool argument becomes 1 or 0.

    Raises: FormulaError if a function of bools gets a number, if the number of arguments is wrong,
        if an exponent is not a constant, or if two constants are compared.
    """
    function = FUNCTIONS[name]
    nodes = tuple(x if isinstance(x, Expr) else constant(x) for x in args)
    nodes = _typed(name, function, nodes)
    numbers = [x.number for x in nodes]
    if name == "pow" and numbers[1] is None:
        raise FormulaError("pow: the exponent must be a number; write exp(y * log(x))")
    if all(n is not None for n in numbers):
        if function.is_mask:
            given = " and ".join(f"{n:g}" for n in numbers)
            raise FormulaError(f"{name}: must compare a variable (got {given})")
        return constant(_folded(function, numbers))  # type: ignore[arg-type]
    simple = _simplified(name, nodes, numbers)
    return Expr(name, nodes) if simple is None else simple


def _typed(name: str, function: "Function", nodes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Check the types of the arguments; turn bools into 1 and 0 if numbers are needed."""
    if len(nodes) != function.arity:
        raise FormulaError(f"{name}: takes {function.arity} arguments (got {len(nodes)})")
    typed = []
    for i, node in enumerate(nodes):
        if i < function.masks and not node.is_mask:
            raise FormulaError(f"{name}: argument {i + 1} must be a comparison (got {node!r})")
        if i >= function.masks and node.is_mask:
            node = Expr("where", (node, constant(1), constant(0)))
        typed.append(node)
    return tuple(typed)


def _folded(function: "Function", numbers: Sequence[float]) -> float:
    out, work = np.empty(1), list(np.empty((function.floats, 1)))
    masks = list(np.empty((function.masks_needed, 1), np.bool_))
    arrays = [x if function.takes_numbers and i else np.array([x]) for i, x in enumerate(numbers)]
    with np.errstate(all="ignore"):
        for run in function.calls(arrays, out, work, masks):
            run()
    return float(out[0])


def _simplified(name: str, nodes: tuple[Expr, ...], numbers: list[float | None]) -> Expr | None:
    first, *others = nodes
    match name, *(repr(n) for n in numbers):
        case ("sub", _, "0.0") | ("add", _, "-0.0"):
            return first
        case ("mul" | "div" | "pow", _, "1.0"):
            return first
        case ("mul", "1.0", _):
            return others[0]
        case ("mul", _, "-1.0"):
            return make("neg", first)
        case ("mul", "-1.0", _):
            return make("neg", others[0])
        case ("pow", _, "0.0" | "-0.0"):
            return constant(1)
        case ("pow", _, "2.0"):
            return Expr("mul", (first, first))
        case ("pow", _, "4.0"):
            return (first * first) ** 2
        case ("pow", _, "0.5"):
            return Expr("sqrt", (first,))
        case ("pow", _, "-0.5" | "-1.0" | "-2.0"):
            return 1 / first ** -numbers[1]  # type: ignore[operator]
    if name == "where" and others[0] is others[1]:
        return others[0]
    composed = _composed(name, nodes) if name in ("expm1", "mul") else None
    if composed is not None:
        return composed
    if name in ("neg", "logical_not") and first.name == name:
        return first.args[0]
    if name in ("add", "mul", "maximum", "minimum") and first.number is not None:
        return Expr(name, (others[0], first))  # put the constant second
    return None


def _composed(name: str, nodes: tuple[Expr, ...]) -> Expr | None:
    """Return the node for expm1(minimum(x, 0)) or a multiple of it; None for other functions."""
    if name == "expm1":
        bound = nodes[0].args[1].number if nodes[0].name == "minimum" else None
        below = bound is not None and bound <= 0
        return Expr("expm1_below_0", (nodes[0], constant(1))) if below else None
    for x, factor in (nodes, nodes[::-1]):
        if x.name == "expm1_below_0" and factor.number is not None:
            return Expr("expm1_below_0", (x.args[0], x.args[1] * factor))
    return None


# ---------------------------------------------------------------- what a formula may use
class Function(NamedTuple):
    """A row of `FUNCTIONS`: the derivative of a function, and its code for each target.

    Attributes:
        gradient: ``gradient(dy, node, *args)`` returns a gradient, or None, for each argument.
        numpy: a ufunc, or a generator ``rule(*args, out, *floats, *masks)`` of bound calls.
        c: C code with a ``{}`` for each argument, such as ``v_exp({})``.
        onnx: name of the operator, or a function that returns a formula of other functions.
        expensive: whether keeping the value for backward is faster than computing it again.
        arity: number of arguments.
        masks: number of arguments, counted from the first, that are bools.
        is_mask: whether the value is a bool.
        floats, masks_needed: numbers of work buffers of floats and of bools.
        alias: positions of the arguments that `out` may overwrite; None for all.
        takes_numbers: whether `numpy` gets constant arguments as Python floats.
        numexpr: text for NumExpr, by default `c` without "v_"; None if NumExpr lacks the function.
    """

    gradient: "Callable[..., Sequence[Expr | None]]"
    numpy: Callable[..., Any]
    c: str
    onnx: "str | Callable[..., Expr]"
    expensive: bool = False
    arity: int = 1
    masks: int = 0
    is_mask: bool = False
    floats: int = 0
    masks_needed: int = 0
    alias: tuple[int, ...] | None = None
    takes_numbers: bool = False
    numexpr: str | None = ""

    def calls(
        self,
        args: Sequence[Array | float],
        out: Array,
        floats: Sequence[Array] = (),
        masks: Sequence[Array] = (),
    ) -> Calls:
        """Yield the NumPy calls of this function; constants in `args` are floats."""
        rule = self.numpy
        if isinstance(rule, np.ufunc):
            kind = (
                out if out.dtype != np.bool_ else next(a for a in args if isinstance(a, np.ndarray))
            )
            arrays = [pieces.constant_like(a, kind) if isinstance(a, float) else a for a in args]
            if rule in (np.maximum, np.minimum):
                if isinstance(args[1], float):
                    yield from pieces.bounded(rule, arrays[0], args[1], out)
                else:
                    yield call(rule, *arrays, out=out)
            elif rule is np.multiply and args[0] is args[1]:
                yield call(np.square, arrays[0], out)
            else:
                yield call(rule, *arrays, out)
        else:
            yield from rule(*args, out, *floats, *masks)


def _comparison(ufunc: np.ufunc, sign: str, onnx: Any) -> Function:
    text = f"{{}} {sign} {{}}"
    return Function(lambda d, y, a, b: (None, None), ufunc, text, onnx, arity=2, is_mask=True)


def _logical(ufunc: np.ufunc, c: str, onnx: str, arity: int = 2, numexpr: str = "") -> Function:
    def gradient(*_: Expr) -> Sequence[None]:
        return (None,) * arity

    function = Function(gradient, ufunc, c, onnx, arity=arity, masks=arity, is_mask=True)
    return function._replace(numexpr=numexpr)


def _maximum_gradient(d: Expr, y: Expr, a: Expr, b: Expr) -> Sequence[Expr | None]:
    """Return the gradients that `mlpengine.ops.Maximum` documents."""
    shared = where(equal(a, b), 0.5, 1) * d
    return where(~(a < b), shared, 0), where(~(b < a), shared, 0)


def _minimum_gradient(d: Expr, y: Expr, a: Expr, b: Expr) -> Sequence[Expr | None]:
    shared = where(equal(a, b), 0.5, 1) * d
    return where(~(a > b), shared, 0), where(~(b > a), shared, 0)


def _pow_gradient(d: Expr, y: Expr, x: Expr, n: Expr) -> Sequence[Expr | None]:
    assert n.number is not None
    return d * (n.number * x ** (n.number - 1)), None


FUNCTIONS: dict[str, Function] = {
    "add": Function(lambda d, y, a, b: (d, d), np.add, "{} + {}", "Add", arity=2),
    "sub": Function(lambda d, y, a, b: (d, -d), np.subtract, "{} - {}", "Sub", arity=2),
    "mul": Function(lambda d, y, a, b: (d * b, d * a), np.multiply, "{} * {}", "Mul", arity=2),
    "div": Function(lambda d, y, a, b: (d / b, -(y / b * d)), np.divide, "{} / {}", "Div", arity=2),
    "neg": Function(lambda d, y, x: (-d,), np.negative, "-{}", "Neg"),
    "abs": Function(lambda d, y, x: (sign(x) * d,), np.abs, "v_abs({})", "Abs"),
    "sign": Function(
        lambda d, y, x: (None,),
        np.sign,
        "v_sign({})",
        "Sign",
        numexpr="where({0} > 0, 1, where({0} < 0, -1, {0}))",
        alias=(),  # np.sign in place is ten times as slow
    ),
    "pow": Function(
        _pow_gradient,
        pieces.power,
        "v_pow({}, {})",
        "Pow",
        numexpr="{} ** {}",
        expensive=True,
        arity=2,
        alias=(),
        takes_numbers=True,
    ),
    "maximum": Function(
        _maximum_gradient,
        np.maximum,
        "v_maximum({}, {})",
        "Max",
        numexpr="where(({0} > {1}) | ({0} != {0}), {0}, {1})",
        arity=2,
    ),
    "minimum": Function(
        _minimum_gradient,
        np.minimum,
        "v_minimum({}, {})",
        "Min",
        numexpr="where(({0} < {1}) | ({0} != {0}), {0}, {1})",
        arity=2,
    ),
    "clip": Function(
        lambda d, y, x, lo, hi: (where(equal(x, y), d, 0), None, None),
        pieces.clip,
        "vmin(vmax({}, {}), {})",
        "Clip",
        numexpr="where({0} < {1}, {1}, where({0} > {2}, {2}, {0}))",
        arity=3,
        takes_numbers=True,
    ),
    "sqrt": Function(lambda d, y, x: (d / y * 0.5,), np.sqrt, "v_sqrt({})", "Sqrt"),
    "exp": Function(lambda d, y, x: (d * y,), np.exp, "v_exp({})", "Exp", expensive=True),
    "expm1": Function(
        lambda d, y, x: (d * (y + 1),),
        np.expm1,
        "v_expm1({})",
        lambda x: exp(x) - 1,
        expensive=True,
    ),
    "expm1_below_0": Function(  # made by `make` for expm1(minimum(x, 0))
        lambda d, y, x, factor: (d * (y + factor), None),
        pieces.expm1_below_0,
        "v_expm1_below_0({}) * {}",
        lambda x, factor: (exp(x) - 1) * factor,
        numexpr="expm1({}) * {}",
        expensive=True,
        arity=2,
        floats=1,
        takes_numbers=True,
    ),
    "log": Function(lambda d, y, x: (d / x,), np.log, "v_log({})", "Log", True),
    "log1p": Function(
        lambda d, y, x: (d / (x + 1),),
        np.log1p,
        "v_log1p({})",
        lambda x: log(x + 1),
        expensive=True,
    ),
    "log2": Function(
        lambda d, y, x: (d / x * (1 / natural_log(2)),),
        np.log2,
        "v_log2({})",
        lambda x: log(x) * (1 / natural_log(2)),
        numexpr=None,
        expensive=True,
    ),
    "sin": Function(lambda d, y, x: (cos(x) * d,), np.sin, "v_sin({})", "Sin", expensive=True),
    "cos": Function(lambda d, y, x: (-sin(x) * d,), np.cos, "v_cos({})", "Cos", expensive=True),
    "tanh": Function(lambda d, y, x: ((1 - y * y) * d,), np.tanh, "v_tanh({})", "Tanh", True),
    "sigmoid": Function(
        lambda d, y, x: ((1 - y) * y * d,),
        pieces.logistic,
        "v_sigmoid({})",
        "Sigmoid",
        numexpr="1 / (1 + exp(-{}))",
        expensive=True,
        floats=1,
    ),
    "softplus": Function(
        lambda d, y, x: (sigmoid(x) * d,),
        pieces.softplus,
        "v_softplus({})",
        "Softplus",
        numexpr="where({0} > 0, {0}, 0) + log1p(exp(-abs({0})))",
        expensive=True,
        floats=2,
        alias=(),
    ),
    "softplus_tail": Function(  # log(1 + exp(-abs(x))) = softplus(x) - max(x, 0)
        lambda d, y, x: (-(sign(x) * sigmoid(-abs(x)) * d),),
        pieces.log1p_exp_of_minus_abs,
        "v_log1p_exp_of_minus_abs({})",
        lambda x: log(exp(-abs(x)) + 1),
        numexpr="log1p(exp(-abs({})))",
        expensive=True,
        floats=2,
        alias=(),
    ),
    "normal_cdf": Function(
        lambda d, y, x: (exp(x * x * -0.5) * (1 / root(2 * pi)) * d,),
        pieces.normal_cdf,
        "v_normal_cdf({})",
        lambda x: 0.5 + 0.5 * Expr("Erf", (x * root(0.5),)),
        numexpr=None,
        expensive=True,
        floats=2,
        masks_needed=1,
        alias=(),
    ),
    "where": Function(
        lambda d, y, c, a, b: (None, where(c, d, 0), where(c, 0, d)),
        pieces.select,
        "vselect({}, {}, {})",
        "Where",
        numexpr="where({}, {}, {})",
        arity=3,
        masks=1,
        alias=(1,),
        takes_numbers=True,
    ),
    "less": _comparison(np.less, "<", "Less"),
    "less_equal": _comparison(np.less_equal, "<=", "LessOrEqual"),
    "greater": _comparison(np.greater, ">", "Greater"),
    "greater_equal": _comparison(np.greater_equal, ">=", "GreaterOrEqual"),
    "equal": _comparison(np.equal, "==", "Equal"),
    "not_equal": _comparison(np.not_equal, "!=", lambda a, b: ~equal(a, b)),
    "logical_and": _logical(np.logical_and, "{} & {}", "And"),
    "logical_or": _logical(np.logical_or, "{} | {}", "Or"),
    "logical_not": _logical(np.logical_not, "v_not({})", "Not", arity=1, numexpr="~{}"),
}


Make = Callable[..., Expr]


def _maker(name: str) -> Make:
    def function(*args: Number) -> Expr:
        return make(name, *args)

    function.__name__ = name
    function.__doc__ = f"Return the node of {name} (see `FUNCTIONS`)."
    return function


clip: Make = _maker("clip")
cos: Make = _maker("cos")
equal: Make = _maker("equal")
exp: Make = _maker("exp")
expm1: Make = _maker("expm1")
log: Make = _maker("log")
log1p: Make = _maker("log1p")
log2: Make = _maker("log2")
maximum: Make = _maker("maximum")
minimum: Make = _maker("minimum")
normal_cdf: Make = _maker("normal_cdf")
not_equal: Make = _maker("not_equal")
sigmoid: Make = _maker("sigmoid")
sign: Make = _maker("sign")
sin: Make = _maker("sin")
softplus: Make = _maker("softplus")
softplus_tail: Make = _maker("softplus_tail")
sqrt: Make = _maker("sqrt")
tanh: Make = _maker("tanh")
where: Make = _maker("where")


# ---------------------------------------------------------------- derived
def order(
    roots: Iterable[Expr],
    given: Iterable[Expr] = (),
    by: Callable[[Expr], int] = lambda node: 0,
) -> list[Expr]:
    """Return `roots` and the nodes that they depend on, each after its arguments.

    The arguments of a node in `given` are left out.  `by` is a sort key for the arguments of a
    node; by default they keep their order.
    """
    nodes: dict[Expr, None] = {}
    stops = set(given)

    for root_node in roots:
        path = [root_node]  # not by recursion: formulas may be deep
        while path:
            node = path[-1]
            args = () if node in nodes or node in stops else sorted(node.args, key=by)
            if (arg := next((arg for arg in args if arg not in nodes), None)) is not None:
                path.append(arg)
            else:
                nodes[path.pop()] = None
    return list(nodes)


def variables(*roots: Expr) -> list[str]:
    """Return the names of the variables in the formulas, in the order of their first use."""
    return [str(n.leaf) for n in order(roots) if n.name == "variable"]


def gradients(y: Expr, dy: Expr, operands: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the gradients of `operands` (reverse mode); `dy` is the gradient of `y`."""
    known: dict[Expr, Expr] = {y: dy}
    for node in reversed(order([y])):
        d = known.get(node)
        if d is None or not node.args:
            continue
        parts = FUNCTIONS[node.name].gradient(d, node, *node.args)
        for arg, part in zip(node.args, parts, strict=True):
            if part is not None and arg.number is None:
                known[arg] = known[arg] + part if arg in known else part
    return tuple(known.get(x, constant(0)) for x in operands)


def saved_for_backward(y: Expr, grads: Sequence[Expr], dy: Expr) -> list[Expr]:
    """Return the values that forward keeps for backward, besides `y` and the operands.

    A gradient is a sum of products of `dy` and factors without `dy`.  Forward computes and keeps a
    factor with several expensive functions, or with one expensive function and more than
    `MAX_RECOMPUTED` cheap functions.  Backward computes the other factors.  If forward computes the
    expensive function of such a factor anyway, it keeps the value of this function.
    """
    forward = set(order([y]))
    kept: dict[Expr, None] = {}
    for factor in _free_of(dy, grads):
        reusable = [n for n in order([factor]) if n in forward and _is_expensive(n)]
        needed = [n for n in order([factor], [y, *reusable]) if n is not y and _is_expensive(n)]
        others = [n for n in order([factor], [y, *reusable]) if n.args and n is not y]
        if len(needed) > 1 or (needed and len(others) > len(needed) + MAX_RECOMPUTED):
            kept[factor] = None
        elif needed and needed[0] in forward:
            kept[needed[0]] = None
    return list(kept)


MAX_RECOMPUTED = 4
"""Maximum number of cheap functions beside an expensive one in a factor that backward computes.

The derivative of silu has 3.  The derivative of tanh gelu has 9, so keeping it is faster."""


def _is_expensive(node: Expr) -> bool:
    return node.name in FUNCTIONS and FUNCTIONS[node.name].expensive


def _free_of(dy: Expr, roots: Sequence[Expr]) -> list[Expr]:
    """Return the largest subexpressions of `roots` that do not depend on `dy`.

    Bools are replaced by their arguments, because kept values have the dtype of the operands.
    """
    depends: set[Expr] = set()
    for node in order(roots):
        if node is dy or any(a in depends for a in node.args):
            depends.add(node)
    factors: dict[Expr, None] = {r: None for r in roots if r not in depends}
    for node in order(roots):
        if node in depends:
            factors |= {a: None for a in node.args if a not in depends}
    for mask in reversed(order(factors)):  # a bool may have bools as arguments
        if mask in factors and mask.is_mask:
            factors |= dict.fromkeys(mask.args)
    return [f for f in factors if f.args and not f.is_mask]
