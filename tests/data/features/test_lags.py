"""Columns of earlier rows: pandas computes the same, and later rows change nothing."""

import numpy as np
import pandas as pd
import pytest

from mlpengine.core.errors import DataError
from mlpengine.data.features.lags import FUNCTIONS, RowHistory
from mlpengine.data.tables import Column, Table
from mlpengine.data.tables.frames import as_table

G = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "day": np.repeat(np.arange(200), 3),
        "shop": np.tile(["a", "b", "c"], 200),
        "sold": np.where(G.random(600) < 0.1, np.nan, G.normal(size=600)),
    }
).sample(frac=1, random_state=1, ignore_index=True)
ROLLING = dict.fromkeys(FUNCTIONS, (1, 7))


def history(ahead=1, **options) -> RowHistory:
    given = {"series": "shop", "time": "day", **options}
    return RowHistory({"sold": (1, 5)}, {"sold": ROLLING}, ahead, **given)


def expected(frame: pd.DataFrame, ahead: int) -> pd.DataFrame:
    """Return the columns that pandas computes, in the order of `frame`."""
    parts = []
    for _, part in frame.sort_values("day").groupby("shop"):
        sold, columns = part["sold"], {}
        for lag in (1, 5):
            columns[f"sold_lag_{lag}"] = sold.shift(lag + ahead - 1)
        for name in FUNCTIONS:
            ddof = {"ddof": 0} if name == "std" else {}
            for length in (1, 7):
                window = getattr(sold.rolling(length, min_periods=1), name)(**ddof)
                columns[f"sold_{name}_{length}"] = window.shift(ahead)
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts).loc[frame.index]


@pytest.mark.parametrize("ahead", [1, 3])
def test_columns_of_earlier_rows_are_those_of_pandas(ahead):
    derived = history(ahead).extended(as_table(FRAME))
    for name, column in expected(FRAME, ahead).items():
        np.testing.assert_allclose(derived[name].values, column, atol=1e-7, err_msg=name)
    before = FRAME.sort_values("day").groupby("shop").cumcount().loc[FRAME.index]
    np.testing.assert_array_equal(history(ahead).early_rows(as_table(FRAME)), before < 4 + ahead)


def test_rows_may_be_in_two_tables_or_be_the_next_ones():
    own = history(2)
    whole, late = own.extended(as_table(FRAME)), FRAME["day"] >= 150
    shops = FRAME.assign(shop=FRAME["shop"].map({"a": 0.1, "b": 0.2, "c": 0.3}))
    parts = as_table(shops[late].astype({"shop": "f4"})), as_table(shops[~late])
    after = own.extended(*parts)
    following = pd.DataFrame({"shop": ["c", "a"]})
    ends = own.next_rows(as_table(FRAME[FRAME["day"] < 199]), as_table(following))
    is_end = {shop: (FRAME["day"] == 199) & (FRAME["shop"] == shop) for shop in "ac"}
    for name in own.names:
        np.testing.assert_array_equal(after[name].values, whole[name].values[late])
        # the row two rows after day 198 reads what the row of day 199 reads one row ahead
        near = history(1).extended(as_table(FRAME))[name].values
        last = [near[is_end[shop]][0] for shop in "ca"]
        np.testing.assert_array_equal(ends[name].values, last)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"day": 3}, "row 600, column 'day'"),
        ({"day": None}, "row 600, column 'day'"),
        ({"shop": None}, "row 600, column 'shop'"),
        ({"sold": "x"}, "row 600, column 'sold'"),
    ],
)
def test_rows_without_order_or_numbers_are_refused(change, named):
    last = {"day": 3, "shop": "a", "sold": 1.0} | change
    rows = FRAME[(FRAME["day"] != 3) | (FRAME["shop"] != "a") | (change.get("day") == 3)]
    filled = pd.concat([rows, pd.DataFrame([last])], ignore_index=True).iloc[-600:]
    with pytest.raises(DataError, match=named):
        history().extended(as_table(filled.reset_index(drop=True)))


def test_dates_and_other_kinds_of_history_are_refused():
    table, dates = as_table(FRAME), Table({"day": Column(np.arange(3.0), "date")})
    with pytest.raises(DataError, match="'day': lags and windows need"):
        RowHistory({"day": (1,)}, {}, time="day").extended(dates)
    with pytest.raises(DataError, match="'shop'"):
        history().extended(table, as_table(FRAME.assign(shop=1)))


@pytest.mark.parametrize("series", [None, "shop"])
def test_equal_times_name_the_setting_of_series_only_if_it_is_missing(series):
    twice = pd.concat([FRAME, FRAME[:1]])
    with pytest.raises(DataError, match="one row for each time") as caught:
        history(series=series).extended(as_table(twice))
    assert ("data.series" in str(caught.value)) == (series is None)
