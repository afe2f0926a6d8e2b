"""The matrix products of a dense layer: compiled tiles against NumPy's BLAS, MKL and PyTorch.

``python benchmarks/products.py`` (``--smoke`` for a second).  For the layers of the networks in
benchmarks/step.py, each of the three products alone, one thread, window by window in turn:
forward y = x W^T, weight gradient dW = dy^T x, input gradient dx = dy W.  MKL takes part where
``pip install mkl`` has put it into the environment.  Prints billions of multiplications and
additions a second, medians.  This measurement is why the compiled backend uses tiles of its own
everywhere; on a machine where a library is ahead, it shows.
"""

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from against import add_option, compare
from machine import describe, figure, restart_clean, table
from threadpoolctl import threadpool_limits

from mlpengine import Program, Tape
from mlpengine.backends.compiled import compile_program
from mlpengine.ops import REGISTRY

try:
    import torch
except ImportError:
    torch = None

LAYERS = ((32, 32, 32), (64, 64, 128), (128, 784, 256), (128, 256, 128), (256, 784, 1024))
LAYERS += ((256, 1024, 1024),)
"""Rows, inputs and outputs."""


def operands(rows: int, inputs: int, outputs: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"x": (rows, inputs), "w": (outputs, inputs), "dy": (rows, outputs)}
    return {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


def compiled(form: str, data: dict[str, np.ndarray]) -> Callable[[], object]:
    """Return the product as the compiled backend makes it, what it packs included."""
    tape = Tape()
    x = tape.input(data["x"].shape, name="x", wants_grad=form == "dx")
    if form == "dx":
        w = tape.input(data["w"].shape, name="w")
    else:
        w = tape.parameter(data["w"], name="w")
    program = Program(tape, tape.apply(REGISTRY["linear"](), x, w), backend="numpy")
    for name, buffer in program.inputs.items():
        buffer[...] = data[name]
    kind = "forward" if form == "y" else "backward"
    program.forward()
    program.backward(data["dy"])
    instructions = [i for i in program.instructions if i.kind == kind]
    return compile_program(instructions, dtype=np.dtype("f4"), batch=len(data["x"])).step


def blas(form: str, data: dict[str, np.ndarray]) -> Callable[[], object]:
    x, w, dy = data["x"], data["w"], data["dy"]
    a, b = {"y": (x, w.T), "dw": (dy.T, x), "dx": (dy, w)}[form]
    out = np.empty((a.shape[0], b.shape[1]), "f4")
    return lambda: np.dot(a, b, out)


def torch_product(form: str, data: dict[str, np.ndarray]) -> Callable[[], object]:
    """Return the product in PyTorch, on as many threads as it was told."""
    x, w, dy = (torch.from_numpy(data[name]) for name in ("x", "w", "dy"))
    a, b = {"y": (x, w.T), "dw": (dy.T, x), "dx": (dy, w)}[form]
    out = torch.empty((a.shape[0], b.shape[1]))
    return lambda: torch.mm(a, b, out=out)


def find_mkl(threads: int = 1) -> ctypes.CDLL | None:
    """Return MKL, limited to a number of threads; None without it."""
    libraries = sorted(Path(sys.prefix, "lib").glob("libmkl_rt.*"))
    if not libraries:
        return None
    library = ctypes.CDLL(str(libraries[0]))
    library.MKL_Set_Num_Threads(threads)
    return library


def mkl(library: ctypes.CDLL, form: str, data: dict[str, np.ndarray]) -> Callable[[], object]:
    x, w, dy = data["x"], data["w"], data["dy"]
    a, b = {"y": (x, w), "dw": (dy, x), "dx": (dy, w)}[form]
    rows, columns = {"y": dy.shape, "dw": w.shape, "dx": x.shape}[form]
    depth = a.shape[0] if form == "dw" else a.shape[1]
    out = np.empty((rows, columns), "f4")
    normal, turned = 111, 112
    left, right = (turned if form == "dw" else normal), (turned if form == "y" else normal)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, out)]
    one, zero = ctypes.c_float(1), ctypes.c_float(0)

    def run() -> None:
        library.cblas_sgemm(
            *(101, left, right, rows, columns, depth, one),
            *(pointers[0], a.shape[1], pointers[1], b.shape[1], zero, pointers[2], columns),
        )

    return run


def window(run: Callable[[], object], seconds: float) -> float:
    """Return seconds a call."""
    start = time.perf_counter()
    run()
    calls = max(1, int(seconds / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="two layers, short windows")
    add_option(parser)
    args = parser.parse_args()
    describe()
    if args.against:
        compare("products", args.against, seconds=0.001 if args.smoke else 0.02)
        return
    layers, windows, seconds = (LAYERS[:2], 3, 0.001) if args.smoke else (LAYERS, 40, 0.01)
    library = find_mkl()
    lines = []
    for layer in layers:
        data = operands(*layer)
        for form in ("y", "dw", "dx"):
            runs = {"compiled": compiled(form, data), "NumPy's BLAS": blas(form, data)}
            if library is not None:
                runs["MKL"] = mkl(library, form, data)
            if torch is not None:
                torch.set_num_threads(1)
                runs["PyTorch"] = torch_product(form, data)
            times: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(windows):
                for name, run in runs.items():
                    times[name].append(window(run, seconds))
            rows, inputs, outputs = layer
            work = 2 * rows * inputs * outputs / 1e9
            rates = {name: work / statistics.median(values) for name, values in times.items()}
            title = f"{rows} rows, {inputs} to {outputs}, {form}"
            print(title, *(f"{name} {rate:.1f}" for name, rate in rates.items()), sep="   ")
            sys.stdout.flush()
            lines.append([title, *map(figure, rates.values())])
    print(f"\n{table(['billions a second', *rates], lines)}")


if __name__ == "__main__":
    restart_clean()
    with threadpool_limits(1, user_api="blas"):
        main()
