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


def renamed(prefix):
    return {prefix + name: value for name, value in parts()[0].state_dict().items()}


def node():
    return tape.Tape().input((4, 3), name="x")


MISTAKES = """\
# arguments swapped
TrainingStep(mlp, adam, loss, 8)
    loss must be a loss such as SoftmaxCrossEntropy() | Adam(lr=0.001
# optimizer by name
TrainingStep(mlp, loss, "adam", 8)
    training step: optimizer must be an optimizer such as Adam(mlp) | 'adam'
# sizes for a network
TrainingStep([4, 8, 3], loss, adam, 8)
    training step: mlp must be a network such as Mlp([4, 8, 3]) | [4, 8, 3]
# one size
Mlp(4)
    mlp: sizes | got 4 | write Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs
# an optimizer of a rate
Adam(0.1)
    Adam: model | got 0.1 | write Adam(mlp,
# a rate as text
Adam(mlp, lr="1e-3")
    Adam: lr | '1e-3' | write lr=0.001
# a schedule by name
Adam(mlp, schedule="cosine")
    Adam: schedule | 'cosine' | such as CosineSchedule(1000)
# one row
step(X[0], Y[0])
    training step: x | (got (4,)) | write step([x], [y])
# more rows than the batch
step(np.vstack([X, X]), np.append(Y, Y))
    training step: takes up to 8 rows | got 16 | batch_size=16
# fewer columns
step(X[:, :3], Y)
    training step: x | (8, 3)
# fewer targets
step(X, Y[:5])
    training step: y | (5,) | one target for each of 8 rows
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
    write Loop(step, Classification(3), Split(x, y, truth=y), epochs=20)
# fit of two arrays
mlpengine.fit(X, Y)
    fit: target | float32[8, 4] and ndarray int64[8] | MlpClassifier().fit(x, y)
# fit of a column
mlpengine.fit(COLUMNS, COLUMNS["price"])
    fit: target | write mlpengine.fit(table, target='price')
# an estimator's sizes as text
MlpClassifier(hidden="64,32").fit(X, Y)
    hidden: must be a whole number | '64,32' | write [64, 32]
# a short truth
Split(X, Y, Y[:5])
    Split: truth needs 8 rows | got 5
# a network's weights for a step
step.load_state_dict(mlp.state_dict())
    training step: needs what step.state_dict() returned | got a network's
    write mlp.load_state_dict(state)
# classes from 1
step(X, Y % 3 + 1)
    a class index must lie in 0 to 2 | has 3) | count classes from 0, or give the network 4 outputs
# classes from -1
step(X, np.full(8, -1))
    a class index must lie in 0 to 2 | (row 0 has -1) | ignore_index=-1 leaves such rows out
# a gap in numbers
training_step(MeanSquaredError(), 1)(X, np.full((8, 1), np.nan))
    loss and gradients must be finite | the target is not, in rows 0, 1
# preprocessing of a file
Preprocessor("y").fit("a.csv")
    Preprocessor.fit: table must be a Table | 'a.csv' | fit(read_table('data.csv'))
# a number for a shape
tape.Tape().input(4)
    input: shape must be a tuple | got 4 | (4,)
# gradients for a model
adam.step(grads, mlp)
    Adam: step needs the model it was made for | got Gradients(...)
    write optimizer.step(mlp, grads)
# a vector for gradients
adam.step(mlp, grads.flat)
    Adam: step needs gradients | float32[67] | write optimizer.step(mlp, grads)
# target and output swapped
loss(Y, scratch.output)
    softmax_cross_entropy: output must be an array of floats | int64[8] | write loss(output, target)
# class weights as a list
MlpClassifier(class_weight=[1, 2, 3]).fit(X, Y)
    class_weight: must be balanced, or weights by label | [1, 2, 3] | {0: 1.0, 1: 2.0}
# a data frame to read
read_table(pd.DataFrame({"a": [1]}))
    read: needs a path, a data set or an open file | DataFrame [1, 1]
    mlpengine.fit takes data frames
# one beta
Adam(mlp, betas=0.9)
    Adam: betas must be 2 numbers | got 0.9
# an estimator that is not fitted
MlpRegressor().predict(X)
    MlpRegressor: is not fitted yet | write estimator.fit(X, y) first
# a preprocessor that is not fitted
Preprocessor("species").transform(read_table("penguins"))
    preprocessor: fit must be called first | write preprocessor.fit(table)
# names of a wrapped module
mlp.load_state_dict(renamed("module."))
    parameters: must be called 0.weight, 0.bias | got module.0.weight
    write mlp.load_state_dict({name.removeprefix('module.'): value
# a file of weights
mlp.load_state_dict("w.pt")
    parameters: state must be a mapping | 'w.pt' | Mlp.load(path) reads a file
# the state of PyTorch's optimizer
adam.load_state_dict({"state": {}, "param_groups": []})
    Adam: saved state must have the same names | unknown ['param_groups', 'state']
# a layer by number
mlp.freeze(0)
    freeze: layers must be a list | got 0 | write freeze([0])
# early stopping among callbacks
loop(callbacks=[EarlyStopping()])
    callbacks: must be a list of Callback instances | EarlyStopping(
# a task of other outputs
Loop(step, Classification(5), Split(X, Y, Y), epochs=1)
    loop: task must have as many outputs as the network | got 5 and 3 | write Classification(3)
# a loop over lists
Split(X.tolist(), Y, Y)
    Split: x must be an array | list [[ | np.asarray(x, 'float32')
# fit's optimizer as an object
mlpengine.fit(COLUMNS, "price", optimizer=Adam)
    fit: optimizer: must be a mapping of keys | <class
# a population of a number
Population(4, mlp)
    population: mlp must be a network | got 4
# a monitor that there is not
loop(validation=Split(X, Y, Y), early_stopping=EarlyStopping(monitor="acuracy"))
    loop: early_stopping: monitor: this task has loss | 'acuracy' | did you mean 'accuracy'
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
