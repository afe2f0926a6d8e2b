"""The table of compiled optimizers: what one step does to a vector of parameters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from mlpengine.backends.compiled.statements import Function, If, Loop, Statement, load, store
from mlpengine.formula import c_number
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


class Update(Protocol):
    """An optimizer's step as data.

    Attributes:
        rule: the name of the row of `UPDATES`.
        params: the flat vector.
        moments: flat vectors by name.
        numbers: the hyper-parameters, in the order of the row.
        weight_decay: and `decayed`, the ranges of the parameters that decay.
        flush_every: steps between two flushes of what is nearly zero.
        floors: the least value of the moments that are squares; in the others entries smaller
            than `threshold` become zero.
    """

    @property
    def rule(self) -> str: ...
    @property
    def params(self) -> Array: ...
    @property
    def moments(self) -> Mapping[str, Array]: ...
    @property
    def numbers(self) -> Sequence[float]: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def decayed(self) -> Sequence[tuple[int, int]]: ...
    @property
    def flush_every(self) -> int: ...
    @property
    def floors(self) -> Mapping[str, float]: ...
    @property
    def threshold(self) -> float: ...


def update_vectors(update: Update, grads: Array) -> dict[str, Array]:
    """Return the flat vectors by their names in C."""
    moments = {f"moment_{name}": array for name, array in update.moments.items()}
    return {"params": update.params, "grads": grads, **moments}


def update_functions(update: Update, itemsize: int) -> tuple[Function, Function]:
    """Return ``update`` and ``flush``, which work on the entries `first` to `last`."""
    vectors = ["params", "grads", *(f"moment_{name}" for name in update.moments)]
    parameters = (
        "const struct call *call, const double t, const double lr, const long first, "
        "const long last"
    )
    return (
        Function(
            "update",
            "update",
            vectors,
            _update(update),
            f"{update.rule}: a step, rounded as NumPy rounds it",
            parameters,
            qualifiers="UNFUSED static",
        ),
        Function(
            "flush",
            "update",
            [*vectors[2:], *(["params"] if _decays(update) else [])],
            _flush(update, itemsize),
            "What is nearly zero becomes zero, or the floor",
            "const long first, const long last",
        ),
    )


def _update(update: Update) -> Sequence[Statement]:
    rule = UPDATES[update.rule]
    lines: list[Statement] = [
        "const real keep = (real)(1.0 - lr * call->weight_decay);",
        "(void)t, (void)keep;",
        *(f"const double {name} = call->hyper[{i}];" for i, name in enumerate(rule.numbers)),
        *rule.constants.split("\n"),
    ]
    for start, stop, decays in _ranges(update):
        whole, partial = (_vector(rule, lanes, decays=decays) for lanes in ("", "n"))
        body: list[Statement] = [
            "const long n = MIN(LANES, end - i);",
            If("n == LANES", whole, partial),
        ]
        loop = Loop("i", f"MAX({start}, first), end = MIN({stop}, last)", "end", body, "LANES")
        lines.append(loop)
    return lines


def _flush(update: Update, itemsize: int) -> Sequence[Statement]:
    """Return what keeps the vectors out of the denormal range."""
    lines = []
    for name in update.moments:
        at = f"moment_{name}[i]"
        if name in update.floors:
            lowest = c_number(update.floors[name], itemsize)
            lines.append(f"{at} = {at} < {lowest} ? {lowest} : {at};")
        else:
            lines.append(_zero_small(at, update, itemsize))
    if _decays(update):
        lines.append(_zero_small("params[i]", update, itemsize))
    return ["(void)first, (void)last;", *(Loop("i", "first", "last", [line]) for line in lines)]


def _decays(update: Update) -> bool:
    return bool(update.weight_decay and update.decayed)


def _zero_small(at: str, update: Update, itemsize: int) -> str:
    limit = c_number(update.threshold, itemsize)
    return f"{at} = {at} < {limit} && {at} > -{limit} ? 0 : {at};"


def _ranges(update: Update) -> Iterator[tuple[int, int, bool]]:
    """Yield the runs of parameters that do, or do not, decay."""
    if not update.weight_decay:
        yield 0, update.params.size, False
        return
    bounds = {0, update.params.size, *(b for pair in update.decayed for b in pair)}
    for start, stop in pairwise(sorted(bounds)):
        yield start, stop, any(a <= start < b for a, b in update.decayed)


def _vector(rule: UpdateRule, lanes: str, *, decays: bool) -> Sequence[Statement]:
    """Return what happens to one vector of entries, or to its first `lanes`."""
    vectors = {"p": "params + i", **{name: f"moment_{name} + i" for name in rule.moments}}
    return [
        *(f"vec {name} = {load(at, lanes)};" for name, at in vectors.items()),
        f"const vec g = {load('grads + i', lanes)};",
        *(["p = p * splat(keep);"] if decays else []),
        *rule.code.split("\n"),
        *(store(at, name, lanes) for name, at in vectors.items()),
    ]
