"""Generated files as JavaScript: the statements of `statements`, on one array of numbers.

A vector is a place in that array, as in C, where constants come first and local arrays follow.
Numbers of type ``real`` are rounded to float32 by `Math.fround` after every operation, if the array
is one of float32.  Names of C have no ``$``; those of this file begin with it.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isinf, isnan

import numpy as np

from mlpengine.backends.scalar.statements import (
    BINDS,
    Assign,
    Binary,
    Braces,
    Branch,
    Choice,
    ConstantArray,
    Conversion,
    Declare,
    Element,
    For,
    FunctionDefinition,
    Invocation,
    Name,
    NumberLiteral,
    Return,
    Step,
    TypedExpression,
    TypedStatement,
    Unary,
)
from mlpengine.formula.numpy_functions import TAIL_DOUBLE

JS_FUNCTIONS = {
    "is_finite": "Number.isFinite({})",
    "is_nan": "Number.isNaN({})",
    "v_not": "!({})",
    "vmax": "$max({}, {})",
    "vmin": "$min({}, {})",
    "v_maximum": "$max({}, {})",
    "v_minimum": "$min({}, {})",
    "v_sign": "Math.sign({})",
    "v_abs": "Math.abs({})",
    "v_sigmoid": "$sigmoid({})",
    "v_softplus": "$softplus({})",
    "v_log1p_exp_of_minus_abs": "Math.log1p(Math.exp(-Math.abs({})))",
    "v_normal_cdf": "$normal_cdf({})",
    "v_expm1_below_0": "Math.expm1({})",
    **{f"v_{name}": f"Math.{name}({{}})" for name in ("sqrt", "exp", "expm1", "log", "log1p")},
    **{f"v_{name}": f"Math.{name}({{}})" for name in ("log2", "sin", "cos", "tanh")},
    "v_pow": "Math.pow({}, {})",
    "floor": "Math.floor({})",
}
"""The functions of every target; numbers that they return are rounded where they are used."""

EXACT = {"vmax", "vmin", "v_maximum", "v_minimum", "v_sign", "v_abs", "floor"}
"""Those whose values need no rounding."""

HELPERS = {
    "$max": "(a, b) => (a > b || a !== a ? a : b)",
    "$min": "(a, b) => (a < b || a !== a ? a : b)",
    "$sigmoid": "(x) => 1 / (1 + Math.exp(-x))",
    "$softplus": "(x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))",
    "$normal_cdf": f"""\
(x) => {{
  const z = Math.min(Math.abs(x), 39), u = 1 - 8 / (z + 4);
  const factors = [{", ".join(map(repr, TAIL_DOUBLE))}];
  const tail = factors.reduce((sum, factor) => sum * u + factor) * Math.exp(-0.5 * z * z);
  return x < 0 ? tail : 1 - tail;
}}""",
}
"""What functions call."""

RESERVED = {
    *("arguments", "await", "break", "case", "catch", "class", "const", "continue", "debugger"),
    *("default", "delete", "do", "else", "enum", "eval", "export", "extends", "false", "finally"),
    *("for", "function", "if", "implements", "import", "in", "instanceof", "interface", "let"),
    *("new", "null", "package", "private", "protected", "public", "return", "static", "super"),
    *("switch", "this", "throw", "true", "try", "typeof", "var", "void", "while", "with", "yield"),
}
"""Names of C that no variable of a module may have."""

DECODER = """\
const $fill = (place, Numbers, text) => {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  $memory.set(new Numbers(bytes.buffer), place);
};
"""

MAX_WRITTEN = 16
"""Up to so many constants are written as they are; more as base64 of their bytes."""


@dataclass(eq=False)
class JavaScript:
    """Prints definitions; `single` tells whether numbers are float32.

    Attributes:
        size: numbers in the memory, as far as they are known.
    """

    single: bool
    size: int = 0
    _lines: list[str] = field(default_factory=list)

    def reserve(self, length: int) -> int:
        """Return a place for so many numbers."""
        self.size += length
        return self.size - length

    def add(self, definitions: Iterable[ConstantArray | FunctionDefinition]) -> None:
        """Print definitions below those that there are."""
        for one in definitions:
            self._lines += (
                self._constants(one) if isinstance(one, ConstantArray) else self._function(one)
            )

    def text(self) -> str:
        """Return everything, with the memory and the functions that it needs."""
        body = "\n".join(self._lines)
        head = [f"const $memory = new Float{32 if self.single else 64}Array({self.size});"]
        head += ["const $f = Math.fround;"] * self.single
        head += [
            f"const {name} = {value};" for name, value in HELPERS.items() if f"{name}(" in body
        ]
        return "\n".join([*head, DECODER * ("$fill(" in body) + body, ""])

    # ------------------------------------------------ definitions
    def _constants(self, one: ConstantArray) -> list[str]:
        if one.kind == "int":
            return [f"const {_name(one.name)} = [{_listed(one.values.tolist())}];"]
        place = self.reserve(len(one.values))
        with np.errstate(over="ignore"):
            narrow = one.values.astype("<f4")
        wide = not self.single and bool((narrow != one.values).any())
        if len(one.values) <= MAX_WRITTEN:
            filled = (
                f"$memory.set([{_listed((one.values if wide else narrow).tolist())}], {place});"
            )
        else:
            kind, values = (
                ("Float64Array", one.values.astype("<f8")) if wide else ("Float32Array", narrow)
            )
            filled = f'$fill({place}, {kind}, "{b64encode(values.tobytes()).decode()}");'
        return [f"const {_name(one.name)} = {place};", filled]

    def _function(self, one: FunctionDefinition) -> list[str]:
        about = [f"/* {one.about.partition('.  ')[0]} */"] * bool(one.about)
        parameters = ", ".join(_name(parameter.name) for parameter in one.parameters)
        return [
            "",
            *about,
            f"function {_name(one.name)}({parameters}) {{",
            *self._body(one.body),
            "}",
        ]

    # ------------------------------------------------ statements
    def _body(self, statement: TypedStatement) -> list[str]:
        """Return the indented lines of what stands between braces."""
        inner = statement.statements if isinstance(statement, Braces) else (statement,)
        return [f"  {line}" for one in inner for line in self._statement(one)]

    def _statement(self, one: TypedStatement) -> Iterator[str]:
        match one:
            case Braces():
                yield from ("{", *self._body(one), "}")
            case Declare():
                yield f"{'let' if one.length is None else 'const'} {self._declared(one)};"
                if one.length is not None and one.value is not None:
                    yield f"$memory.fill(0, {_name(one.name)}, {_name(one.name)} + {one.length});"
            case Branch():
                yield f"if ({self._value(one.condition)}) {{"
                yield from self._body(one.body)
                if isinstance(one.otherwise, Branch):
                    first, *others = self._statement(one.otherwise)
                    yield from (f"}} else {first}", *others)
                    return
                if one.otherwise is not None:
                    yield "} else {"
                    yield from self._body(one.otherwise)
                yield "}"
            case For():
                declared = [self._declared(s) for s in one.start if isinstance(s, Declare)]
                start = f"let {', '.join(declared)}" if declared else ""
                start = start or ", ".join(self._value(s) for s in one.start)  # type: ignore[arg-type]
                steps = ", ".join(map(self._value, one.steps))
                yield f"for ({start}; {self._value(one.condition)}; {steps}) {{"
                yield from self._body(one.body)
                yield "}"
            case Return():
                yield "return;" if one.value is None else f"return {self._value(one.value)};"
            case _:
                yield f"{self._value(one)};"

    def _declared(self, one: Declare) -> str:
        if one.length is not None:
            return f"{_name(one.name)} = {self.reserve(one.length)}"
        if one.value is None:
            return _name(one.name)
        value = self._number(one.value) if one.kind == "real" else self._value(one.value)
        return f"{_name(one.name)} = {value}"

    # ------------------------------------------------ expressions
    def _value(self, one: TypedExpression, binds: float = 0) -> str:
        """Return an expression, in parentheses if it binds less."""
        text, own = self._bound(one)
        return f"({text})" if own < binds else text

    def _number(self, one: TypedExpression, binds: float = 0) -> str:
        """Return an expression as a number of type ``real``."""
        if one.kind != "int" or isinstance(one, NumberLiteral):
            return self._value(one, binds)
        return self._rounded(f"+{self._value(one, _UNARY)}")

    def _rounded(self, text: str) -> str:
        return f"$f({text})" if self.single else text

    def _bound(self, one: TypedExpression) -> tuple[str, float]:
        """Return an expression, and how tightly its outermost operator binds."""
        match one:
            case Name():
                return _name(one.name), _PRIMARY
            case NumberLiteral():
                value = float(np.float32(one.value)) if self.single else one.value
                return _number_text(value), _PRIMARY
            case Conversion(kind="real"):
                return self._number(one.x, _UNARY), _UNARY
            case Conversion():
                text = self._value(one.x)
                return (f"Math.trunc({text})" if one.x.kind == "real" else text), 0
            case Unary():
                return f"{one.sign}{self._value(one.x, _PRIMARY)}", _UNARY
            case Binary():
                return self._binary(one)
            case Choice():
                branch = self._number if one.kind == "real" else self._value
                condition = self._value(one.condition, 1)
                return f"{condition} ? {branch(one.a, 0.5)} : {branch(one.b, 0.5)}", 0.5
            case Element(kind="real"):
                place = Binary("vector", "+", one.vector, one.index)
                is_first = one.index == NumberLiteral("int", 0)
                return f"$memory[{self._value(one.vector if is_first else place)}]", _PRIMARY
            case Element():
                return f"{self._value(one.vector, _PRIMARY)}[{self._value(one.index)}]", _PRIMARY
            case Step():
                return f"{_name(one.name.name)}{one.sign}", _UNARY
            case Assign():
                return self._assigned(one), 0
            case Invocation():
                return self._called(one), _PRIMARY

    def _binary(self, one: Binary) -> tuple[str, float]:
        binds = BINDS[one.sign]
        is_real = one.kind == "real"
        operand = self._number if is_real else self._value
        a, b = operand(one.a, binds), operand(one.b, binds + 1)
        text = f"{a} {one.sign} {b}"
        if is_real and self.single:
            return f"$f({text})", _PRIMARY
        if one.sign == "/" and not is_real:
            return f"Math.trunc({text})", _PRIMARY
        return text, binds

    def _assigned(self, one: Assign) -> str:
        target = self._value(one.target)
        if one.kind != "real":
            return f"{target} {one.sign}= {self._value(one.value)}"
        if not one.sign:
            return f"{target} = {self._number(one.value)}"
        binds = BINDS[one.sign]
        value = f"{target} {one.sign} {self._number(one.value, binds + 1)}"
        return f"{target} = {self._rounded(value)}"

    def _called(self, one: Invocation) -> str:
        args: Sequence[str] = [self._value(arg) for arg in one.args]
        if one.name not in JS_FUNCTIONS:
            return f"{_name(one.name)}({', '.join(args)})"
        text = JS_FUNCTIONS[one.name].format(*args)
        return text if one.kind == "int" or one.name in EXACT else self._rounded(text)


_UNARY, _PRIMARY = 10, 11
"""How tightly a sign before an operand, and an operand, bind; operators: `BINDS`."""


def _name(name: str) -> str:
    return f"${name}" if name in RESERVED else name


def _listed(values: Iterable[float]) -> str:
    return ", ".join(map(_number_text, values))


def _number_text(value: float) -> str:
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
