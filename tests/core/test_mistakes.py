"""Calls as newcomers write them are answered in words."""

import numpy as np
import pandas as pd
import pytest

import mlpengine
from mlpengine import (
    Adam,
    Loop,
    Mlp,
    SoftmaxCrossEntropy,
    TrainingStep,
    estimators,
    models,
    optim,
    settings,
    tape,
)
from mlpengine.core.errors import CheckpointError, MlpEngineError, UsageError
from mlpengine.data import features, tables
from mlpengine.models import Classification, Split

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 4)).astype("float32"), RNG.integers(0, 3, 8)
COLUMNS = {"a": list(range(40)), "price": list(range(40))}


def training_step(loss=None, outputs=3):
    mlp = Mlp([4, 8, outputs])
    return TrainingStep(mlp, loss or SoftmaxCrossEntropy(), Adam(mlp), batch_size=8)


def parts():
    mlp = Mlp([4, 8, 3])
    return mlp, SoftmaxCrossEntropy(), Adam(mlp)


def loop(**options):
    return Loop(training_step(), Classification(3), Split(X, Y, Y), epochs=1, **options)


def node():
    return tape.Tape().input((4, 3), name="x")


MISTAKES = """\
# arguments swapped
TrainingStep(mlp, adam, loss, 8)
    loss must be a loss such as SoftmaxCrossEntropy() | Adam(lr=0.001
# optimizer by name
TrainingStep(mlp, loss, "adam", 8)
    training step: optimizer must be an optimizer such as Adam(mlp) | 'adam'
# one size
Mlp(4)
    mlp: sizes | got 4 | write Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs
# a schedule by name
Adam(mlp, schedule="cosine")
    Adam: schedule | 'cosine' | such as CosineSchedule(1000)
# one row
step(X[0], Y[0])
    training step: x | (got (4,)) | write step([x], [y])
# an unknown attribute of a step
setattr(step, "lr", 3)
    'TrainingStep' object has no attribute 'lr'
# attributes that are fixed
setattr(step, "threads", 3)
    property 'threads' of 'TrainingStep' object has no setter
# objects for many steps
step.run_many(X.astype(object), Y, np.arange(8))
    run_many: x must be float32[rows, 4] (got object[8, 4]) | write x.astype('float32')
# integers for many steps
step.run_many(X.astype(int).tolist(), Y, np.arange(8))
    run_many: x must be float32[rows, 4] (got int64[8, 4]) | write x.astype('float32')
# a truth value of a recorded node
bool(scratch.recording.output)
    has no truth value | float32[8, 3] | write where(mask, a, b)
# an unknown attribute of buffers
setattr(scratch, "outputs", 3)
    'Scratch' object has no attribute 'outputs'
# classes as floats
step(X, Y.astype(float))
    training step: y | float64 | write y.astype('int64')
# classes as a column
step(X, Y[:, None])
    training step: y | (8, 1) | write y.ravel()
# one-hot integers
step(X, np.eye(3, dtype=int)[Y])
    training step: y | (8, 3) | write y.argmax(axis=1)
# classes as texts
step(X, np.array(["a", "b", "c"])[Y])
    training step: y | <U1 | write labels, y = np.unique(y, return_inverse=True)
# numbers as a vector
training_step(MeanSquaredError(), 1)(X, X[:, 0])
    training step: y | (8,) | write y.reshape(-1, 1)
# classes for numbers
training_step(MeanSquaredError())(X, Y)
    training step: y | (8,) | the loss is SoftmaxCrossEntropy()
# a loop over arrays
Loop(step, X, Y, epochs=1)
    loop: task | float32[8, 4]
    write Loop(step, Classification(3), Split(x, y), epochs=20)
# a run within a run
loop(callbacks=[type("Own", (Callback,), {"on_train_start": lambda _, one: one.run()})()]).run()
    loop: serves one call at a time
# a loop over texts
Loop(step, Classification(3), Split(X, Y.astype(str)), epochs=1)
    loop: train.y must be int64[rows] | write labels, y = np.unique(y, return_inverse=True)
# probabilities without classes
Loop(training_step(), Classification(3), Split(X, np.eye(3, dtype="f4")[Y]), epochs=1)
    loop: train.truth must be class indices (got shape (8, 3)) | truth=classes
# fit of two arrays
mlpengine.fit(X, Y)
    fit: target | float32[8, 4] and ndarray int64[8] | MlpClassifier().fit(x, y)
# a number as the name of a column
mlpengine.fit({3: [1, 2]}, 3)
    fit: target must be text (got 3) | write '3'
# a share of the rows as a table
mlpengine.fit(COLUMNS, "price", validation=0.2)
    fit: validation must be a table (got 0.2) | data={'split': {'validation': 0.2}}
# more folds than groups
mlpengine.fit("penguins", "species", data={"split": {"group": "island"}}, training={"folds": 4})
    fit: training.folds: | need at least 4 groups
# the seed of scikit-learn
mlpengine.fit(COLUMNS, "price", random_state=1)
    random_state: | did you mean 'seed'
# fit of a column
mlpengine.fit(COLUMNS, COLUMNS["price"])
    fit: target | write mlpengine.fit(table, target='price')
# a network's weights for a step
step.load_state_dict(mlp.state_dict())
    training step: state must come from step.state_dict() | got a network's state
    write mlp.load_state_dict(state)
# classes from 1
step(X, Y % 3 + 1)
    a class index must lie in 0 to 2 | has 3) | count classes from 0, or give the network 4 outputs
# classes from -1
step(X, np.full(8, -1))
    a class index must lie in 0 to 2 | (row 0 has -1) | ignore_index=-1 leaves such rows out
# gradients for a model
adam.step(grads, mlp)
    Adam: step needs the model it was made for | got Gradients(...)
    write optimizer.step(mlp, grads)
# target and output swapped
loss(Y, scratch.output)
    softmax_cross_entropy: output must be an array of floats | int64[8] | write loss(output, target)
# a task of other outputs
Loop(step, Classification(5), Split(X, Y, Y), epochs=1)
    loop: task must have as many outputs as the network | got 5 and 3 | write Classification(3)
# a patience below one epoch
EarlyStopping(-1, "accuracy")
    EarlyStopping.patience: | at least 1 (got -1)
# an option that early stopping lacks
EarlyStopping(5, mode="max")
    EarlyStopping: | unknown keys ('mode')
# weights of rows for a step without weights
Loop(step, Classification(3), Split(X, Y, weights=np.ones(8, "f4")), epochs=1)
    loop: train has weights | weighted=False
# layers frozen after the step is made
(step.mlp.freeze([0]), step(X, Y))
    training step: was made before layers were frozen | make a new optimizer and a new step
# the same for many steps
(step.mlp.freeze([0]), step.run_many(X, Y, np.arange(8)))
    training step: was made before layers were frozen
# a network as a model
(mlp.save("a.safetensors"), mlpengine.load("a.safetensors"))
    a.safetensors: is not a model | the file holds a network: use the method load of its class
# a function of NumPy for a node
type("Own", (Mlp,), {"record": lambda self, tape, x: np.tanh(x)})([4, 3]).predict(X)
    mlp: record: functions of NumPy do not take nodes | x.tanh()
# an option of a preprocessor
Preprocessor("y", standardise="standard")
    Preprocessor: has no option 'standardise' | 'standard' | did you mean 'standardize'?
"""
"""Calls as people write them, and what the messages must hold: where, what was given, the fix."""


def names():
    """Return what stands in the calls of `MISTAKES`: public names, and the parts of a loop."""
    rooms = (mlpengine, estimators, features, models, optim, settings, tables)
    public = {name: getattr(room, name) for room in rooms for name in room.__all__}
    mlp, loss, adam = parts()
    scratch, grads = mlp.scratch(8), mlp.gradients(8)
    mlp.forward(X, scratch)
    loop_by_hand = {"mlp": mlp, "loss": loss, "adam": adam, "scratch": scratch, "grads": grads}
    return {**globals(), **public, **loop_by_hand, "pd": pd, "step": training_step()}


def mistakes():
    """Yield the calls of `MISTAKES`, each with the parts of its message."""
    for mistake in MISTAKES.split("# ")[1:]:
        name, call, *lines = mistake.splitlines()
        said = [part for line in lines for part in line.strip().split(" | ")]
        yield pytest.param(call, said, id=name)


@pytest.mark.parametrize(("call", "said"), [*mistakes()])
def test_a_mistake_is_told_where_it_is_and_what_to_write(call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a clone has runs after the first command of the README
    with pytest.raises((MlpEngineError, AttributeError)) as caught:  # NotFittedError is one
        exec(call, names())
    message = str(caught.value)
    assert said
    assert [part for part in said if part not in message] == [], message


@pytest.mark.parametrize(
    ("name", "kind"), [("a.csv", "table"), ("a.yaml", "config"), ("a", "text")]
)
def test_a_text_file_is_not_read_as_a_model(name, kind, tmp_path):
    (tmp_path / name).write_text("area,rooms\n1,2\n", "utf-8")
    for load, error in ((mlpengine.load, UsageError), (Mlp.load, CheckpointError)):
        with pytest.raises(error, match=f"begins with 'area,rooms': a {kind}, not a mo"):
            load(tmp_path / name)
