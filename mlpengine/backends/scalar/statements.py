"""The statements of generated files as typed nodes, which printers for other languages read.

Kernels, losses and preprocessing write their statements as text, in a small language whose notation
is that of C: numbers of type ``real`` and whole numbers, vectors of either, ``for``, ``if`` and
``while``, and functions.  C is the target that prints the text as it is, below the macros of
`math`; every other target, such as `javascript`, prints these nodes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeVar

import numpy as np

from mlpengine.backends.values import UnsupportedError
from mlpengine.core.spec import Array

T = TypeVar("T")

ValueType = Literal["real", "int", "vector", "indices", "void"]
"""The type of an expression: a number, a whole number or a truth, a place in the memory of numbers,
the name of an array of whole numbers, nothing."""


# ---------------------------------------------------------------- nodes
@dataclass(frozen=True)
class _Typed:
    """Base of expressions, each of a type."""

    kind: ValueType


@dataclass(frozen=True)
class Name(_Typed):
    """A variable or a constant."""

    name: str


@dataclass(frozen=True)
class NumberLiteral(_Typed):
    """A number; NaN and infinities are numbers, too."""

    value: float


@dataclass(frozen=True)
class Conversion(_Typed):
    """A conversion to `kind`; a whole number from a real one loses its fraction."""

    x: "TypedExpression"


@dataclass(frozen=True)
class Unary(_Typed):
    """``-x`` or ``!x``."""

    sign: str
    x: "TypedExpression"


@dataclass(frozen=True)
class Binary(_Typed):
    """``a sign b``: arithmetic, a comparison, or logic."""

    sign: str
    a: "TypedExpression"
    b: "TypedExpression"


@dataclass(frozen=True)
class Choice(_Typed):
    """``condition ? a : b``."""

    condition: "TypedExpression"
    a: "TypedExpression"
    b: "TypedExpression"


@dataclass(frozen=True)
class Element(_Typed):
    """``vector[index]``; `vector` is an expression, or the name of an array of whole numbers."""

    vector: "TypedExpression"
    index: "TypedExpression"


@dataclass(frozen=True)
class Invocation(_Typed):
    """A call of a function of the file, or of one of `FUNCTION_KINDS`."""

    name: str
    args: "tuple[TypedExpression, ...]"


@dataclass(frozen=True)
class Assign(_Typed):
    """``target = value``, or with a sign such as ``+``, ``target += value``."""

    target: "TypedExpression"
    sign: str
    value: "TypedExpression"


@dataclass(frozen=True)
class Step(_Typed):
    """``name++`` or ``name--``, whose value is that before."""

    name: Name
    sign: str


TypedExpression = (
    Name
    | NumberLiteral
    | Conversion
    | Unary
    | Binary
    | Choice
    | Element
    | Invocation
    | Assign
    | Step
)


@dataclass(frozen=True)
class Declare:
    """A variable with its value, or an array of `length` numbers, of zeros if it has a value."""

    kind: ValueType
    name: str
    value: TypedExpression | None
    length: int | None = None


@dataclass(frozen=True)
class Branch:
    """``if (condition) body else otherwise``."""

    condition: TypedExpression
    body: "TypedStatement"
    otherwise: "TypedStatement | None"


@dataclass(frozen=True)
class For:
    """``for (start; condition; steps) body``; a ``while`` has neither start nor steps."""

    start: "tuple[TypedStatement, ...]"
    condition: TypedExpression
    steps: tuple[TypedExpression, ...]
    body: "TypedStatement"


@dataclass(frozen=True)
class Return:
    """``return value``."""

    value: TypedExpression | None


@dataclass(frozen=True)
class Braces:
    """Statements with variables of their own."""

    statements: "tuple[TypedStatement, ...]"


TypedStatement = Declare | Branch | For | Return | Braces | TypedExpression


@dataclass(frozen=True, eq=False)
class ConstantArray:
    """An array of constants, float64."""

    kind: ValueType
    name: str
    values: Array


@dataclass(frozen=True)
class FunctionDefinition:
    """A function; `about` is the comment before it."""

    kind: ValueType
    name: str
    parameters: tuple[Name, ...]
    body: Braces
    about: str


FUNCTION_KINDS: Mapping[str, ValueType] = {
    **dict.fromkeys(("is_finite", "is_nan", "v_not"), "int"),
    **dict.fromkeys(("vmax", "vmin", "v_maximum", "v_minimum", "v_sign", "v_abs"), "real"),
    **dict.fromkeys(("v_sqrt", "v_exp", "v_expm1", "v_expm1_below_0", "v_log", "v_log1p"), "real"),
    **dict.fromkeys(("v_log2", "v_sin", "v_cos", "v_tanh", "v_pow", "v_sigmoid"), "real"),
    **dict.fromkeys(("v_softplus", "v_log1p_exp_of_minus_abs"), "real"),
    **dict.fromkeys(("v_normal_cdf", "floor"), "real"),
}
"""The functions of every target: those of `mlpengine.formula.SCALARS`, and ``M(floor)``."""


# ---------------------------------------------------------------- reading
_TOKEN = re.compile(
    r"\s*(?:(?P<comment>/\*.*?\*/)"
    r"|(?P<array>static const [\w ]+? \w+\[\d+\] = \{[^{}]*\};)"
    r"|(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\+\+|--|[-+*/%<>=!&|]=|&&|\|\||[-+*/%<>=!&|?:;,()\[\]{}]))",
    re.DOTALL,
)
_ARRAY = re.compile(r"static const (?:IN_FLASH )?([\w ]+?) (\w+)\[\d+\] = \{([^{}]*)\};")
_BASES: Mapping[str, ValueType] = {
    "real": "real",
    "void": "void",
    **dict.fromkeys(("int", "size_t", "long", "unsigned short"), "int"),
}
_WORDS = {"const", "static", "unsigned", "short", *_BASES} - {"unsigned short"}
BINDS = {
    "||": 1,
    "&&": 2,
    "|": 3,
    "&": 4,
    "==": 5,
    "!=": 5,
    **dict.fromkeys(("<", ">", "<=", ">="), 6),
    "+": 7,
    "-": 7,
    "*": 8,
    "/": 8,
    "%": 8,
}
"""The operators between two values, and how tightly they bind."""

_ASSIGNS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|="}


def read_statements(text: str) -> list[ConstantArray | FunctionDefinition]:
    """Return the definitions of a file without macros.

    Raises: UnsupportedError for what is not of this language.
    """
    return [*_Reader(text).definitions()]


@dataclass(eq=False)
class _Reader:
    """Reads definitions, statements and expressions by recursive descent."""

    text: str
    scopes: list[dict[str, ValueType]] = field(default_factory=lambda: [{}])

    def __post_init__(self) -> None:
        self.tokens: list[tuple[str, str]] = []
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                self.refuse(self.text[position : position + 40].strip())
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()
        self.tokens.append(("end", ""))
        self.at = 0

    def refuse(self, what: str) -> NoReturn:
        raise UnsupportedError(f"the statement {what!r}")

    # ------------------------------------------------ tokens
    @property
    def token(self) -> str:
        """The token to be read, comments apart."""
        while self.tokens[self.at][0] == "comment":
            self.at += 1
        return self.tokens[self.at][1]

    def next(self) -> str:
        token = self.token
        self.at += 1
        return token

    def accept(self, sign: str) -> bool:
        known = self.token == sign
        self.at += known
        return known

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            self.refuse(" ".join(text for _, text in self.tokens[self.at : self.at + 8]))

    def name(self) -> str:
        token = self.token
        if self.tokens[self.at][0] != "name":
            self.refuse(token)
        return self.next()

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read what stands before the closing parenthesis, between commas."""
        items = []
        while not self.accept(")"):
            items.append(read())
            self.accept(",")
        return tuple(items)

    # ------------------------------------------------ types
    def base(self) -> ValueType | None:
        """Read a type without its stars; None if there is none."""
        words = []
        while self.token in _WORDS:
            words.append(self.next())
        text = " ".join(word for word in words if word not in ("const", "static"))
        if words and text not in _BASES:
            self.refuse(text)
        return _BASES[text] if words else None

    def declared(self, base: ValueType) -> Name:
        """Read the stars and the name of what is declared, and remember its kind."""
        kind = base
        if self.accept("*"):
            self.accept("const")
            kind = "vector"
            if base != "real":
                self.refuse(f"{self.token}, a vector of whole numbers")
        name = Name(kind, self.name())
        self.scopes[-1][name.name] = kind
        return name

    def kind_of(self, name: str) -> ValueType:
        known = [scope[name] for scope in self.scopes if name in scope]
        return known[-1] if known else self.refuse(name)

    # ------------------------------------------------ definitions
    def definitions(self) -> Iterator[ConstantArray | FunctionDefinition]:
        while self.token:
            if self.tokens[self.at][0] == "array":
                yield self.constants(self.next())
            else:
                yield self.function()

    def constants(self, text: str) -> ConstantArray:
        match = _ARRAY.fullmatch(text)
        assert match is not None
        base, name = _BASES.get(match[1]), match[2]
        if base is None:
            self.refuse(text[:40])
        numbers = match[3].replace("R(", "").replace(")", "").replace("INFINITY", "inf").split(",")
        values = np.array([float(number) for number in numbers if number.strip()])
        self.scopes[0][name] = "vector" if base == "real" else "indices"
        return ConstantArray(base, name, values)

    def function(self) -> FunctionDefinition:
        before = self.tokens[self.at - 1] if self.at else ("", "")
        about = before[1][2:-2].strip() if before[0] == "comment" else ""
        name = self.parameter()
        self.scopes.append({})
        self.expect("(")
        parameters = self.listed(self.parameter)
        body = self.block()
        self.scopes.pop()
        return FunctionDefinition(name.kind, name.name, parameters, body, about)

    def parameter(self) -> Name:
        base = self.base()
        return self.refuse(self.token) if base is None else self.declared(base)

    # ------------------------------------------------ statements
    def block(self) -> Braces:
        self.expect("{")
        self.scopes.append({})
        statements: list[TypedStatement] = []
        while not self.accept("}"):
            statements += self.statements()
        self.scopes.pop()
        return Braces(tuple(statements))

    def one(self) -> TypedStatement:
        """Read the body of a loop or a condition."""
        statements = self.statements()
        return statements[0] if len(statements) == 1 else Braces(tuple(statements))

    def statements(self) -> list[TypedStatement]:
        """Read a statement, which may declare several variables."""
        if self.token == "{":
            return [self.block()]
        if self.accept("if"):
            condition, body = self.condition(), self.one()
            return [Branch(condition, body, self.one() if self.accept("else") else None)]
        if self.accept("while"):
            return [For((), self.condition(), (), self.one())]
        if self.accept("for"):
            return [self.loop()]
        if self.accept("return"):
            value = None if self.token == ";" else self.expression()
            self.expect(";")
            return [Return(value)]
        return self.simple()

    def condition(self) -> TypedExpression:
        self.expect("(")
        condition = self.expression()
        self.expect(")")
        return condition

    def loop(self) -> For:
        self.expect("(")
        self.scopes.append({})
        start = self.simple()
        condition = self.expression()
        self.expect(";")
        steps = self.listed(self.expression)
        body = self.one()
        self.scopes.pop()
        return For(tuple(start), condition, steps, body)

    def simple(self) -> list[TypedStatement]:
        """Read declarations or an expression, and the semicolon."""
        statements: list[TypedStatement] = []
        base = self.base()
        if base is None:
            if self.token != ";":
                statements.append(self.expression())
            self.expect(";")
            return statements
        while True:
            statements.append(self.declaration(self.declared(base)))
            if not self.accept(","):
                self.expect(";")
                return statements

    def declaration(self, name: Name) -> Declare:
        if not self.accept("["):
            value = self.expression() if self.accept("=") else None
            return Declare(name.kind, name.name, value)
        if name.kind != "real" or not self.token.isdigit():
            self.refuse(f"{name.name}[{self.token}")
        length = int(self.next())
        self.expect("]")
        self.scopes[-1][name.name] = "vector"
        zeros = None
        if self.accept("="):
            for sign in ("{", "0", "}"):
                self.expect(sign)
            zeros = NumberLiteral("real", 0.0)
        return Declare("vector", name.name, zeros, length)

    # ------------------------------------------------ expressions
    def expression(self) -> TypedExpression:
        target = self.choice()
        if self.token not in _ASSIGNS:
            return target
        sign = self.next()[:-1]
        if not isinstance(target, Name | Element):
            self.refuse(f"... {sign}=")
        return Assign(target.kind, target, sign, self.expression())

    def choice(self) -> TypedExpression:
        condition = self.binary(1)
        if not self.accept("?"):
            return condition
        a = self.expression()
        self.expect(":")
        b = self.choice()
        return Choice(_wider(a, b), condition, a, b)

    def binary(self, binds: int) -> TypedExpression:
        a = self.unary()
        while BINDS.get(self.token, 0) >= binds:
            sign = self.next()
            b = self.binary(BINDS[sign] + 1)
            kind = _wider(a, b) if BINDS[sign] > 6 else "int"
            a = Binary(kind, sign, a, b)
        return a

    def unary(self) -> TypedExpression:
        if self.token in ("-", "!"):
            sign = self.next()
            x = self.unary()
            return Unary("int" if sign == "!" else x.kind, sign, x)
        return self.postfix(self.primary())

    def postfix(self, x: TypedExpression) -> TypedExpression:
        while True:
            if self.accept("["):
                index = self.expression()
                self.expect("]")
                x = Element("int" if x.kind == "indices" else "real", x, index)
            elif self.token in ("++", "--") and isinstance(x, Name):
                x = Step(x.kind, x, self.next())
            else:
                return x

    def primary(self) -> TypedExpression:
        if self.tokens[self.at][0] == "number":
            text = self.next()
            return NumberLiteral("int" if text.isdigit() else "real", float(text))
        if self.accept("("):
            base = self.base()
            x = self.expression() if base is None else None
            self.expect(")")
            return Conversion(base, self.unary()) if base else x  # type: ignore[return-value]
        name = self.name()
        if name in ("NAN", "INFINITY"):
            return NumberLiteral("real", float(name.replace("INFINITY", "inf")))
        if name == "M":
            self.expect("(")
            name = self.name()
            self.expect(")")
        if not self.accept("("):
            return Name(self.kind_of(name), name)
        args = self.listed(self.expression)
        if name in ("R", "splat"):
            return Conversion("real", args[0])
        if name == "vselect":
            return Choice("real", *args)
        return Invocation(FUNCTION_KINDS.get(name) or self.kind_of(name), name, args)


def _wider(a: TypedExpression, b: TypedExpression) -> ValueType:
    """Return the kind of the sum of two values."""
    kinds = {a.kind, b.kind}
    return "vector" if "vector" in kinds else "real" if "real" in kinds else "int"
