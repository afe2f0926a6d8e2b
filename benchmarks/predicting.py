"""Time the prediction of a million rows from raw arrays, compared with PyTorch and onnxruntime.

``python benchmarks/predicting.py`` (``--smoke`` for a few seconds; ``--rows``).  Networks with
64-64 and 256-256 ReLU units read 20 columns, float32 and float64, standardize them, and predict.
mlpengine also clips features and checks every value, and has a second model, the mean of eight
networks.  PyTorch predicts all rows in one call, or in blocks of 16,384; onnxruntime has the same
weights, and the standardization in its graph.  All use all cores and are timed in turn.  Figures
are medians over the rounds: times, and ratios within a round.  First, a single row is predicted by
one network of `fit` and by its ensemble.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from machine import describe, figure, restart_clean, table

from mlpengine import fit
from mlpengine.estimators import MlpRegressor

COLUMNS, WIDTHS, BLOCK = 20, (64, 256), 16_384


def ours(x: Any, width: int, folds: int | None) -> Any:
    """Return a fitted estimator; with `folds`, it has eight networks."""
    y = x[:, 0] + np.sin(x[:, 1])
    options: dict[str, Any] = {"epochs": 1, "early_stopping": False, "activation": "relu"}
    options |= {"folds": folds, "members": ["plain"] if folds else None}
    return MlpRegressor([width, width], **options).fit(x, y)


def torch_calls(mlp: Any, center: Any, scale: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the calls of PyTorch; none if it is not installed."""
    try:
        import torch
    except ImportError:
        return {}
    layers: list[Any] = []
    for layer in mlp.layers:
        weight, bias = (mlp.params.views[name] for name in layer.names[:2])
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            linear.weight[...] = torch.from_numpy(weight.copy())
            linear.bias[...] = torch.from_numpy(bias.copy())
        layers += [linear, torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    mean, factor = (torch.from_numpy(v.astype("f4")) for v in (center, 1 / scale))

    def whole(x: Any) -> Any:
        with torch.inference_mode():
            return network((torch.from_numpy(x).float() - mean) * factor).numpy()

    def blocks(x: Any) -> Any:
        return np.concatenate([whole(x[i : i + BLOCK]) for i in range(0, len(x), BLOCK)])

    return {"PyTorch": whole, "PyTorch, in blocks": blocks}


def onnx_calls(mlp: Any, center: Any, scale: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the call of onnxruntime; none if it is not installed."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return {}
    values = {"center": center.astype("f4"), "scale": scale.astype("f4")}
    nodes = [helper.make_node("Sub", ["x", "center"], ["c"])]
    nodes.append(helper.make_node("Div", ["c", "scale"], ["h"]))
    now = "h"
    for k, layer in enumerate(mlp.layers):
        values |= {f"{n}{k}": mlp.params.views[layer.names[i]] for i, n in enumerate("wb")}
        last = k == len(mlp.layers) - 1
        out = "y" if last else f"z{k}"
        nodes.append(helper.make_node("Gemm", [now, f"w{k}", f"b{k}"], [out], transB=1))
        if not last:
            nodes.append(helper.make_node("Relu", [out], [now := f"h{k}"]))
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])]
        for name, size in (("x", len(center)), ("y", 1))
    ]
    held = [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in values.items()]
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(
        helper.make_graph(nodes, "mlp", *ends, held), opset_imports=opset, ir_version=9
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return {"onnxruntime": lambda x: session.run(None, {"x": x.astype("f4", copy=False)})[0]}


def one_row(calls: int, **options: int) -> None:
    """Print microseconds of one row by `Model.predict`."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((569, 30))
    names = [f"x{k}" for k in range(30)]
    rows = dict(zip([*names, "y"], [*x.T, np.sin(x[:, 0]) + x[:, 1] ** 2], strict=True))
    row, lines = dict(zip(names, x[0], strict=True)), []
    for training in ({"folds": None}, {}):
        model, _ = fit(rows, "y", training=training | options)
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            model.predict(row)
            times.append(time.perf_counter() - began)
        title = f"one row of 30 columns, networks: {len(model.networks)}"
        lines.append((title, f"{1e6 * statistics.median(times):.0f} us"))
    print(f"\n{table(('what', 'time'), lines)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few rows, one round")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    count, rounds = (20_000, 1) if args.smoke else (args.rows, args.rounds)
    describe()
    one_row(50, epochs=2) if args.smoke else one_row(2_000)
    x = np.random.default_rng(0).standard_normal((count, COLUMNS)) * 3 + 1
    for width in WIDTHS:
        one, eight = (ours(x[:2_000], width, folds) for folds in (None, 8))
        mlp, center, scale = one.mlps_[0], x[:2_000].mean(axis=0), x[:2_000].std(axis=0)
        calls = {"ours": one.predict, "ours, 8 networks": eight.predict}
        calls |= torch_calls(mlp, center, scale)
        calls |= onnx_calls(mlp, center, scale)
        for dtype in ("float32", "float64"):
            rows = x.astype(dtype)
            times: dict[str, list[float]] = {name: [] for name in calls}
            for number in range(rounds + 1):  # the first one compiles
                for name, run in calls.items():
                    began = time.perf_counter()
                    run(rows)
                    if number or args.smoke:
                        times[name].append(time.perf_counter() - began)
            lines = [
                (
                    name,
                    figure(statistics.median(each)),
                    figure(
                        statistics.median(np.divide(each, times["ours"][-len(each) :]).tolist())
                    ),
                )
                for name, each in times.items()
            ]
            title = f"{COLUMNS}-{width}-{width}-1, {count:,} rows of {dtype}"
            print(f"\n{table((title, 'seconds', 'over ours'), lines)}", flush=True)


if __name__ == "__main__":
    restart_clean()
    main()
