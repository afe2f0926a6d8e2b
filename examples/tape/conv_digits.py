"""A convolutional network that is nothing but a tape, on the digits that ship with the package.

Run ``python examples/tape/conv_digits.py``: under a minute on one core, to a test accuracy of 98 %
or more.  One tape holds the network twice over the same parameters, for training and for
evaluation; each becomes a program of its own batch size.  ``--smoke`` stops after one epoch.
"""

import argparse
from itertools import pairwise

import numpy as np

from mlpengine import Adam, Program, Tape
from mlpengine.core.spec import Array
from mlpengine.data.features import Batches, split_rows
from mlpengine.data.tables import load_dataset
from mlpengine.ops import RunningStatistics
from mlpengine.optim import OneCycleSchedule
from mlpengine.tape import Node

CHANNELS = (1, 16, 32, 64)
CLASSES = 10
BATCH, EPOCHS, SEED = 64, 30, 0


class Network:
    """Three blocks of conv2d, batch_norm, relu and max_pool2d, and a linear layer."""

    def __init__(self, tape: Tape, rng: np.random.Generator) -> None:
        self.kernels, self.scales, self.shifts, self.running = [], [], [], []
        for i, (before, after) in enumerate(pairwise(CHANNELS)):
            kernel = rng.standard_normal((after, before, 3, 3)) * np.sqrt(2 / (9 * before))
            self.kernels.append(tape.parameter(np.float32(kernel), name=f"{i}.kernel"))
            self.scales.append(tape.parameter(np.ones(after, np.float32), name=f"{i}.scale"))
            self.shifts.append(tape.parameter(np.zeros(after, np.float32), name=f"{i}.shift"))
            self.running.append(RunningStatistics(after))
        weight = rng.standard_normal((CLASSES, CHANNELS[-1])) / np.sqrt(CHANNELS[-1])
        self.weight = tape.parameter(np.float32(weight), name="head.weight")
        self.bias = tape.parameter(np.zeros(CLASSES, np.float32), name="head.bias")

    def logits(self, images: Node, *, training: bool) -> Node:
        """Record the network on images (batch, 1, 8, 8) and return (batch, 10)."""
        h = images
        blocks = zip(self.kernels, self.scales, self.shifts, self.running, strict=True)
        for kernel, scale, shift, running in blocks:
            h = h.conv2d(kernel, padding=1)
            h = h.batch_norm(scale, shift, running=running, training=training).relu()
            h = h.max_pool2d(2)
        return h.reshape(-1, CHANNELS[-1]).linear(self.weight, self.bias)


def images_and_labels() -> tuple[Array, Array]:
    """Return the digits as images (rows, 1, 8, 8) in 0 to 1, and their classes."""
    table = load_dataset("digits")
    pixels = np.column_stack([table[n].values for n in table.names if n != "digit"])
    labels = np.asarray(table["digit"].values, np.int64)
    return np.float32(pixels / 16).reshape(-1, 1, 8, 8), labels


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Return the images, each moved by up to a pixel."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8), (2, 3))
    down, right = rng.integers(0, 3, (2, len(images)))
    return windows[np.arange(len(images)), :, down, right]


def main() -> None:
    """Train, and print the accuracy on the validation and test parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one epoch, to see that it runs")
    epochs = 1 if parser.parse_args().smoke else EPOCHS
    rng = np.random.default_rng(SEED)
    images, labels = images_and_labels()
    split = split_rows(len(images), seed=SEED, labels=labels)

    tape = Tape()
    x = tape.input((BATCH, 1, 8, 8), name="images")
    y = tape.input((BATCH,), "int64", name="labels")
    network = Network(tape, rng)
    loss = network.logits(x, training=True).softmax_cross_entropy(y)
    scores = network.logits(x, training=False)
    training = Program(tape, loss)
    print(f"parameters: {len(training.params):,}")
    print(f"planned for values and gradients: {sum(training.planned_bytes.values()):,} bytes")
    batches = Batches(split.train, BATCH, seed=SEED)
    steps = len(split.train) // BATCH  # whole batches only
    adam = Adam(training, lr=5e-3, schedule=OneCycleSchedule(steps * epochs))
    for epoch in range(epochs):
        total = 0.0
        for rows in (rows for rows in batches.epoch() if len(rows) == BATCH):
            batch = shifted(images[rows], rng)
            total += float(training.forward(images=batch, labels=labels[rows]))
            training.backward()
            adam.step(training, training.grads)
        print(f"epoch {epoch + 1:3}  loss {total / steps:.4f}")

    for name, rows in (("validation", split.validation), ("test", split.test)):
        evaluation = Program(tape, scores, batch_size=len(rows), differentiable=False)
        predicted = evaluation.forward(images=images[rows]).argmax(axis=1)
        print(f"{name} accuracy {np.mean(predicted == labels[rows]):.4f} on {len(rows)} rows")


if __name__ == "__main__":
    main()
