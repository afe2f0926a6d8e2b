import json
import math

import numpy as np
import pytest
from scipy.stats import f_oneway
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

from mlpengine.core.errors import CheckpointError, DataError
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.categories import Category, coded, level_shares, variance_ratio
from mlpengine.data.features.sources import Source, read_slices
from mlpengine.data.tables import Column, Table, read_table
from mlpengine.data.tables.frames import as_table
from mlpengine.data.tables.table import column_of

NAN = float("nan")


def csv_table(tmp_path, content: str, name: str = "t.csv") -> Table:
    path = tmp_path / name
    path.write_text(content)
    return read_table(path)


def some_table(n_rows: int = 400, seed: int = 0) -> Table:
    """Return numbers with gaps, a constant, a boolean, a date, categories, targets, weights."""
    g = np.random.default_rng(seed)
    size = g.normal(1e6, 3, n_rows)
    size[g.random(n_rows) < 0.1] = NAN
    words = g.choice(["red", "green", "blue", ""], n_rows, p=[0.5, 0.3, 0.15, 0.05])
    levels = ("blue", "green", "red")
    codes = np.array([levels.index(w) if w else -1 for w in words], np.int32)
    return Table(
        {
            "size": Column(size),
            "skew": Column(np.exp(g.normal(0, 3, n_rows))),
            "same": Column(np.full(n_rows, 0.1)),
            "flag": Column(g.integers(0, 2, n_rows) * 1.0, "boolean"),
            "when": Column(1.5e9 + g.random(n_rows) * 1e8, "date"),
            "until": Column(1.6e9 + g.random(n_rows) * 1e8, "date"),
            "word": Column(codes, "text", levels),
            "label": Column(g.integers(0, 3, n_rows) * 1.0),
            "value": Column(g.normal(1e4, 5, n_rows)),
            "weight": Column(g.random(n_rows) + 0.5),
        },
        "some table",
    )


SKLEARN = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler}


@pytest.mark.parametrize("scaling", SKLEARN)
def test_scaling_is_that_of_scikit_learn(scaling):
    g = np.random.default_rng(0)
    x = g.normal(size=(501, 5)) * 10.0 ** np.arange(-2, 3) + 7
    train, rest = x[:300], x[300:]
    fitted = Preprocessor(standardize=scaling, clip="none").fit(
        Table.from_arrays(x), np.arange(300)
    )
    truth = SKLEARN[scaling]().fit(train)
    for part in (train, rest):
        found = fitted.transform(Table.from_arrays(part)).features
        np.testing.assert_allclose(found, truth.transform(part), rtol=2e-7, atol=2e-7)
    numbers = fitted.numbers
    np.testing.assert_allclose(
        (rest - numbers.center) * numbers.factor, truth.transform(rest), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_scaled_features_are_clipped_smoothly(scaling):
    x = np.random.default_rng(0).normal(size=(300, 3)) * 5 + 2
    later = np.vstack([x[:5], [[1e3, -1e9, 9e99], [-8.0, 2.0, 30.0]]])
    fitted = Preprocessor(standardize=scaling).fit(Table.from_arrays(x))
    scaled = SKLEARN[scaling]().fit(x).transform(later)
    bent = np.array([[z / math.hypot(1, z / 3) for z in row] for row in scaled])
    features = fitted.transform(Table.from_arrays(later)).features
    np.testing.assert_allclose(features, bent, rtol=2e-7, atol=2e-7)
    assert np.abs(features).max() == 3


@pytest.mark.parametrize("scaling", ["minmax", "none"])
def test_only_standardized_features_are_clipped(scaling):
    x = np.arange(40.0)[:, None]
    fitted = Preprocessor(standardize=scaling).fit(Table.from_arrays(x))
    features = fitted.transform(Table.from_arrays(x)).features
    np.testing.assert_allclose(features, x / 39 if scaling == "minmax" else x, rtol=1e-6)


def test_float64_keeps_every_bit():
    x = np.random.default_rng(0).normal(size=(50, 2)) * 1e-3 + 1
    table = Table.from_arrays(x, x @ [1.0, 2.0])
    options = {"standardize": "none", "standardize_target": False, "dtype": "float64"}
    data = Preprocessor("y", **options).fit(table).transform(table)
    np.testing.assert_array_equal(data.features, x)
    np.testing.assert_array_equal(data.target[:, 0], x @ [1.0, 2.0])


def test_robust_scaling_falls_back_where_quartiles_meet():
    x = np.zeros((100, 1))
    x[:10, 0] = 50.0
    fitted = Preprocessor(standardize="robust").fit(Table.from_arrays(x))
    assert fitted.numbers.factor[0] == pytest.approx(2 / (50 - 0))


def test_one_hot_is_that_of_scikit_learn():
    table = some_table()
    train, rest = np.arange(300), np.arange(300, 400)
    word = table["word"]
    cells = np.array([word.text(row) for row in range(400)])[:, None]
    truth = OneHotEncoder(sparse_output=False).fit(cells[train])
    fitted = Preprocessor(min_count=1).fit(table.select(["word"]), train)
    found = fitted.transform(table, rest).features
    assert fitted.feature_names == [
        "word=blue", "word=green", "word=red", "word=(unknown)", "word=(missing)",
    ]  # fmt: skip
    # scikit-learn sorts the empty text first, and has no bucket for unknown texts here
    np.testing.assert_array_equal(found[:, [4, 0, 1, 2]], truth.transform(cells[rest]))
    assert not found[:, 3].any()


@pytest.mark.parametrize(
    ("missing", "filled"), [("mean", 2.0), ("median", 1.0), ("indicator", 2.0), (-5, -5.0)]
)
def test_missing_numbers(missing, filled):
    table = Table({"a": Column(np.array([1.0, 1.0, NAN, 4.0])), "b": Column(np.arange(4.0))})
    fitted = Preprocessor(missing=missing, standardize="none").fit(table)
    features = fitted.transform(table).features
    assert features[2, 0] == filled
    assert fitted.feature_names[2:] == (["a missing"] if missing == "indicator" else [])
    if missing == "indicator":
        np.testing.assert_array_equal(features[:, 2], [0, 0, 1, 0])


def test_statistics_come_from_training_rows_only():
    x = np.array([[0.0], [2.0], [1e6], [NAN]])
    options = {"missing": "indicator", "clip": "none"}
    fitted = Preprocessor(**options).fit(Table.from_arrays(x), np.array([0, 1]))
    assert (fitted.numbers.center[0], fitted.numbers.factor[0]) == (1.0, 1.0)
    found = fitted.transform(Table.from_arrays(x)).features
    np.testing.assert_array_equal(found[:, 0], [-1, 1, 999_999, 0])
    assert fitted.feature_names == ["x0"]  # no gaps in training, so no indicator


def test_constant_columns_stay_zero_whatever_comes_later():
    x = np.column_stack([np.full(50, 0.1), np.full(50, NAN), np.arange(50)])
    fitted = Preprocessor().fit(Table.from_arrays(x))
    assert fitted.constant == ["x0", "x1"]
    other = Table.from_arrays(np.array([[9.0, 9.0, 1.0]]))
    np.testing.assert_array_equal(fitted.transform(other).features[0, :2], 0)


def test_dates_become_seconds_periods_and_differences():
    table = some_table().select(["when", "until"])
    fitted = Preprocessor(standardize="none").fit(table)
    names = fitted.feature_names
    features = dict(zip(names, fitted.transform(table).features.T, strict=True))
    when, until = table["when"].values, table["until"].values
    np.testing.assert_allclose(features["until - when"], until - when, rtol=1e-6)
    for name, values in (("when", when), ("until", until)):
        for period, days in (("hour", 1), ("weekday", 7), ("season", 365.2425)):
            start = 3 * (period == "weekday")  # 1970 began on a Thursday
            angle = 2j * np.pi * ((values / 86_400 + start) / days)
            wave = features[f"{name} {period} cos"] + 1j * features[f"{name} {period} sin"]
            np.testing.assert_allclose(wave, np.exp(angle), atol=1e-5)
    assert [name for name in names if name.startswith("when")] == [
        "when", "when hour sin", "when hour cos", "when weekday sin", "when weekday cos",
        "when season sin", "when season cos",
    ]  # fmt: skip


def test_periods_that_do_not_vary_are_left_out():
    days = np.datetime64("2020-05-01") + np.timedelta64(1, "D") * np.arange(20)
    clock = np.datetime64("1970-01-01T09:00") + 7 * np.timedelta64(1, "m") * np.arange(20)
    columns = {"day": days, "from": clock, "to": clock + 30, "paid": days + 9}
    names = Preprocessor().fit(as_table(columns)).feature_names
    names = [name for name in names if "day hour" in name or " - " in name or "day sin" in name]
    assert names == ["day weekday sin", "to - from", "paid weekday sin", "paid - day"]


def test_of_a_column_of_periods_the_time_is_no_feature():
    hours = np.datetime64("2020-05-01T00") + np.timedelta64(5, "h") * np.arange(200)  # six weeks
    table = Table.from_arrays(np.arange(200.0)).join(Table({"when": column_of(hours, "when")}))
    fitted = Preprocessor(periods=["when"]).fit(table)
    waves = ["when hour sin", "when hour cos", "when weekday sin", "when weekday cos"]
    assert fitted.feature_names == ["x0", *waves]  # no year is whole
    again = Preprocessor.from_state(json.loads(json.dumps(fitted.state_dict())))
    hours += np.timedelta64(100, "W")
    later = Table({"x0": table["x0"], "when": column_of(hours, "when")})
    for one in (fitted, again):
        features = one.transform(table).features
        np.testing.assert_allclose(one.transform(later).features, features, atol=1e-5)
    few = Preprocessor(periods=["when"]).fit(table, np.arange(20))  # four days of training
    assert few.feature_names == ["x0", *waves[:2]]
    assert Preprocessor(periods=["when"]).fit(table, np.arange(4)).columns == ["x0"]
    assert Preprocessor(periods=["x0"]).fit(table).columns == ["when"]


def fitted_on(table, **options):
    defaults = {"drop": ["value"], "weight": "weight", "missing": "indicator"}
    return Preprocessor("label", **(defaults | options)).fit(table)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"standardize": "robust", "categorical": ["flag", "size"]},
        {"missing": 0.25, "standardize": "minmax", "min_count": 1},
    ],
)
def test_state_survives_json_exactly(options):
    table = some_table()
    fitted = fitted_on(table, **options)
    state = json.loads(json.dumps(fitted.state_dict(), allow_nan=False))
    again = Preprocessor.from_state(state)
    assert again.state_dict() == fitted.state_dict()
    assert again.feature_names == fitted.feature_names
    other = some_table(seed=1)
    one, two = fitted.transform(other), again.transform(other)
    np.testing.assert_array_equal(one.features, two.features)
    np.testing.assert_array_equal(one.target, two.target)


@pytest.mark.parametrize(
    "damage",
    [{"version": 3}, {"version": None}, {"numbers": None}, {"options": {"x": 1}}, {"target": {}},
     {"kinds": 3}, {"categories": [{}]}],
)  # fmt: skip
def test_a_damaged_state_is_refused(damage):
    state = fitted_on(some_table()).state_dict() | damage
    with pytest.raises(CheckpointError, match="preprocessing"):
        Preprocessor.from_state(state)


def test_outputs_have_the_promised_form():
    table = some_table()
    fitted = fitted_on(table)
    data = fitted.transform(table)
    assert data.features.dtype == np.float32
    assert data.features.flags.c_contiguous
    assert data.features.shape == (len(data), fitted.n_features)
    assert data.weights.dtype == np.float32
    assert (fitted.task, fitted.classes, fitted.n_outputs) == ("classification", [0, 1, 2], 3)
    part = fitted.transform(table, np.array([3, 1]))
    np.testing.assert_array_equal(part.features, data.features[[3, 1]])
    np.testing.assert_array_equal(part.target, data.target[[3, 1]])


def test_prediction_files_may_differ(tmp_path):
    train = csv_table(tmp_path, "a,b,c,y\n" + "1,u,2020-01-01,p\n2,v,2020-01-05,q\n" * 5)
    fitted = Preprocessor("y", min_count=1).fit(train)
    other = csv_table(tmp_path, "c,extra,b,a\n2020-01-02,7,w,\n2020-01-01,7,,1\n", "u.csv")
    data = fitted.transform(other)
    assert data.target is None
    rows = [dict(zip(fitted.feature_names, row, strict=True)) for row in data.features]
    assert [row["b=(unknown)"] for row in rows] == [1, 1]
    assert rows[0]["a"] == 0
    partial = csv_table(tmp_path, "a,b,c,y\n1,u,2020-01-01,\n", "v.csv")
    assert fitted.transform(partial, targets=False).target is None
    with pytest.raises(DataError, match=r"v.csv: line 2, column 'y': the target is missing"):
        fitted.transform(partial)


def test_categories_spelled_like_numbers(tmp_path):
    content = "code,digit,y\n" + "1,7,0.5\n2,8,1.5\nA,7,2\n" * 4
    train = csv_table(tmp_path, content)
    fitted = Preprocessor("y", categorical=["digit"]).fit(train)
    assert fitted.text_columns == ["code"]  # digit was read as a number, and is again
    later = "code,digit\n1,07\n2,8\n"
    plain = csv_table(tmp_path, later, "u.csv")
    spelled = read_table(tmp_path / "u.csv", text=fitted.text_columns)
    assert [plain["code"].kind, spelled["code"].kind] == ["number", "text"]
    for table in (plain, spelled):
        found = fitted.transform(table).features
        np.testing.assert_array_equal(found[:, :2], np.eye(2))
        np.testing.assert_array_equal(found[:, 4:6], np.eye(2))


def test_rare_levels_train_the_unknown_bucket(tmp_path):
    table = csv_table(tmp_path, "w,y\n" + "often,1.5\n" * 5 + "rare,2\n" * 2)
    fitted = Preprocessor("y").fit(table)
    assert fitted.feature_names == ["w=often", "w=(unknown)"]
    assert fitted.transform(table).features[:, 1].sum() == 2
    assert fitted.categories[0].unknown_texts(table) == {"rare": 2}


def test_new_rows_have_the_levels_that_remain_without_them():
    codes = np.random.default_rng(0).integers(0, 60, 300).astype(np.int32)
    table = Table({"c": Column(codes, "text", (*map(str, range(60)),))}, "t")
    options, hits = Preprocessor(max_levels=20, min_count=5).options, []
    for row in range(300):
        levels = Category.fit(table.rows(np.delete(np.arange(300), row)), "c", options).levels
        hits.append(str(codes[row]) in levels)
    known = np.isin(codes.astype(str), Category.fit(table, "c", options).levels)
    assert level_shares(table["c"], options) == (np.mean(known), np.mean(hits))


def test_regression_targets_are_standardized_and_undone():
    table = some_table()
    names = ["value", "skew"]
    fitted = Preprocessor(names, task="regression").fit(table)
    encoded = fitted.transform(table).target
    assert (encoded.dtype, encoded.shape, fitted.n_outputs) == (np.float32, (400, 2), 2)
    truth = np.column_stack([table[name].values for name in names])
    np.testing.assert_allclose(encoded, StandardScaler().fit_transform(truth), atol=1e-6)
    error = (fitted.target.inverse(encoded) - truth) / truth.std(axis=0)
    np.testing.assert_allclose(error, 0, atol=1e-6)
    raw = Preprocessor("value", standardize_target=False).fit(table).transform(table).target
    np.testing.assert_array_equal(raw[:, 0], table["value"].values.astype(np.float32))


HEAD = "a,b,w,y\n"
ROWS = "".join(f"{i},{i % 5},{'uv'[i % 2]},{i * 0.5}\n" for i in range(30))
FITS = {
    "infinite": (HEAD + ROWS + "inf,1,u,2\n", {}, "line 32, column 'a': must be finite"),
    "missing": (HEAD + ROWS + ",1,u,2\n", {"missing": "error"}, "line 32, column 'a': "),
    "missing category": (HEAD + ROWS + "1,1,,2\n", {"missing": "error"}, "line 32, column 'w': "),
    "missing target": (HEAD + ROWS + "1,1,u,\n", {}, "line 32, column 'y': the target is missing"),
    "infinite target": (HEAD + ROWS + "1,1,u,inf\n", {}, "'y': the target must be finite"),
    "infinite class": (HEAD + ROWS + "1,inf,u,2\n", {"target": "b"}, "'b': the target must be fin"),
    "infinite label": (
        HEAD + ROWS + "1,inf,u,2\n", {"target": "b", "task": "classification"}, "must be finite",
    ),
    "one bad cell": (HEAD + ROWS + "1o,1,u,2\n", {}, "line 32, column 'a': a number is needed"),
    "a gap": (HEAD + ROWS + "n.a.,1,u,2\n", {}, "empty, or train with 'n.a.' added to data"),
    "a gap in the target": (
        HEAD + ROWS + "1,1,u,n.a.\n",
        {"task": "regression"},
        "line 32, column 'y': the target must be a number ('n.a.'); correct the value, or "
        "train with 'n.a.' added to data.na_values",
    ),
    "a text in the target": (HEAD + ROWS + "1,1,u,x\n", {}, "line 32, column 'y': the target must"),
    "text target": (
        HEAD + ROWS,
        {"target": "w", "task": "regression"},
        "must be a number ('u'); for classes write data.task: classification",
    ),
    "no such target": (HEAD + ROWS, {"target": "z"}, "the config needs column 'z'"),
    "no such column": (HEAD + ROWS, {"drop": ["aa"]}, "column 'aa' (did you mean 'a'?)"),
    "nothing left": (HEAD + ROWS, {"drop": ["a", "b", "w"]}, "no feature column is left"),
    "one class": ("a,y\n1,u\n2,u\n", {}, "(only 'u' in 2 rows)"),
    "date target": ("a,y\n1,2020-01-01\n", {"task": "classification"}, "cannot be classes"),
    "not yes or no": (HEAD + ROWS, {"target": ["a", "b"], "task": "multilabel"}, "line 4, column"),
    "no weight": (
        HEAD + ROWS + ",1,u,2\n,1,u,2\n",
        {"weight": "a"},
        "line 32, column 'a': the sample weight is missing here and in 1 other row;",
    ),
    "weights": (HEAD + ROWS + "-1,1,u,2\n", {"weight": "a"}, "line 32, column 'a': sample weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", FITS)
def test_fitting_names_the_place(name, tmp_path):
    content, options, message = FITS[name]
    table = csv_table(tmp_path, content)
    with pytest.raises(DataError) as caught:
        Preprocessor(**({"target": "y"} | options)).fit(table).transform(table)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/t.csv: ")


def test_unusable_columns_are_listed_together(tmp_path):
    lines = "".join(f"name {i},{i},x{i}y,{i % 2}\n" for i in range(50))
    table = csv_table(tmp_path, "name,n,id,y\n" + lines.replace("7,x7y", "seven,x7y"))
    with pytest.raises(DataError) as caught:
        Preprocessor("y").fit(table)
    problems = str(caught.value).splitlines()
    assert [problem.split("'")[1] for problem in problems] == ["name", "n", "id"]
    assert "under data.drop or data.categorical" in problems[0]
    assert "line 9, column 'n': a number is needed ('seven')" in problems[1]


def test_too_many_categories():
    table = Table.from_arrays(np.array([f"k{i % 1500}" for i in range(6000)]))
    with pytest.raises(DataError, match="got 1,500"):
        Preprocessor(max_levels=None).fit(table)


@pytest.mark.parametrize("classes", [False, True])
def test_variance_ratio_is_that_of_scipy(classes):
    g = np.random.default_rng(0)
    codes = g.integers(0, 9, 400)
    target = (g.random(400) + 0.2 * (codes == 3) > 0.6) if classes else g.normal(size=400) + codes
    known = f_oneway(*(target[codes == code] * 1.0 for code in range(9))).statistic
    given = target.astype(np.int64) if classes else target[:, None]
    assert variance_ratio(codes, given) == pytest.approx(known, rel=1e-12)


def test_levels_that_say_nothing_of_the_target_have_small_features():
    g = np.random.default_rng(0)
    state, city = g.integers(0, 50, 2000), g.integers(0, 50, 2000)
    table = Table(
        {
            "noise": Column(state.astype(np.int32), "text", tuple(f"s{i:02}" for i in range(50))),
            "city": Column(city.astype(np.int32), "text", tuple(f"c{i:02}" for i in range(50))),
            "few": Column((state % 3).astype(np.int32), "text", ("a", "b", "c")),
            "y": Column(g.normal(size=2000) + city % 5),
        }
    )
    preprocessor = Preprocessor("y").fit(table)
    values = {category.column: category.value for category in preprocessor.categories}
    assert values == {"noise": 0.05, "city": 1.0, "few": 1.0}
    features = preprocessor.transform(table).features
    np.testing.assert_allclose(features.sum(axis=1), 2.05, rtol=1e-6)
    again = Preprocessor.from_state(preprocessor.state_dict())
    np.testing.assert_array_equal(again.transform(table).features, features)


TRANSFORMS = {
    "missing columns": ("a,v\n1,u\n", "the model needs columns 'b', 'w'"),
    "text for a number": ("a,b,w\nx,1,u\n", "line 2, column 'a': a number is needed ('x')"),
    "two spellings of an answer": (
        "a,b,w\ntrue,1,u\n0,1,u\n" + 6 * "n/a,1,u\n",
        "column 'a': a number is needed ('true'); correct the value, or leave it empty; write true "
        "and false in all values, or 1 and 0",
    ),
    "a word for true": ("a,b,w\n1,1,u\nyes,1,u\n", "leave it empty; write true and false in all v"),
    "date for a number": ("a,b,w\n2020-01-01,1,u\n", "line 2, column 'a': a number is needed"),
    "number for a date": ("a,b,w,d\n1,1,u,7\n", "line 2, column 'd': a date is needed"),
    "no date among dates": (
        "a,b,w,d\n1,1,u,2020-01-01\n1,1,u,\n1,1,u,31-Foo-20\n1,1,u,2020-01-02\n",
        "line 4, column 'd': a date is needed, in the format of training ('31-Foo-20')",
    ),
    "infinite": ("a,b,w\n1,inf,u\n", "line 2, column 'b': must be finite"),
    "unknown class": ("a,b,w,y\n1,1,u,0\n1,1,u,5\n", "line 3, column 'y': '5' is not one of the"),
    "beyond float32": ("a,b,w\n1,1e99,u\n", "line 2, column 'b': is too large for float32"),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforming_names_the_place(name, tmp_path):
    content, message = TRANSFORMS[name]
    with_date = ",d" in content
    head, rest = ("a,b,w,d,y\n", ",2020-01-01") if with_date else ("a,b,w,y\n", "")
    rows = "".join(f"{i},{i % 5},{'uv'[i % 2]}{rest},{i % 2}\n" for i in range(30))
    fitted = Preprocessor("y", clip="none").fit(csv_table(tmp_path, head + rows))
    table = csv_table(tmp_path, content, "u.csv")
    with pytest.raises(DataError) as caught:
        [read(table) for read in (fitted.unknown_texts, fitted.transform)]  # as `predict`
    assert message in str(caught.value)


def test_unfitted_and_empty():
    with pytest.raises(DataError, match="fit must be called first"):
        Preprocessor().transform(some_table())
    with pytest.raises(DataError, match="no training rows"):
        Preprocessor().fit(some_table(), np.array([], np.int64))
    empty = fitted_on(some_table()).transform(some_table(), np.array([], np.int64), targets=False)
    assert empty.features.shape[0] == 0


def test_long_tables_take_the_same_statistics_in_slices(monkeypatch):
    table = some_table(900)
    whole = fitted_on(table, standardize="robust")
    monkeypatch.setattr("mlpengine.data.features.sources.SLICE_NUMBERS", 64)
    sliced = fitted_on(table, standardize="robust")
    np.testing.assert_allclose(sliced.numbers.factor, whole.numbers.factor, rtol=1e-13)
    np.testing.assert_array_equal(
        sliced.transform(table).features[:, 0], whole.transform(table).features[:, 0]
    )


@pytest.mark.parametrize("chosen", [None, np.arange(599, -1, -2)])
def test_slices_of_many_columns_hold_every_row(chosen):
    values = np.random.default_rng(0).normal(size=(600, 3000))
    table = Table({f"x{i}": Column(column) for i, column in enumerate(values.T)})
    sources = [Source(name) for name in table.names]
    wanted = values if chosen is None else values[chosen]
    slices = [*read_slices(table, sources, True, chosen)]
    assert max(part.nbytes for _, part, _ in slices) <= 1 << 20
    ends = np.cumsum([len(part) for _, part, _ in slices]).tolist()
    assert [start for start, *_ in slices] == [0, *ends[:-1]]
    np.testing.assert_array_equal(np.concatenate([part for _, part, _ in slices]), wanted)
    values[431, 2000] = np.nan
    with pytest.raises(DataError, match="row 432, column 'x2000'"):
        [*read_slices(Table({f"x{i}": Column(c) for i, c in enumerate(values.T)}), sources, True)]


@pytest.mark.parametrize(
    "values",
    [
        [2.0, np.nan, -1.0, 2.0, -0.0],
        [np.nan, np.nan],
        [0.5, 1.5, 1.5, 2.5],
        [2**60, 2**60 + 512, 2**60],
        [],
    ],
)
def test_codes_of_numbers_are_those_of_numpy(values):
    values = np.asarray(values)
    codes, texts = coded(Column(values))
    known = ~np.isnan(values)
    distinct, expected = np.unique(values[known], return_inverse=True)
    np.testing.assert_array_equal(codes[known], expected)
    assert (codes[~known] == -1).all()
    assert codes.dtype == np.int32
    assert list(map(float, texts)) == distinct.tolist()
