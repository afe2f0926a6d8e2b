"""NumPy code for formulas: bound calls on planned buffers.

A `Plan` assigns a buffer to each node of several formulas: an operand, an output or a work buffer.
A buffer is reused after the last read of its value.  An output serves as a work buffer until its
own value is computed.  `Plan.calls` binds the plan to arrays.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mlpengine.core.errors import FormulaError
from mlpengine.core.spec import Array, Calls, call
from mlpengine.formula.expr import FUNCTIONS, Expr, order, variable, variables
from mlpengine.formula.numpy_functions import copied

OUT, FLOAT, BOOLEAN, GIVEN = "out", "float", "mask", "given"

Place = tuple[str, int]
"""A buffer of a plan: its kind, and its number among the buffers of this kind."""


class FunctionCall(NamedTuple):
    """A step of a plan: a node of a formula, its output buffer and its work buffers."""

    node: Expr
    out: Place
    floats: tuple[Place, ...]
    masks: tuple[Place, ...]


class Plan(NamedTuple):
    """The steps that compute `outputs` from the nodes `given`.

    The plan needs `floats` work buffers of floats and `masks` work buffers of bools, each with the
    shape of the outputs.  If `in_place`, the first given array may also be the first output array.
    """

    given: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    steps: tuple[FunctionCall, ...]
    places: Mapping[Expr, Place]
    floats: int
    masks: int
    in_place: bool

    @property
    def streams(self) -> int:
        """Number of buffers that a step reads or writes, summed over the steps."""
        touched = (
            {s.out, *s.floats, *s.masks, *(self.places[a] for a in s.node.args if a in self.places)}
            for s in self.steps
        )
        return sum(map(len, touched))

    def calls(
        self,
        given: Sequence[Array],
        out: Sequence[Array],
        floats: Sequence[Array] = (),
        masks: Sequence[Array] = (),
    ) -> Calls:
        """Yield the calls of the plan on buffers.

        The arrays `given` hold the values of the nodes `self.given`, and the calls write the values
        of `self.outputs` into the arrays `out`.
        """
        buffers = {OUT: out, FLOAT: floats, BOOLEAN: masks, GIVEN: given}

        def at(place: Place) -> Array:
            return buffers[place[0]][place[1]]

        def value(node: Expr) -> Array | float:
            number = node.number
            return at(self.places[node]) if number is None else number

        for step in self.steps:
            args = [value(a) for a in step.node.args]
            work = [at(p) for p in step.floats], [at(p) for p in step.masks]
            yield from FUNCTIONS[step.node.name].calls(args, at(step.out), *work)
        for i in self._to_copy():
            source = value(self.outputs[i])
            if isinstance(source, float):
                yield call(out[i].fill, source)
            else:
                yield from copied(source, out[i])

    def _to_copy(self) -> list[int]:
        """Return the outputs to copy or fill at the end, each after its old value has been read."""
        sources = {i: self.places.get(node) for i, node in enumerate(self.outputs)}
        sources = {i: place for i, place in sources.items() if place != (OUT, i)}
        copies: list[int] = []
        while sources:
            free = [i for i in sources if (OUT, i) not in sources.values()]
            if not free:
                raise FormulaError("formulas: two outputs must not exchange their buffers")
            copies.append(free[0])
            del sources[free[0]]
        return copies


def plan(
    outputs: Sequence[Expr],
    given: Sequence[Expr],
    alike: int = 1,
    overwritten: Sequence[Expr] = (),
) -> Plan:
    """Return a plan that computes formulas with few work buffers.

    Several orders of computation are tried.  A plan that may write the first output into the buffer
    of the first given node is preferred, then a plan with fewer work buffers, then a plan with
    fewer reads and writes.

    Args:
        outputs: the formulas.
        given: variables and other nodes with known values.
        alike: the caller may pass one array for all of the first `alike` given nodes.
        overwritten: nodes for the old values of the first outputs, such as a parameter before its
            update.  The plan writes the new value into the buffer of the old value.
    """
    return _plan(tuple(outputs), tuple(given), alike, tuple(overwritten))


@lru_cache(maxsize=256)
def _plan(
    outputs: tuple[Expr, ...], given: tuple[Expr, ...], alike: int, overwritten: tuple[Expr, ...]
) -> Plan:
    known = {*given, *overwritten}
    directions = (outputs[::-1],) if overwritten else (outputs[::-1], outputs)
    plans = [
        _Planner(outputs, given, overwritten, _order(roots, known), follows=follows).plan(alike)
        for roots in directions
        for follows in (False, True)
    ]
    return min(plans, key=lambda p: (not p.in_place, p.floats, p.masks, p.streams))


def evaluate(formula: Expr, operands: Mapping[str, Array]) -> Array:
    """Return the value of a formula on arrays by name; the arrays broadcast and have one dtype."""
    return bound(formula, operands)()


def bound(formula: Expr, operands: Mapping[str, Array]) -> Callable[[], Array]:
    """Return a function that evaluates a formula on the current values of the arrays.

    Each call overwrites and returns the same array.
    """
    names = variables(formula)
    given = [np.asarray(operands[name]) for name in names]
    shape = np.broadcast_shapes(*(a.shape for a in given))
    dtype = np.result_type(*given) if given else np.dtype(np.float64)
    planned = plan([formula], [variable(name) for name in names])
    out = np.empty(shape, np.bool_ if formula.is_mask else dtype)
    floats = [np.empty(shape, dtype) for _ in range(planned.floats)]
    masks = [np.empty(shape, np.bool_) for _ in range(planned.masks)]
    calls = [*planned.calls(given, [out], floats, masks)]

    def value() -> Array:
        with np.errstate(all="ignore"):
            for run in calls:
                run()
        return out

    return value


def _order(roots: Sequence[Expr], known: Set[Expr]) -> list[Expr]:
    """Order the nodes; arguments that need many buffers come first (Sethi, Ullman 1970, sec. 3)."""
    buffers: dict[Expr, int] = {}
    for node in order(roots, known):
        if node in known or not node.args:
            buffers[node] = 0
            continue
        needs = sorted((buffers[a] for a in node.args), reverse=True)
        own = max(1, len(needs) - needs.count(0)) + FUNCTIONS[node.name].floats
        buffers[node] = max(own, *(n + i for i, n in enumerate(needs)))
    nodes = order(roots, known, by=lambda node: -buffers[node])
    return [n for n in nodes if n.args and n not in known]


class _Planner:
    def __init__(
        self,
        outputs: tuple[Expr, ...],
        given: tuple[Expr, ...],
        overwritten: tuple[Expr, ...],
        nodes: list[Expr],
        *,
        follows: bool,
    ) -> None:
        self.outputs, self.given, self.nodes = outputs, given, nodes
        self.follows = follows  # whether a value prefers the buffer of the output made from it
        self.time = {n: i for i, n in enumerate(self.nodes)}
        self.last = {a: i for i, n in enumerate(self.nodes) for a in n.args}
        self.place: dict[Expr, Place] = {n: (GIVEN, i) for i, n in enumerate(given)}
        self.own: dict[Expr, Place] = {}
        for i, node in enumerate(outputs):
            if node in self.time:
                self.own.setdefault(node, (OUT, i))
                self.last[node] = len(self.nodes)
        self.holder: dict[Place, Expr | None] = {
            (OUT, i): None for i, n in enumerate(outputs) if not n.is_mask
        }
        for i, node in enumerate(overwritten):
            self.place[node], self.holder[OUT, i] = (OUT, i), node
            if node in outputs:
                self.last[node] = len(self.nodes)
        self.counts = {FLOAT: 0, BOOLEAN: 0}

    def plan(self, alike: int) -> Plan:
        steps = [self._step(time, node) for time, node in enumerate(self.nodes)]
        return Plan(
            self.given,
            self.outputs,
            tuple(steps),
            self.place,
            self.counts[FLOAT],
            self.counts[BOOLEAN],
            all(self._in_place(steps, n) for n in self.given[:alike]),
        )

    def _step(self, time: int, node: Expr) -> FunctionCall:
        function = FUNCTIONS[node.name]
        kind = BOOLEAN if node.is_mask else FLOAT
        own = self.own.get(node)
        if own is not None and not self._is_writable(own, time, node):
            del self.own[node]  # a later step reads the old value, so copy at the end
            own = None
        out = own or self._free(kind, time, node)
        taken = {out, *(self.place[a] for a in node.args if a in self.place)}
        work = []
        for needed, n in ((FLOAT, function.floats), (BOOLEAN, function.masks_needed)):
            places = []
            for _ in range(n):
                places.append(self._free(needed, time, None, taken))
                taken.add(places[-1])
            work.append(tuple(places))
        self.place[node] = out
        self.holder[out] = node
        return FunctionCall(node, out, *work)

    def _free(
        self,
        kind: str,
        time: int,
        node: Expr | None,
        taken: set[Place] | frozenset[Place] = frozenset(),
    ) -> Place:
        """Return a buffer for `node`, or a work buffer of the step at `time` if `node` is None."""
        until = time if node is None else self.last.get(node, time)
        first = self._destination(node) if self.follows else None
        for place in sorted(self.holder, key=lambda place: place != first):
            if (place[0] == BOOLEAN) != (kind == BOOLEAN) or place in taken:
                continue
            if not self._is_writable(place, time, node):
                continue
            if place[0] != OUT or self._fits_before(place, until, node):
                return place
        self.counts[kind] += 1
        place = (kind, self.counts[kind] - 1)
        self.holder[place] = None
        return place

    def _destination(self, node: Expr | None) -> Place | None:
        """Follow a value's last readers to an output; return the buffer of this output, or None."""
        while node is not None and node not in self.own:
            reader = self.last.get(node, len(self.nodes))
            node = self.nodes[reader] if reader < len(self.nodes) else None
        return None if node is None else self.own[node]

    def _is_writable(self, place: Place, time: int, node: Expr | None) -> bool:
        """Return whether the step at `time` may write `node` (None: a work value) into a buffer."""
        holder = self.holder.get(place)
        return holder is None or self._is_over(holder, time, node)

    def _is_over(self, holder: Expr, time: int, node: Expr | None) -> bool:
        """Return whether the step at `time` may overwrite a value: no later step reads it."""
        end = self.last.get(holder, -1)
        if end != time:
            return end < time
        return node is not None and _may_alias(node, holder)

    def _fits_before(self, place: Place, until: int, node: Expr | None) -> bool:
        """Return whether a value with the last reader `until` may use a later output's buffer."""
        owner = self.outputs[place[1]]
        if self.own.get(owner) != place:
            return until < len(self.nodes)  # this output is filled or copied at the end
        due = self.time[owner]
        return until < due or (until == due and node is not None and _may_alias(owner, node))

    def _in_place(self, steps: Sequence[FunctionCall], given: Expr) -> bool:
        """Return whether the first output may be the buffer of `given`."""
        if self.outputs[0] is given:
            return True
        writes = [t for t, s in enumerate(steps) if (OUT, 0) in (s.out, *s.floats)]
        if not writes:  # the first output is filled or copied at the end
            return all(output is not given for output in self.outputs[1:])
        first, end = writes[0], self.last.get(given, -1)
        if any(output is given for output in self.outputs[1:]):
            return False
        if end == first:
            return steps[first].out == (OUT, 0) and _may_alias(steps[first].node, given)
        return end < first


def _may_alias(node: Expr, arg: Expr) -> bool:
    """Return whether the function of `node` may write its output over its argument `arg`."""
    allowed = FUNCTIONS[node.name].alias
    return all(allowed is None or i in allowed for i, a in enumerate(node.args) if a is arg)
