"""Networks whose inputs are integers: embeddings and gathers of data, in steps, files and ONNX."""

import pickle

import numpy as np
import pytest

from mlpengine import Adam, Sgd, SoftmaxCrossEntropy, TrainingStep
from mlpengine.core.errors import DataError, DtypeError, IndexRangeError, UsageError
from mlpengine.nn import Network
from mlpengine.tape import cat

VOCABULARY, LENGTH, BATCH = 9, 5, 8


class Sentence(Network):
    """The mean embedding of tokens beside features."""

    def __init__(self, **options):
        shapes = {"table": (VOCABULARY, 4), "w": (3, 4 + 6), "b": 3}
        super().__init__({"tokens": ("int64", LENGTH), "x": 6}, shapes, **options)

    def record(self, tape, tokens, x):
        p = tape.parameter
        return cat([p("table").embedding(tokens).mean(axis=1), x], axis=1).linear(p("w"), p("b"))


class Tokens(Network):
    """Tokens alone, as rows of a table and as numbers."""

    def __init__(self, **options):
        shapes = {"table": (VOCABULARY, 4), "w": (2, 4), "v": (2, LENGTH)}
        super().__init__(("int64", LENGTH), shapes, **options)

    def record(self, tape, tokens):
        p = tape.parameter
        h = p("table").embedding(tokens).sum(axis=1).tanh().linear(p("w"))
        return h + tokens.cast(self.dtype).linear(p("v"))


def data(rows=BATCH, dtype="float64"):
    rng = np.random.default_rng(rows)
    tokens = rng.integers(0, VOCABULARY, (rows, LENGTH))
    x = rng.standard_normal((rows, 6)).astype(dtype)
    return {"tokens": tokens, "x": x}, rng.integers(0, 3, rows)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_loss_and_gradients_are_those_of_the_formulas(backend):
    network = Sentence(seed=1, dtype="float64")
    p = network.state_dict()
    sgd = Sgd(network, lr=0.5)
    step = TrainingStep(network, SoftmaxCrossEntropy(), sgd, BATCH, backend=backend)
    rows, labels = data()
    h = np.concatenate([p["table"][rows["tokens"]].mean(1), rows["x"]], 1)
    logits = h @ p["w"].T + p["b"]
    np.testing.assert_allclose(network.predict(rows), logits, rtol=1e-12)
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    loss = -np.log(chances[np.arange(BATCH), labels]).mean()
    assert step(rows, labels) == pytest.approx(loss, rel=1e-12)
    d = (chances - np.eye(3)[labels]) / BATCH
    table = np.zeros_like(p["table"])
    np.add.at(table, rows["tokens"], ((d @ p["w"])[:, :4] / LENGTH)[:, None])
    np.testing.assert_allclose(step.grads.views["table"], table, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(step.grads.views["w"], d.T @ h, rtol=1e-10)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_many_steps_shards_and_copies_agree(backend):
    rows, labels = data(40)
    order = np.random.default_rng(0).permutation(40)

    def step_of(**options):
        network = Sentence(seed=1, dtype="float64")
        adam = Adam(network, lr=0.05)
        return TrainingStep(network, SoftmaxCrossEntropy(), adam, BATCH, backend=backend, **options)

    one, many, parts = step_of(), step_of(), step_of(shards=2)
    batches = [order[i : i + BATCH] for i in range(0, 40, BATCH)]
    losses = [one({n: v[b] for n, v in rows.items()}, labels[b]) for b in batches]
    np.testing.assert_array_equal(many.run_many(rows, labels, order)[0], losses)
    np.testing.assert_allclose(parts.run_many(rows, labels, order)[0], losses, rtol=1e-9)
    copied, (first, y) = pickle.loads(pickle.dumps(many)), data()
    assert copied(first, y) == one(first, y)


def test_files_hold_the_dtypes(tmp_path):
    network, (rows, labels) = Sentence(seed=1), data(dtype="float32")
    network.save(tmp_path / "network.safetensors")
    back = Sentence.load(tmp_path / "network.safetensors")
    np.testing.assert_array_equal(back.predict(rows), network.predict(rows))
    step = TrainingStep(network, SoftmaxCrossEntropy(), Adam(network), BATCH)
    step(rows, labels)
    step.save(tmp_path / "step.safetensors")
    other = TrainingStep(back, SoftmaxCrossEntropy(), Adam(back), BATCH)
    other.load(tmp_path / "step.safetensors")
    assert other(rows, labels) == step(rows, labels)


def test_other_dtypes_and_numbers_out_of_range_are_named():
    network, (rows, _) = Tokens(seed=1), data()
    assert network.predict(rows["tokens"].astype("int32")).shape == (BATCH, 2)
    with pytest.raises(DtypeError, match=r"int64 \(got float64\)"):
        network.predict(rows["x"][:, :LENGTH])
    step = TrainingStep(network, SoftmaxCrossEntropy(), Sgd(network), BATCH)
    with pytest.raises(DtypeError, match=r"x: dtype must be int64 \(got float64\)$"):
        step(rows["x"][:, :LENGTH], np.zeros(BATCH, int))
    large = np.full((BATCH, LENGTH), 2**63, "uint64")
    for call in (network.predict, lambda x: step(x * 0, x[:, 0])):
        with pytest.raises(DataError, match=str(2**63)):
            call(large)
    tokens = np.zeros((600, LENGTH), "int64")
    tokens[511, 1] = VOCABULARY
    with pytest.raises(IndexRangeError, match=rf"{VOCABULARY} at .255, 1.* row 256 of x"):
        network.predict(tokens)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: Network(("int8", 4), {"w": (2, 4)}), ("int64", "int8")),
        (lambda: Network({"a": ("float32", 4)}, {"w": (2, 4)}), ("inputs: a", "float32")),
        (lambda: Network(("int64", 0), {"w": (2, 4)}), ("from 1",)),
        (lambda: Tokens().gradients(4, input_gradient=True), ("input_gradient", "int64")),
    ],
)
def test_inputs_that_cannot_be_are_refused(make, parts):
    with pytest.raises(UsageError) as error:
        make()
    assert [part for part in parts if part not in str(error.value)] == []


def test_only_floats_have_a_gradient():
    network, (rows, _) = Sentence(dtype="float64"), data()
    scratch, grads = network.scratch(BATCH), network.gradients(BATCH, input_gradient=True)
    network.forward(rows, scratch)
    grads.d_output[...] = 1
    network.backward(scratch, grads)
    assert [*grads.d_input] == ["x"]
    slope = np.ones((BATCH, 3)) @ network.params.views["w"][:, 4:]
    np.testing.assert_allclose(grads.d_input["x"], slope, rtol=1e-12)


def test_a_copy_in_another_dtype_has_its_floats_in_it():
    network, (rows, _) = Sentence(seed=1), data()
    wide = network.without_dropout("float64")
    assert wide.in_dtypes == {"tokens": np.dtype("i8"), "x": np.dtype("f8")}
    np.testing.assert_allclose(wide.predict(rows), network.predict(rows), rtol=1e-5, atol=1e-5)
