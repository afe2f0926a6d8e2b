"""Public objects copy and pickle: before and after use, with the same bits, sharing no memory."""

import gc
import pickle
import types
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import mlpengine
from mlpengine import Adam, Loop, Mlp, Model, Program, Sgd, Tape, TrainingStep
from mlpengine.core.errors import TapeError
from mlpengine.data.features import Batches, NumberTarget, Preprocessor
from mlpengine.data.tables import Table
from mlpengine.diagnostics import Diagnostics
from mlpengine.models.task import Regression, Split
from mlpengine.ops import RunningStatistics
from mlpengine.tape import from_inner


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


WAYS = {"copy": copy, "deepcopy": deepcopy, "pickle": pickled}


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def floats(*shape: int, dtype: str = "f4") -> np.ndarray:
    return rng().standard_normal(shape).astype(dtype)


@dataclass(frozen=True)
class Row:
    """An object: how it is made, and `use`, which computes with it and returns what it got."""

    make: Callable[[], Any]
    use: Callable[[Any], Any]


def trained(objects: Any) -> Any:
    mlp, scratch, grads = objects
    x, y = floats(5, 3), floats(5, 2)
    kept = []
    for rows in (5, 3):
        part, grad = scratch.for_rows(rows), grads.for_rows(rows)
        mlp.forward(x[:rows], part)
        grad.d_output[...] = part.output - y[:rows]
        mlp.backward(part, grad)
        grads.clip_global_norm_params(0.1)
        kept += [part.output.copy(), grads.flat.copy(), grad.d_input.copy()]
        kept += [d.copy() for d in grad.d_hidden]
        mlp.params.flat[...] -= grads.flat
    return kept, mlp.predict(x)


def network(**options: Any) -> Any:
    mlp = Mlp([3, 4, 4, 2], seed=1, dropout=0.3, **options)
    return mlp, mlp.scratch(5), mlp.gradients(5, input_gradient=True)


def predicted(mlp: Mlp) -> Any:
    before = mlp.predict(floats(300, 3))
    mlp.params.flat[...] *= 2
    return before, mlp.predict(floats(4, 3)), mlp.weights[1].copy(), mlp.state_dict()


def new_step(*, backend: str = "auto", weighted: bool = False, **options: Any) -> TrainingStep:
    mlp = Mlp([3, 4, 2], activation="tanh", seed=1, **options)
    mse, adam = mlpengine.MeanSquaredError(), Adam(mlp)
    return TrainingStep(mlp, mse, adam, 4, clip_norm=0.1, weighted=weighted, backend=backend)


def steps_made(step: TrainingStep) -> Any:
    x, y = floats(4, 3), floats(4, 2)
    weights = (np.ones(4, "f4"),) if step.weighted else ()
    kept: list[Any] = []
    for rows in (4, 4, 3):
        value = step(x[:rows], y[:rows], *(w[:rows] for w in weights))
        kept += [value, step.grad_norm, step.clipped_norm, step.mlp.params.flat.copy()]
        kept += [step.scratch.output.copy(), step.grads.flat.copy()]
    return kept, step.run(step.bound(3)), step.backend  # on what the buffers hold


def recorded(tape: Tape) -> Any:
    y = (tape.nodes[0] @ tape.nodes[1]).tanh().sum()
    program = Program(tape, y)
    value = program.forward(x=floats(4, 3)).copy()
    program.backward()
    tape.params.flat[...] -= program.grads.flat
    return value, program.grads.flat.copy(), program.forward().copy()


def new_tape() -> Tape:
    tape = Tape()
    tape.input((4, 3), name="x")
    tape.parameter(floats(3, 2), name="w")
    return tape


def new_program() -> Program:
    tape = Tape()
    x = tape.input((4, 3), name="x", wants_grad=True)
    w = tape.parameter(floats(3, 2), name="w")
    h = (x @ w).batch_norm(running=RunningStatistics(2))
    y = h.tanh().dropout(0.4, rng())
    return Program(tape, y.sum(), y)


def leaf() -> Any:
    return from_inner(floats(3)).require_grad()


def new_model() -> Model:
    table = Table.from_arrays(floats(15, 2), np.arange(15) % 3)
    return Model(Mlp([2, 3]), Preprocessor("y").fit(table), "softmax_cross_entropy")


ROWS = {
    "Mlp": Row(lambda: Mlp([3, 4, 2], seed=1), predicted),
    "Mlp of some features": Row(lambda: Mlp([3, 4, 2], reads=((0, 1), (2, 3))), predicted),
    "Scratch, Gradients": Row(network, trained),
    "TrainingStep, NumPy": Row(
        lambda: new_step(backend="numpy", dropout=0.3, weighted=True), steps_made
    ),
    "TrainingStep, compiled": Row(lambda: new_step(backend="compiled", weighted=True), steps_made),
    "Tape": Row(new_tape, recorded),
    "Tensor": Row(leaf, lambda x: (x * x).sum().backward().grad(x)),
    "Batches": Row(lambda: Batches(7, 3), lambda b: [rows.copy() for rows in b.epoch()]),
    "Model": Row(new_model, lambda m: (m.predict(floats(1, 2)), m.predict_proba(floats(3, 2)))),
}


def bits(result: Any) -> Any:
    """Return the result with its arrays as bytes, to be compared exactly."""
    if isinstance(result, np.ndarray):
        return result.dtype.str, result.shape, result.tobytes()
    if isinstance(result, dict):
        return {name: bits(value) for name, value in result.items()}
    if isinstance(result, list | tuple):
        return [bits(value) for value in result]
    return repr(result)


def copied(thing: Any, way: str) -> Any:
    """Return a copy; a shallow one of a tuple keeps the network or vector that comes first."""
    if way == "copy" and isinstance(thing, tuple):
        return (thing[0], *map(copy, thing[1:]))
    return WAYS[way](thing)


@pytest.mark.parametrize("name", ROWS)
def test_a_copy_computes_what_the_original_would_and_shares_no_memory(name):
    """After a use; a shallow copy, the last, is used in place of the object."""
    row = ROWS[name]
    original, other = row.make(), row.make()
    row.use(original)
    row.use(other)
    new = row.make()
    copies = {way: copied(other, way) for way in WAYS}
    expected, first = bits(row.use(original)), bits(row.use(row.make()))
    for way in ("pickle", "deepcopy", "copy"):
        assert bits(row.use(copies[way])) == expected, way
        assert way == "copy" or not shared(other, copies[way]), way
    assert bits(row.use(deepcopy(new))) == first


def arrays_of(thing: Any) -> Iterator[np.ndarray]:
    """Yield the writeable arrays that an object refers to, bound calls and closures included."""
    left, done = [thing], {id(thing)}
    while left:
        found = left.pop()
        if isinstance(found, np.ndarray) and found.flags.writeable and found.nbytes:
            yield found
        if isinstance(found, types.FunctionType):
            references = [found.__closure__]
        elif isinstance(found, type | types.ModuleType):
            references = []
        else:
            references = gc.get_referents(found)
        for reference in references:
            if id(reference) not in done:
                done.add(id(reference))
                left.append(reference)


def shared(first: Any, second: Any) -> list[np.ndarray]:
    theirs = list(arrays_of(second))
    return [a for a in arrays_of(first) if any(np.may_share_memory(a, b) for b in theirs)]


def test_a_network_and_its_optimizer_stay_together_in_a_copy():
    mlp = Mlp([3, 2])
    sgd, step = Sgd(mlp), None
    step = TrainingStep(mlp, mlpengine.MeanSquaredError(), sgd, 4)
    for way in (deepcopy, pickled):
        other, other_sgd, other_step = way((mlp, sgd, step))
        assert other_sgd.params is other.params
        assert other_step.optimizer is other_sgd
        assert other_step.mlp is other
        assert np.shares_memory(other.weights[0], other.params.flat)
    alike = copy(mlp)
    assert alike.params is mlp.params
    assert alike.predict(floats(2, 3)).shape == (2, 2)


def tracked() -> Any:
    return (leaf() * 2).sum()


def new_loop() -> Loop:
    part = Split(floats(8, 3), floats(8, 1), floats(8, 1).astype(np.float64))
    task = Regression(NumberTarget(["y"], [0.0], [1.0]))
    mlp = Mlp([3, 4, 1])
    step = TrainingStep(mlp, mlpengine.MeanSquaredError(), Sgd(mlp), 4)
    return Loop(step, task, part, part, epochs=1)


REFUSED = {
    "BoundStep": lambda: new_step().bound(4),
    "Program": new_program,
    "Diagnostics": lambda: Diagnostics(Mlp([2, 1])),
    "Loop": new_loop,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_bound_to_buffers_is_refused(name):
    for way in WAYS.values():
        with pytest.raises(TapeError, match="cop"):
            way(REFUSED[name]())
