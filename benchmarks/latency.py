"""The time of a prediction for one row, from the caller's row to labels or numbers.

``python benchmarks/latency.py`` (``--smoke`` for a few seconds).  A table of 13 numbers, and one of
8 numbers and 4 categories with a class to predict, by models of 64-64 units (``--hidden 256 256``:
of others): our model by row, by matrix and by data frame, its network alone, by exported C too, the
estimator, and, where they are installed, scikit-learn's MLP (behind its encoders for categories),
the exported ONNX model in onnxruntime, and LightGBM.  All are timed in turn, window after window;
figures are medians of the windows.
"""

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, figure, restart_clean, table

import mlpengine
from mlpengine.backends.compiled.target import compiler_command
from mlpengine.export import export, onnx_inputs

ROWS, HIDDEN = 2_000, [64, 64]
SETTINGS: dict[str, Any] = {"model": {"hidden": HIDDEN}, "training": {"epochs": 2, "folds": None}}
LETTERS = np.array(list("abcdef"))

Calls = dict[str, Callable[[], Any]]


def numbers() -> dict[str, Any]:
    """Return columns of numbers, and a number to predict."""
    g = np.random.default_rng(0)
    columns = {f"x{i}": g.standard_normal(ROWS) for i in range(13)}
    return columns | {"y": columns["x0"] + np.sin(columns["x1"])}


def mixed() -> dict[str, Any]:
    """Return columns of numbers and of texts, and a class to predict."""
    g = np.random.default_rng(1)
    columns: dict[str, Any] = {f"x{i}": g.standard_normal(ROWS) for i in range(8)}
    columns |= {f"t{i}": LETTERS[g.integers(0, 6, ROWS)] for i in range(4)}
    return columns | {"y": np.where(columns["x0"] > 0, "yes", "no")}


def ours(model: mlpengine.Model, row: dict[str, Any]) -> Calls:
    """Return the calls of our model and of its network."""
    features = np.zeros((1, model.mlp.sizes[0]), model.mlp.dtype)
    scratch = model.mlp.scratch(1, training=False)
    calls: Calls = {
        "model.predict(row)": lambda: model.predict(row),
        "mlp.forward(features), network alone": lambda: model.mlp.forward(features, scratch),
    }
    try:
        compiled = model.mlp.compile(1)
    except mlpengine.CompileError as error:
        print(f"mlp.compile: left out ({error})")
    else:
        calls["mlp.compile()(features), network alone"] = lambda: compiled(features)
    if model.classes:
        calls["model.predict_proba(row)"] = lambda: model.predict_proba(row)
    else:
        matrix = np.array([[row[name] for name in model.columns]])
        calls["model.predict(matrix)"] = lambda: model.predict(matrix)
    return calls


def c_calls(model: mlpengine.Model) -> Calls:
    """Return the call of the network in exported C."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "net.c", Path(folder) / "net.so"
        export(model.mlp, source)
        flags = ["-std=c99", "-O2", "-shared", "-fPIC"]
        subprocess.run(
            [*compiler_command(), *flags, str(source), "-o", str(library), "-lm"], check=True
        )
        predict = ctypes.CDLL(str(library)).predict
    x, y = (np.zeros(n, model.mlp.dtype) for n in (model.mlp.in_dim, model.mlp.outputs))
    places = [ctypes.c_void_p(array.ctypes.data) for array in (x, y)]
    return {"exported C, network alone": lambda: (predict(*places), x, y)}


def frame_calls(model: mlpengine.Model, row: dict[str, Any]) -> Calls:
    """Return a call with a data frame."""
    try:
        import pandas
    except ImportError:
        return {}
    frame = pandas.DataFrame([row])
    return {"model.predict(pandas frame)": lambda: model.predict(frame)}


def onnx_calls(model: mlpengine.Model, row: dict[str, Any]) -> Calls:
    """Return the call of onnxruntime on the exported model, preprocessing included."""
    try:
        import onnxruntime
    except ImportError:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(model, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path.read_bytes(), options)
    feed = onnx_inputs(model.preprocessor, model.table(row))
    return {"onnxruntime, preprocessing inside": lambda: session.run(None, feed)}


def sklearn_calls(columns: dict[str, Any], texts: list[str]) -> Calls:
    """Return the calls of our estimator, and of scikit-learn's MLP and its encoders."""
    try:
        from sklearn.compose import make_column_transformer
        from sklearn.neural_network import MLPClassifier, MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler
    except ImportError:
        return {}
    from mlpengine.estimators import MlpClassifier, MlpRegressor

    plain = [name for name in columns if name not in (*texts, "y")]
    x = np.column_stack([columns[name] for name in plain])
    one, y = x[:1], columns["y"]
    if not texts:
        theirs = make_pipeline(
            StandardScaler(), MLPRegressor(hidden_layer_sizes=HIDDEN, max_iter=2)
        )
        mine = MlpRegressor(HIDDEN, epochs=2, early_stopping=False)
        for each in (theirs, mine):
            each.fit(x, y)
        return {
            "scikit-learn's MLP, scaled": lambda: theirs.predict(one),
            "MlpRegressor.predict": lambda: mine.predict(one),
        }
    whole = np.column_stack([x.astype(object), *(columns[name] for name in texts)])
    numeric, named = list(range(len(plain))), list(range(len(plain), whole.shape[1]))
    encoder = make_column_transformer(
        (StandardScaler(), numeric), (OneHotEncoder(sparse_output=False), named)
    )
    theirs = make_pipeline(encoder, MLPClassifier(hidden_layer_sizes=HIDDEN, max_iter=2)).fit(
        whole, y
    )
    alone = MLPClassifier(hidden_layer_sizes=HIDDEN, max_iter=2).fit(x, y)
    mine = MlpClassifier(HIDDEN, epochs=2, early_stopping=False).fit(x, y)
    return {
        "scikit-learn's MLP, encoded": lambda: theirs.predict_proba(whole[:1]),
        "scikit-learn's MLP, numbers alone": lambda: alone.predict_proba(one),
        "MlpClassifier.predict_proba, numbers alone": lambda: mine.predict_proba(one),
    }


def lightgbm_calls(columns: dict[str, Any], texts: list[str]) -> Calls:
    """Return the call of a LightGBM booster on a matrix, texts as codes."""
    try:
        import lightgbm
    except ImportError:
        return {}
    coded = [np.unique(c, return_inverse=True)[1] if n in texts else c
             for n, c in columns.items() if n != "y"]  # fmt: skip
    x = np.column_stack(coded).astype(float)
    y = columns["y"] == "yes" if texts else columns["y"]
    parameters = {"objective": "binary" if texts else "regression", "num_threads": 1, "verbose": -1}
    booster = lightgbm.train(parameters, lightgbm.Dataset(x, y), 100)
    one = x[:1].copy()
    return {"LightGBM, 100 trees": lambda: booster.predict(one)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few windows")
    parser.add_argument("--hidden", type=int, nargs="+", default=HIDDEN, help="sizes of layers")
    args = parser.parse_args()
    HIDDEN[:] = args.hidden
    windows, repeats = (3, 5) if args.smoke else (400, 10)  # a window is below a slice of time
    describe()
    import warnings

    warnings.simplefilter("ignore")  # of two epochs that do not converge
    for title, columns in (("13 numbers", numbers()), ("8 numbers, 4 categories", mixed())):
        texts = [name for name in columns if name.startswith("t")]
        model, _ = mlpengine.fit(columns, "y", **SETTINGS)
        row = {
            n: c[0].item() if n not in texts else str(c[0]) for n, c in columns.items() if n != "y"
        }
        calls = ours(model, row) | c_calls(model) | frame_calls(model, row)
        calls |= onnx_calls(model, row) | sklearn_calls(columns, texts)
        calls |= lightgbm_calls(columns, texts)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(windows):
            for name, run in calls.items():
                run()
                began = time.perf_counter()
                for _ in range(repeats):
                    run()
                times[name].append((time.perf_counter() - began) / repeats * 1e6)
        rows = [
            (name, figure(statistics.median(each)), figure(min(each)))
            for name, each in sorted(times.items(), key=lambda pair: statistics.median(pair[1]))
        ]
        print(f"\n{table((f'{title}: one row, us', 'median', 'smallest'), rows)}", flush=True)


if __name__ == "__main__":
    restart_clean()
    main()
