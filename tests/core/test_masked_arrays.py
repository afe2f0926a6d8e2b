import numpy as np
import pytest

from mlpengine.core.errors import DataError
from mlpengine.core.named import NamedRows
from mlpengine.data.tables.frames import as_table
from mlpengine.data.tables.table import Table
from mlpengine.estimators import MlpRegressor
from mlpengine.models import Split
from mlpengine.nn import Mlp
from mlpengine.ops import MeanSquaredError
from mlpengine.optim import Sgd
from mlpengine.step import TrainingStep

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "f4")
HIDDEN = np.ma.masked_equal(X, 4.0)
MASK = [False, True, False]
NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (np.array([1.5, 2.5, 3.5]), "number", [1.5, NAN, 3.5]),
        (np.array([1, 2, 3], "i8"), "number", [1, NAN, 3]),
        (np.array(["1970-01-01", "1980-01-01", "1970-01-02"], "M8[D]"), "date", [0, NAN, 86400]),
        (np.array([True, True, False]), "boolean", [1, NAN, 0]),
        (np.array(["b", "c", "a"]), "text", ["b", None, "a"]),
    ],
)
def test_masked_cells_of_a_column_are_missing(values, kind, expected):
    column = as_table({"a": np.ma.masked_array(values, MASK)}).columns["a"]
    assert column.kind == kind
    texts = np.array([*column.levels, None], object)
    given = texts[column.values] if kind == "text" else column.values
    assert given.tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("read", [as_table, Table.from_arrays])
def test_masked_cells_of_a_matrix_are_missing(read):
    table = read(HIDDEN)
    np.testing.assert_array_equal(table.columns["x0"].values, [1, 3, 5])
    np.testing.assert_array_equal(table.columns["x1"].values, [2, NAN, 6])


@pytest.mark.parametrize(
    "fit",
    [
        lambda: MlpRegressor(epochs=1).fit(X, HIDDEN[:, 1]),
        lambda: MlpRegressor(epochs=1).fit(X, X[:, 1], sample_weight=HIDDEN[:, 1]),
    ],
)
def test_estimators_refuse_masked_cells_as_they_refuse_nan(fit):
    with pytest.raises(ValueError, match=r"NaN|missing"):
        fit()


def _step(**options):
    mlp = Mlp([2, 1])
    return TrainingStep(mlp, MeanSquaredError(), Sgd(mlp), batch_size=3, **options)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("training step: x", lambda: _step()(HIDDEN, X[:, :1])),
        ("training step: y", lambda: _step()(X, HIDDEN[:, 1:])),
        ("training step: sample_weight", lambda: _step(weighted=True)(X, X[:, :1], HIDDEN[:, 1])),
        ("predict: x", lambda: Mlp([2, 1]).predict(HIDDEN)),
        ("parameters: w", lambda: Mlp([2, 1]).load_state_dict({"w": HIDDEN})),
        ("Split: truth", lambda: Split(X, X[:, :1], HIDDEN[:, 1])),
        ("left", lambda: NamedRows({"left": HIDDEN})),
    ],
)
def test_buffers_take_no_masked_entries(name, call):
    with pytest.raises(ValueError, match=f"{name}.* must have no masked entries") as caught:
        call()
    assert isinstance(caught.value, DataError)


def test_a_mask_that_hides_nothing_changes_nothing():
    plain = np.ma.masked_array(X)
    np.testing.assert_array_equal(Mlp([2, 1]).predict(plain), Mlp([2, 1]).predict(X))
    assert as_table(np.ma.masked_array([[1]])).columns["x0"].values.dtype.kind == "i"
