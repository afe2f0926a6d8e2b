"""The optimizer's update of the parameters, generated from its formulas."""

from collections.abc import Iterable, Iterator, Sequence

from mlpengine.backends.compiled.statements import (
    CFunction,
    ForLoop,
    If,
    Scope,
    Statement,
    lets,
    load_vector,
    store,
)
from mlpengine.backends.update_rules import ParameterRange, Update
from mlpengine.core.spec import Array
from mlpengine.formula import c_number, variable, variables


def update_vectors(update: Update, grads: Array) -> dict[str, Array]:
    """Return the vectors (parameters,) of an update by their names in C."""
    moments = {f"moment_{name}": moment for name, moment in update.moments.items()}
    return {"params": update.params, "grads": grads, **moments}


def update_functions(
    update: Update, vectors: Iterable[str], itemsize: int
) -> tuple[CFunction, CFunction]:
    """Return the functions ``update`` and ``flush``, on entries `first` to `last` of `vectors`."""
    decayed = "params" if update.decayed else ""
    parameters = (
        "const struct call *call, const double t, const double rate, const double factor, "
        " const int64_t first, const int64_t last"
    )
    return (
        CFunction(
            "update",
            "update",
            [*vectors],
            [
                "const vec clipping = splat((real)factor);",
                "const int clips = (real)factor != 1;",
                *_update(update),
            ],
            "A step of the optimizer, rounded as NumPy rounds it",
            parameters,
        ),
        CFunction(
            "flush",
            "update",
            [name for name in vectors if name.startswith("moment_") or name == decayed],
            _flush(update, itemsize),
            "Numbers that are nearly zero become zero, or the floor",
            "const int64_t first, const int64_t last",
        ),
    )


def _update(update: Update) -> Sequence[Statement]:
    lines: list[Statement] = []
    statements = _statements(update)
    for factor in dict.fromkeys(run.lr for run in update.ranges):
        ranges = [run for run in update.ranges if run.lr == factor]
        body = [f"const double lr = rate * {factor!r};", "(void)lr;", *_numbers(update)]
        lines.append(Scope([*body, _loop(update, statements, ranges)]))
    return lines


def _loop(
    update: Update, statements: Sequence[Statement], ranges: Sequence[ParameterRange]
) -> Scope:
    """Return the loops over `ranges`, which have the same learning rate.

    The loops run backwards, so that the weights of the first layer are in the cache when the next
    step packs them.
    """
    ranges = [*reversed(ranges)]
    decays = any(run.weight_decay for run in ranges)
    whole, partial = (_vector(update, statements, lanes, decays=decays) for lanes in ("", "n"))
    entries = ForLoop(
        "done",
        0,
        "end - begin",
        [
            "const int64_t i = begin + (end - begin - 1 - done) / LANES * LANES;",
            "const int64_t n = MIN(LANES, end - i);",
            If("n == LANES", whole, partial),
        ],
        "LANES",
    )
    bounds = ", ".join(f"{{{run.start}, {run.stop}}}" for run in ranges)
    shares = ", ".join(repr(float(run.weight_decay)) for run in ranges)
    head: list[Statement] = [f"static const int64_t bounds[{len(ranges)}][2] = {{{bounds}}};"]
    keep: list[Statement] = []
    if decays:  # otherwise, `keep` would be 1
        head.append(f"static const double shares[{len(ranges)}] = {{{shares}}};")
        keep.append("const vec keep = splat((real)(1.0 - lr * (call->weight_decay * shares[r])));")
    span = "const int64_t begin = MAX(bounds[r][0], first), end = MIN(bounds[r][1], last);"
    return Scope([*head, ForLoop("r", 0, len(ranges), [span, *keep, entries])])


def _numbers(update: Update) -> Iterator[Statement]:
    """Yield the definitions of the scalars of a step, also as vectors if the update reads them."""
    doubles = {variable("lr"): "lr", variable("t"): "t"}
    for i, name in enumerate(update.hyper):
        doubles[variable(name)] = f"call->hyper[{i}]"
    outputs = {f"number_{name}": number for name, number in update.numbers.items()}
    yield from lets(outputs, doubles, "number", double=True)
    for name in variables(*update.outputs.values()):
        if name in update.numbers:
            yield f"const vec vec_{name} = splat((real)number_{name});"
        elif name in update.hyper:
            yield f"const vec vec_{name} = splat((real){doubles[variable(name)]});"


def _statements(update: Update) -> Sequence[Statement]:
    """Return the statements that compute new parameters and moments from the old values."""
    constants = [*update.hyper, *update.numbers]
    names = {variable(name): f"vec_{name}" for name in constants}
    names |= {variable(name): f"old_{name}" for name in ("p", "g", *update.moments)}
    outputs = {f"new_{name}": output for name, output in update.outputs.items()}
    return lets(outputs, names)


def _flush(update: Update, itemsize: int) -> Sequence[Statement]:
    """Return the statements that prevent denormal numbers in moments and decayed parameters."""
    limit = c_number(update.threshold, itemsize)
    lines = []
    for name in update.moments:
        moment = f"moment_{name}"
        if name in update.floors:
            lowest = c_number(update.floors[name], itemsize)
            lines.append(f"raise_to({moment}, {lowest}, first, last);")
        else:
            lines.append(f"zero_small({moment}, {limit}, first, last);")
    if update.decayed:
        for run in update.ranges:
            span = f"MAX({run.start}, first), MIN({run.stop}, last)"
            lines.append(f"zero_small(params, {limit}, {span});")
    return lines


def _vector(
    update: Update, statements: Sequence[Statement], lanes: str, *, decays: bool
) -> Sequence[Statement]:
    """Return the statements for one vector of entries, or with `lanes` for its first entries."""
    places = {"p": "params + i"}
    places |= {name: f"moment_{name} + i" for name in update.moments}
    read = set(variables(*update.outputs.values()))
    decayed = ["old_p = old_p * keep;"] if decays else []
    return [
        *(f"vec old_{n} = {load_vector(at, lanes)};" for n, at in places.items() if n in read),
        f"vec old_g = {load_vector('grads + i', lanes)};",
        If("clips", ["old_g = old_g * clipping;", store("grads + i", "old_g", lanes)]),
        *decayed,
        *statements,
        *(store(places[name], f"new_{name}", lanes) for name in update.outputs),
    ]
