"""Fit the estimate of flash that `mlpengine export --format c-train` prints.

    python benchmarks/device_flash.py [--files 150] [--avr]

Random files are compiled by arm-none-eabi-gcc -Os; the fit is ridge regression of code bytes on
what `mlpengine.export._device_flash` counts, weighted by the size of the file.  Prints the errors
of files that a fit has not used (8-fold cross-validation), and the coefficients.  With --avr the
files are models with 8-bit weights, in programs that avr-gcc -Os links.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from device import BOARDS, command, object_size

from mlpengine import Adam, Mlp, Sgd, ops
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import Column, Table
from mlpengine.export._device_c import header, source
from mlpengine.export._device_flash import AVR_COEFFICIENTS, COUNTERS, constant_bytes, counts
from mlpengine.export._int8_c import integer_network
from mlpengine.export._model_c import to_c
from mlpengine.export.device import device_step
from mlpengine.models.model import Model
from mlpengine.models.task import task_for
from mlpengine.nn.layers import ACTIVATIONS
from mlpengine.optim import AdamW, Lion, NAdam, RmsProp

NAMES = [name for name in ACTIVATIONS if "softmax" not in name]
OPTIMIZERS = (
    partial(Sgd, lr=0.01),
    partial(Sgd, lr=0.01, momentum=0.9),
    partial(Sgd, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
    Adam,
    AdamW,
    Lion,
    NAdam,
    RmsProp,
)
LOSSES = (
    (ops.MeanSquaredError(), 2),
    (ops.Huber(0.7), 1),
    (ops.SoftmaxCrossEntropy(), 4),
    (ops.BinaryCrossEntropyWithLogits(), 1),
    (ops.LogCosh(), 2),
    (ops.MeanAbsoluteError(), 1),
)
FITS = (
    ({"target": "y", "missing": "indicator", "encoding": "piecewise", "bins": 3}, "huber"),
    ({"target": "kind", "standardize": "robust"}, "softmax_cross_entropy"),
    ({"target": "flag", "task": "classification", "clip": "none"}, "bce_with_logits"),
    ({"target": ["y", "z"]}, "mse"),
    ({"target": "y", "features": {"a": "x * z", "b": "log(x) + a"}}, "mae"),
)
AVR_FITS = (
    *FITS,
    ({"target": "x", "clip": "none"}, "gaussian_nll"),
    ({"target": "x", "transform_target": "log", "features": {"a": "y * z"}}, "mse"),
)


def table(rng: np.random.Generator) -> Table:
    gaps = rng.normal(40, 2, 120)
    gaps[::7] = np.nan
    text = Column(rng.integers(-1, 3, 120).astype(np.int32), "text", ("a", "b", "c"))
    kind = Column(rng.integers(0, 3, 120).astype(np.int32), "text", ("u", "v", "w"))
    flag = Column(rng.integers(0, 2, 120).astype(float), "boolean")
    numbers = {name: Column(rng.normal(5, 1, 120)) for name in ("x", "y", "z")}
    return Table({**numbers, "g": Column(gaps), "text": text, "kind": kind, "flag": flag}, "rows")


def random_model(
    rng: np.random.Generator, seed: int, fits: Sequence[tuple[dict[str, Any], str]] = FITS
) -> tuple[Model | Mlp, ops.Loss | None]:
    layers = int(rng.integers(1, 5))
    activations = [str(name) for name in rng.choice(NAMES, layers - 1)]
    activations = activations[:1] * (layers - 1) if rng.random() < 0.6 else activations
    hidden = [int(n) for n in rng.integers(1, 33, layers - 1)]
    if seed % 3 < 2:
        loss, outputs = LOSSES[rng.integers(len(LOSSES))]
        return Mlp([int(rng.integers(1, 33)), *hidden, outputs], activation=activations), loss
    options, name = fits[rng.integers(len(fits))]
    preprocessor = Preprocessor(**options).fit(table(rng))
    outputs = task_for(preprocessor.target, ops.REGISTRY[name]()).outputs
    sizes = [preprocessor.n_features, *hidden, outputs]
    return Model(Mlp(sizes, activation=activations), preprocessor, name), None


def files(count: int) -> Iterator[tuple[str, list[int]]]:
    """Yield sources and their bytes on each board: usual ones, then random ones."""
    for sizes, name, optimizer, clip in product(
        ((2, 16, 1), (4, 32, 32, 2)), ("tanh", "relu"), OPTIMIZERS[:4:3], (None, 1.0)
    ):
        mlp = Mlp(sizes, activation=name)
        loss = ops.MeanSquaredError()
        yield compiled(mlp, loss=loss, optimizer=optimizer, clip_norm=clip)
    rng = np.random.default_rng(5)
    for seed in range(count):
        model, loss = random_model(rng, seed)
        layers = len(model.mlp.layers if isinstance(model, Model) else model.layers)
        freeze = [i for i in range(layers) if rng.random() < 0.2]
        yield compiled(
            model,
            optimizer=OPTIMIZERS[rng.integers(len(OPTIMIZERS))],
            loss=loss,
            clip_norm=1.0 if rng.random() < 0.5 else None,
            batch_size=int(rng.choice([1, 1, 4])),
            freeze=freeze if len(freeze) < layers else [],
            libm=bool(rng.random() < 0.6),
        )


def compiled(model: Model | Mlp, **options: object) -> tuple[str, list[int]]:
    usual = {"batch_size": 1, "freeze": [], "libm": True, "real": "float", "name": "net"}
    step = device_step(model, **{**usual, **options})  # type: ignore[arg-type]
    text = source(step)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net.c").write_text(text)
        (folder / "net.h").write_text(header(step, text))
        return text, [object_size(board, folder) for board in BOARDS]


def avr_files(count: int) -> Iterator[tuple[str, list[int]]]:
    """Yield sources with 8-bit weights and the bytes that they add to a program for an AVR."""
    rng, empty = np.random.default_rng(5), avr_program("", "0")
    for _ in range(count):
        model, _ = random_model(rng, 2, AVR_FITS)
        assert isinstance(model, Model)
        integers = integer_network(model, model.features(table(rng)))
        text = to_c(model, "net", integers)[0].decode()
        yield text, [avr_program(text, "net_predict((float *)x, (float *)x)") - empty]


def avr_program(text: str, call: str) -> int:
    """Return the bytes of flash of a program."""
    declared = "int net_predict(const float *, float *);\nvolatile float x[20];\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "net.c").write_text(f"{text}\n{declared}int main(void) {{ return {call}; }}\n")
        words = ["avr-gcc", "-mmcu=atmega328p", "-Os", "-ffunction-sections", "-Wl,--gc-sections"]
        command([*words, "net.c", "-o", "net.elf", "-lm"], folder)
        lines = command(["avr-size", "-A", "net.elf"], folder).stdout.splitlines()
        sections = [line.split() for line in lines if line.startswith((".text", ".data"))]
        return sum(int(section[1]) for section in sections)


def solve(x: np.ndarray, code: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the coefficients of the least relative errors, drawn towards those of a small file."""
    smallest = x.min(axis=0) * (np.arange(x.shape[1]) > 0)
    a = (x - smallest) / total[:, None]
    scale = np.sqrt((a**2).mean(axis=0)) + 1e-12
    a /= scale
    ridge = 0.1 * np.eye(a.shape[1])
    ridge[0, 0] = 0
    solution = np.linalg.solve(a.T @ a + ridge, a.T @ (code / total)) / scale
    solution[0] -= solution @ smallest
    return solution


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=150)
    parser.add_argument("--avr", action="store_true", help="programs with 8-bit weights")
    options = parser.parse_args()
    pairs = list((avr_files if options.avr else files)(options.files))
    names = [name for name in COUNTERS if name in AVR_COEFFICIENTS or not options.avr]
    boards = ["ATmega328P"] if options.avr else [board.name for board in BOARDS]
    places = [[*COUNTERS].index(name) for name in names]
    x = np.array([counts(text) for text, _ in pairs], float)[:, places]
    order = np.random.default_rng(0).permutation(len(pairs))
    columns = []
    for column, board in enumerate(boards):
        total = np.array([sizes[column] for _, sizes in pairs], float)
        code = total - [constant_bytes(text) for text, _ in pairs]
        error = np.zeros(len(pairs))
        for fold in range(8):
            test = order[fold::8]
            train = np.setdiff1d(order, test)
            guess = x[test] @ solve(x[train], code[train], total[train])
            error[test] = (guess - code[test]) / total[test]
        rms, largest = np.sqrt((error**2).mean()), np.abs(error).max()
        print(f"{board:<11} error {rms:.1%} (root mean square), {largest:.1%} at most")
        columns.append(solve(x, code, total))
    for name, row in zip(names, np.array(columns).T, strict=True):
        print(f'    "{name}": ({", ".join(f"{v:.1f}" for v in row)}),')


if __name__ == "__main__":
    main()
