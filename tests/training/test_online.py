"""Networks that learn one row at a time, from dictionaries."""

import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from mlpengine import DataError, OnlineClassifier, OnlineRegressor, UsageError

RNG = np.random.default_rng(0)
GAPS = (None, float("nan"), pd.NA, pd.NaT)


def rows(count, shift=0.0):
    for i in range(count):
        x = RNG.normal(5, 3, 2)
        kind = ("a", "b", "c")[i % 3]
        yield {"x": x[0], "z": x[1], "kind": kind}, 10 * x[0] + 40 * (kind == "b") + shift


def test_errors_fall_to_a_tenth_of_the_deviation_and_rise_only_until_a_drift_is_learned():
    model, errors = OnlineRegressor(memory=300), []
    for x, y in [*rows(700), *rows(700, shift=-500)]:
        errors.append(abs(model.predict_one(x) - y))
        model.learn_one(x, y)
    before, drift, after = (np.mean(errors[a:b]) for a, b in [(600, 700), (700, 750), (1300, 1400)])
    assert before < 6 < 60 < drift
    assert after < 12
    assert 1 <= model.drifts <= 4


def test_memory_is_constant_and_the_rest_shares_features():
    model = OnlineClassifier((4,), features=8, classes=3)
    for i in range(60):
        model.learn_one({f"column {i % 20}": i, "name": f"text {i}", i: 1.0}, i % 3)
    assert len(model._slots) == 8
    chances = model.predict_proba_one({"column 3": 1.0})
    assert sum(chances.values()) == pytest.approx(1)
    with pytest.raises(UsageError, match="classes=4 or more"):
        model.learn_one({}, "fourth")


def test_gaps_and_unknown_texts_do_not_move_a_prediction():
    model = OnlineRegressor((4,))
    for x, y in rows(80):
        model.learn_one(x, y)
    alone = model.predict_one({"x": 5.0})
    for gap in GAPS:
        assert model.predict_one({"x": 5.0, "z": gap, "kind": gap}) == alone
    assert model.predict_one({"x": 5.0, "kind": "new"}) == alone
    for learner, odd in ((model, "1"), (OnlineClassifier(4), [1])):
        for wrong in (*GAPS, odd):
            with pytest.raises(DataError, match="y must be"):
                learner.learn_one({"x": 1.0}, wrong)
    with pytest.raises(UsageError, match="OnlineClassifier: classes"):
        OnlineClassifier(classes=1)
    with pytest.raises(DataError, match="dict"):
        model.predict_one([1.0])
    for odd in ([1.0], {"x": 1e101}, {"x": [1.0]}, {"x": pd.Timestamp(0)}, {"x": b"1"}):
        with pytest.raises(DataError):
            model.learn_one(odd, 1e9)
    for five in (5.0, Decimal(5), np.float32(5), np.int64(5)):
        assert model.predict_one({"x": five}) == alone  # nothing has changed


def test_one_glitch_does_little_harm():
    model, errors = OnlineRegressor(), []
    for i, (x, y) in enumerate(rows(500)):
        glitch = {"x": 1e9} if i == 300 else {}
        errors.append(abs(model.predict_one(x) - y))
        model.learn_one(x | glitch, 1e9 if i == 301 else y)
    assert np.mean(errors[450:]) < 6


def test_the_same_rows_give_the_same_bits_also_after_a_copy():
    one, other = OnlineClassifier((4,)), OnlineClassifier((4,))
    given = [(x, y > 60) for x, y in rows(90)]
    assert one.predict_one({}) is None
    for x, y in given[:50]:
        one.learn_one(x, y)
        other.learn_one(x, y)
    other = pickle.loads(pickle.dumps(other))
    for x, y in given[50:]:
        one.learn_one(x, y)
        other.learn_one(x, y)
    assert one.network.params.flat.tobytes() == other.network.params.flat.tobytes()
