"""From Python: `fit`, `load`, and predictions for tables in every form."""

import copy
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from plain import plain
from sklearn.metrics import r2_score

import mlpengine
from mlpengine.data.tables import read_table
from mlpengine.data.tables.frames import as_table
from mlpengine_cli.evaluate import file_table

SETTINGS = plain(training={"epochs": 4, "batch_size": 16}, model={"hidden": [8]}, seed=3)
CELLS = {"a": [1.5, 2.0, -3.0], "n": [1, 2, 3], "b": [True, False, True], "t": ["x", "y", "x"]}
DAYS = [datetime(2024, 5, 1), datetime(2024, 5, 2), datetime(2024, 5, 3)]

FORMS = {
    "columns": lambda c: c,
    "arrays": lambda c: {name: np.array(cells) for name, cells in c.items()},
    "masked arrays": lambda c: {n: _masked(cells) for n, cells in c.items()},
    "rows": lambda c: [dict(zip(c, row, strict=True)) for row in zip(*c.values(), strict=True)],
    "pandas": pd.DataFrame,
    "nullable pandas": lambda c: pd.DataFrame(c).convert_dtypes(),
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.table,
    "a table": as_table,
}


def _masked(cells):
    """Return an array whose missing values are masked, with another cell below."""
    filled = [cells[0] if cell is None else cell for cell in cells]
    kind = "datetime64[ns]" if isinstance(cells[0], datetime) else None
    return np.ma.masked_array(np.array(filled, kind), [cell is None for cell in cells])


@pytest.fixture(scope="module")
def penguins(tmp_path_factory):
    """A model of classes, and its rows as a list of mappings with None in empty cells."""
    model, _ = mlpengine.fit("penguins", **SETTINGS)
    frame = read_table("penguins")
    rows = [{n: frame[n].text(i) or None for n in model.columns} for i in range(0, frame.n_rows, 9)]
    for row in rows:
        for name in model.columns[1:5]:
            row[name] = None if row[name] is None else float(row[name])
    return model, rows


@pytest.fixture(scope="module")
def diabetes():
    model, _ = mlpengine.fit("diabetes", **SETTINGS)
    return model, read_table("diabetes")


@pytest.mark.parametrize("form", FORMS)
def test_a_table_in_every_form(form):
    table = as_table(FORMS[form]({**CELLS, "d": DAYS}))
    assert [table[name].kind for name in "anbtd"] == ["number", "number", "boolean", "text", "date"]
    for name in "anbt":
        wanted = as_table({name: CELLS[name]})[name]
        assert (table[name].values == wanted.values).all()
    assert [table["t"].text(i) for i in range(3)] == CELLS["t"]
    assert [table["d"].text(i) for i in range(3)] == [moment.isoformat() for moment in DAYS]


@pytest.mark.parametrize("form", [f for f in FORMS if f not in ("arrays", "a table")])
def test_missing_cells_in_every_form(form):
    given = {"a": [1.5, None], "t": ["x", None], "d": [DAYS[0], None]}
    table = as_table(FORMS[form](given))
    for name in given:
        assert table[name].missing.tolist() == [False, True]


def test_text_is_read_as_csv_is():
    given = {"n": ["1", " 2.5 ", "NA"], "d": ["2024-05-01", "", "2024-05-02"], "t": ["1", "x", "?"]}
    table = as_table(pd.DataFrame(given))
    assert [table[name].kind for name in given] == ["number", "date", "text"]
    assert as_table(given, text=["n"])["n"].levels == ("1", "2.5", "NA")
    frame = pd.DataFrame({"zip": pd.Categorical(["10115", "20095"])})
    assert as_table(frame)["zip"].kind == "text"


WRONG_TABLES = {
    "nothing": ({}, "columns"),
    "lengths": ({"a": [1, 2], "b": [1]}, "equal lengths"),
    "objects": ({"a": [1, object()]}, "column 'a', row 2"),
    "a vector": (np.zeros(3), "shape (3,)"),
    "a number": (3.0, "data frame"),
    "nested": ({"a": np.zeros((2, 2))}, "one-dimensional"),
    "years": ({"a": np.arange(2).astype("m8[Y]")}, "no fixed length"),
    "twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "twice: a"),
    "a list as a cell": ([{"a": 2}, {"a": [1]}], "column 'a', row 2"),
    "vectors as cells": ({"a": [np.zeros(2), np.zeros(2)]}, "column 'a', row 1"),
    "a cell and a column": ({"a": 1, "b": [1, 2]}, "column 'a'"),
    "a row without a name": ([{"a": 1, "b": 2}, {"a": 1}], "row 2: must have 'b'"),
    "no rows yet": (polars.LazyFrame({"a": [1]}), "collect()"),
    "no rows": ([], "empty list"),
}


@pytest.mark.parametrize("name", WRONG_TABLES)
def test_what_is_no_table_is_refused_in_words(name):
    data, text = WRONG_TABLES[name]
    with pytest.raises(mlpengine.DataError) as error:
        as_table(data)
    assert text in str(error.value)


def test_rows_to_predict_hold_what_the_model_needs(penguins):
    model, rows = penguins
    assert model.predict([]).shape == (0,)
    assert model.predict_proba([]).shape == (0, len(model.classes))
    name = model.columns[1]
    with pytest.raises(mlpengine.DataError, match=f"data: row 2: must have '{name}'"):
        model.predict([rows[0], {n: cell for n, cell in rows[1].items() if n != name}])
    for number in (1, 2):
        with pytest.raises(mlpengine.DataError, match=rf"'{name}', row 1: .* \(list \[1.0\]\)"):
            model.predict([rows[0] | {name: [1.0]}, rows[1]][:number])
    more = model.predict([rows[0], rows[1] | {"note": "of one row only"}])
    assert more.tolist() == model.predict(rows[:2]).tolist()


def test_one_row_is_predicted_as_among_others(penguins, diabetes):
    model, rows = penguins
    together = model.predict_proba(rows)
    for row, chances in zip(rows, together, strict=True):
        for form in (row, pd.DataFrame([{**row, "row": 0}]), polars.DataFrame([row])):
            np.testing.assert_allclose(model.predict_proba(form)[0], chances, atol=1e-6)
            assert model.predict(form).tolist() == [model.classes[chances.argmax()]]
    model, table = diabetes
    matrix = np.column_stack([table[name].values for name in model.columns])[:20]
    together = model.predict(matrix)
    assert together.shape == (20,)
    for row, value in zip(matrix, together, strict=True):
        for form in (row[None], dict(zip(model.columns, row.tolist(), strict=True))):
            np.testing.assert_allclose(model.predict(form), [value], rtol=1e-4)


ODD_ROWS = {
    "a number as text": {"bill_length_mm": "41.5"},
    "a text with blanks": {"island": " Dream "},
    "missing": {"bill_length_mm": None, "sex": None},
    "missing in other words": {"bill_length_mm": float("nan"), "sex": "NA"},
    "numpy": {"bill_length_mm": np.float32(41.5), "body_mass_g": np.int64(3000)},
    "pandas": {"bill_length_mm": pd.NA, "sex": pd.NA},
    "whole": {"body_mass_g": 3000},
    "unknown text": {"island": "Atlantis"},
    "another column": {"color": object},
}


@pytest.mark.parametrize("name", ODD_ROWS)
def test_an_odd_row_alone_is_as_among_others(penguins, name):
    model, rows = penguins
    row = rows[0] | {k: v for k, v in ODD_ROWS[name].items() if k in model.columns}
    pair = model.predict_proba([row, rows[1]])
    np.testing.assert_allclose(model.predict_proba(row)[0], pair[0], atol=1e-6)


def test_the_row_encoder_writes_what_transform_writes():
    """Every option that one row supports, feature for feature and bit for bit."""
    g = np.random.default_rng(0)
    columns = {
        "x": g.normal(size=60).tolist(),
        "gap": [None if i % 4 == 0 else i * 0.5 for i in range(60)],
        "t": [["u", "v", None][i % 3] for i in range(60)],
        "code": [i % 4 for i in range(60)],
        "y": g.normal(size=60).tolist(),
    }
    base = {"categorical": ["code"]}
    for options in (
        {},
        {"missing": "indicator", "encoding": "piecewise", "bins": 3},
        {"standardize": "minmax", "missing": 0.0},
        {"standardize": "none", "clip": "none"},
    ):
        model, _ = mlpengine.fit(
            columns, "y", data=base | options, model={"hidden": [3]}, training={"epochs": 1}
        )
        names = model.columns
        for i in range(0, 60, 5):
            row = {name: columns[name][i] for name in names}
            _ = model.predict(row)
            predictor = model._thread.one_row
            wanted = model.preprocessor.transform(as_table([row, row]), targets=False).features
            np.testing.assert_array_equal(predictor._features[0], wanted[0])
            assert predictor(row) is not None


def test_threads_predict_at_once(penguins):
    model, rows = penguins
    wanted = [model.predict_proba(row) for row in rows]

    def one(i):
        return all(
            (model.predict_proba(row) == w).all() for row, w in zip(rows, wanted, strict=True)
        )

    together = model.predict_proba(rows)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(12)))
        for each in pool.map(lambda _: model.predict_proba(rows), range(12)):
            assert (each == together).all()


def test_kinds_of_answers():
    g = np.random.default_rng(0)
    x = g.normal(size=(80, 2))
    frame = pd.DataFrame(x, columns=["u", "v"])
    few = {"training": {"epochs": 2}, "model": {"hidden": [4]}}
    answers = {
        "int": (frame.u > 0).astype(int),
        "bool": frame.u > 0,
        "text": np.where(frame.u > 0, "yes!", "no!"),
        "category": pd.Categorical(np.where(frame.u > 0, "yes!", "no!")),
    }
    for name, y in answers.items():
        model, _ = mlpengine.fit(frame.assign(y=y), "y", **few)
        labels = model.predict(frame)
        assert labels.dtype == {"int": np.int64, "bool": np.bool_}.get(name, object)
        assert model.predict_proba(frame).shape == (80, 2)
    labels = frame.assign(p=frame.u > 0, q=frame.v > 0)
    model, _ = mlpengine.fit(labels, ["p", "q"], **few)
    assert model.predict(frame).shape == model.predict_proba(frame).shape == (80, 2)
    assert model.classes == ["p", "q"]
    model, _ = mlpengine.fit(frame.assign(p=frame.u + 5, q=frame.v), ["p", "q"], **few)
    assert model.predict(frame).shape == (80, 2)
    with pytest.raises(mlpengine.UsageError, match="predict_proba: a model of classes is needed"):
        model.predict_proba(frame)


def test_unknown_texts_are_counted_in_one_line(penguins, caplog):
    model, rows = penguins
    odd = [row | {"island": odd} for row, odd in zip(rows[:3], ["X", "X", "Biscø"], strict=True)]
    with caplog.at_level(logging.WARNING, "mlpengine"):
        model.predict([*odd, *rows])
        assert len(caplog.messages) == 1
        assert "column 'island': 3 rows with a text unknown to" in caplog.messages[0]
        assert "'Biscø' (1 row, near 'Biscoe'), 'X' (2 rows);" in caplog.messages[0]
        caplog.clear()
        twin = copy.copy(model)
        for row in odd:
            twin.predict(row)
        assert len(caplog.messages) == 1


def test_a_table_without_a_column_is_refused(penguins):
    model, rows = penguins
    row = {k: v for k, v in rows[0].items() if k != "island"} | {"iland": "Dream"}
    with pytest.raises(mlpengine.DataError, match=r"'island' \(the table has 'iland'\)"):
        model.predict(row)
    with pytest.raises(mlpengine.DataError, match="a matrix needs a column for each of"):
        model.predict(np.zeros((2, 3)))


def test_evaluate_leaves_out_rows_without_a_target(diabetes, caplog):
    model, table = diabetes
    frame = pd.DataFrame({name: table[name].values.astype(float) for name in table.names})
    whole = model.evaluate(frame[5:])
    frame.loc[:4, "progression"] = None
    with caplog.at_level(logging.WARNING, "mlpengine"):
        assert model.evaluate(frame) == pytest.approx(whole, rel=0, abs=0, nan_ok=True)
    assert "5 rows of 442 left out: the target is missing" in caplog.text


def test_a_row_without_some_targets_trains_the_others():
    """The first target is known in the odd rows alone, the second in the even rows."""
    x = np.random.default_rng(0).normal(size=(240, 2))
    frame = pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "a": x[:, 0] + 5, "b": x[:, 1] * 100})
    given = frame.copy()
    given.loc[::2, "a"] = given.loc[1::2, "b"] = given.loc[:3] = np.nan
    given[["u", "v"]] = frame[["u", "v"]]
    training = {"epochs": 25, "folds": 3, "members": ["plain", "linear"]}
    model, result = mlpengine.fit(given, ["a", "b"], training=training, model={"hidden": [8]})
    remarks = "; ".join(result.remarks)
    assert "4 rows of 240 left out" in remarks
    assert "236 rows of 240 lack some of the targets" in remarks
    measured, predicted = model.evaluate(given), model.predict(given)
    for k, name in enumerate("ab"):
        rows = given[name].notna().to_numpy()
        r2 = r2_score(given[name][rows], predicted[rows, k])
        assert measured[f"r2 of {name}"] == pytest.approx(r2, rel=1e-6)
        assert r2 > 0.9
    low, high = model.predict_interval(frame, 0.8)
    inside = (low <= frame[["a", "b"]]) & (frame[["a", "b"]] <= high)
    assert inside.to_numpy().mean() > 0.6
    assert np.isfinite([*result.metrics["out_of_fold"].values()]).all()
    training["members"] = ["plain", "smooth"]  # need all targets of the rows that they learn
    _, result = mlpengine.fit(frame[60:], ["a", "b"], test=given[:60], training=training)
    assert np.isfinite([*result.metrics["test"].values()]).all()


def test_own_tables_for_validation_and_test(diabetes):
    _, table = diabetes
    frame = pd.DataFrame({name: table[name].values.astype(float) for name in table.names})
    _, result = mlpengine.fit(
        frame[:300], "progression", validation=frame[300:400], test=frame[400:], **SETTINGS
    )
    assert set(result.metrics) == {"train", "validation", "test"}
    whole = plain(**SETTINGS | {"data": {"split": {"validation": 0, "test": 0}}})
    model, result = mlpengine.fit(frame[:300], "progression", **whole)
    assert set(result.metrics) == {"train"}
    measured = model.evaluate(frame[:300])
    assert result.metrics["train"]["r2"] == pytest.approx(measured["r2"], rel=1e-6)


def test_a_class_of_one_group_is_named_where_it_has_no_rows():
    group, number = np.arange(120) // 12, np.arange(120)
    table = {"x": np.sin(number), "g": group, "y": np.where(group == 9, "rare", number % 2)}
    data = {"split": {"group": "g"}}
    _, result = mlpengine.fit(table, "y", data=data, training={"epochs": 1, "folds": None})
    lines = (f"table: no {part} row has the class 'rare'" for part in ("validation", "test"))
    assert result.remarks == [*lines]


def versions(rows=240):
    rng = np.random.default_rng(0)
    code, z = np.arange(rows) % 3, rng.normal(size=rows)
    texts = np.array(["3.1", "3.9", "3.10"], object)[code]
    return pd.DataFrame({"version": texts, "z": z, "y": np.array([-5.0, 0.0, 5.0])[code] + z / 10})


def test_codes_with_equal_numbers_are_categories_of_a_csv(tmp_path):
    table = versions()
    table.to_csv(tmp_path / "t.csv", index=False)
    table[table.version != "3.10"].to_csv(tmp_path / "new.csv", index=False)
    data = {"categorical": ["version"]}
    new, once = str(tmp_path / "new.csv"), {"training": {"epochs": 20, "folds": None}}
    for rows in (table, str(tmp_path / "t.csv")):
        model, result = mlpengine.fit(rows, "y", test=new, data=data, **once)
        assert result.metrics["test"]["r2"] > 0.9
        found = model.predict(pd.DataFrame({"version": [3.1, "3.10", 3.9], "z": 0.0}))
        np.testing.assert_allclose(found, [-5, 5, 0], atol=1)
        assert not any("'3.10'" in line for line in result.remarks)
    _, result = mlpengine.fit(table, "y", **once)
    assert "'3.1' and '3.10'" in " ".join(result.remarks)


def test_texts_of_other_column_types_are_read_as_the_model_reads_them(tmp_path):
    rows = versions()
    rows["day"] = ["2024-03-01", "2024-04-01", "2024-05-01"] * 80
    rows["on"] = ["true", "False"] * 120
    rows["count"] = ["1", "2", "15"] * 80
    once = {"training": {"epochs": 2, "folds": None}}
    rows.to_csv(tmp_path / "t.csv", index=False)
    rows.to_parquet(tmp_path / "t.parquet")
    texts = dict.fromkeys(("day", "on", "count", "version"), "category")
    model, _ = mlpengine.fit(tmp_path / "t.csv", "y", test=rows.astype(texts), **once)
    odd = rows.assign(tags=[["a"], ["b"]] * 120)  # a column that the model does not use
    odd.to_parquet(tmp_path / "odd.parquet")
    frames = rows, rows.astype(texts), pd.concat([odd, odd.tags], axis=1)
    assert file_table(model, str(tmp_path / "odd.parquet")).names == [*rows]
    for other in (*frames, odd.to_dict("records"), *tmp_path.glob("*.parquet")):
        np.testing.assert_array_equal(model.predict(other), model.predict(tmp_path / "t.csv"))
    for test in (rows, tmp_path / "t.csv"):  # texts of a Parquet file stay texts: 3.10 is not 3.1
        model, result = mlpengine.fit(tmp_path / "t.parquet", "y", test=test, **once)
        assert result.metrics["test"]["r2"] == pytest.approx(model.evaluate(test)["r2"])
        assert not any("split.test" in line for line in result.remarks)
    rows["count"] = pd.Series([1, np.inf] * 120, dtype="category")
    model, _ = mlpengine.fit(rows, "y", **once)
    assert np.isfinite(model.predict(rows)).all()


def test_an_estimator_warns_of_texts_that_are_one_number(caplog):
    x = versions()[["version", "z"]]
    for frame, count in ((x, 1), (x.astype({"version": "category"}), 0)):
        caplog.clear()
        model = mlpengine.MlpRegressor(epochs=2).fit(frame, x.z)
        model.predict(frame)
        assert caplog.text.count("'3.1' and '3.10'") == count


def test_labels_of_texts_come_back_as_texts(tmp_path):
    table = versions()
    table["whole"] = np.array(["1", "2"])[(table.y > 0).astype(int)]
    table["answer"] = np.array(["False", "True"])[(table.y > 0).astype(int)]
    table["day"] = np.array(["2024-03-01", "2024-04-01"])[(table.y > 0).astype(int)]
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet", index=False)
    once = {"training": {"epochs": 20, "folds": None}}
    classes = {"version": "classification", "whole": "auto", "answer": "auto"}
    classes["day"] = "classification"
    for target, task in classes.items():
        rows = table[["y", target]]
        model, result = mlpengine.fit(rows, target, test=rows[::-1], data={"task": task}, **once)
        assert "are equal to training rows" in str(result.remarks)
        assert model.classes == sorted({*table[target]})
        assert (
            (model.predict(rows) == rows[target]).mean() == model.evaluate(rows)["accuracy"] > 0.9
        )
        data = {"task": task, "drop": table.columns.difference(rows.columns)}
        of_file, _ = mlpengine.fit(str(tmp_path / "t.csv"), target, data=data, **once)
        of_csv = {"whole": [1, 2], "answer": [False, True]}
        assert of_file.classes == of_csv.get(target, model.classes)
        assert of_file.evaluate(tmp_path / "t.parquet")["accuracy"] > 0.9
        assert of_file.evaluate(rows)["accuracy"] > 0.9
    rows = table[["z", "version"]].assign(took=pd.to_timedelta(table.z, "s"))
    _, result = mlpengine.fit(rows, "version", **once)  # numbers by default
    for text in ("'3.1' and '3.10'", "'took': durations are read in seconds"):
        assert text in " ".join(result.remarks)
