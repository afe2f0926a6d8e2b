import json

import numpy as np
import pandas
import pytest
from sklearn.utils.class_weight import compute_class_weight

from mlpengine.core.errors import DataError
from mlpengine.data.features import Preprocessor, class_weights
from mlpengine.data.features.column_kinds import odd_row
from mlpengine.data.features.sources import check_numeric
from mlpengine.data.features.targets import check_target, fit_target, row_weights, target_from_state
from mlpengine.data.tables import Column, Table, read_table
from mlpengine.data.tables.frames import as_table

X = Column(np.arange(6.0))
WORDS = Column(np.array([1, 0, 1, 2, 0, 1], np.int32), "text", ("a", "b", "c"))

CASES = {
    "text": (WORDS, ["a", "b", "c"]),
    "unused level": (Column(WORDS.values, "text", ("a", "b", "c", "d")), ["a", "b", "c"]),
    "minus zero": (Column(WORDS.values, "text", ("-0.0", "0.0", "1.0")), ["0.0", "1.0"]),
    "numbers": (Column(np.array([10.0, 2, 10, 2.5, 2, 2])), [2, 2.5, 10]),
    "booleans": (Column(np.array([1.0, 0, 1, 0, 0, 1]), "boolean"), [False, True]),
}


@pytest.mark.parametrize("name", CASES)
def test_classes_are_sorted_and_come_back(name):
    column, classes = CASES[name]
    table = Table({"x": X, "y": column})
    fitted = Preprocessor("y", task="classification").fit(table)
    codes = fitted.transform(table).target
    assert fitted.classes == classes
    assert [type(label) for label in fitted.classes] == [type(label) for label in classes]
    assert codes.dtype == np.int64
    again = target_from_state(json.loads(json.dumps(fitted.target.state_dict())))
    assert (again.classes, again.encode(table).tolist()) == (classes, codes.tolist())


def test_labels_and_levels_match_however_they_are_stored(tmp_path):
    frame = pandas.DataFrame({"x": [0.1, 0.3] * 3, "y": [0.1, 1] * 3})
    single = frame.astype("f4")
    frame.to_csv(tmp_path / "t.csv")
    single.to_parquet(tmp_path / "t.parquet")
    options = {"categorical": ["x"], "where": "x == 0.3"}
    fitted = Preprocessor("y", task="classification", **options).fit(as_table(single))
    assert (fitted.classes, fitted.categories[0].levels) == ([0.1, 1], ["0.1", "0.3"])
    texts = as_table(frame.map("{:g}".format), text=["y"])
    files = map(read_table, (tmp_path / "t.csv", tmp_path / "t.parquet"))
    for table in (as_table(frame), as_table(single), texts, *files):
        found = fitted.transform(table)
        for column in (found.features[:, 1], found.target, fitted.rows_in_use(table)):
            np.testing.assert_array_equal(column > 0, [False, True] * 3)


def test_multi_label_targets():
    columns = {"a": Column(np.array([0.0, 1, 1])), "b": Column(np.array([1.0, 0, 1]), "boolean")}
    table = Table({"x": Column(np.arange(3.0))} | columns)
    fitted = Preprocessor(["a", "b"]).fit(table)
    assert (fitted.task, fitted.n_outputs, fitted.classes) == ("multilabel", 2, [])
    encoded = fitted.transform(table).target
    assert encoded.dtype == np.float32
    np.testing.assert_array_equal(encoded, [[0, 1], [1, 0], [1, 1]])
    again = Preprocessor.from_state(json.loads(json.dumps(fitted.state_dict())))
    np.testing.assert_array_equal(again.transform(table).target, encoded)


def test_a_constant_target_is_only_centered():
    table = Table({"x": X, "y": Column(np.full(6, 2.5))})
    fitted = Preprocessor("y", task="regression").fit(table)
    assert not fitted.transform(table).target.any()
    np.testing.assert_array_equal(fitted.target.inverse(np.zeros((2, 1))), 2.5)


def test_class_weights_are_those_of_scikit_learn():
    codes = np.random.default_rng(0).choice(4, 200, p=[0.6, 0.3, 0.05, 0.05])
    truth = compute_class_weight("balanced", classes=np.arange(4), y=codes)
    np.testing.assert_allclose(class_weights(codes, 4), truth, rtol=1e-15)
    np.testing.assert_allclose(class_weights(codes, 5), [*truth, 0], rtol=1e-15)
    assert class_weights(codes, 5)[codes].sum() == pytest.approx(200)


BLAMED = {
    "true, true, maybe": (["True", "True", "maybe"], 2),
    "decimal commas and a text": (["1,5", "2", "x", "4,25"], 2),
    "texts": (["u", "v", "w"], 0),
    "dates and a text": (["2020-01-01", "2020-01-02", "soon"], 2),
    "texts and a number": (["u", "7", "w"], 0),
    "a gap": (["", "false", "no idea", "true"], 2),
}


@pytest.mark.parametrize("name", BLAMED)
def test_the_cell_unlike_the_others_is_blamed(name):
    cells, row = BLAMED[name]
    levels = tuple(sorted({cell for cell in cells if cell}))
    codes = np.array([levels.index(cell) if cell else -1 for cell in cells], np.int32)
    text = Table({"y": Column(codes, "text", levels)}, "t", first_line=2)
    place = f"line {row + 2}, column 'y'"
    with pytest.raises(DataError, match=place):
        check_numeric(text, "y")
    full = Table({"y": Column(np.maximum(codes, 1), "text", levels)}, "t", first_line=2)
    for task in ("regression", "multilabel"):
        with pytest.raises(DataError, match=f"line {odd_row(full['y']) + 2}, .* must be a number"):
            fit_target(full, ["y"], task, standardize=True)


def test_a_text_that_is_in_another_part_is_blamed_without_a_line():
    part = Table({"y": Column(np.zeros(3, np.int32), "text", ("1", "n.a."))}, "t", first_line=2)
    with pytest.raises(DataError, match=r"^t: column 'y': the target must be a number \('n.a.'\)"):
        fit_target(part, ["y"], "regression", standardize=True)
    with pytest.raises(DataError, match=r"the time must be a number .*; correct the value"):
        fit_target(Table({"y": WORDS, "x": X}), ["y"], None, event="x", standardize=True)


def test_numbers_with_the_decimal_mark_of_another_file_are_named():
    table = Table({"y": Column(np.zeros(3, np.int32), "text", ("1.5",))})
    for refuse in (lambda: check_numeric(table, "y"), lambda: row_weights(table, "y")):
        with pytest.raises(DataError, match=r"'1.5'.*; .* decimal mark"):
            refuse()


def test_texts_that_do_not_repeat_are_no_target():
    names = tuple(one + other for one in "abcdefghij" for other in "klmnopqrst")
    table = Table({"y": Column(np.arange(100, dtype=np.int32), "text", names)})
    with pytest.raises(DataError, match=r"100 different texts .*; choose another column"):
        check_target(table, ["y"])


def test_weights_that_are_refused():
    for weights, reason in (
        ([1.0, 1e-320, 1.0], "line 3, column 'w': sample weights must be 0 or at least 1.2e-38"),
        ([1.0, 2.0, -1.0], "line 4, column 'w': sample weights must be 0 or"),
        ([0.0, 0.0, 0.0], "line 2, column 'w': .* each need a weight above 0"),
    ):
        table = Table({"w": Column(np.array(weights))}, "t", first_line=2)
        with pytest.raises(DataError, match=reason):
            row_weights(table, "w")


def skewed(rows=400, *, log=True):
    """Return a table of a target that is the exponential of a curve, or a skewed feature's line."""
    rng = np.random.default_rng(3)
    x, z = rng.exponential(size=rows), rng.standard_normal(rows)
    y = x + np.abs(z) + 0.1 * rng.standard_normal(rows)
    y = np.exp(y) if log else 1 + 5 * x + np.abs(z)
    return Table({"x": Column(x), "z": Column(z), "y": Column(y)}, "rows")


def test_logarithms_are_learned_and_brought_back_in_bounds():
    table = skewed()
    target = Preprocessor("y", transform_target="log").fit(table).target
    y = table["y"].values
    logs = np.log(y)
    scaled = target.encode(table)
    np.testing.assert_allclose(scaled[:, 0], (logs - logs.mean()) / logs.std(), atol=1e-12)
    np.testing.assert_allclose(target.inverse(scaled)[:, 0], y, rtol=1e-12)
    far = target.inverse(np.array([[-1e3], [1e3]]))
    wider = (y.max() / y.min()) ** 0.5
    np.testing.assert_allclose(far[:, 0], [y.min() / wider, y.max() * wider])
    bounded = Preprocessor("y", transform_target="log", bound_predictions=True).fit(table).target
    np.testing.assert_array_equal(bounded.bounds, [[y.min()], [y.max()]])
    again = target_from_state(json.loads(json.dumps(target.state_dict())))
    np.testing.assert_array_equal(again.encode(table), scaled)
    new = Table({"y": Column(np.array([0.0, *again.bounds[0]]))})  # 0 has no logarithm
    np.testing.assert_array_equal(*again.encode(new))


def test_logarithms_need_positive_targets():
    table = Table({"x": X, "y": Column(np.array([2.0, 1, 0, 3, 4, 5]))}, "rows")
    with pytest.raises(DataError, match=r"rows: row 3, column 'y': .* must be positive \(0\)"):
        Preprocessor("y", transform_target="log").fit(table)


@pytest.mark.parametrize("log", [True, False])
def test_logarithms_are_chosen_where_they_predict_better(log):
    table = skewed(log=log)
    y = table["y"].values
    assert ((y - y.mean()) ** 3).mean() / y.std() ** 3 > 1  # both are skewed
    assert Preprocessor("y", transform_target="auto").fit(table).target.log is log
    assert Preprocessor("y").fit(table).target.log is False


def test_a_few_rows_or_targets_of_both_signs_keep_their_units():
    table = skewed()
    both = Table({**{n: table[n] for n in ("x", "z")}, "y": Column(table["y"].values - 2)})
    for few in (table.rows(np.arange(40)), both):
        assert not Preprocessor("y", transform_target="auto").fit(few).target.log
