"""Exported files: read back by PyTorch, NumPy and onnxruntime, and equal to our own forward."""

import re
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from mlpengine import Mlp
from mlpengine.core.errors import MissingExtraError, NumericalError, UsageError, install_line
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.sources import LIMIT
from mlpengine.data.tables import Column, Table
from mlpengine.export import export, onnx_inputs
from mlpengine.export._onnx_feed import probe_table
from mlpengine.models.model import Model
from mlpengine.models.task import Threshold, task_for
from mlpengine.nn.population import Population
from mlpengine.ops import REGISTRY

TOLERANCE = 1e-5


@pytest.fixture
def onnx():
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    return pytest.importorskip("onnx", reason="needs the extra onnx")


def outputs(path, feed):
    """Return an ONNX file's outputs by name."""
    from onnxruntime import InferenceSession

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def mixed_table(rows=400, *, gaps=True):
    """Return a table of every kind of column, with the traps that real files have."""
    rng = np.random.default_rng(5)
    price = rng.lognormal(9, 1, rows)
    weight = 1e6 + rng.standard_normal(rows)  # a large offset: float32 would lose its digits
    when = 1.7e9 + rng.integers(0, 3e7, rows).astype(float)
    later = when + rng.exponential(3600, rows)
    owned = rng.integers(0, 2, rows).astype(float)
    color = rng.integers(0, 4, rows).astype("i4")
    code = rng.integers(70, 76, rows).astype(float)
    if gaps:
        for values in (price, owned, code, when):
            values[rng.random(rows) < 0.1] = np.nan
        color[rng.random(rows) < 0.1] = -1
    columns = {
        "price in $": Column(price),
        "weight": Column(weight),
        "constant": Column(np.full(rows, 3.0)),
        "bought": Column(when, "date"),
        "paid": Column(later, "date"),
        "owned": Column(owned, "boolean"),
        "label": Column(color, "text", ("blue", "none", "red, dark", "été")),
        "code": Column(code),
        "size": Column(rng.integers(0, 3, rows).astype("i4"), "text", ("l", "m", "s")),
        "grade": Column(rng.integers(1, 4, rows).astype(float)),
        "won": Column(rng.integers(0, 2, rows).astype(float), "boolean"),
        "y1": Column(1e4 + 50 * rng.standard_normal(rows)),
        "y2": Column(1e-3 * rng.standard_normal(rows)),
        "days": Column(rng.exponential(90, rows)),
        "a": Column(rng.integers(0, 2, rows).astype(float)),
        "b": Column(rng.integers(0, 2, rows).astype(float)),
    }
    return Table(columns)


TEXTS = {"label": "string"}
TARGETS = ["size", "grade", "won", "y1", "y2", "days", "a", "b"]


def mixed_model(
    target,
    *,
    loss,
    loss_options=None,
    task="auto",
    gaps=True,
    members=1,
    parts=None,
    threshold=None,
    **options,
):
    """Return an untrained model of the mixed table; its biases are not zero, as after training."""
    table = mixed_table(gaps=gaps)
    targets = [target] if isinstance(target, str) else target
    drop = [name for name in TARGETS if name not in [*targets, options.get("event")]]
    options.setdefault("categorical", ["code"])
    preprocessor = Preprocessor(target, task=task, drop=drop, **options).fit(table)
    kind = REGISTRY[loss](**(loss_options or {}))
    sizes = [preprocessor.n_features, 24, 12, task_for(preprocessor.target, kind).outputs]
    mlp = Mlp(sizes, **{"activation": ["gelu", "tanh"], "seed": 2, **(parts or {})})
    several = [Population(mlp, members)] if members > 1 else []
    for network in several[0] if several else [mlp]:
        for bias in network.biases:
            bias[...] = np.linspace(-0.3, 0.3, len(bias))
    first = several[0][0] if several else mlp
    return Model(first, preprocessor, loss, loss_options or {}, several, threshold=threshold)


MODELS = {
    "text classes": {"target": "size", "loss": "softmax_cross_entropy"},
    "number classes": {
        "target": "grade", "loss": "softmax_cross_entropy", "missing": "median"
    },
    "two classes, one logit": {"target": "won", "loss": "bce_with_logits"},
    "two classes, softmax": {"target": "won", "loss": "softmax_cross_entropy"},
    "one logit, threshold": {
        "target": "won", "loss": "bce_with_logits", "threshold": Threshold(0.45)
    },
    "softmax, threshold": {
        "target": "won", "loss": "softmax_cross_entropy", "threshold": Threshold(0.55, 0)
    },
    "numbers": {"target": ["y1", "y2"], "loss": "mse"},
    "a number": {"target": "y1", "loss": "huber", "standardize_target": False},
    "logarithms": {"target": "y1", "loss": "mse", "transform_target": "log"},
    "labels": {"target": ["a", "b"], "loss": "bce_with_logits", "task": "multilabel"},
    "indicators": {"target": "y1", "loss": "mse", "missing": "indicator"},
    "robust": {"target": "y1", "loss": "mse", "standardize": "robust"},
    "a constant, min-max": {
        "target": "y1", "loss": "mse", "missing": -1.0, "standardize": "minmax"
    },
    "bins": {"target": "y1", "loss": "mse", "encoding": "piecewise", "missing": "indicator"},
    "bins of unscaled numbers": {
        "target": ["y1", "y2"], "loss": "mse", "encoding": "piecewise", "bins": 3,
        "standardize": "minmax",
    },
    "all parts of a network": {
        "target": ["y1", "y2"], "loss": "mse", "missing": "indicator", "standardize": "robust",
        "parts": {
            "reads": ((0, 2), (3, 5)), "activation": "mish",
        },
    },
    "categories of dates and booleans": {
        "target": "y1", "loss": "mse", "categorical": ["bought", "owned"], "min_count": 1,
    },
    "dates later than those of training": {
        "target": "y1", "loss": "mse", "periods": ["bought"], "missing": "indicator",
    },
    "some features": {
        "target": "size", "loss": "softmax_cross_entropy", "members": 2,
        "parts": {"reads": ((1, 4),)},
    },
    "gaps are errors": {
        "target": "size", "loss": "softmax_cross_entropy", "missing": "error", "gaps": False,
    },
    "ordered classes": {
        "target": "size", "loss": "ordinal", "loss_options": {"classes": 3},
        "classes": ["s", "m", "l"],
    },
    "quantiles": {
        "target": ["y1", "y2"], "loss": "quantile", "loss_options": {"levels": (0.1, 0.5, 0.9)},
    },
    "censored times": {
        "target": "days", "event": "a", "loss": "survival",
        "loss_options": {"distribution": "lognormal"},
    },
    "means and deviations": {"target": ["y1", "y2"], "loss": "gaussian_nll"},
    "counts": {"target": ["y1", "y2"], "loss": "poisson", "standardize_target": "mean"},
    **{f"{count} networks, {kind}": {**options, "members": count} for count, kind, options in [
        (3, "text classes", {"target": "size", "loss": "softmax_cross_entropy"}),
        (3, "one logit", {"target": "won", "loss": "bce_with_logits"}),
        (2, "numbers", {"target": ["y1", "y2"], "loss": "mse", "encoding": "piecewise"}),
        (3, "counts", {"target": "y1", "loss": "poisson", "standardize_target": "mean"}),
        (2, "labels", {"target": ["a", "b"], "loss": "bce_with_logits", "task": "multilabel"}),
    ]},
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_onnx_gives_our_predictions_on_mixed_tables(onnx, tmp_path, name):
    model = mixed_model(**MODELS[name])
    exported = export(model, tmp_path / "model.onnx")
    assert 0 < exported.difference <= TOLERANCE
    assert exported.inputs == dict.fromkeys(model.preprocessor.columns, "float64") | TEXTS
    table = mixed_table(gaps=MODELS[name].get("gaps", True))
    found = outputs(tmp_path / "model.onnx", onnx_inputs(model.preprocessor, table))
    assert set(found) == set(exported.outputs)
    features = model.preprocessor.transform(table).features
    each = [network.predict(features) for network in model.networks]
    predicted = model.task.predict(each[0])
    chances = model.task.probabilities(each[0])
    if len(each) > 1 and chances is not None:
        chances = model.task.probabilities(np.mean(each, axis=0))
        predicted = (chances > 0.5) * 1 if "labels" in name else chances.argmax(axis=1)
    if chances is None:
        columns = [np.stack([*model.task.columns(y).values()], axis=1) for y in each]
        columns = np.mean(columns, axis=0)
        scale = np.repeat(model.task.target.scale, columns.shape[1] // predicted.shape[1])
        np.testing.assert_allclose(found["prediction"] / scale, columns / scale, 1e-5, 1e-5)
        return
    np.testing.assert_allclose(found["probabilities"], chances, 0, TOLERANCE)
    labels = found["label_"]  # a column of the table is called label
    classes = model.preprocessor.classes
    if not classes:
        assert (labels == predicted).all()
    elif isinstance(classes[0], bool):
        assert labels.tolist() == [str(classes[code]).lower() for code in predicted]
    else:
        assert labels.tolist() == [classes[code] for code in predicted]


def test_onnx_keeps_predictions_in_bounds(onnx, tmp_path):
    plain, model = (
        mixed_model(
            ["y1", "y2"],
            loss="quantile",
            loss_options={"levels": [0.1, 0.9]},
            bound_predictions=one,
        )
        for one in (False, True)
    )
    low, high = model.preprocessor.target.bounds
    table = mixed_table()
    np.testing.assert_array_equal(low, [table[name].values.min() for name in ("y1", "y2")])
    for one in (plain, model):
        one.mlp.weights[-1][...] *= 20
    wide = np.stack([*plain.predict_columns(table).values()], 1)
    ends = np.repeat(low, 2), np.repeat(high, 2)
    assert ((wide < ends[0]).any(axis=0) & (wide > ends[1]).any(axis=0)).all()
    found = np.stack([*model.predict_columns(table).values()], 1)
    np.testing.assert_allclose(found, np.clip(wide, *ends), rtol=1e-12)
    export(model, tmp_path / "model.onnx")
    graph = outputs(tmp_path / "model.onnx", onnx_inputs(model.preprocessor, table))
    np.testing.assert_allclose(graph["prediction"], found, rtol=1e-5, atol=1e-8)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(Model.load(tmp_path / "m").predict(table), model.predict(table))


def test_random_rows_stay_within_the_limit_of_numbers():
    rows = Table({"x": Column(np.linspace(-9e99, 9e99, 9)), "y": Column(np.arange(9.0))}, "rows")
    preprocessor = Preprocessor("y", standardize="minmax").fit(rows)
    assert np.nanmax(np.abs(probe_table(preprocessor)["x"].values)) == LIMIT


CODES = {
    "numbers": Column(np.array([71.0, np.nan, 99.0])),
    "text": Column(np.array([0, -1, 1], "i4"), "text", ("71", "new")),
}


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
@pytest.mark.parametrize("name", ["text classes", "numbers"])
def test_onnx_takes_unseen_and_missing_cells_as_we_do(onnx, tmp_path, name, code):
    model = mixed_model(**MODELS[name])
    export(model, tmp_path / "model.onnx")
    odd = {
        "price in $": Column(np.array([np.nan, -5.0, 1e9])),
        "weight": Column(np.array([1e6, np.nan, 1e6 + 2.5])),
        "constant": Column(np.array([3.0, 4.0, np.nan])),
        "bought": Column(np.array([-1e9, np.nan, 0.0]), "date"),  # before 1970, too
        "paid": Column(np.array([1.7e9, 1.7e9, np.nan]), "date"),
        "owned": Column(np.array([1.0, np.nan, 0.0]), "boolean"),
        "label": Column(np.array([0, -1, 1], "i4"), "text", ("never seen", "none")),
        "code": code,
    }
    table = Table(odd)
    found = outputs(tmp_path / "model.onnx", onnx_inputs(model.preprocessor, table))
    output = model.mlp.predict(model.preprocessor.transform(table, targets=False).features)
    ours = model.task.probabilities(output)
    scale = 1.0 if ours is not None else model.task.target.scale
    ours = model.task.predict(output) if ours is None else ours
    theirs = found.get("prediction", found.get("probabilities"))
    np.testing.assert_allclose(theirs / scale, ours / scale, 1e-5, 1e-5)


def test_onnx_reads_texts_without_the_spaces_around_them(onnx, tmp_path):
    """As `predict` does: of a file, the text that a person passes may have them."""
    model = mixed_model(**MODELS["text classes"])
    export(model, tmp_path / "model.onnx")
    feed = onnx_inputs(model.preprocessor, mixed_table().rows(np.arange(12)))
    expected = outputs(tmp_path / "model.onnx", feed)["probabilities"]
    assert {*feed["label"][:, 0]} >= {"", "blue", "red, dark", "été"}
    for form in (" {}", "{} ", "\t{}\n", "\u3000{}\xa0"):
        texts = [[form.format(text)] for text in feed["label"][:, 0]]
        found = outputs(tmp_path / "model.onnx", {**feed, "label": np.array(texts, object)})
        np.testing.assert_array_equal(found["probabilities"], expected)
    feed["label"][:, 0] = "red,  dark"  # another level
    assert (outputs(tmp_path / "model.onnx", feed)["probabilities"] != expected).any(
        axis=1
    ).sum() > 8


def test_onnx_is_of_an_old_version_checked_and_repeatable(onnx, tmp_path):
    model = mixed_model(**MODELS["text classes"])
    one, two = tmp_path / "one.onnx", tmp_path / "two.onnx"
    export(model, one)
    export(model, two)
    assert one.read_bytes() == two.read_bytes()
    loaded = onnx.load(one)
    onnx.checker.check_model(loaded, full_check=True)
    assert loaded.ir_version == 9
    operators = {node.op_type for node in loaded.graph.node}
    assert "Sin" in operators
    assert "Cos" not in operators  # of float64 onnxruntime has it from 1.29 on
    assert [(opset.domain, opset.version) for opset in loaded.opset_import] == [("", 20)]
    assert {p.key: p.value for p in loaded.metadata_props}["classes"] == '["l", "m", "s"]'
    assert loaded.doc_string == repr(model)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in loaded.graph.initializer}
    for name, view in model.mlp.params.views.items():
        assert (weights[name] == view).all()


def test_columns_may_have_the_names_of_outputs_and_weights(onnx, tmp_path):
    names = ["prediction", "0.weight", "gemm/0", "0.bias"]
    x = np.random.default_rng(0).standard_normal((50, 4))
    table = Table.from_arrays(x, x.sum(axis=1), names=names)
    preprocessor = Preprocessor("y").fit(table)
    exported = export(Model(Mlp([4, 3, 1], seed=1), preprocessor, "mse"), tmp_path / "model.onnx")
    assert list(exported.outputs) == ["prediction_"]


def test_a_model_that_differs_is_not_written(onnx, tmp_path, monkeypatch):
    from mlpengine.export import _onnx_network as _layers

    x = np.random.default_rng(0).standard_normal((50, 3))
    preprocessor = Preprocessor("y").fit(Table.from_arrays(x, x.sum(axis=1)))
    model = Model(Mlp([3, 8, 1], activation="relu"), preprocessor, "mse")
    monkeypatch.setitem(_layers.STANDARD, "relu", "Tanh")
    with pytest.raises(NumericalError, match="differ by"):
        export(model, tmp_path / "model.onnx")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_the_extra_the_error_says_how_to_install_it(tmp_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "mlpengine.export._onnx", raising=False)
    with pytest.raises(MissingExtraError, match=re.escape(install_line("onnx"))):
        export(Mlp([2, 1]), tmp_path / "mlp.onnx")
    export(Mlp([2, 1]), tmp_path / "mlp.safetensors")  # needs no extra


@pytest.mark.parametrize("dropout", [0.0, 0.5, [0.5, 0.0]])
def test_weights_read_back_under_the_names_of_pytorch(tmp_path, dropout):
    mlp = Mlp([3, 5, 4, 2], dropout=dropout, seed=3)
    path = tmp_path / "weights.safetensors"
    exported = export(mlp, path)
    arrays = load_file(path)
    assert arrays.keys() == exported.outputs.keys() == mlp.state_dict().keys()
    for name, array in mlp.state_dict().items():
        assert arrays[name].dtype == np.float32
        assert (arrays[name] == array).all()
    again = tmp_path / "again.safetensors"
    export(mlp, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.torch
def test_pytorch_loads_the_weights_and_agrees(tmp_path):
    torch = pytest.importorskip("torch", reason="needs the extra bench")
    from safetensors.torch import load_file as load_torch

    mlp = Mlp([3, 5, 2], activation="tanh", seed=3)
    export(mlp, tmp_path / "weights.safetensors")
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    net.load_state_dict(load_torch(tmp_path / "weights.safetensors"))
    x = np.random.default_rng(0).standard_normal((9, 3)).astype("f4")
    with torch.no_grad():
        np.testing.assert_allclose(net(torch.from_numpy(x)), mlp.predict(x), 1e-5, 1e-6)


def test_an_unknown_format_is_refused(tmp_path):
    for name, form, message in (
        ("mlp.pkl", None, r"the name must end in \.c, \.html, \.js, \.onnx or \.safetensors"),
        ("mlp", "onxx", "must be one of safetensors, onnx, c, js, html .* did you mean 'onnx'"),
        ("mlp.html", None, "html needs a model"),
        ("mlp.onnx", "c", r"mlp.onnx: the name must end in \.c, the format \(got \.onnx\)"),
    ):
        with pytest.raises(UsageError, match=message):
            export(Mlp([2, 1]), tmp_path / name, form)
    with pytest.raises(UsageError, match="write model_ of an estimator"):
        export(tmp_path, tmp_path / "mlp.c")
