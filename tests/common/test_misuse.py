"""Attributes that do not exist, and calls as newcomers write them, are answered in words."""

import inspect
import pydoc
from dataclasses import is_dataclass

import numpy as np
import pytest

import mlpengine
from mlpengine import (
    Adam,
    BinaryCrossEntropyWithLogits,
    Callback,
    Loop,
    MeanSquaredError,
    Mlp,
    Sgd,
    SoftmaxCrossEntropy,
    TrainingStep,
    estimators,
    models,
    nn,
    ops,
    optim,
    step,
    tape,
    training,
)
from mlpengine.common.misuse import KnownAttributes, called_as
from mlpengine.errors import CallError, CheckpointError, DataError, MlpEngineError, UsageError
from mlpengine.estimators import MlpClassifier, MlpRegressor
from mlpengine.features import Preprocessor
from mlpengine.models import Classification, Split
from mlpengine.optim import OneCycleSchedule
from mlpengine.settings import EarlyStopping
from mlpengine.tables import read_table

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 4)).astype("float32"), RNG.integers(0, 3, 8)
COLUMNS = {"a": list(range(40)), "price": list(range(40))}

OPEN = {
    Callback: "keeps the state of a class of the caller's own",
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


def with_swapped_arguments():
    mlp, loss, adam = parts()
    TrainingStep(mlp, adam, loss, 8)


def with_another_loss(loss):
    mlp, _, adam = parts()
    TrainingStep(mlp, loss, adam, 8)


def with_another_optimizer(optimizer):
    mlp, loss, _ = parts()
    TrainingStep(mlp, loss, optimizer, 8)


STEP = "write TrainingStep(mlp, loss, optimizer, batch_size=32)"
SIZES = "write Mlp([4, 8, 3]), the numbers of inputs, hidden units and outputs"


def node():
    return tape.Tape().input((4, 3), name="x")


MISTAKES = {
    "arguments swapped": (with_swapped_arguments, "loss", "Adam(lr=0.001", STEP),
    "loss by name": (
        lambda: with_another_loss("mse"),
        "training step: loss",
        "'mse'",
        "write TrainingStep(mlp, MeanSquaredError(), optimizer, batch_size=32)",
    ),
    "loss as a class": (
        lambda: with_another_loss(SoftmaxCrossEntropy),
        "training step: loss",
        "the class SoftmaxCrossEntropy",
        "write TrainingStep(mlp, SoftmaxCrossEntropy(), optimizer, batch_size=32)",
    ),
    "loss as a function": (lambda: with_another_loss(lambda y, t: 0), "loss", "function", STEP),
    "optimizer by name": (
        lambda: with_another_optimizer("adam"),
        "training step: optimizer",
        "'adam'",
        "write TrainingStep(mlp, loss, Adam(mlp), batch_size=32)",
    ),
    "optimizer as a class": (
        lambda: with_another_optimizer(Sgd),
        "training step: optimizer",
        "the class Sgd",
        "write TrainingStep(mlp, loss, Sgd(mlp), batch_size=32)",
    ),
    "no batch size": (lambda: TrainingStep(*parts()), "TrainingStep: needs batch_size", "", STEP),
    "rate of a step": (
        lambda: TrainingStep(*parts(), 8, lr=0.1),
        "TrainingStep: has no argument 'lr'",
        "0.1",
        STEP,
    ),
    "sizes for a network": (
        lambda: TrainingStep([4, 8, 3], *parts()[1:], 8),
        "training step: mlp",
        "[4, 8, 3]",
        STEP,
    ),
    "sizes one by one": (lambda: Mlp(4, 8, 3), "Mlp: takes 1 argument", "got 4, 8, 3", SIZES),
    "one size": (lambda: Mlp(4), "mlp: sizes", "got 4", SIZES),
    "no size": (lambda: Mlp(), "Mlp: needs sizes", "nothing", SIZES),
    "scikit-learn's sizes": (
        lambda: Mlp(hidden_layer_sizes=(8,)),
        "Mlp: has no argument 'hidden_layer_sizes'",
        "(8,)",
        SIZES,
    ),
    "an activation by place": (lambda: Mlp([4, 3], "relu"), "Mlp: takes 1", "'relu'", SIZES),
    "an activation's case": (
        lambda: Mlp([4, 8, 3], activation="ReLU"),
        "activation:",
        "'ReLU'",
        "did you mean 'relu'",
    ),
    "NumPy's function": (
        lambda: Mlp([4, 8, 3], activation=np.tanh),
        "mlp: activation",
        "tanh",
        "write activation='tanh'",
    ),
    "a network as a function": (lambda: parts()[0](X), "mlp:", "", "write mlp.predict(x)"),
    "a network's fit": (lambda: parts()[0].fit(X, Y), "'Mlp'", "'fit'", "then step(x, y)"),
    "PyTorch's parameters": (
        lambda: Adam(parts()[0].parameters()),
        "'Mlp'",
        "'parameters'",
        "write Adam(mlp)",
    ),
    "an optimizer of nothing": (lambda: Adam(lr=0.1), "Adam: needs model", "", "write Adam(mlp, "),
    "an optimizer of a rate": (lambda: Adam(0.1), "Adam: model", "got 0.1", "write Adam(mlp, "),
    "a rate by place": (lambda: Adam(parts()[0], 0.1), "Adam: takes 1", "0.1", "write Adam(mlp, "),
    "Keras's rate": (
        lambda: Adam(parts()[0], learning_rate=0.1),
        "Adam: has no argument 'learning_rate'",
        "0.1",
        "did you mean 'lr'",
    ),
    "a rate as text": (lambda: Adam(parts()[0], lr="1e-3"), "Adam: lr", "'1e-3'", "write lr=0.001"),
    "a schedule by name": (
        lambda: Adam(parts()[0], schedule="cosine"),
        "Adam: schedule",
        "'cosine'",
        "such as CosineSchedule(1000)",
    ),
    "PyTorch's zero_grad": (
        lambda: parts()[2].zero_grad(),
        "'Adam'",
        "'zero_grad'",
        "none is needed",
    ),
    "one row": (
        lambda: training_step()(X[0], Y[0]),
        "training step: x",
        "(got (4,))",
        "write step(x[None], y[None])",
    ),
    "more rows than the batch": (
        lambda: training_step()(np.vstack([X, X]), np.append(Y, Y)),
        "training step: takes up to 8 rows",
        "got 16",
        "batch_size=16",
    ),
    "fewer columns": (
        lambda: training_step()(X[:, :3], Y),
        "training step: x",
        "(8, 3)",
        "write Mlp([3, ...])",
    ),
    "fewer targets": (
        lambda: training_step()(X, Y[:5]),
        "training step: y",
        "(5,)",
        "one target for each of 8 rows",
    ),
    "classes as floats": (
        lambda: training_step()(X, Y.astype(float)),
        "training step: y",
        "float64",
        "write y.astype('int64')",
    ),
    "classes as a column": (
        lambda: training_step()(X, Y[:, None]),
        "training step: y",
        "(8, 1)",
        "write y.ravel()",
    ),
    "one-hot integers": (
        lambda: training_step()(X, np.eye(3, dtype=int)[Y]),
        "training step: y",
        "(8, 3)",
        "write y.argmax(axis=1)",
    ),
    "classes as texts": (
        lambda: training_step()(X, np.array(["a", "b", "c"])[Y]),
        "training step: y",
        "<U1",
        "write labels, y = np.unique(y, return_inverse=True)",
    ),
    "numbers as a vector": (
        lambda: training_step(MeanSquaredError(), 1)(X, X[:, 0]),
        "training step: y",
        "(8,)",
        "write y.reshape(-1, 1)",
    ),
    "two classes as a vector": (
        lambda: training_step(BinaryCrossEntropyWithLogits(), 1)(X, (Y > 1).astype(float)),
        "training step: y",
        "(8,)",
        "write y.reshape(-1, 1)",
    ),
    "classes for numbers": (
        lambda: training_step(MeanSquaredError())(X, Y),
        "training step: y",
        "(8,)",
        "write SoftmaxCrossEntropy() in place",
    ),
    "a step's fit": (
        lambda: training_step().fit(X, Y),
        "'TrainingStep'",
        "'fit'",
        "write step(x, y)",
    ),
    "prediction of one row": (
        lambda: parts()[0].predict(X[0]),
        "predict: x",
        "(4,)",
        "write predict(x[None])",
    ),
    "a loop over arrays": (
        lambda: Loop(training_step(), X, Y, epochs=1),
        "loop: task",
        "float32[8, 4]",
        "write Loop(step, Classification(3), Split(x, y, truth=y), epochs=20)",
    ),
    "fit of two arrays": (
        lambda: mlpengine.fit(X, Y),
        "fit: target",
        "float32[8, 4] and ndarray int64[8]",
        "MlpClassifier().fit(x, y)",
    ),
    "fit of a column": (
        lambda: mlpengine.fit(COLUMNS, COLUMNS["price"]),
        "fit: target",
        "",
        "write mlpengine.fit(table, target='price')",
    ),
    "fit by place": (
        lambda: mlpengine.fit(COLUMNS, "price", 5),
        "fit: takes 2 arguments",
        "5",
        "write mlpengine.fit(table, target='price')",
    ),
    "fit without its section": (
        lambda: mlpengine.fit(COLUMNS, target="price", epochs=5),
        "fit: epochs is training.epochs",
        "got 5",
        "write training={'epochs': 5}",
    ),
    "fit as in scikit-learn": (
        lambda: mlpengine.fit(COLUMNS, target="price", hidden_layer_sizes=[5]),
        "fit: hidden_layer_sizes is model.hidden",
        "[5]",
        "write model={'hidden': [5]}",
    ),
    "load of nothing": (lambda: mlpengine.load(), "load: needs run", "", "write mlpengine.load('"),
    "an estimator's sizes": (
        lambda: MlpClassifier(hidden_layer_sizes=(5,)),
        "MlpClassifier: has no argument 'hidden_layer_sizes'",
        "(5,)",
        "did you mean 'hidden'",
    ),
    "an estimator's iterations": (
        lambda: MlpClassifier(max_iter=5),
        "MlpClassifier: has no argument 'max_iter'",
        "5",
        "did you mean 'epochs'",
    ),
    "a norm below zero": (
        lambda: parts()[0].gradients(8).clip_global_norm_params(-1),
        "clip_global_norm_params: max_norm must be at least 0",
        "got -1",
        "",
    ),
    "PyTorch's clipping": (
        lambda: parts()[0].gradients(8).clip_grad_norm_(1.0),
        "'clip_grad_norm_'",
        "",
        "write grads.clip_global_norm_params(1.0)",
    ),
    "a norm as text": (
        lambda: TrainingStep(*parts(), 8, clip_norm="1"),
        "training step: clip_norm must be",
        "'1'",
        "write clip_norm=1",
    ),
    "another loss": (
        lambda: setattr(training_step(), "loss", MeanSquaredError()),
        "TrainingStep: loss cannot be set afterwards",
        "MeanSquaredError",
        "make a new TrainingStep with this loss",
    ),
    "another norm": (
        lambda: setattr(training_step(), "clip_norm", 1),
        "TrainingStep: clip_norm cannot be set afterwards",
        "got 1",
        "make a new TrainingStep with this clip_norm",
    ),
    "other betas": (
        lambda: setattr(parts()[2], "betas", (0.1, 0.2)),
        "Adam: betas cannot be set afterwards",
        "(0.1, 0.2)",
        "make a new Adam with this betas",
    ),
    "dropout of a network": (
        lambda: setattr(parts()[0], "dropout", 0.5),
        "Mlp: dropout cannot be set afterwards",
        "0.5",
        "make a new Mlp with this dropout",
    ),
    "epochs below zero": (
        lambda: Loop(training_step(), Classification(3), Split(X, Y, Y), epochs=-1),
        "loop: epochs must be a whole number of at least 1",
        "got -1",
        "",
    ),
    "Keras's monitor": (
        lambda: Loop(
            training_step(),
            Classification(3),
            Split(X, Y, Y),
            Split(X, Y, Y),
            epochs=1,
            early_stopping=EarlyStopping(monitor="val_loss"),
        ),
        "loop: early_stopping: monitor: this task has loss, accuracy",
        "'val_loss'",
        "did you mean 'loss'",
    ),
    "a short truth": (
        lambda: Split(X, Y, Y[:5]),
        "Split: truth needs 8 rows",
        "got 5",
        "",
    ),
    "a network's weights for a step": (
        lambda: training_step().load_state_dict(parts()[0].state_dict()),
        "training step: needs what step.state_dict() returned",
        "that of a network",
        "write mlp.load_state_dict(state)",
    ),
    "a text for rows": (
        lambda: training_step()("hello", Y),
        "training step: x must be an array of rows",
        "'hello'",
        "",
    ),
    "classes from 1": (
        lambda: training_step()(X, Y % 3 + 1),
        "a class index must lie in 0 to 2",
        "has 3)",
        "count classes from 0, or give the network 4 outputs",
    ),
    "classes from -1": (
        lambda: training_step()(X, np.full(8, -1)),
        "a class index must lie in 0 to 2",
        "(row 0 has -1)",
        "ignore_index=-1 leaves such rows out",
    ),
    "a monitor by place": (
        lambda: EarlyStopping("loss", patience=15),
        "EarlyStopping: got an argument twice",
        "'loss'",
        "write EarlyStopping(patience=20, monitor='loss', min_delta=0.0)",
    ),
    "a mode of a scratch": (
        lambda: parts()[0].scratch(8, train=False),
        "Mlp.scratch: has no argument 'train'",
        "False",
        "mlp.scratch(32, training=False)",
    ),
    "a misspelled optimizer": (
        lambda: MlpClassifier(epochs=1, optimizer="adamm").fit(X, Y % 2),
        "optimizer: must be one of adam,",
        "'adamm'",
        "did you mean 'adam'",
    ),
    "PyTorch's mode": (
        lambda: setattr(parts()[0], "training", False),
        "Mlp: has no attribute 'training'",
        "got False",
        "predict leaves dropout out",
    ),
    "chances of numbers": (
        lambda: MlpRegressor().predict_proba(X),
        "has no attribute 'predict_proba'",
        "",
        "predict_interval(X, level=0.9)",
    ),
    "numbers as texts": (
        lambda: MlpRegressor().fit(X, np.array(["a", "b"])[Y % 2]),
        "MlpRegressor: y must be numbers",
        "row 0 has '",
        "MlpClassifier takes classes",
    ),
    "texts as features": (
        lambda: MlpClassifier().fit([["1", "red"]] * 8, Y),
        "MlpClassifier: X must be numbers",
        "(row 0, column 1 has 'red')",
        "mlpengine.fit(table",
    ),
    "a gap in features": (
        lambda: MlpClassifier().fit(np.where(X[3, 2] == X, np.nan, X), Y),
        "MlpClassifier: Input X contains NaN",
        "(row 3, column 2 has ",
        "SimpleImputer",
    ),
    "a gap in numbers": (
        lambda: training_step(MeanSquaredError(), 1)(X, np.full((8, 1), np.nan)),
        "loss and gradients must be finite",
        "the target is not, in rows 0, 1",
        "",
    ),
    "preprocessing of a file": (
        lambda: Preprocessor("y").fit("a.csv"),
        "Preprocessor.fit: table must be a Table",
        "'a.csv'",
        "fit(read_table('data.csv'))",
    ),
    "a schedule's rate": (
        lambda: OneCycleSchedule(max_lr=0.1, total_steps=100),
        "OneCycleSchedule: has no argument 'max_lr'",
        "got 0.1",
        "write OneCycleSchedule(total_steps=",
    ),
    "PyTorch's reduction": (
        lambda: SoftmaxCrossEntropy(reduction="mean"),
        "SoftmaxCrossEntropy: has no argument 'reduction'",
        "'mean'",
        "write SoftmaxCrossEntropy(class_weights=None",
    ),
    "an option of a loss that has none": (
        lambda: MeanSquaredError(reduction="mean"),
        "MeanSquaredError: has no argument 'reduction'",
        "'mean'",
        "write MeanSquaredError()",
    ),
    "Keras's compile": (
        lambda: parts()[0].compile(optimizer="adam"),
        "Mlp.compile: has no argument 'optimizer'",
        "'adam'",
        "TrainingStep(mlp, loss, optimizer, 32) trains",
    ),
    "PyTorch's dim": (
        lambda: node().sum(dim=0),
        "sum: has no argument 'dim'",
        "got 0",
        "did you mean 'axis'",
    ),
    "an option of text": (
        lambda: read_table("penguins", delimeter=";"),
        "table: has no option 'delimeter'",
        "';'",
        "did you mean 'delimiter'",
    ),
    "a number for a shape": (
        lambda: tape.Tape().input(4),
        "input: shape must be a tuple",
        "got 4",
        "(4,)",
    ),
    "NumPy's function of a node": (lambda: np.exp(node()), "np.exp:", "Node", "write x.exp()"),
    "a condition": (lambda: node() > 0, "comparison:", "with 0", "write x.maximum(0.0)"),
    "an estimator's attribute": (
        lambda: setattr(MlpClassifier(), "hidden_layer_sizes", (5,)),
        "MlpClassifier: has no attribute 'hidden_layer_sizes'",
        "(5,)",
        "did you mean 'hidden'",
    ),
}
"""Calls, and what their messages must hold: where, what was given, what to write."""


@pytest.mark.parametrize(("call", "where", "given", "right"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_where_it_is_and_what_to_write(call, where, given, right):
    with pytest.raises((MlpEngineError, AttributeError)) as caught:
        call()
    message = str(caught.value)
    assert where in message
    assert given in message
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


def test_errors_of_type_within_a_call_stay_as_they_are():
    @called_as("{name}(1)")
    def broken(x):
        raise TypeError("not a number")

    with pytest.raises(TypeError, match="not a number") as caught:
        broken(1)
    assert not isinstance(caught.value, CallError)
    with pytest.raises(CallError, match=r"broken: needs x \(got nothing\); write broken\(1\)"):
        broken()
