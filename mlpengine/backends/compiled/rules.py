"""The table of compiled element-wise rules: one row per op and direction.

A row is C on vectors.  Names on the left of an assignment are written, the other names of the op's
rule (operands, residuals, ``dy``, ``y``, work buffers) are read; ``dx`` is the slot of the first
operand.  ``@name`` is a hyper-parameter of the op.  The NumPy rule of the op stays the definition,
and the tests hold every row to it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlpengine.backends.compiled.numbers import with_options
from mlpengine.ops._op import Direction, GradOp


@dataclass(frozen=True)
class Rule:
    """One row: statements on vectors, and the buffers they read and write."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    code: str

    @classmethod
    def parse(cls, code: str) -> "Rule":
        """Return the rule of `code`, whose statements are ``name = expression``."""
        reads: list[str] = []
        writes: list[str] = []
        for statement in code.split(";"):
            target, _, expression = statement.partition("=")
            for name in re.findall(r"(?<![\w@])[a-z]\w*(?!\w*\s*\()", expression):
                if name not in writes and name not in reads:
                    reads.append(name)
            writes.append(target.strip())
        return cls(tuple(reads), tuple(writes), code)

    def statements(self, op: GradOp, names: Mapping[str, str]) -> list[str]:
        """Return the C statements of `op` on vectors of these names; those written are declared."""
        code = re.sub(r"(?<![\w@])[a-z]\w*", lambda m: names.get(m[0], m[0]), self.code)
        declared = [f"vec {names[name]};" for name in self.writes]
        return [*declared, *(f"{part.strip()};" for part in with_options(code, op).split(";"))]


def _table(rows: Mapping[tuple[str, Direction], str]) -> dict[tuple[str, Direction], Rule]:
    return {key: Rule.parse(code) for key, code in rows.items()}


ELEMENTWISE = _table(
    {
        ("relu", "forward"): "y = vmax(x, splat(0))",
        ("relu", "backward"): "dx = select(y != splat(0), dy, splat(0))",
        ("leaky_relu", "forward"): "y = vmax(x, x * splat(@alpha))",
        ("leaky_relu", "backward"): "dx = dy * select(x > splat(0), splat(1), splat(@alpha))",
        ("tanh", "forward"): "y = v_tanh(x)",
        ("tanh", "backward"): "dx = dy * (splat(1) - y * y)",
        ("sigmoid", "forward"): "y = v_sigmoid(x)",
        ("sigmoid", "backward"): "dx = dy * y * (splat(1) - y)",
        ("silu", "forward"): "gate = v_sigmoid(x); y = x * gate",
        ("silu", "backward"): "dx = dy * (y - y * gate + gate)",
        ("softplus", "forward"): "y = vmax(x, splat(0)) + v_log1p_exp_of_minus_abs(x)",
        ("softplus", "backward"): "dx = dy * v_exp(x - y)",
        ("elu", "forward"): ("y = vmax(x, splat(0)) + splat(@alpha) * v_expm1(vmin(x, splat(0)))"),
        ("elu", "backward"): "dx = dy * v_unit_slope(y, @alpha, 1)",
        ("selu", "forward"): (
            "y = splat(@scale) * (vmax(x, splat(0)) + splat(@alpha) * v_expm1(vmin(x, splat(0))))"
        ),
        ("selu", "backward"): "dx = dy * v_unit_slope(y, @alpha * @scale, @scale)",
        ("gelu", "forward"): "y = v_gelu(x); slope = v_gelu_slope(x)",
        ("gelu_tanh", "forward"): "y = v_gelu_tanh(x); slope = v_gelu_tanh_slope(x)",
        ("gelu", "backward"): "dx = dy * slope",
        ("gelu_tanh", "backward"): "dx = dy * slope",
        ("dropout", "backward"): "dx = dy * mask",
    }
)
"""Rules by op name and direction.  An op that is not here runs its NumPy rule."""


def find_rule(op: GradOp, direction: Direction) -> Rule | None:
    """Return the compiled rule of `op`, or None."""
    name = op.name
    if getattr(op, "approximate", "none") != "none":
        name = f"{name}_{op.approximate}"  # type: ignore[attr-defined]
    return ELEMENTWISE.get((name, direction))
