"""Constants and functions as a JavaScript module; one typed array holds all its numbers.

A vector is given by its start index in this array.  Constants come first, then the local arrays of
functions.  If the array is float32, `Math.fround` rounds the result of every operation.  Functions
have the same names as in C; names without a counterpart in C begin with ``$``.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isinf, isnan

import numpy as np

from mlpengine.backends.compiled.statements import (
    Assign,
    ForLoop,
    If,
    Let,
    Memory,
    Place,
    Return,
    Scope,
    Statement,
    Variable,
    Whole,
)
from mlpengine.backends.scalar.definitions import Constants, Definition, ScalarFunction
from mlpengine.backends.values import UnsupportedError
from mlpengine.formula import BINDS, FUNCTIONS, Expr
from mlpengine.formula.numpy_functions import TAIL_DOUBLE

MATH = {
    **{f"v_{name}": f"Math.{name}" for name in ("abs", "cos", "exp", "expm1", "log", "log1p")},
    **{f"v_{name}": f"Math.{name}" for name in ("log2", "pow", "sign", "sin", "sqrt", "tanh")},
    "v_expm1_below_0": "(x) => R(Math.expm1(x))",
    "v_floor": "Math.floor",
    "v_log1p_exp_of_minus_abs": "(x) => Math.log1p(Math.exp(-Math.abs(x)))",
    "v_normal_cdf": f"""\
(x) => {{
  const z = Math.min(Math.abs(x), 39), u = 1 - 8 / (z + 4);
  const factors = [{", ".join(map(repr, TAIL_DOUBLE))}];
  const tail = factors.reduce((sum, factor) => sum * u + factor) * Math.exp(-0.5 * z * z);
  return x < 0 ? tail : 1 - tail;
}}""",
    "v_not": "(c) => !c",
    "v_sigmoid": "(x) => 1 / (1 + Math.exp(-x))",
    "v_softplus": "(x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))",
    "v_maximum": "(a, b) => (a > b || a !== a ? a : b)",
    "v_minimum": "(a, b) => (a < b || a !== a ? a : b)",
    "vmax": "(a, b) => (a > b || a !== a ? a : b)",
    "vmin": "(a, b) => (a < b || a !== a ? a : b)",
    "vselect": "(c, a, b) => (c ? a : b)",
}
"""The functions of `mlpengine.formula.SCALARS` in JavaScript; callers round to float32."""

TEMPLATES = {
    "element": "$memory[{} + {}]",
    "whole": "{}",
    "is_nan": "Number.isNaN({})",
    "not_finite": "!Number.isFinite({})",
    "floor": "v_floor({})",
}
"""JavaScript of further functions in formulas."""

EXACT = {*TEMPLATES, "maximum", "minimum", "clip", "sign", "abs", "neg", "where"}
"""Functions with exact results, which need no rounding to float32."""

DECODER = """\
const $fill = (place, Numbers, text) => {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  $memory.set(new Numbers(bytes.buffer), place);
};
"""

MAX_WRITTEN = 16
"""Arrays of up to this length are written as numbers; longer arrays are written in base64."""


@dataclass(eq=False)
class JavaScript:
    """Prints definitions.  `single`: numbers are float32; `size`: length of the array so far."""

    single: bool
    size: int = 0
    _lines: list[str] = field(default_factory=list)

    def reserve(self, length: int) -> int:
        """Reserve `length` numbers of the array; return the index of the first."""
        self.size += length
        return self.size - length

    def add(self, definitions: Iterable[Definition]) -> None:
        """Append definitions to the module."""
        for one in definitions:
            self._lines += (
                self._constants(one) if isinstance(one, Constants) else self._function(one)
            )

    def text(self) -> str:
        """Return the text of the module, with its array and the functions that it calls."""
        body = "\n".join(self._lines)
        head = [f"const $memory = new Float{32 if self.single else 64}Array({self.size});"]
        head.append(f"const R = {'Math.fround' if self.single else '(x) => x'};")
        head += [f"const {name} = {value};" for name, value in MATH.items() if f"{name}(" in body]
        return "\n".join([*head, DECODER * ("$fill(" in body) + body, ""])

    def _constants(self, one: Constants) -> list[str]:
        if one.kind != "real":
            return [f"const {one.name} = {one.values.tolist()};"]
        place, wide = self.reserve(len(one.values)), one.values.astype("<f8")
        with np.errstate(over="ignore"):
            narrow = wide.astype("<f4")
        values = narrow if self.single or (narrow == wide).all() else wide
        if len(values) <= MAX_WRITTEN:
            listed = ", ".join(map(_number, values.tolist()))
            filled = f"$memory.set([{listed}], {place});"
        else:
            kind = f"Float{8 * values.itemsize}Array"
            filled = f'$fill({place}, {kind}, "{b64encode(values.tobytes()).decode()}");'
        return [f"const {one.name} = {place};", filled]

    def _function(self, one: ScalarFunction) -> list[str]:
        about = [f"/* {one.about.partition('.  ')[0]} */"] * bool(one.about)
        head = f"function {one.name}({', '.join(one.parameters)}) {{"
        return ["", *about, head, *self._body(one.body), "}"]

    # ------------------------------------------------ statements
    def _body(self, statements: Iterable[Statement]) -> Iterator[str]:
        for one in statements:
            yield from (f"  {line}" for line in self._statement(one))

    def _statement(self, one: Statement) -> Iterator[str]:
        match one:
            case str():
                yield one
            case Let(name, value) | Place(name, value):
                yield f"const {name} = {self._value(value)};"
            case Variable(name, value):
                yield f"let {name} = {self._value(value)};"
            case Whole(name, text):
                yield f"let {name} = {text};"
            case Memory(name, length, zeros):
                yield f"const {name} = {self.reserve(length)};"
                if zeros:
                    yield f"$memory.fill(0, {name}, {name} + {length});"
            case Assign(target, value, sign):
                place = self._value(target)
                if sign:
                    value = Expr({"+": "add", "-": "sub", "/": "div"}[sign], (target, value))
                yield f"{place} = {self._value(value)};"
            case Return(value):
                yield f"return {self._value(value)};"
            case ForLoop(i, start, stop, body, step):
                grow = f"{i}++" if step == 1 else f"{i} += {step}"
                yield f"for (let {i} = {start}; {i} < {stop}; {grow}) {{"
                yield from (*self._body(body), "}")
            case Scope(body):
                yield from ("{", *self._body(body), "}")
            case If(condition, body, otherwise):
                shown = condition if isinstance(condition, str) else self._value(condition)
                yield from (f"if ({shown}) {{", *self._body(body))
                yield from ("} else {", *self._body(otherwise), "}") if otherwise else ("}",)
            case _:
                raise UnsupportedError(f"the statement {one!r} in JavaScript")

    # ------------------------------------------------ formulas
    def _value(self, node: Expr) -> str:
        if node.number is not None:
            with np.errstate(over="ignore"):  # a constant beyond float32 is infinite
                return _number(float(np.float32(node.number)) if self.single else node.number)
        if not node.args:
            return str(node.leaf)
        args = [self._value(a) for a in node.args]
        template = TEMPLATES.get(node.name)
        if template is None and node.name not in FUNCTIONS:
            return f"{node.name}({', '.join(args)})"
        if own := BINDS.get(node.name):
            args = [
                text if BINDS.get(a.name, 9) >= own + k or self._rounds(a) else f"({text})"
                for k, (a, text) in enumerate(zip(node.args, args, strict=True))
            ]
        text = (template or FUNCTIONS[node.name].c).format(*args)
        return f"R({text})" if self._rounds(node) else text

    def _rounds(self, node: Expr) -> bool:
        """Return whether the result of `node` must be rounded to float32."""
        return self.single and not (node.name in EXACT or node.is_mask)


def _number(value: float) -> str:
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
