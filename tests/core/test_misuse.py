"""Attributes that do not exist, and calls as newcomers write them, are answered in words."""

import inspect
import pydoc
from dataclasses import is_dataclass
from functools import partial

import numpy as np
import pandas as pd
import pytest

import mlpengine
from mlpengine import (
    Adam,
    Callback,
    CosineSchedule,
    Loop,
    MeanSquaredError,
    Mlp,
    Sgd,
    SoftmaxCrossEntropy,
    TrainingStep,
    estimators,
    features,
    models,
    nn,
    ops,
    optim,
    settings,
    step,
    tables,
    tape,
    training,
)
from mlpengine.core.errors import CallError, CheckpointError, DataError, MlpEngineError, UsageError
from mlpengine.core.foreign import ABSENT, SYNONYMS
from mlpengine.core.misuse import KnownAttributes, called_as
from mlpengine.core.wording import hint, nearest
from mlpengine.estimators import MlpClassifier, MlpRegressor
from mlpengine.models import Classification, Split
from mlpengine.optim import OneCycleSchedule, Optimizer
from mlpengine.settings import EarlyStopping

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 4)).astype("float32"), RNG.integers(0, 3, 8)
COLUMNS = {"a": list(range(40)), "price": list(range(40))}

OPEN = {
    Callback: "keeps the state of a class of the caller's own",
    training.LoopDiagnostics: "the loop calls it",
    training.SkipBudget: "a tuple",
    tape.Node: "nodes and tensors are the operands of expressions",
    tape.Tensor: "nodes and tensors are the operands of expressions",
    tape.EagerGradients: "what `backward` returns",
    tape.GradientAccumulator: "what `backward` returns",
    tape.QuantizedArray: "an array",
    tape.Flat: "a vector",
}
"""Public classes that are not checked, and why."""


def public_classes():
    for module in (mlpengine, nn, step, training, models, optim, tape, estimators):
        for name in module.__all__:
            one = getattr(module, name)
            if isinstance(one, type) and not issubclass(one, Exception):
                yield one
    for one in (getattr(ops, name) for name in ops.__all__):  # others are called by the tape
        if isinstance(one, type) and issubclass(one, ops.Loss | ops.Activation):
            yield one
    yield ops.GradOp


@pytest.mark.parametrize("kind", sorted({*public_classes()}, key=lambda kind: kind.__name__))
def test_public_objects_refuse_unknown_attributes(kind):
    if kind in OPEN:
        return
    frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen
    assert frozen or issubclass(kind, KnownAttributes)
    if not inspect.isabstract(kind):
        blank = object.__new__(kind)
        with pytest.raises((UsageError, AttributeError), match="learning_rat"):
            blank.learning_rat = 1


def test_the_check_names_the_attribute_that_was_meant():
    step = training_step()
    with pytest.raises(UsageError, match=r"TrainingStep: .*'lr'.* \(got 0.1\).*'optimizer.lr'"):
        step.lr = 0.1
    with pytest.raises(UsageError, match=r"Adam: .*'learning_rate'.*did you mean 'lr'"):
        step.optimizer.learning_rate = 0.1
    step.optimizer.lr = 0.1
    assert step.optimizer.current_lr == 1e-3
    step(X, Y)
    assert step.optimizer.current_lr == 0.1


def test_classes_of_the_callers_own_keep_what_they_like():
    class Mine(Sgd):
        pass

    mine = Mine(Mlp([4, 8, 3]), lr=0.1)
    mine.note = 3
    assert mine.note == 3


def training_step(loss=None, outputs=3):
    mlp = Mlp([4, 8, outputs])
    return TrainingStep(mlp, loss or SoftmaxCrossEntropy(), Adam(mlp), batch_size=8)


def parts():
    mlp = Mlp([4, 8, 3])
    return mlp, SoftmaxCrossEntropy(), Adam(mlp)


STEP = "write TrainingStep(mlp, loss, optimizer, batch_size=32)"
SIZES = "write Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs"


def loop(**options):
    return Loop(training_step(), Classification(3), Split(X, Y, Y), epochs=1, **options)


def renamed(prefix):
    return {prefix + name: value for name, value in parts()[0].state_dict().items()}


def node():
    return tape.Tape().input((4, 3), name="x")


MISTAKES = """\
# arguments swapped
TrainingStep(mlp, adam, loss, 8)
    loss | Adam(lr=0.001 | write TrainingStep(mlp, loss, optimizer, batch_size=32)
# loss by name
TrainingStep(mlp, "mse", adam, 8)
    training step: loss | 'mse'
    write TrainingStep(mlp, MeanSquaredError(), optimizer, batch_size=32)
# loss as a class
TrainingStep(mlp, SoftmaxCrossEntropy, adam, 8)
    training step: loss | the class SoftmaxCrossEntropy
    write TrainingStep(mlp, SoftmaxCrossEntropy(), optimizer, batch_size=32)
# loss as a function
TrainingStep(mlp, lambda y, t: 0, adam, 8)
    loss | function | write TrainingStep(mlp, loss, optimizer, batch_size=32)
# optimizer by name
TrainingStep(mlp, loss, "adam", 8)
    training step: optimizer | 'adam' | write TrainingStep(mlp, loss, Adam(mlp), batch_size=32)
# optimizer as a class
TrainingStep(mlp, loss, Sgd, 8)
    training step: optimizer | the class Sgd
    write TrainingStep(mlp, loss, Sgd(mlp), batch_size=32)
# no batch size
TrainingStep(mlp, loss, adam)
    TrainingStep: needs batch_size | write TrainingStep(mlp, loss, optimizer, batch_size=32)
# sizes for a network
TrainingStep([4, 8, 3], loss, adam, 8)
    training step: mlp | [4, 8, 3] | write TrainingStep(mlp, loss, optimizer, batch_size=32)
# sizes one by one
Mlp(4, 8, 3)
    Mlp: takes 1 argument | got 4, 8, 3
    write Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs
# one size
Mlp(4)
    mlp: sizes | got 4 | write Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs
# no size
Mlp()
    Mlp: needs sizes | nothing
    write Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs
# an activation by place
Mlp([4, 3], "relu")
    Mlp: takes 1 | 'relu' | write Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs
# an activation's case
Mlp([4, 8, 3], activation="ReLU")
    activation: | 'ReLU' | did you mean 'relu'
# NumPy's function
Mlp([4, 8, 3], activation=np.tanh)
    mlp: activation | tanh | write activation='tanh'
# a network as a function
mlp(X)
    mlp: | write mlp.predict(x)
# a network's fit
mlp.fit(X, Y)
    'Mlp' | 'fit' | then step(x, y)
# PyTorch's parameters
Adam(mlp.parameters())
    'Mlp' | 'parameters' | write Adam(mlp)
# an optimizer of nothing
Adam(lr=0.1)
    Adam: needs model | write Adam(mlp,
# an optimizer of a rate
Adam(0.1)
    Adam: model | got 0.1 | write Adam(mlp,
# a rate by place
Adam(mlp, 0.1)
    Adam: takes 1 | 0.1 | write Adam(mlp,
# a rate as text
Adam(mlp, lr="1e-3")
    Adam: lr | '1e-3' | write lr=0.001
# a schedule by name
Adam(mlp, schedule="cosine")
    Adam: schedule | 'cosine' | such as CosineSchedule(1000)
# PyTorch's zero_grad
adam.zero_grad()
    'Adam' | 'zero_grad' | none is needed
# one row
step(X[0], Y[0])
    training step: x | (got (4,)) | write step([x], [y])
# more rows than the batch
step(np.vstack([X, X]), np.append(Y, Y))
    training step: takes up to 8 rows | got 16 | batch_size=16
# fewer columns
step(X[:, :3], Y)
    training step: x | (8, 3) | write Mlp([3, ...])
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
# two classes as a vector
training_step(BinaryCrossEntropyWithLogits(), 1)(X, (Y > 1).astype(float))
    training step: y | (8,) | write y.reshape(-1, 1)
# classes for numbers
training_step(MeanSquaredError())(X, Y)
    training step: y | (8,) | write SoftmaxCrossEntropy() in place
# a step's fit
step.fit(X, Y)
    'TrainingStep' | 'fit' | write step(x, y)
# prediction of one row
mlp.predict(X[0])
    predict: x | (4,) | write predict([x])
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
# fit by place
mlpengine.fit(COLUMNS, "price", 5)
    fit: takes 2 arguments | 5 | write mlpengine.fit(table, target='price')
# fit without its section
mlpengine.fit(COLUMNS, target="price", epochs=5)
    fit: epochs is training.epochs | got 5 | write training={'epochs': 5}
# a misspelled key of fit
mlpengine.fit(COLUMNS, target="price", epoch=2)
    fit: epoch may be training.epochs | got 2 | write training={'epochs': 2}
# fit as in scikit-learn
mlpengine.fit(COLUMNS, target="price", hidden_layer_sizes=[5])
    fit: hidden_layer_sizes is model.hidden | [5] | write model={'hidden': [5]}
# load of nothing
mlpengine.load()
    load: needs run | write mlpengine.load('
# an estimator's sizes as text
MlpClassifier(hidden="64,32").fit(X, Y)
    MlpClassifier: hidden must be a whole number of at least 1 | '64,32' | write hidden=[64, 32]
# a norm below zero
mlp.gradients(8).clip_global_norm_params(-1)
    clip_global_norm_params: max_norm must be at least 0 | got -1
# PyTorch's clipping
mlp.gradients(8).clip_grad_norm_(1.0)
    'clip_grad_norm_' | write grads.clip_global_norm_params(1.0)
# a norm as text
TrainingStep(mlp, loss, adam, 8, clip_norm="1")
    training step: clip_norm must be | '1' | write clip_norm=1
# another loss
step.loss = MeanSquaredError()
    TrainingStep: loss cannot be set afterwards | MeanSquaredError
    make a new TrainingStep with this loss
# another norm
step.clip_norm = 1
    TrainingStep: clip_norm cannot be set afterwards | got 1
    make a new TrainingStep with this clip_norm
# other betas
adam.betas = (0.1, 0.2)
    Adam: betas cannot be set afterwards | (0.1, 0.2) | make a new Adam with this betas
# dropout of a network
mlp.dropout = 0.5
    Mlp: dropout cannot be set afterwards | 0.5 | make a new Mlp with this dropout
# epochs below zero
Loop(step, Classification(3), Split(X, Y, Y), epochs=-1)
    loop: epochs must be a whole number of at least 1 | got -1
# Keras's monitor
loop(validation=Split(X, Y, Y), early_stopping=EarlyStopping(monitor="val_loss"))
    loop: early_stopping: monitor: this task has loss, accuracy | 'val_loss' | did you mean 'loss'
# a short truth
Split(X, Y, Y[:5])
    Split: truth needs 8 rows | got 5
# a network's weights for a step
step.load_state_dict(mlp.state_dict())
    training step: needs what step.state_dict() returned | that of a network
    write mlp.load_state_dict(state)
# a text for rows
step("hello", Y)
    training step: x must be an array of rows | 'hello'
# classes from 1
step(X, Y % 3 + 1)
    a class index must lie in 0 to 2 | has 3) | count classes from 0, or give the network 4 outputs
# classes from -1
step(X, np.full(8, -1))
    a class index must lie in 0 to 2 | (row 0 has -1) | ignore_index=-1 leaves such rows out
# a monitor by place
EarlyStopping("loss", patience=15)
    EarlyStopping: got an argument twice | 'loss'
    write EarlyStopping(patience=20, monitor='loss', min_delta=0.0)
# a misspelled optimizer
MlpClassifier(epochs=1, optimizer="adamm").fit(X, Y % 2)
    optimizer: must be one of adam, | 'adamm' | did you mean 'adam'
# PyTorch's mode
mlp.training = False
    Mlp: has no attribute 'training' | got False | predict leaves dropout out
# chances of numbers
MlpRegressor().predict_proba(X)
    has no attribute 'predict_proba' | predict_interval(X, level=0.9)
# numbers as texts
MlpRegressor().fit(X, np.array(["a", "b"])[Y % 2])
    MlpRegressor: y must be numbers | row 0 has ' | MlpClassifier takes classes
# texts as features
MlpClassifier().fit([["1", "red"]] * 8, Y)
    MlpClassifier: X must be numbers | (row 0, column 1 has 'red') | mlpengine.fit(table
# a gap in features
MlpClassifier().fit(np.where(X[3, 2] == X, np.nan, X), Y)
    MlpClassifier: Input X contains NaN | (row 3, column 2 has  | SimpleImputer
# a gap in numbers
training_step(MeanSquaredError(), 1)(X, np.full((8, 1), np.nan))
    loss and gradients must be finite | the target is not, in rows 0, 1
# preprocessing of a file
Preprocessor("y").fit("a.csv")
    Preprocessor.fit: table must be a Table | 'a.csv' | fit(read_table('data.csv'))
# an option of text
read_table("penguins", delimeter=";")
    table: has no option 'delimeter' | ';' | did you mean 'delimiter'
# a number for a shape
tape.Tape().input(4)
    input: shape must be a tuple | got 4 | (4,)
# NumPy's function of a node
np.exp(node())
    np.exp: | Node | write x.exp()
# a condition
node() > 0
    comparison: | with 0 | write x.maximum(0.0)
# gradients and scratch swapped
mlp.backward(grads, scratch)
    Mlp.backward: scratch must be of the class Scratch | got Gradients(...)
    write mlp.backward(scratch, grads)
# scratch and features swapped
mlp.forward(scratch, X)
    Mlp.forward: scratch must be of the class Scratch | float32[8, 4]
    write mlp.forward(x, scratch), with scratch = mlp.scratch(batch_size=32)
# more rows than the scratch
mlp.forward([[0.0] * 4] * 16, scratch)
    forward: x: shape must be (8, 4) | got (16, 4) | write mlp.scratch(batch_size=16)
# no scratch
mlp.forward(X)
    Network.forward: needs x, scratch | write mlp.forward(x, scratch)
# PyTorch's step
adam.step()
    Optimizer.step: needs model, grads | write optimizer.step(mlp, grads)
# gradients for a model
adam.step(grads, mlp)
    Adam: step needs the model it was made for | got Gradients(...)
    write optimizer.step(mlp, grads)
# a vector for gradients
adam.step(mlp, grads.flat)
    Adam: step needs gradients | float32[67] | write optimizer.step(mlp, grads)
# target and output swapped
loss(Y, scratch.output)
    softmax_cross_entropy: output must be those of a network | int64[8] | write loss(output, target)
# gradients for their output
loss(scratch.output, Y, grads)
    SoftmaxCrossEntropy: d_output must be an array or None | got Gradients(...)
    loss(scratch.output, y, grads.d_output)
# a schedule of dropout by name
TrainingStep(mlp, loss, adam, 8, dropout_schedule="cosine")
    training step: dropout_schedule must be callable | 'cosine' | such as CosineSchedule(1000)
# class weights as a list
MlpClassifier(class_weight=[1, 2, 3]).fit(X, Y)
    class_weight: must be balanced, or weights by label | [1, 2, 3] | {0: 1.0, 1: 2.0}
# Xavier's initializer
Mlp([4, 8, 3], initializer="xavier")
    initializer: must be one of he_normal | 'xavier' | did you mean 'glorot_uniform'?
# a task of labels
Classification(["a", "b"])
    Classification: outputs must be a whole number | ['a', 'b']
# a name by place
tape.Tape().input((4, 3), "x")
    input: dtype must be one of NumPy's | 'x' | input((4, 3), name='x')
# a data frame to read
read_table(pd.DataFrame({"a": [1]}))
    read: needs a path, a data set or an open file | DataFrame [1, 1]
    mlpengine.fit takes data frames
# features and targets swapped
step(Y, X)
    training step: x must be (rows, 4) | (8,) | write step(x, y)
# one number
training_step(MeanSquaredError(), 1)(X[0], 1.0)
    training step: x must be (rows, 4) | (4,) | write step([x], [[y]])
# images
step(X.reshape(8, 2, 2), Y)
    training step: x must be (rows, 4) | (8, 2, 2) | write np.reshape(x, (len(x), -1))
# PyTorch's cosine
CosineSchedule(T_max=100, eta_min=0.0)
    CosineSchedule: has no argument 'T_max' | got 100
    did you mean 'total_steps'?; write CosineSchedule(total_steps=1000, final=0.0
# PyTorch's scheduler
CosineSchedule(adam, 100)
    CosineSchedule: takes no optimizer | write Adam(mlp, schedule=CosineSchedule(1000))
# a schedule for a rate
Adam(mlp, lr=CosineSchedule(100))
    Adam: lr must be a number | CosineSchedule(...)
    write Adam(mlp, lr=0.001, schedule=CosineSchedule(...))
# a schedule by name, later
adam.schedule = "cosine"; adam.step(mlp, grads)
    Adam: schedule must be callable | 'cosine' | such as CosineSchedule(1000)
# one beta
Adam(mlp, betas=0.9)
    Adam: betas must be 2 values | got 0.9 | write betas=(0.9, 0.999)
# a network's device
mlp.to("cuda")
    'Mlp' | 'to' | all runs on the processor; leave it out
# an estimator's loss
MlpRegressor(loss="squared_error").fit(X, X[:, 0])
    loss: must be auto, mse | 'squared_error' | did you mean 'mse'?
# fewer targets of an estimator
MlpClassifier().fit(X, Y[:-1])
    MlpClassifier: y must have a target for each row of X | got 7 for 8 rows
    write fit(X[rows], y[rows])
# no targets of an estimator
MlpClassifier().fit(X)
    MlpClassifier.fit: needs y | float32[8, 4] | write MlpClassifier().fit(X, y)
# an estimator that is not fitted
MlpRegressor().predict(X)
    MlpRegressor: is not fitted yet | write estimator.fit(X, y) first
# a preprocessor that is not fitted
Preprocessor("species").transform(read_table("penguins"))
    preprocessor: fit must be called first | write preprocessor.fit(table)
# an option of a preprocessor
Preprocessor("y", scaler="standard")
    Preprocessor: has no option 'scaler' | 'standard' | did you mean 'standardize'?
# pandas' sep
read_table("penguins", sep=";")
    table: has no option 'sep' | ';' | did you mean 'delimiter'?; the options of text are delimiter
# pandas' usecols
read_table("penguins", usecols=["a"])
    table: has no option 'usecols' | ['a'] | pandas.read_csv
# a run that there is not
mlpengine.load("runs/nothing")
    there is no such run or model file | runs/nothing
    `mlpengine train CONFIG.yaml` makes runs/CONFIG
# names of a wrapped module
mlp.load_state_dict(renamed("module."))
    parameters: must be called 0.weight, 0.bias | got module.0.weight
    write mlp.load_state_dict({name.removeprefix('module.'): value
# names of another module
mlp.load_state_dict(dict(zip("abcd", renamed("").values(), strict=True)))
    parameters: must be called 0.weight, 0.bias | got a, b, c, d
    mlp.load_state_dict(dict(zip(mlp.state_dict(), state.values())))
# a file of weights
mlp.load_state_dict("w.pt")
    Mlp.load_state_dict: state must be a mapping | 'w.pt' | Mlp.load(path) reads a file
# the state of PyTorch's optimizer
adam.load_state_dict({"state": {}, "param_groups": []})
    Adam: needs what optimizer.state_dict() returned | PyTorch optimizer | begin without it
# a layer by number
mlp.freeze(0)
    freeze: layers must be a list | got 0 | write freeze([0])
# early stopping among callbacks
loop(callbacks=[EarlyStopping()])
    callbacks: must be instances of Callback | EarlyStopping(
    write early_stopping=EarlyStopping(patience=20)
# early stopping switched on
loop(early_stopping=True)
    loop: early_stopping must be an EarlyStopping | got True
    write early_stopping=EarlyStopping(patience=20)
# a task of other outputs
Loop(step, Classification(5), Split(X, Y, Y), epochs=1)
    loop: task must have as many outputs as the network | got 5 and 3 | write Classification(3)
# a loop over lists
Split(X.tolist(), Y, Y)
    Split: x must be an array | list [[ | np.asarray(x, 'float32')
# a loop's fit
loop().fit()
    'Loop' | 'fit' | write loop.run()
# fit's y
mlpengine.fit(COLUMNS, y="price")
    fit: y is called target | 'price' | write mlpengine.fit(table, target='price')
# fit's optimizer as an object
mlpengine.fit(COLUMNS, "price", optimizer=Adam)
    fit: optimizer must be a name | the class Adam | write optimizer='adam'
# fit's model by name
mlpengine.fit(COLUMNS, "price", model="realmlp")
    fit: model must be a mapping of keys | 'realmlp' | write model={'preset': 'realmlp'}
# PyTorch's activation
mlpengine.ReLU
    module 'mlpengine' | 'ReLU' | write Mlp([4, 8, 3], activation='relu')
# PyTorch's layer
nn.Linear
    module 'mlpengine.nn' | 'Linear' | write Mlp([4, 8, 3])
# PyTorch's network
nn.Sequential
    'mlpengine.nn' | 'Sequential' | write Mlp([4
# PyTorch's weight
mlp.weight
    'Mlp' | 'weight' | write mlp.weights and mlp.biases
# PyTorch's optimizer
mlpengine.SGD
    module 'mlpengine' | 'SGD' | did you mean 'Sgd'?
# PyTorch's loss
mlpengine.CrossEntropyLoss
    module 'mlpengine' | 'CrossEntropyLoss' | did you mean 'SoftmaxCrossEntropy'?
# a name of another room
mlpengine.read_table
    module 'mlpengine' | 'read_table' | it is in mlpengine.data.tables
# a population of a number
Population(4, mlp)
    Population: mlp must be of the class Network | got 4 | write Population(mlp, 8)
# an optimizer for a population
PopulationStep(Population(mlp, 2), loss, adam, 8)
    population step: optimizer must be a class | Adam(lr=0.001
    write PopulationStep(population, loss, Adam, batch_size=32
# an input by place
tape.Program(node().tape).forward(X)
    Program.forward: takes no argument by place | float32[8, 4] | write program.forward(x=x)
# an estimator's attribute
MlpClassifier().hidden_layer_sizes = (5,)
    MlpClassifier: has no attribute 'hidden_layer_sizes' | (5,) | did you mean 'hidden'
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


def adam(**options):
    return Adam(parts()[0], **options)


UNKNOWN = [
    ("TrainingStep", lambda **o: TrainingStep(*parts(), 8, **o), "lr", 0.1, STEP),
    ("Mlp", Mlp, "hidden_layer_sizes", (8,), SIZES),
    ("Mlp", partial(Mlp, [4, 8, 3]), "device", "cuda", "all runs on the processor; leave it out"),
    ("Mlp.scratch", lambda **o: parts()[0].scratch(8, **o), "train", False, "32, training=False)"),
    ("Mlp.compile", lambda **o: parts()[0].compile(**o), "optimizer", "adam", "optimizer, 32) tra"),
    ("Adam", adam, "learning_rate", 0.1, "did you mean 'lr'"),
    ("Adam", adam, "momentum", 0.9, "Sgd(mlp, lr=0.1, momentum=0.9)"),
    ("Adam", adam, "epsilon", 1e-7, "did you mean 'eps'?; write Adam(mlp, lr=0.001, eps=1e-07)"),
    ("Adam", adam, "lr_decay", 0.1, "rate: Adam(mlp, schedule=CosineSchedule(1000))"),
    ("CosineSchedule", partial(CosineSchedule, 9), "eta_min", 1e-5, "=0.01 ends at a hundredth"),
    ("OneCycleSchedule", OneCycleSchedule, "max_lr", 0.1, "write OneCycleSchedule(total_steps="),
    ("SoftmaxCrossEntropy", SoftmaxCrossEntropy, "reduction", "mean", "Entropy(class_weights=None"),
    ("MeanSquaredError", MeanSquaredError, "reduction", "mean", "write MeanSquaredError()"),
    ("sum", lambda **o: node().sum(**o), "dim", 0, "did you mean 'axis'"),
    ("MlpClassifier", MlpClassifier, "hidden_layer_sizes", (5,), "did you mean 'hidden'"),
    ("MlpClassifier", MlpClassifier, "max_iter", 5, "did you mean 'epochs'"),
    ("MlpClassifier", MlpClassifier, "n_jobs", -1, "(hidden=[64, 64], epochs=50, threads=1)"),
    ("MlpClassifier", MlpClassifier, "alpha", 1e-4, "epochs=50, weight_decay=0.0001)"),
    ("MlpClassifier", MlpClassifier, "solver", "lbfgs", "did you mean 'optimizer'?; write Mlp"),
    ("MlpRegressor", partial(MlpRegressor, loss="huber"), "delta", 2, "has it: Huber(delta=1.0)"),
    ("MlpClassifier.set_params", lambda **o: MlpClassifier().set_params(**o),
     "hidden_layer_sizes", (3,), "did you mean 'hidden'?"),
]  # fmt: skip
"""Where, a call, an argument of another library and its value, and what to write."""


@pytest.mark.parametrize(("where", "call", "name", "value", "right"), UNKNOWN)
def test_an_argument_of_another_library_is_answered_with_ours(where, call, name, value, right):
    with pytest.raises(CallError) as caught:
        call(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"{where}: has no argument {name!r} (got {value!r}")
    assert right in message


def test_a_row_is_told_of_every_column_that_it_lacks():
    rows = {name: [1.0, 2.0, 3.0] * 5 for name in ("area", "rooms", "rent")}
    rows["city"] = ["Ulm", "Bonn", "Kiel"] * 5
    model, _ = mlpengine.fit(rows, target="rent", training={"epochs": 1, "folds": None})
    with pytest.raises(DataError) as caught:
        model.predict({"arae": 3.0})
    assert "'area' (did you mean 'arae'?), 'rooms', 'city'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"), [("a.csv", "table"), ("a.yaml", "config"), ("a", "text")]
)
def test_a_text_file_is_not_read_as_a_model(name, kind, tmp_path):
    (tmp_path / name).write_text("area,rooms\n1,2\n", "utf-8")
    for load, error in ((mlpengine.load, UsageError), (Mlp.load, CheckpointError)):
        with pytest.raises(error, match=f"begins with 'area,rooms': a {kind}, not a mo"):
            load(tmp_path / name)


@pytest.mark.parametrize("start", [b"PK\3\4\0\0model/data.pkl\x80\2", b"\x80\2\x8a\n"])
def test_a_file_of_pytorch_is_named(start, tmp_path):
    (tmp_path / "model.pt").write_bytes(start + bytes(range(256)))
    with pytest.raises(CheckpointError, match="looks like a file of PyTorch; write"):
        Mlp.load(tmp_path / "model.pt")


def public_signatures():
    """Yield the public functions and methods, by name."""
    for module in (mlpengine, nn, step, training, models, ops, optim, tape, estimators):
        for name in module.__all__:
            one = getattr(module, name)
            if not isinstance(one, type):
                yield name, one
                continue
            for member, function in inspect.getmembers(one, inspect.isfunction):
                if member in ("__call__", "__init__") or member[0] != "_":
                    yield f"{name}.{member}", function


def test_help_shows_names_of_types_not_their_members():
    for name, function in public_signatures():
        if callable(function):
            for parameter in inspect.signature(function).parameters.values():
                assert "numpy._typing" not in str(parameter), name
    shown = pydoc.plain(pydoc.render_doc(TrainingStep.__call__))
    signature = shown[shown.index("__call__(") : shown.index(" -> ")]  # since 3.14 in several lines
    assert len(signature) < 250
    assert signature.count("ArrayLike") == 3


def test_arguments_that_fit_no_signature_are_type_errors_too():
    with pytest.raises(TypeError) as caught:
        Mlp()
    assert isinstance(caught.value, CallError)


BY_LIBRARY = {
    "TrainingStep": "its steps are hot, and a decorator costs as much as a check",
    "Callback": "the loop calls its hooks",
    "Diagnostics": "the loop calls it",
    "Tape.__init__": "it takes nothing by hand",
    "FitResult.__init__": "`fit` makes it",
    "Model.__init__": "`fit` and `load` make it",
    **dict.fromkeys(("Model.features", "Model.forward", "Model.interval"), "of arrays within"),
    **dict.fromkeys(("Model.outputs", "Model.scorer", "Model.spread"), "of arrays within"),
    **dict.fromkeys(
        ("Model.interval_of", "Model.set_of", "Model.table", "Model.task_with", "Model.with_mean"),
        "of arrays within",
    ),
    **dict.fromkeys(("Loop.abandon", "Loop.callback", "Loop.fill"), "the trainer calls it"),
    **dict.fromkeys(("Loop.finish", "Loop.load_state_dict"), "the trainer calls it"),
    "Mlp.move_to": "populations call it",
    **dict.fromkeys(("Mlp.record", "Mlp.recorded"), "steps call it"),
    "CosineSchedule": "the optimizer calls it, hot",
}
"""Classes and methods that `called_as` leaves alone, and why."""

BY_HAND = {"__init__", "__call__", "step"}
"""What callers use of losses and optimizers, besides what the tape and backends do."""


def methods():
    """Yield the methods with arguments of the classes of the package itself, by name."""
    for name in mlpengine.__all__:
        kind = getattr(mlpengine, name)
        if not isinstance(kind, type) or issubclass(kind, Exception):
            continue
        for member, function in inspect.getmembers(kind, inspect.isfunction):
            public = member in ("__init__", "__call__") or member[0] != "_"
            ours = function.__module__.startswith("mlpengine")
            rule = issubclass(kind, ops.GradOp | Optimizer) and member not in BY_HAND
            known = {name, f"{name}.{member}"} & {*BY_LIBRARY}
            parameters = [*inspect.signature(function).parameters.values()]
            open_ = any(one.kind is one.VAR_KEYWORD for one in parameters)
            if public and ours and not (rule or known or open_ or len(parameters) < 2):
                yield f"{name}.{member}", kind, function


METHODS = [*methods()]


@pytest.mark.parametrize(("name", "kind", "function"), METHODS, ids=[one[0] for one in METHODS])
def test_methods_that_are_called_by_hand_answer_a_wrong_call(name, kind, function):
    made = object.__new__(kind)
    if hasattr(function, "example"):  # a hot one, which answers what is left out
        with pytest.raises(CallError, match=r"needs \w+.*; write "):
            function(made)
        return
    with pytest.raises(CallError, match=r"has no argument 'no_such_argument'.*; write "):
        function(made, no_such_argument=1)


OPTIONS = [*optim.OPTIMIZERS.values(), *optim.schedules.SCHEDULES.values(), *ops.LOSSES.values()]


@pytest.mark.parametrize("kind", [*OPTIONS, MlpClassifier, Mlp, EarlyStopping])
def test_what_is_proposed_for_arguments_of_other_libraries_is_there(kind):
    own, found = inspect.signature(kind).parameters, []
    for theirs in {*SYNONYMS, *ABSENT} - {*own}:
        said = hint(theirs, own)
        if " - did you mean " in said:
            found.append(said.split("'")[1])
            assert nearest(theirs, own) == found[-1]
    assert {*found} <= {*own}


@pytest.mark.parametrize("kind", [*optim.schedules.SCHEDULES.values(), *ops.LOSSES.values()])
def test_the_call_that_a_message_shows_is_right(kind):
    with pytest.raises(CallError) as caught:
        kind(no_such_argument=1)
    call = str(caught.value).partition("; write ")[2]
    made = eval(call, {kind.__name__: kind})
    if isinstance(made, optim.schedules.Schedule):
        assert 0 <= made(3) <= 1


def test_errors_of_type_within_a_call_stay_as_they_are():
    @called_as("{name}(1)")
    def broken(x):
        raise TypeError("not a number")

    with pytest.raises(TypeError, match="not a number") as caught:
        broken(1)
    assert not isinstance(caught.value, CallError)
    with pytest.raises(CallError, match=r"broken: needs x \(got nothing\); write broken\(1\)"):
        broken()
