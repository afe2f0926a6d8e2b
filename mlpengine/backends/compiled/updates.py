"""The table of compiled optimizers: what one step does to a vector of parameters."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import indent

from mlpengine.backends.compiled.numbers import literal
from mlpengine.spec import Array


@dataclass(frozen=True)
class UpdateRule:
    """One row.

    `numbers` are the hyper-parameters by name, doubles in C.  `constants` are declarations made
    once a step, from them, the learning rate `lr` and `t`, the number of this step from 1.  `code`
    works on the vectors `p` (parameter), `g` (gradient) and the moments by name.
    """

    numbers: tuple[str, ...]
    moments: tuple[str, ...]
    constants: str
    code: str


UPDATES = {
    "adam": UpdateRule(
        ("h_beta1", "h_beta2", "h_eps"),
        ("first", "second"),
        "const double root = sqrt((1.0 - pow(h_beta2, t)) / (1.0 - h_beta2));\n"
        "const vec beta1 = splat((real)h_beta1), beta2 = splat((real)h_beta2);\n"
        "const vec eps = splat((real)(root * h_eps));\n"
        "const vec rate = splat((real)(lr * root * (1.0 - h_beta1) / (1.0 - pow(h_beta1, t))));",
        "first = first * beta1 + g;\n"
        "second = second * beta2 + g * g;\n"
        "p = p - first / (v_sqrt(second) + eps) * rate;",
    ),
    "sgd": UpdateRule((), (), "const vec rate = splat((real)lr);", "p = p - g * rate;"),
    "sgd_momentum": UpdateRule(
        ("h_momentum",),
        ("velocity",),
        "const vec rate = splat((real)lr), momentum = splat((real)h_momentum);",
        "velocity = velocity * momentum + g;\np = p - velocity * rate;",
    ),
    "sgd_nesterov": UpdateRule(
        ("h_momentum",),
        ("velocity",),
        "const vec rate = splat((real)lr), momentum = splat((real)h_momentum);",
        "velocity = (velocity + g) * momentum;\np = p - (velocity + g) * rate;",
    ),
    "rms_prop": UpdateRule(
        ("h_alpha", "h_eps"),
        ("square",),
        "const vec alpha = splat((real)h_alpha);\n"
        "const vec eps = splat((real)(h_eps / sqrt(1.0 - h_alpha)));\n"
        "const vec rate = splat((real)(lr / sqrt(1.0 - h_alpha)));",
        "square = square * alpha + g * g;\np = p - g / (v_sqrt(square) + eps) * rate;",
    ),
    "rms_prop_momentum": UpdateRule(
        ("h_alpha", "h_eps", "h_momentum"),
        ("square", "velocity"),
        "const vec alpha = splat((real)h_alpha), momentum = splat((real)h_momentum);\n"
        "const vec eps = splat((real)(h_eps / sqrt(1.0 - h_alpha)));\n"
        "const vec rate = splat((real)(lr / sqrt(1.0 - h_alpha)));",
        "square = square * alpha + g * g;\n"
        "velocity = velocity * momentum + g / (v_sqrt(square) + eps);\n"
        "p = p - velocity * rate;",
    ),
}
"""Rows by name; which optimizer takes which row is said where optimizers are known."""


@dataclass(frozen=True, eq=False)
class Update:
    """An optimizer bound to its vectors, as a row of `UPDATES` wants it.

    Attributes:
        rule: the name of the row.
        params, grads: the flat vectors.
        moments: flat vectors by name.
        numbers: the hyper-parameters, in the order of the row.
        weight_decay: and `decayed`, the ranges of the parameters that decay.
        flush_every: steps between two flushes of what is nearly zero.
        floors: the least value of the moments that are squares; in the others entries smaller
            than `threshold` become zero.
    """

    rule: str
    params: Array
    grads: Array
    moments: Mapping[str, Array]
    numbers: Sequence[float]
    weight_decay: float = 0.0
    decayed: Sequence[tuple[int, int]] = ()
    flush_every: int = 64
    floors: Mapping[str, float] = field(default_factory=dict)
    threshold: float = 0.0

    @property
    def vectors(self) -> dict[str, Array]:
        """The flat vectors by their names in C."""
        moments = {f"moment_{name}": array for name, array in self.moments.items()}
        return {"params": self.params, "grads": self.grads, **moments}


def emit_update(update: Update, first_number: int) -> str:
    """Return the body that updates the entries `first` to `last` of the flat vectors.

    `first_number` is where the hyper-parameters start in the table ``numbers``.
    """
    rule = UPDATES[update.rule]
    lines = [
        f"const double {name} = numbers[{first_number + i}];" for i, name in enumerate(rule.numbers)
    ]
    lines += rule.constants.split("\n")
    for start, stop, decays in _ranges(update):
        lines.append(f"for (long i = MAX({start}, first); i < MIN({stop}, last); i += LANES) {{")
        lines.append(f"  const long n = MIN(LANES, MIN({stop}, last) - i);")
        body = _vector(rule, decays=decays)
        lines.append(f"  if (n == LANES) {{\n{indent(body, '    ')}\n  }} else {{")
        lines.append(f"{indent(_partial(body), '    ')}\n  }}")
        lines.append("}")
    return "\n".join(lines)


def emit_flush(update: Update, itemsize: int) -> str:
    """Return the body that keeps the vectors out of the denormal range, `first` to `last`."""
    lines = []
    for name in update.moments:
        at = f"moment_{name}[i]"
        if name in update.floors:
            least = literal(update.floors[name], itemsize)
            lines.append(f"{at} = {at} < {least} ? {least} : {at};")
        else:
            lines.append(_zero_small(at, update, itemsize))
    if update.weight_decay and update.decayed:
        lines.append(_zero_small("params[i]", update, itemsize))
    loops = [f"for (long i = first; i < last; i++)\n  {line}" for line in lines]
    return "\n".join(loops)


def _zero_small(at: str, update: Update, itemsize: int) -> str:
    least = literal(update.threshold, itemsize)
    return f"{at} = {at} < {least} && {at} > -{least} ? 0 : {at};"


def _ranges(update: Update) -> Iterator[tuple[int, int, bool]]:
    """Yield the runs of parameters that do, or do not, decay."""
    if not update.weight_decay:
        yield 0, update.params.size, False
        return
    bounds = {0, update.params.size, *(b for pair in update.decayed for b in pair)}
    for start, stop in pairwise(sorted(bounds)):
        yield start, stop, any(a <= start < b for a, b in update.decayed)


def _vector(rule: UpdateRule, *, decays: bool) -> str:
    """Return what happens to one vector of entries."""
    lines = ["vec p = load(params + i), g = load(grads + i);"]
    lines += [f"vec {name} = load(moment_{name} + i);" for name in rule.moments]
    if decays:
        lines.append("p = p * splat(keep);")
    lines += rule.code.split("\n")
    lines += [f"store(moment_{name} + i, {name});" for name in rule.moments]
    lines.append("store(params + i, p);")
    return "\n".join(lines)


def _partial(body: str) -> str:
    """Return the same for the first `n` lanes."""
    text = re.sub(r"load\((\w+ \+ i)\)", r"load_some(\1, n)", body)
    return re.sub(r"store\((\w+ \+ i), (\w+)\)", r"store_some(\1, \2, n)", text)
