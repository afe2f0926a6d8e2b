"""Formulas of element-wise ops, for the compiled backend and exports."""

from collections.abc import Collection, Mapping

from mlpengine.core.fork_locks import cached_property
from mlpengine.formula import Expr, in_steps, order, variable
from mlpengine.ops import Dropout, Elementwise, GradOp, Normal
from mlpengine.ops.op import Direction


class VectorRule:
    """An op's formulas: `outputs` such as ``y`` and ``dx``, functions of the variables `given`."""

    def __init__(self, given: Mapping[str, Expr], outputs: Mapping[str, Expr]) -> None:
        self.given, self.outputs = given, outputs

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Names of the variables that the outputs depend on."""
        nodes = set(order(self.outputs.values(), self.given.values()))
        return tuple(name for name, node in self.given.items() if node in nodes)

    @property
    def writes(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(self.outputs)

    def limited_to(self, names: Collection[str]) -> "VectorRule":
        """Return the rule with only the outputs `names`."""
        return VectorRule(self.given, {n: f for n, f in self.outputs.items() if n in names})

    def steps(self, names: Mapping[str, str], prefix: str = "") -> list[tuple[str, Expr]]:
        """Return the assignments that compute the outputs; new names begin with `prefix`."""
        given = {self.given[name]: names[name] for name in self.reads}
        outputs = {names[name]: formula for name, formula in self.outputs.items()}
        return in_steps(outputs, given, prefix or f"{next(iter(outputs))}_t")


def find_rule(op: GradOp, direction: Direction) -> VectorRule | None:
    """Return the formulas of `op`; None if it is not element-wise."""
    if isinstance(op, Dropout):
        given, out = ("dy", "dx") if direction == "backward" else ("x", "y")
        values = {given: variable(given), "mask": variable("mask")}
        return VectorRule(values, {out: values[given] * values["mask"]})
    if isinstance(op, Normal):
        dy, mean, deviation, z = map(variable, ("dy", "mean", "deviation", "z"))
        if direction == "backward":
            return VectorRule({"dy": dy, "z": z}, {"dmean": dy, "ddeviation": dy * z})
        values = {"mean": mean, "deviation": deviation, "z": z}
        return VectorRule(values, {"y": mean + deviation * z})
    if not isinstance(op, Elementwise):
        return None
    f = op.formulas
    if direction == "forward":
        return VectorRule(f.operands, {"y": f.y, **f.kept})
    slopes = {f"d{name}": slope for name, slope in zip(f.operands, f.gradients, strict=True)}
    return VectorRule({**f.residuals, **f.kept}, slopes)
