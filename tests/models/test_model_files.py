"""Model files whose hash is right and whose contents are hostile: refused in a line, or usable."""

import json
import re
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Literal

import numpy as np
import pytest
from hostile import mutations, write
from safetensors.numpy import save
from traced import traced

import mlpengine.data.features.saved_state
from mlpengine import Mlp, fit
from mlpengine.core.errors import CheckpointError, MlpEngineError, NumericalError
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.saved_state import ClassState, NumbersState, NumberState
from mlpengine.data.tables import Column, Table
from mlpengine.export import FORMATS
from mlpengine.models.model import Model
from mlpengine.models.task import make_split
from mlpengine.nn.population import Population
from mlpengine.nn.safetensors_file import METADATA_KEY
from mlpengine.ops import LeakyRelu
from mlpengine.settings.structure import conform
from mlpengine.training.checkpoint import Checkpoints
from mlpengine.training.loading import load
from mlpengine_cli.evaluate import measure_parts
from mlpengine_cli.predict import Sure, output_columns

LOSSES = {"one": "softmax_cross_entropy", "two": "bce_with_logits", "value": "huber"}


@cache
def table() -> Table:
    """Return rows with a gap, a boolean, dates, a category and targets of every task."""
    g = np.random.default_rng(0)
    size = g.normal(5, 2, 24)
    size[3] = np.nan
    words = np.array([0, 1, 2, 0, 1, -1] * 4, np.int32)
    return Table(
        {
            "size": Column(size),
            "flag": Column(g.integers(0, 2, 24) * 1.0, "boolean"),
            "when": Column(1.5e9 + g.random(24) * 1e8, "date"),
            "until": Column(1.6e9 + g.random(24) * 1e8, "date"),
            "zone": Column(words[::-1].copy(), "text", ("east", "north", "west")),
            "word": Column(words, "text", ("blue", "green", "red")),
            "one": Column(np.arange(24) % 3 * 1.0),
            "two": Column(np.array([0, 1] * 12, np.int32), "text", ("no", "yes")),
            "value": Column(g.normal(1e4, 5, 24)),
            "weight": Column(g.random(24) + 0.5),
        },
        "rows",
    )


@cache
def model(target: str) -> Model:
    others = tuple({*LOSSES} - {target})
    task = "regression" if target == "value" else "classification"
    preprocessor = Preprocessor(
        target,
        task=task,
        drop=others,
        weight="weight",
        missing="indicator",
        min_count=1,
        encoding="piecewise",
        bins=3,
        features={"area": "size * size", "gap": "(until - when) * area"},
    ).fit(table())
    outputs = {"one": 3, "two": 1, "value": 1}[target]
    sizes = [preprocessor.n_features, 4, 3, outputs]
    mlp = Mlp(sizes, activation=["gelu", LeakyRelu(0.2)], dropout=0.1, seed=1)
    several = [Population(mlp, 2)] if target == "value" else []
    first = several[0][0] if several else mlp
    return Model(first, preprocessor, LOSSES[target], {}, several)


def use(path) -> bool:
    """Do with a model file what the commands do; return whether it could be loaded."""
    try:
        loaded = Model.load(path)
    except CheckpointError:
        return False
    with suppress(MlpEngineError):
        loaded.predict(table())
    with suppress(MlpEngineError):
        rows = make_split(table(), None, loaded.preprocessor, loaded.task, loaded.mlp.dtype)
        measure_parts(loaded, loaded.task, [("data", rows, loaded.forward(rows.x))])
    with suppress(MlpEngineError):
        FORMATS["c"](loaded)
    json.dumps(loaded.to_dict()).encode()
    return True


@pytest.mark.parametrize("target", LOSSES)
def test_a_model_comes_back(target, tmp_path, caplog):
    whole = model(target)
    whole.save(tmp_path / "m")  # whose JSON has sorted keys, the columns of the table have not
    for reads in (Mlp, Model):
        with pytest.raises(CheckpointError, match="is a directory"):
            reads.load(tmp_path)
    if target == "one":
        assert np.array_equal(Mlp.load(tmp_path / "m").params.flat, whole.mlp.params.flat)
        assert "preprocessing" in caplog.text
    (columns, numbers), (truth, expected) = (
        output_columns(one, one.outputs(table()), Sure())
        for one in (Model.load(tmp_path / "m"), whole)
    )
    assert list(columns) == list(truth)
    np.testing.assert_array_equal(numbers, expected)
    with pytest.raises(CheckpointError, match=r"newer version .*unknown keys \('scale'"):
        Model.restored(whole.to_dict() | {"scale": 2}, whole.state_dict(), tmp_path)


def test_no_matrix_of_features_is_kept(monkeypatch):
    ours = model("one")
    monkeypatch.setattr(Preprocessor, "transform", None)
    assert np.isfinite(ours.evaluate(table())["loss"])


@pytest.mark.no_cover
@pytest.mark.parametrize("target", LOSSES)
def test_a_changed_header_is_refused_or_works(target, tmp_path):
    whole = model(target)
    arrays, header = whole.state_dict(), whole.to_dict()
    usable = []
    with np.errstate(all="ignore"):
        # one change of 12: the targets share most of the header, and try other values in it
        changes = mutations(header, start=7 * len(target), each=1)
        for what, changed in islice(changes, [*LOSSES].index(target), None, 12):
            try:
                usable.append(use(write(tmp_path / "m", arrays, changed)))
            except Exception as error:
                pytest.fail(f"{what}: {error!r}")
    assert len(usable) > 30
    assert 0 < sum(usable) < len(usable) / 2


def test_the_changes_find_what_is_not_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(mlpengine.data.features.saved_state, "conform", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="Error"):
        test_a_changed_header_is_refused_or_works("one", tmp_path)


@pytest.mark.parametrize("load", [Model.load, Mlp.load])
@pytest.mark.parametrize(("name", "value"), [("2.weight", np.nan), ("0.weight", -np.inf)])
def test_weights_must_be_finite(load, name, value, tmp_path):
    mlp = Mlp([model("one").preprocessor.n_features, 4, 3])
    arrays = mlp.state_dict()
    arrays[name][0, 1] = value
    path = write(tmp_path / "m", arrays, model("one").to_dict() | {"network": mlp.describe()})
    with pytest.raises(CheckpointError) as caught:
        load(path)
    assert all(part in str(caught.value) for part in (str(path), name, f"{value} at [0, 1]"))


@pytest.mark.parametrize("load", [Model.load, Mlp.load])
def test_sizes_are_compared_with_the_arrays_before_memory_is_taken(load, tmp_path):
    whole = model("one")
    header = whole.to_dict()
    settings = header["network"]["settings"]
    settings["sizes"] = [settings["sizes"][0], 20_000, 20_000, 3]
    path = write(tmp_path / "m", whole.mlp.state_dict(), header)
    caught, peak = traced(pytest.raises, CheckpointError, load, path)
    caught.match(r"weight must be \(20000, 20000\)")
    assert peak < 1e6


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    whole = model("one")
    header = {"model": whole.to_dict(), "format": 1}
    flat = whole.mlp.params.flat
    for i, (best, message) in enumerate(
        [(flat[1:], "of another network"), (flat * np.nan, "must be finite")]
    ):
        run = tmp_path / str(i)
        member = {"weights": whole.mlp.state_dict(), "best": {"weights": best, "epoch": 1}}
        state = {"members": [member]}
        Checkpoints(run / "checkpoints").save(1, state, header)
        with pytest.raises(CheckpointError, match=message):
            load(run)


@pytest.mark.parametrize("text", ["NaN", "[" * 100_000, '{"header": 1}'])
def test_metadata_that_is_no_json_of_ours(text, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(save({"x": np.zeros(1)}, {METADATA_KEY: text}))
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        Model.load(path)


@pytest.mark.parametrize("dtype", ["BF16", "I64"])
def test_arrays_of_other_dtypes(dtype, tmp_path):
    size = {"BF16": 2, "I64": 8}[dtype]
    head = json.dumps({"0.bias": {"dtype": dtype, "shape": [4], "data_offsets": [0, 4 * size]}})
    head += " " * (-len(head) % 8)
    (tmp_path / "m").write_bytes(len(head).to_bytes(8, "little") + head.encode() + bytes(4 * size))
    with pytest.raises(CheckpointError):
        Model.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (1.0, int, "x: must be a whole number (got 1.0)"),
        (True, float, "(got True)"),
        (10**400, float, "finite"),
        ("\ud800", str, "x: must be JSON of valid text"),
        ([1, "a"], list[int], "x[1]"),
        ([1], tuple[int, int], "at least 2"),
        ({"a": "b"}, dict[str, int], "x.a"),
        ("c", Literal["a", "b"], "'a' or 'b' (got 'c')"),
        (1.5, str | None, "text"),
        ({"alpha": 0.1, "beta": 2}, LeakyRelu, "'beta'"),
        ({"a": {}}, dict[str, NumbersState], "x.a: lacks ('center'"),
        ({"task": "x"}, ClassState | NumberState | None, "x.task"),
    ],
)
def test_structure(value, kind, message):
    with pytest.raises(CheckpointError) as caught:
        conform(value, kind, "x")
    assert message in str(caught.value)


def test_a_loaded_model_has_its_columns_in_the_order_of_a_matrix(tmp_path):
    """A file of sorted mappings gave an array's columns to other names."""
    g = np.random.default_rng(0)
    names = ["zeta", "alpha", "mid"]
    columns = {name: Column(g.normal(k, k + 1, 50)) for k, name in enumerate(names)}
    rows = Table({**columns, "y": Column(g.normal(size=50))}, "rows")
    model, _ = fit(rows, "y", data={"features": {"double": "zeta * 2"}}, training={"epochs": 1})
    model.save(tmp_path / "m.safetensors")
    loaded = Model.load(tmp_path / "m.safetensors")
    assert loaded.columns == model.columns == names
    matrix = np.column_stack([column.values for column in columns.values()])
    np.testing.assert_array_equal(loaded.predict(matrix), model.predict(matrix))


def test_outputs_that_are_not_finite_are_an_error():
    model, _ = fit("diabetes", training={"epochs": 1, "folds": None})
    model.mlp.weights[-1][...] = 3e38
    with pytest.raises(NumericalError, match="not finite"):
        model.evaluate("diabetes")
    with pytest.raises(NumericalError, match="not finite"):
        model.predict(dict.fromkeys(model.columns, 0.1))
