"""Texts that may be missing values: classes and levels keep them, numbers and dates do not."""

import io
from datetime import date
from decimal import Decimal
from enum import IntEnum

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import mlpengine
from mlpengine import MlpClassifier, MlpRegressor
from mlpengine.core.errors import DataError
from mlpengine.data.features import Preprocessor, profile
from mlpengine.data.features.splits import dividing_values
from mlpengine.data.tables import read_table
from mlpengine.data.tables.detect import detect
from mlpengine.data.tables.frames import as_table
from mlpengine.data.tables.parsing import FEW_GAPS
from mlpengine.models.evaluate import without_each_block

TEXTS = """
None NA N/A n/a nan NaN null NULL ? none Null na nil missing unknown - -- . n.a. NaT <NA> inf True
yes 0 1 007 2020-01-02
"""
LABELS = TEXTS.split()
"""Labels, each of which is a class beside `a` and `b`."""
X = np.random.default_rng(0).normal(size=60).round(4)


def csv(columns: dict) -> bytes:
    rows = zip(*columns.values(), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]).encode()


def file_of(columns, path):
    path.write_bytes(csv(columns))
    return detect(str(path), target=["y"]).table


def parquet_of(columns, path):
    parquet.write_table(pa.table(columns), path.with_suffix(".parquet"))
    return read_table(path.with_suffix(".parquet"), labels=["y"])


WAYS = {
    "CSV": file_of,
    "Parquet": parquet_of,
    "pandas": lambda c, _: as_table(pd.DataFrame(c), labels=["y"]),
    "pandas categories": lambda c, _: as_table(pd.DataFrame(c).astype({"y": "category"})),
    "polars": lambda c, _: as_table(pl.DataFrame(c), labels=["y"]),
    "pyarrow": lambda c, _: as_table(pa.table(c), labels=["y"]),
    "batches of pyarrow": lambda c, _: as_table(pa.RecordBatch.from_pydict(c), labels=["y"]),
    "lists": lambda c, _: as_table(c, labels=["y"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_labels_are_classes_in_any_form(way, tmp_path):
    for label in LABELS:
        columns = {"x": X.tolist(), "y": [label, "a", "b"] * 20}
        table = WAYS[way](columns, tmp_path / "t.csv")
        fitted = Preprocessor("y", task="classification").fit(table)
        assert sorted(fitted.classes) == sorted([label, "a", "b"]), label
        codes = fitted.transform(table).target
        assert [fitted.classes[code] for code in codes[:3]] == [label, "a", "b"]


def test_labels_that_differ_in_spaces_are_one_class_with_a_warning(caplog):
    table = as_table({"x": X.tolist(), "y": ["a", "a ", "b"] * 20}, labels=["y"])
    assert table["y"].levels == ("a", "b")
    assert "'a '" in caplog.text


def test_labels_of_estimators_are_the_same_classes():
    labels = [*LABELS, "a\0", "a"]
    y, few = labels * 4, MlpClassifier(hidden=[4], epochs=1, folds=None)
    x = np.arange(len(y), dtype=float)[:, None]
    for given in (y, np.array(y, object), pd.Series(y), pl.Series(y), pa.array(y)):
        assert few.fit(x, given).classes_.tolist() == sorted(labels)
    numbers = np.array([1, 2.0, True] * (len(y) // 3), object)
    assert few.fit(x[: len(numbers)], numbers).classes_.tolist() == [1, 2]
    for odd in (date(2020, 1, 1), Decimal(1), 10**30, {1}, b"a", 1j, None, pd.NA):
        for given in ([odd, "a"] * 2, np.array([odd, odd, 2, 3], object)):
            with pytest.raises(DataError, match=r"^y(: labels must|, row 1: )"):
                few.fit(x[:4], given)
    with pytest.raises(mlpengine.UsageError, match="more than spaces"):
        few.fit(x[:4], ["a", "a "] * 2)
    assert few.fit(x[:4], [" a", "b "] * 2).model_.evaluate({"x0": [0], "y": [" a"]})["loss"] > 0
    two = pa.table({"a": [0, 1] * 2, "b": [1, 1, 0, 0]})
    assert few.fit(x[:4], two).model_.target == ["a", "b"]
    dates = x.astype("M8[ms]")
    ys = (dates[:, 0], pl.Series(dates[:, 0]), pa.array(x[:, 0].astype("m8[ms]")))
    frames = (pd.DataFrame({"y": dates[:, 0], "z": x[:, 0]}), pl.DataFrame({"y": dates[:, 0]}))
    for rows, given in ((dates, x[:, 0] % 2), *((x, y) for y in (*ys, *frames))):
        for model in (few, MlpRegressor())[hasattr(given, "columns") :]:
            with pytest.raises(DataError, match=r"datetime|duration|timedelta"):
                model.fit(rows, given)


@pytest.mark.parametrize("labels", [["None", "a", "b"], ["None", "nan", "x"]])
def test_a_class_is_evaluated_and_predicted_under_its_name(labels, tmp_path):
    columns = {"x": X + np.tile([0, 4, 8], 20), "y": labels * 20}
    path = tmp_path / "t.csv"
    path.write_bytes(csv(columns))
    quick = {"training": {"epochs": 1, "folds": None}, "model": {"hidden": [4]}}
    for given in (str(path), columns):
        model, result = mlpengine.fit(given, "y", **quick)
        assert model.classes == labels
        assert not [line for line in result.remarks if "left out" in line]
    path.write_bytes(csv({name: values[::3] for name, values in columns.items()}))
    assert read_table(path, **model.preprocessor.read_arguments)["y"].levels == ("None",)


def test_few_gaps_among_texts_are_missing_and_more_are_a_level():
    for count, levels in ((FEW_GAPS, ("a", "b")), (FEW_GAPS + 1, ("NA", "a", "b"))):
        texts = ["NA"] * count + ["a", "b"] * 20
        column = read_table(io.BytesIO(csv({"t": texts})))["t"]
        assert column.levels == levels
        assert column.missing.sum() == (count if levels[0] == "a" else 0)
        assert [column.text(row) for row in range(count, len(texts))] == texts[count:]
    told = profile(read_table(io.BytesIO(csv({"t": texts})))).warnings()
    assert told[0].startswith("column 't': 6 values are the text 'NA'; if that is a missing value")
    explicit = read_table(io.BytesIO(csv({"t": texts})), na_values=["NA"])["t"]
    assert explicit.missing.sum() == FEW_GAPS + 1
    none = read_table(io.BytesIO(csv({"n": ["1", "NA"], "t": ["NA", "a"]})), na_values=[])
    assert [none[name].levels for name in none.names] == [("1", "NA"), ("NA", "a")]


def test_a_level_of_later_rows_only_is_kept_in_the_first_ones():
    """The first block holds nothing but None, so that it might be a column of missing numbers."""
    texts = ["None"] * 80_000 + ["a"] * 10
    column = read_table(io.BytesIO(csv({"t": texts, "n": range(len(texts))})))["t"]
    assert column.levels == ("None", "a")
    assert np.bincount(column.values).tolist() == [80_000, 10]


def test_a_gap_of_new_rows_is_the_gap_of_training():
    texts = ["a", "b", None] * 20
    fitted = Preprocessor().fit(as_table({"t": texts}))
    assert fitted.feature_names == ["t=a", "t=b", "t=(unknown)", "t=(missing)"]
    new = as_table({"t": ["a", "NA", "c", None]}, **fitted.read_arguments)
    assert fitted.transform(new).features.argmax(axis=1).tolist() == [0, 3, 2, 3]
    known = Preprocessor().fit(as_table({"t": ["a", "NA", None] * 20}))
    new = as_table({"t": ["a", "NA", "null", None]}, **known.read_arguments)
    assert known.transform(new).features.argmax(axis=1).tolist() == [1, 0, 3, 3]
    assert as_table({"t": ["N/A", "None", None]})["t"].levels == ("N/A", "None")
    assert np.isnan(as_table({"t": ["NA"]}, numbers=["t"])["t"].values).all()


def test_labels_that_differ_in_type_alone_are_refused():
    for labels in ([1, "a", "1"], ["1", 1], ["1.0", 1], ["-1", -1], ["true", True], [True, "True"]):
        with pytest.raises(DataError, match=r"column 'y', row [23]: "):
            as_table({"y": labels}, labels=["y"])
    assert as_table({"y": [1, "a"]}, labels=["y"])["y"].levels == ("1", "a")
    joined = as_table({"y": ["1e3", "1000", "2", "2 "], "n": [1, 1, 2, 2]}, labels=["y"])
    assert joined["y"].values.tolist() == [1000, 1000, 2, 2]
    assert joined.number_texts == {"y": ("1e3", "1000")}


def test_columns_that_numpy_has_no_type_for():
    times, wide = pa.array([1, 3]).cast(pa.time64("ns")), pl.Series([1, 2]).cast(pl.Int128)
    for odd in (pa.table({"t": times}), pl.DataFrame({"t": wide})):
        with pytest.raises(DataError, match="column 't': must have a type that NumPy has"):
            as_table(odd)
    for odd in ({"t": ["\ud800", "b"]}, {"\udfff": [1, 2]}):
        with pytest.raises(DataError, match="must be valid Unicode"):
            as_table(odd)
    for kind in ("timedelta64", "datetime64"):
        times = np.array([1_500, "NaT"], f"{kind}[ms]")
        for column in (times, list(times), np.array([*times, None], object)[:2]):
            np.testing.assert_array_equal(as_table({"t": column})["t"].values, [1.5, np.nan])
    two = IntEnum("Whole", ["one", "two"]).two
    for column in ([two], np.array([two, None], object)):
        assert as_table({"n": column})["n"].values[0] == 2
    np.testing.assert_array_equal(as_table({"d": [Decimal("sNaN"), 2]})["d"].values, [np.nan, 2])
    with pytest.raises(DataError, match="row 2: numbers must fit into float64"):
        as_table({"d": ["a", 10**5000]})


@pytest.mark.parametrize("start", [1_700_000_000, 157_766_400, -100_000_000])
def test_nanoseconds_are_numbers(start):
    times = start * 10**9 + 86_400 * 10**9 * np.arange(60)
    times[:2] = 0, -1  # for a missing time
    for table in (
        read_table(io.BytesIO(csv({"t": times, "x": X}))),
        as_table(pd.DataFrame({"t": np.repeat(times, 9), "column_names": 1})).rows(
            np.arange(60) * 9
        ),
        as_table(pa.table({"t": times})),
    ):
        assert table["t"].kind == "number"
        np.testing.assert_allclose(table["t"].values, times, rtol=1e-15)
    fitted = Preprocessor().fit(table)
    one = read_table(io.BytesIO(csv({"t": times[:1]})), **fitted.read_arguments)
    np.testing.assert_allclose(fitted.transform(one).features, fitted.transform(table).features[:1])


def test_a_no_break_space_beside_a_number_is_no_part_of_it():
    numbers = [f"{i}.5\u00a0" if i == 7 else f"{i}.5" for i in range(50)]
    column = read_table(io.BytesIO(csv({"a": numbers})))["a"]
    np.testing.assert_array_equal(column.values, np.arange(50) + 0.5)
    within = [f"{i}\u00a0000" if i == 7 else f"{i}" for i in range(1, 50)]
    warnings = profile(read_table(io.BytesIO(csv({"a": within})))).warnings()
    assert "1 of 49 values are like '7\\xa0000'" in warnings[0]


@pytest.mark.parametrize("function", [lambda c: 1.8 * c + 32, lambda c: c**3])
def test_one_column_that_determines_the_target_is_learned_from(function):
    c = np.linspace(-20, 30, 200)
    for more in ({}, {"constant": np.ones(200), "name": [f"row {i}" for i in range(200)]}):
        found = profile(as_table({"c": c, **more, "y": function(c)}), "y")
        assert found.drop.keys() == more.keys()
        assert [leak.reason for leak in found.suspects] == [
            "each of its values stands for one value of the target"
        ]
    two = profile(as_table({"c": c, "d": np.sin(c), "y": function(c)}), "y")
    assert [*two.drop] == ["c"]
    both = profile(as_table({"c": c, "k": c + 273.15, "y": function(c)}), "y")
    assert not both.drop
    assert [leak.column for leak in both.suspects] == ["c", "k"]
    counted = profile(as_table({"t": np.arange(200), "one": np.ones(200), "y": np.sin(c)}), "y")
    assert [*counted.drop] == ["one"]


def test_a_table_without_rows_is_refused(caplog):
    table = pd.DataFrame({"x": np.arange(60.0) % 7, "y": np.arange(60.0) % 5})
    model, _ = mlpengine.fit(table, "y", training={"folds": None, "epochs": 1})
    for verb in (lambda none: mlpengine.fit(none, "y"), model.evaluate):
        with pytest.raises(DataError, match=r"rows are needed \(got none\)"):
            verb(table[:0])
    swapped = table[["y", "x"]]
    rows = [*swapped.itertuples(index=False)], [row for _, row in swapped.iterrows()]
    for given in (*rows, swapped.astype(str).astype("category")):
        np.testing.assert_array_equal(model.predict(given), model.predict(table))
    with pytest.raises(mlpengine.UsageError, match=r"write training: {folds"):
        model.predict_set(table)
    assert model.compare(model, table[:1]).as_dict()["ahead"] is None
    for wrong in (None, [1], "accuracy"):
        for call in (
            lambda wrong: model.evaluate(table, metrics=wrong),
            lambda wrong: model.explain(table, curves=wrong),
            lambda wrong: model.compare(model, table, names=wrong or "ab"),
            lambda wrong: mlpengine.fit(table, "y", warm_start=wrong or 3),
            lambda wrong: mlpengine.distill(table, "y", predict=model, made=wrong or -1),
        ):
            with pytest.raises(mlpengine.UsageError, match=r"\(got |no such run"):
                call(wrong)
    weighted = {"weight": "w", "split": {"test": 0.0}}
    with pytest.raises(DataError, match="each fold needs a row with a weight above 0"):
        mlpengine.fit(table.assign(w=[1] + [0] * 59), "y", data=weighted)
    kinds = table.assign(kind=["rare", "a", "b"] * 20, w=[0, 1, 2] * 20)
    with pytest.raises(DataError, match="'rare' has none"):
        mlpengine.fit(kinds, "kind", data={"weight": "w"})
    with pytest.raises(mlpengine.ConfigError, match=r"data\.event: .* did you mean 'x'"):
        mlpengine.fit(table, "y", data={"event": "xx"})
    assert without_each_block(3, np.arange(3), weights=np.eye(3)[1]) == []
    plain = {"training": {"epochs": 1, "folds": None}, "data": {"weight": "w"}}
    model, _ = mlpengine.fit(table.assign(w=1), "y", **plain)
    assert np.isnan(model.explain(table.assign(w=np.eye(60)[0])).importances[0][2])
    model.evaluate(table)
    assert "not weighted by 'w'" in caplog.text
    with pytest.raises(DataError, match=r"rows are needed \(got none\)"):
        mlpengine.fit(table, "y", test=table[:0])


def test_what_leaves_nothing_to_learn_or_to_measure_is_named():
    x, y = np.sin(np.arange(60)), np.full(60, 0.5)
    rows = {"x": x, "y": y, "z": x}
    with pytest.raises(DataError, match="'y': the target has one value"):
        mlpengine.fit(rows, "y", training={"epochs": 1})
    few = {"x": x[:7], "y": [*"pqrstuv"]}
    for table, target, text in ((rows, ["y", "z"], "one value"), (few, "y", "test")):
        _, result = mlpengine.fit(table, target, training={"epochs": 1})
        assert any(text in line for line in result.remarks)
    assert "one value" in str(mlpengine.check({"x": x, "y": y}, "y"))
    with pytest.raises(mlpengine.ConfigError, match=r"data\.task: classification"):
        mlpengine.fit({"x": x, "y": x}, "y", loss="ordinal")
    two = {"x": x, "u": ["a", "b"] * 30, "v": x > 0}
    for task, advice in (("auto", "all labels of 0 and 1"), ("multilabel", "0 for no")):
        with pytest.raises(DataError, match=advice):
            mlpengine.fit(two, ["u", "v"], data={"task": task})


def test_fit_warns_of_misread_columns(caplog):
    numbers = np.sin(np.arange(100))
    table = {"a": numbers, "y": numbers + 1, "damaged": [*map(str, numbers[1:]), "abc"]}
    table["percent"] = [f"{k % 13} %" for k in range(100)]
    table["big"] = [2**62 + k * k for k in range(100)]
    table["far"] = [(k - 50) * 9 * 10**16 + 1 for k in range(100)]
    table["extreme"] = np.sign(numbers + 0.5) * 1.7e308
    table["rating"] = [*(str(k % 8) for k in range(99)), "odd"]
    _, result = mlpengine.fit(table, "y", training={"epochs": 1, "folds": None})
    checked, told = str(mlpengine.check(table, "y")), (caplog.text, str(result.remarks))
    parts = ("'a' is dropped: ", "'percent': ", "'odd' in row 100")
    for part in (*parts, "'damaged' is dropped", f"subtract {2**62} from", "write floats"):
        assert all(part in text for text in told)
    assert all(part in checked for part in parts)
    alone, given = {"a": numbers, "y": numbers**3}, {"split": {"test": 0.4}}
    _, result = mlpengine.fit(alone, "y", test=alone, data=given, training={"epochs": 1})
    for part in ("'a': each of its values stands for", "data.split.test has no effect"):
        assert any(part in line for line in result.remarks)
    with pytest.raises(DataError, match=r"data\.classes"):
        mlpengine.fit(alone, "y", data={"classes": ["a", "b"]})


def test_a_date_format_fits_the_columns_that_it_is_for(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("w,z,y\n" + "".join(f"{k % 28 + 1}/01/2023,{k},{k % 7}\n" for k in range(60)))
    for form, place in (
        ("yyyy/mm/dd", ["date_format", "rows.csv"]),
        ({"w": "mm/dd/yyyy"}, ["date_format.w", "line 14", "'13/01/2023'"]),
        ({"z": "dd/mm/yyyy"}, ["date_format.z", "line 2", "'0'"]),
    ):
        with pytest.raises(mlpengine.ConfigError) as caught:
            mlpengine.check(rows, "y", data={"date_format": form})
        assert all(part in str(caught.value) for part in place)


@pytest.mark.parametrize("spread", [100.0, 1.0])
def test_a_small_spread_beside_a_large_mean_is_learned_from(spread):
    z = np.random.default_rng(1).normal(size=500)
    table = as_table({"x": 1e15 + spread * z})
    fitted = Preprocessor(clip="none").fit(table)
    assert np.corrcoef(fitted.transform(table).features[:, 0], z)[0, 1] > 0.99
    rounded = as_table({"x": 0.1 + np.arange(300) % 3 * 2e-17})
    assert Preprocessor().fit(rounded).constant == ["x"]


@pytest.mark.parametrize("key", ["group", "series"])
def test_a_missing_group_has_the_way_to_read_its_text(key):
    table = read_table(io.BytesIO(csv({"g": ["NA", *"aabb"], "y": range(5)})))
    with pytest.raises(DataError, match=r"line 2, column 'g'.*data\.na_values: \[\]"):
        dividing_values(table, key, "g")


def test_a_target_of_texts_is_no_dropped_column():
    rows = {"x": np.arange(60), "y": [f"{i}.5 kg" for i in range(60)]}
    with pytest.raises(DataError, match="one unit for all rows"):
        mlpengine.fit(rows, "y", data={"task": "regression"})
