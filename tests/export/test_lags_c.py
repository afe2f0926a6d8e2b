"""The ring buffer of exported C: predictions row by row are those of whole tables."""

import ctypes
import subprocess

import numpy as np
import pytest
from test_device import STRICT

from mlpengine import Mlp
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.data.features import Preprocessor
from mlpengine.data.features.lags import FUNCTIONS
from mlpengine.data.tables import Column, Table
from mlpengine.export import export
from mlpengine.models.model import Model

G = np.random.default_rng(0)
ROWS = 1000
HEAT = np.where(G.random(ROWS) < 0.1, np.nan, G.normal(size=ROWS)).astype(np.float32)
LOAD = G.normal(size=ROWS).astype(np.float32)
COLUMNS = {"hour": Column(np.arange(ROWS)), "heat": Column(HEAT), "load": Column(LOAD)}


@pytest.mark.parametrize(("dtype", "ahead"), [("float32", 1), ("float64", 3)])
def test_rows_one_by_one_are_predicted_as_in_a_table(tmp_path, dtype, ahead):
    lags, rolling = {"load": (1, 24), "heat": (2,)}, {"heat": dict.fromkeys(FUNCTIONS, (1, 30))}
    preprocessor = Preprocessor(
        "load", lags=lags, rolling=rolling, ahead=ahead, time="hour", drop=["hour"], dtype=dtype
    )
    table = preprocessor.history.extended(Table(COLUMNS))
    preprocessor.fit(table)
    network = Mlp([preprocessor.n_features, 8, 1], dtype=dtype, seed=1)
    model = Model(network, preprocessor, "mse")
    export(model, tmp_path / "net.c", name="net")
    (tmp_path / "main.c").write_text('#include "net.h"\n')
    command = [*compiler_command(), *STRICT, "-shared", "-fPIC", "net.c", "main.c", "-o", "net.so"]
    done = subprocess.run([*command, "-lm"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    library, pointer = ctypes.CDLL(str(tmp_path / "net.so")), np.ctypeslib.ndpointer(dtype)
    history = ctypes.create_string_buffer(8 + 30 * 2 * np.dtype(dtype).itemsize)
    library.net_history_update.argtypes = ctypes.c_char_p, pointer
    library.net_history_fill.argtypes = ctypes.c_char_p, pointer
    library.net_predict.argtypes = pointer, pointer
    library.net_history_start(history)
    x, out, given = np.empty(len(preprocessor.columns), dtype), np.empty(1, dtype), []
    rows = np.column_stack([HEAT, LOAD]).astype(dtype)
    for row in range(ROWS):
        if row >= ahead:
            library.net_history_update(history, rows[row - ahead])
        x[preprocessor.columns.index("heat")] = HEAT[row]
        library.net_history_fill(history, x)
        assert library.net_predict(x, out)
        given.append(float(out[0]))
    close = {"float32": 2e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(given, model.predict(Table(COLUMNS)), rtol=close, atol=close)
