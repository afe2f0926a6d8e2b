import json

import numpy as np
import pytest

from mlpengine.core.errors import CheckpointError, DataError, FormulaError, MlpEngineError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.export import export, onnx_inputs
from mlpengine.models.model import Model
from mlpengine.nn import Mlp

NAN = float("nan")
G = np.random.default_rng(0)
ROWS = 70_000  # more than are computed at once
X, Y, Z = G.gamma(2, 2, ROWS), G.normal(size=ROWS), G.normal(size=ROWS)
Z[::7] = NAN


def table(rows=ROWS) -> Table:
    columns = {"x": Column(X), "y`y": Column(Y), "z": Column(Z), "t": Column(X + Y)}
    columns["flag"] = Column((Y > 0) * 1.0, "boolean")
    columns["day"] = Column(86_400.0 * np.arange(ROWS), "date")
    cut = {name: Column(c.values[:rows], c.kind) for name, c in columns.items()}
    cut["word"] = Column(np.arange(rows, dtype=np.int32) % 3, "text", ("u", "v", "w"))
    return Table(cut, "t.csv", first_line=2)


FORMULAS = {
    "x * `y``y` + 1": X * Y + 1,
    "where(z > 0, x, 2)": np.where(np.isnan(Z), NAN, np.where(Z > 0, X, 2)),
    "max(z, 0)": np.maximum(Z, 0),
    "x > 1": (X > 1) * 1.0,
    "log(x) / 3": np.log(X) / 3,
    "flag * 2": (Y > 0) * 2.0,
    "day / 86400": np.arange(ROWS) * 1.0,
}


@pytest.mark.parametrize("text", FORMULAS)
def test_columns_are_computed_and_missing_cells_propagate(text):
    options = {"standardize": "none", "dtype": "float64", "missing": -99}
    fitted = Preprocessor("t", features={"f": text}, **options).fit(table())
    features = fitted.transform(table()).features
    expected = np.where(np.isnan(FORMULAS[text]), -99, FORMULAS[text])
    column = features[:, fitted.feature_names.index("f")]
    np.testing.assert_allclose(column, expected, rtol=1e-14, atol=1e-14)
    some = np.array([5, 66_000, 7])
    np.testing.assert_array_equal(fitted.transform(table(), some).features, features[some])


def test_a_column_may_read_one_before_it_and_columns_that_are_no_features():
    texts = {"a": "x * 2", "b": "a + z"}
    small = table(50)
    fitted = Preprocessor("t", features=texts, drop=["x", "a"], standardize="none").fit(small)
    assert fitted.columns == ["y`y", "z", "flag", "day", "word", "x"]
    assert "a" not in fitted.feature_names
    found = fitted.transform(small).features[:, fitted.feature_names.index("b")]
    np.testing.assert_allclose(found[1:7], (2 * X + Z)[1:7], rtol=1e-6)
    lacking = small.drop(["x"])
    with pytest.raises(DataError, match="needs column 'x'"):
        fitted.transform(lacking)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"f": "log(`y``y` - 100)"}, r"t.csv: line 2, column 'f': log\(.* - 100\) must be finite"),
        ({"f": "1 / (x - x)"}, "it is inf for x .*in training"),
        ({"f": "word + 1"}, "line 2, column 'word': a number is needed"),
        ({"f": "t + 1"}, "must not read the target"),
        ({"x": "z + 1"}, "a column is called 'x' already"),
        ({" ": "z + 1"}, "a column needs a name"),
        ({"f": "1 + 1"}, "must read at least one column"),
        ({"f": "q + 1"}, "no name is called 'q'"),
        ({"f": "g + 1", "g": "x + 1"}, "no name is called 'g'"),
    ],
)
def test_columns_that_cannot_be(features, message):
    with pytest.raises((DataError, FormulaError), match=message):
        Preprocessor("t", features=features).fit(table(50))


def test_rows_in_use():
    fitted = Preprocessor("t", features={"f": "log(z)"}, drop="f", where="z > 0 and f < 0")
    small = table(50)
    used = np.flatnonzero(small["z"].values > 0)
    in_use = fitted.fit(small, used).rows_in_use(small)
    np.testing.assert_array_equal(in_use, (Z[:50] > 0) & (Z[:50] < 1))
    assert fitted.rows_in_use(small.drop(["z"])) is None
    with pytest.raises(FormulaError, match="must be a comparison"):
        Preprocessor("t", where="z + 1").fit(small)


def model(**options) -> Model:
    fitted = Preprocessor("t", drop=["x"], **options).fit(table(500), np.arange(300))
    return Model(Mlp([fitted.n_features, 8, 1], seed=1), fitted, "mse")


ONNX = [
    "abs(z)", "sign(z)", "clip(z, -1, 0.5)", "sqrt(x)", "exp(z)", "expm1(z)", "expm1(min(z, 0))",
    "log(x)", "log1p(x)", "log2(x)", "sin(z)", "cos(z)", "tanh(z)", "sigmoid(z)", "softplus(z)",
    "normal_cdf(z)", "where(z > 0 and not x < 1 or z == x, x, z)", "x != 1", "max(x, z)",
    "x ** 3", "x ** -1.5", "-x / (1 + z * z)", "(x >= 1) + (z <= 0)", "flag - pi",
]  # fmt: skip


def test_every_function_travels_in_the_model_file_and_in_onnx(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    original = model(features={f"f{i}": text for i, text in enumerate(ONNX)})
    original.save(tmp_path / "m.safetensors")
    loaded = Model.load(tmp_path / "m.safetensors")
    rows = table(500).rows(np.arange(300, 500))
    features = original.preprocessor.transform(rows).features
    np.testing.assert_array_equal(loaded.preprocessor.transform(rows).features, features)
    assert export(loaded, tmp_path / "m.onnx").difference < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (found,) = session.run(None, onnx_inputs(loaded.preprocessor, rows))
    expected = loaded.task.predict(loaded.mlp.predict(features))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("formula", ["x.__class__", 3])
def test_hostile_formulas_in_a_model_file_are_refused(formula):
    state = json.loads(json.dumps(model(features={"f": "x * 2"}).preprocessor.state_dict()))
    state["options"]["features"] = [["f", formula]]
    with pytest.raises(MlpEngineError):
        Preprocessor.from_state(state)


def test_computed_columns_must_be_numbers_in_a_model_file():
    state = model(features={"f": "x * 2"}).preprocessor.state_dict()
    state["operands"][0][1]["kind"] = "text"
    with pytest.raises(CheckpointError, match="operands"):
        Preprocessor.from_state(state)
