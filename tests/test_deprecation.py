"""Arguments under their old names: accepted, with a warning that names the new one."""

import pytest

from mlpengine import MeanSquaredError, Mlp, Program, Sgd, Tape, TrainingStep


def tape() -> Tape:
    made = Tape()
    x = made.input((4, 3), name="x", wants_grad=True)
    (x * 2.0).tanh().exp().sum()
    return made


def step(**options: str) -> TrainingStep:
    mlp = Mlp([3, 2])
    return TrainingStep(mlp, MeanSquaredError(), Sgd(mlp), 4, **options)


CALLS = {
    "Program": lambda **o: Program(tape(), **o).planned_bytes,
    "Tape.summary": lambda **o: tape().summary(**o),
    "Mlp.scratch": lambda **o: Mlp([3, 40, 2], activation="gelu").scratch(9, **o).planned_bytes,
    "TrainingStep": lambda **o: step(**o).scratch.planned_bytes,
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_is_accepted_under_its_old_name(name):
    with pytest.warns(DeprecationWarning, match="checkpointing is called rematerialization now"):
        old = CALLS[name](checkpointing="balanced")
    assert old == CALLS[name](rematerialization="balanced")
    with pytest.raises(TypeError, match="give one of them"):
        CALLS[name](checkpointing="balanced", rematerialization="keep")
