"""Forecast four time series of statsmodels with lags; compare with LightGBM and linear models.

``python benchmarks/forecasts.py`` (``--smoke``: one series) needs lightgbm, scikit-learn,
skforecast and statsmodels.  Models read 12 lags, and the mean, minimum and maximum of these 12
values.  They train on the first four fifths of the rows, and forecast each later row one and six
steps ahead.  Errors are mean absolute errors, divided by the error of a forecast by the newest
known value.  Seconds are processor time.  No setting was chosen on these series.
"""

import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from machine import describe, restart_clean, table

import mlpengine

LAGS = {"y": tuple(range(1, 13))}
ROLLING = {"y": dict.fromkeys(("mean", "min", "max"), (12,))}


def ours(frame: pd.DataFrame, known: int, ahead: int) -> np.ndarray:
    data = {"lags": LAGS, "rolling": ROLLING, "ahead": ahead, "split": {"time": "t", "test": 0.0}}
    model, _ = mlpengine.fit(frame[:known], "y", data=data, progress=False)
    return model.predict(frame)[known:]


def skforecast(regressor: Any, frame: pd.DataFrame, known: int, ahead: int) -> np.ndarray:
    from skforecast.direct import ForecasterDirect
    from skforecast.preprocessing import RollingFeatures

    window = RollingFeatures(stats=["mean", "min", "max"], window_sizes=12)
    one = ForecasterDirect(regressor, ahead, lags=12, window_features=window)
    one.fit(frame["y"][:known])
    newest = range(known - ahead + 1, len(frame) - ahead + 1)
    return np.array([one.predict(ahead, frame["y"][:n]).iloc[-1] for n in newest])


def main() -> None:
    try:
        from lightgbm import LGBMRegressor
        from sklearn.linear_model import LinearRegression
        from statsmodels.datasets import co2, elnino, nile, sunspots
    except ImportError as error:
        print(f"skipped: {error}; pip install lightgbm scikit-learn skforecast statsmodels")
        return
    series = {
        "co2": co2.load_pandas().data["co2"].resample("MS").mean().interpolate().to_numpy(),
        "elnino": elnino.load_pandas().data.iloc[:, 1:].to_numpy().ravel(),
        "sunspots": sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(),
        "nile": nile.load_pandas().data["volume"].to_numpy(),
    }
    models: dict[str, Any] = {
        "ours": ours,
        "skforecast, LightGBM": lambda *rows: skforecast(LGBMRegressor(verbose=-1), *rows),
        "skforecast, linear": lambda *rows: skforecast(LinearRegression(), *rows),
    }
    describe()
    lines: list[list[str]] = []
    for name, y in [*series.items()][: 1 if "--smoke" in sys.argv else None]:
        frame, known = pd.DataFrame({"t": np.arange(len(y)), "y": y}), len(y) * 4 // 5
        for ahead in (1, 6):
            naive = np.abs(y[known:] - y[known - ahead : -ahead]).mean()
            lines.append([name, str(ahead)])
            for model in models.values():
                start = time.process_time()
                error = np.abs(model(frame, known, ahead) - y[known:]).mean() / naive
                lines[-1].append(f"{error:.3f} ({time.process_time() - start:.1f} s)")
    print(table(["series", "steps", *models], lines))


if __name__ == "__main__":
    restart_clean()
    main()
