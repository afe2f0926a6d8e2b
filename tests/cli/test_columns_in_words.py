"""What is said of columns, headers and rows that cannot be meant: in words, and the right ones."""

import numpy as np
import pytest

from mlpengine.formula import evaluate, parse

ROWS = "\n".join(f"{i % 9},{i * i % 7},{i % 5}" for i in range(60))


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
