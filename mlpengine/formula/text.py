"""Formulas as text, parsed with a fixed list of functions and never evaluated as Python."""

import ast
import re
import warnings
from collections.abc import Iterable, Sequence
from functools import reduce
from math import isfinite, pi
from unicodedata import normalize

from mlpengine.core.errors import FormulaError
from mlpengine.core.wording import nearest
from mlpengine.formula.expr import Expr, constant, make, variable, variables

LONGEST = 1000
"""Maximum number of characters of a formula."""

DEEPEST = 50
"""Maximum depth of nested brackets; the maximum depth of the syntax tree is twice this."""

FUNCTION_NAMES = {
    **{name: name for name in ("abs", "sign", "clip", "sqrt", "where", "maximum", "minimum")},
    **{name: name for name in ("exp", "expm1", "log", "log1p", "log2", "sin", "cos")},
    **{name: name for name in ("tanh", "sigmoid", "softplus", "normal_cdf")},
    "max": "maximum",
    "min": "minimum",
}
"""The functions that a formula may call: names in the text, mapped to names in `FUNCTIONS`."""

CONSTANTS = {"pi": pi}

SHOWN = 24
"""Maximum number of names that a message lists."""

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.And: "logical_and",
    ast.Or: "logical_or",
}


def parse(text: str, names: Iterable[str]) -> Expr:
    """Return the formula that `text` describes; `names` are its variables.

    The notation is Python's: numbers, ``+ - * / **``, comparisons, ``and or not``, and calls of
    `FUNCTION_NAMES`.  Write a name that is not an identifier between backticks, and a backtick
    within such a name twice.

    Raises: FormulaError, with the `position` of the first wrong character.
    """
    if not isinstance(text, str):
        raise FormulaError(f"formula: must be a text (got {text!r})", 0)
    if len(text) > LONGEST:
        raise FormulaError(
            f"formula: must have at most {LONGEST} characters (got {len(text)})", LONGEST
        )
    _limit_brackets(text)
    plain, quoted = _unquoted(text)
    strange = re.search(r"[#\\\x00-\x1f]", plain)
    if strange:
        raise _mistake(text, strange.start(), f"cannot be read (got {strange[0]!r})")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(plain, mode="eval")
    except SyntaxError as error:
        position = min(error.offset - 1, len(text)) if error.offset else len(text)
        raise _mistake(text, position, f"cannot be read ({error.msg})") from None
    except (ValueError, RecursionError, MemoryError):
        raise _mistake(text, 0, "cannot be read") from None
    _limit_depth(text, tree)
    return _Reader(text, plain, dict.fromkeys(names), quoted).read(tree.body)


def parse_number(text: str, names: Sequence[str]) -> Expr:
    """Parse a formula that gives a number and depends on the first of `names`.

    Raises: FormulaError for a comparison, or for a formula without this name.
    """
    formula = parse(text, names)
    if formula.is_mask or names[0] not in variables(formula):
        raise FormulaError(
            f"formula: must be a number that depends on {names[0]} (got {text!r})", 0
        )
    return formula


def _mistake(text: str, position: int, what: str) -> FormulaError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return FormulaError(f"formula: character {position + 1}: {what} (in {shown!r})", position)


def _limit_brackets(text: str) -> None:
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth > DEEPEST:
            raise _mistake(text, position, f"brackets nest at most {DEEPEST} deep")


def _limit_depth(text: str, tree: ast.AST) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(2 * DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise _mistake(text, 0, f"operators nest at most {2 * DEEPEST} deep; use brackets")


def _unquoted(text: str) -> tuple[str, dict[str, str]]:
    """Replace each name in backticks by an unused identifier; return the text and the names.

    An identifier has the length of the replaced text, so positions stay valid.  Names that Python
    would change, such as a micro sign into the Greek letter mu, are replaced, too.
    """
    quoted: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        name = match[2] or match[1].replace("``", "`")
        if match[2] and normalize("NFKC", name) == name:
            return name
        unused = (chr(code) for code in range(0x3400, 0x4DB0) if chr(code) not in text)
        stand_in = next(c for c in unused if all(c != k[0] for k in quoted))
        stand_in += "_" * (len(match[0]) - 1)
        quoted[stand_in] = name
        return stand_in

    return re.sub(r"`((?:[^`\n]|``)+)`|([^\W\d]\w*)", replace, text), quoted


class _Reader:
    """Converts nodes of Python's syntax tree to `Expr` nodes."""

    def __init__(
        self, text: str, plain: str, names: dict[str, None], quoted: dict[str, str]
    ) -> None:
        self.text, self.names, self.quoted = text, names, quoted
        self.bytes = plain.encode()

    def read(self, node: ast.expr) -> Expr:
        try:
            formula = self._read(node)
        except FormulaError as error:
            if error.position is not None:
                raise
            raise self.mistake(node, str(error)) from None
        if formula.number is not None and not isfinite(formula.number):
            raise self.mistake(node, f"a constant must be finite (got {formula.number})")
        return formula

    def _read(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                try:
                    return constant(value)
                except OverflowError:
                    raise self.mistake(node, "a constant must be finite") from None
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
                return make(_OPERATORS[type(op)], self.read(left), self.read(right))
            case ast.UnaryOp(ast.USub(), operand):
                return -self.read(operand)
            case ast.UnaryOp(ast.UAdd(), operand):
                return self.read(operand)
            case ast.UnaryOp(ast.Not(), operand):
                return ~self.read(operand)
            case ast.BoolOp(op, values):
                return self._pairwise(_OPERATORS[type(op)], values)
            case ast.Compare(left, ops, others) if all(type(op) in _OPERATORS for op in ops):
                operands = [self.read(x) for x in (left, *others)]
                pairs = zip(ops, operands, operands[1:], strict=False)
                parts = [make(_OPERATORS[type(op)], a, b) for op, a, b in pairs]
                return reduce(lambda a, b: a & b, parts)
            case ast.Call(ast.Name(id=name), args, []):
                return self._call(node, name, args)
            case ast.Constant(value=str()):
                raise self.mistake(node, "a formula compares numbers, not texts")
        raise self.mistake(
            node,
            "a formula has names, numbers, arithmetic, comparisons and calls of "
            f"{', '.join(FUNCTION_NAMES)} only",
        )

    def _name(self, node: ast.expr, name: str) -> Expr:
        name = self.quoted.get(name, name)
        if name in self.names:
            return variable(name)
        if name in CONSTANTS:
            return constant(CONSTANTS[name])
        raise self.unknown(node, "name", name, [*self.names, *CONSTANTS])

    def _call(self, node: ast.expr, name: str, args: Sequence[ast.expr]) -> Expr:
        name = self.quoted.get(name, name)
        function = FUNCTION_NAMES.get(name)
        if function is None:
            raise self.unknown(node, "function", name, list(FUNCTION_NAMES))
        if function in ("maximum", "minimum") and len(args) > 2:
            return self._pairwise(function, args)
        return make(function, *(self.read(a) for a in args))

    def _pairwise(self, function: str, values: Sequence[ast.expr]) -> Expr:
        return reduce(lambda a, b: make(function, a, b), [self.read(v) for v in values])

    def unknown(self, node: ast.expr, kind: str, name: str, known: list[str]) -> FormulaError:
        near = nearest(name, known)
        more = ", ..." if len(known) > SHOWN else ""
        offer = f"did you mean {near!r}?" if near else f"there is: {', '.join(known[:SHOWN])}{more}"
        return self.mistake(node, f"no {kind} is called {name!r}; {offer}")

    def mistake(self, node: ast.expr, what: str) -> FormulaError:
        return _mistake(self.text, len(self.bytes[: node.col_offset].decode()), what)
