"""What is said of columns, headers and rows that cannot be meant: in words, and the right ones."""

import numpy as np
import pytest

from mlpengine.formula import evaluate, parse

ALIKE = {"\ufb01": "fi", "\u00b5": "\u03bc", "\u212b": "\u00c5", "x\u00b2": "x2"}
"""Names that are one to Python, and two to a table."""


@pytest.mark.parametrize("name", ALIKE, ids=ascii)
def test_names_that_look_alike_are_told_apart_in_formulas(name):
    names = {name: np.array([3.0]), ALIKE[name]: np.array([5.0])}
    for own, values in names.items():
        for text in (f"2 * {own}", f"2 * `{own}`"):
            assert evaluate(parse(text, names), names)[0] == 2 * values[0]
    assert evaluate(parse(f"{name} - {ALIKE[name]} * 1e1", names), names)[0] == 3 - 50
