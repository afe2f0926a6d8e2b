"""Scalar code of an optimizer's update."""

from collections.abc import Mapping
from dataclasses import dataclass

from mlpengine.backends.compiled.statements import Assign, ForLoop, Let, Statement, element, lets
from mlpengine.backends.scalar.definitions import c_text, real_constant
from mlpengine.backends.update_rules import Update
from mlpengine.core.fork_locks import cached_property
from mlpengine.formula import (
    Expr,
    exp,
    expm1,
    log,
    make,
    order,
    variable,
    variables,
)
from mlpengine.formula import constant as number


@dataclass(frozen=True)
class UpdateCode:
    """The C of an optimizer; `name` is the C type of its state.

    The scalars of a step, such as bias corrections, are computed in ``real``, which may be float.
    Python uses double.  So `accurate` rewrites their formulas.
    """

    update: Update
    name: str

    @cached_property
    def moments(self) -> list[str]:
        """Names of the vectors of moments in the state."""
        return [f"moment_{name}" for name in self.update.moments]

    @property
    def decays(self) -> bool:
        """Whether any parameter has weight decay."""
        return bool(self.update.decayed)

    @cached_property
    def _numbers(self) -> list[str]:
        """Names of the scalars of a step that the update reads."""
        return [n for n in variables(*self.update.outputs.values()) if n in self.update.numbers]

    @property
    def parameters(self) -> str:
        """Further parameters of the C function ``update``, such as ", real rate"."""
        decay = ", real keep" if self.decays else ""
        return "".join(f", real {name}" for name in self._numbers) + decay

    def arguments(self, keep: str = "keep") -> str:
        """Return the arguments for `parameters`; `keep` is the C of 1 - lr * weight_decay."""
        return "".join(f", {name}" for name in self._numbers) + f", {keep}" * self.decays

    def statements(self) -> list[Statement]:
        """Return the statements that compute the scalars of a step."""
        given = {variable("lr"): "state->lr", variable("t"): "R(state->steps + 1)"}
        known = {variable(name): number(value) for name, value in self.update.hyper.items()}
        outputs = {n: accurate(self.update.numbers[n], known) for n in self._numbers}
        lines: list[Statement] = [*lets(outputs, given, "n")]
        if self.decays:
            lines.append(Let("keep", 1 - variable("state->lr") * self.update.weight_decay))
        return lines

    def function(self) -> str:
        """Return ``update(state, at, n, v, factor, ...)`` in C, for gradients v[i] * factor."""
        names = {variable(n): n for n in self._numbers}
        names |= {variable(n): f"old_{n}" for n in ("p", "g", *self.update.moments)}
        names |= {variable(n): real_constant(value) for n, value in self.update.hyper.items()}
        read = set(variables(*self.update.outputs.values()))
        outputs = {f"new_{name}": output for name, output in self.update.outputs.items()}
        places = {n: element(f"state->moment_{n}", "i") for n in self.update.moments}
        at = element("state->params", "i")
        body: list[Statement] = [
            Let("old_p", at * variable("keep") if self.decays else at),
            *(Let(f"old_{n}", place) for n, place in places.items() if n in read),
            "const real old_g = *v++ * factor;",
            *lets(outputs, names, "u"),
            *(Assign({"p": at, **places}[n], variable(f"new_{n}")) for n in self.update.outputs),
        ]
        return (
            "/* A step of the optimizer for n parameters, with gradients v[i] * factor. */\n"
            f"static void update({self.name} *state, size_t at, size_t n, const real *v, "
            f"real factor{self.parameters})\n"
            f"{{\n{c_text([ForLoop('i', 'at', 'at + n', body)])}}}\n\n"
        )


def accurate(formula: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return a formula that is accurate in float32, with `known` variables replaced by values.

    A power with a variable exponent becomes exp(exponent * log(base)), and 1 - exp(x) becomes
    -expm1(x).  Without this, 1 - 0.999**t has a relative error of 6e-5 in float32.
    """
    values: dict[Expr, Expr] = dict(known)
    for node in order([formula], known):
        if node in values:
            continue
        args = [values[a] for a in node.args]
        if not args:
            values[node] = node
        elif node.name == "pow" and args[1].number is None:
            values[node] = exp(args[1] * log(args[0]))
        elif node.name == "sub" and args[0].number == 1 and args[1].name == "exp":
            values[node] = -expm1(args[1].args[0])
        else:
            values[node] = make(node.name, *args)
    return values[formula]
