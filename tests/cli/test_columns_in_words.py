"""What is said of columns, headers and rows that cannot be meant: in words, and the right ones."""

import json

import numpy as np
import pytest

from mlpengine.core.errors import DataError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables.frames import as_table
from mlpengine.formula import evaluate, parse

ROWS = "\n".join(f"{i % 9},{i * i % 7},{i % 5}" for i in range(60))


def test_a_filter_that_no_row_fulfils_is_one_line(mlpengine, tmp_path):
    (tmp_path / "t.csv").write_text(f"x,w,y\n{ROWS}\n")
    (tmp_path / "c.yaml").write_text("data: {source: t.csv, target: y, where: x > 100}\n")
    said = mlpengine("check", "c.yaml")
    assert said.code == 2
    text = "t.csv: 60 rows of 60 left out: data.where does not hold)"
    assert "t.csv: no row can be used (" in said.err
    assert text in said.err
    assert len(said.err.splitlines()) == 1


ALIKE = {"\ufb01": "fi", "\u00b5": "\u03bc", "\u212b": "\u00c5", "x\u00b2": "x2"}
"""Names that are one to Python, and two to a table."""


@pytest.mark.parametrize("name", ALIKE, ids=ascii)
def test_names_that_look_alike_are_told_apart_in_formulas(name):
    names = {name: np.array([3.0]), ALIKE[name]: np.array([5.0])}
    for own, values in names.items():
        for text in (f"2 * {own}", f"2 * `{own}`"):
            assert evaluate(parse(text, names), names)[0] == 2 * values[0]
    assert evaluate(parse(f"{name} - {ALIKE[name]} * 1e1", names), names)[0] == 3 - 50


def test_no_column_with_another_role_is_proposed(mlpengine, tmp_path):
    (tmp_path / "t.csv").write_text(f"x,price,prices\n{ROWS}\n")
    config = tmp_path / "c.yaml"
    for data, near in (("target: prices, drop: [pricess]", "price"), ("target: pricess", "prices")):
        config.write_text(f"data: {{source: t.csv, {data}}}\n")
        said = mlpengine("check", "c.yaml").err
        assert f"has no column 'pricess' - did you mean {near!r}?" in said
    fitted = Preprocessor("wage").fit(
        as_table({"age": [1.0, 2, 3], "ages": [1.0, 2, 4], "wage": [1.0, 2, 5]})
    )
    with pytest.raises(DataError) as error:
        fitted.transform(as_table({"age": [1.0], "wage": [2.0]}))
    assert "needs column 'ages'; it has" in str(error.value)
    with pytest.raises(DataError, match=r"'ages' \(did you mean 'agess'\?\)"):
        fitted.transform(as_table({"age": [1.0], "agess": [2.0]}))


def test_init_names_a_class_of_one_row(mlpengine, tmp_path):
    rows = "\n".join(f"{i * 7 % 11},{'ab'[i % 2]}" for i in range(40))
    (tmp_path / "t.csv").write_text(f"x,kind\n{rows}\n3,z\n")
    made = mlpengine("init", "t.csv", "--target", "kind")
    assert "warning: class 'z': only 1 row; consider class weights, or merging it" in made.err
    assert "class 'a'" not in made.err


def test_whole_numbers_that_are_texts_are_dropped_with_the_reason(mlpengine, tmp_path):
    rows = "\n".join(f"{2**53 + 3 * i},{i % 7},{i % 5 * 1.5}" for i in range(60))
    (tmp_path / "t.csv").write_text(f"key,x,y\n{rows}\n")
    made = mlpengine("init", "t.csv", "--target", "y", "-o", "-", "--json")
    assert json.loads(made.out)["dropped"] == {
        "key": "60 different texts, almost one per row: whole numbers beyond 2**53, or with zeros "
        "before them"
    }
