"""Networks as a user writes them: recorded on the tape, none of them a chain of dense layers."""

from functools import cache

import numpy as np

from mlpengine import (
    AdamW,
    EarlyStopping,
    Loop,
    MeanSquaredError,
    SoftmaxCrossEntropy,
    TrainingStep,
)
from mlpengine.data.tables import read_table
from mlpengine.models import LossOnly, Split
from mlpengine.nn import Network
from mlpengine.ops import MeanOutput
from mlpengine.tape import cat

IN_DIM, BATCH = 6, 16


class Residual(Network):
    """Blocks of layer norm, two dense layers and dropout, each added to what it reads."""

    def __init__(self, width=16, blocks=2, outputs=2, dropout=0.0, **options):
        self.blocks, self.dropout = blocks, dropout
        parameters = {"in.weight": (width, IN_DIM), "in.bias": width}
        for i in range(blocks):
            parameters |= {
                f"block {i}.norm.scale": np.ones(width),
                f"block {i}.norm.bias": width,
                f"block {i}.up.weight": (2 * width, width),
                f"block {i}.up.bias": 2 * width,
                f"block {i}.down.weight": (width, 2 * width),
                f"block {i}.down.bias": width,
            }
        parameters |= {"out.weight": (outputs, width), "out.bias": outputs}
        super().__init__(IN_DIM, parameters, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = tape.layer("in", x.linear(p("in.weight"), p("in.bias")))
        for i in range(self.blocks):
            block = f"block {i}"
            z = h.layer_norm(p(f"{block}.norm.scale"), p(f"{block}.norm.bias"))
            z = z.linear(p(f"{block}.up.weight"), p(f"{block}.up.bias")).relu()
            z = tape.dropout(z, self.dropout)
            z = z.linear(p(f"{block}.down.weight"), p(f"{block}.down.bias"))
            h = tape.layer(block, h + z)
        return h.linear(p("out.weight"), p("out.bias"))


class Tied(Network):
    """An autoencoder whose decoder has the transposed weights of its encoder."""

    def __init__(self, width=4, **options):
        shapes = {"weight": (width, IN_DIM), "code.bias": width, "bias": IN_DIM}
        super().__init__(IN_DIM, shapes, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = tape.layer("code", x.linear(p("weight"), p("code.bias")).tanh())
        return h @ p("weight") + p("bias")


class Gated(Network):
    """A gated linear unit whose gate has a learned temperature."""

    def __init__(self, width=8, outputs=2, **options):
        parameters = {
            "value.weight": (width, IN_DIM),
            "gate.weight": (width, IN_DIM),
            "gate.bias": width,
            "gate.temperature": np.full(width, 0.1),
            "out.weight": (outputs, width),
            "out.bias": outputs,
        }
        super().__init__(IN_DIM, parameters, groups={"gate": ["gate.weight"]}, **options)

    def record(self, tape, x):
        p = tape.parameter
        gate = x.linear(p("gate.weight"), p("gate.bias")) * p("gate.temperature").exp()
        h = tape.layer("gated", gate.sigmoid() * x.linear(p("value.weight")))
        return h.linear(p("out.weight"), p("out.bias"))


class Computed(Network):
    """A dense layer whose weight is computed from parameters, and has as many rows as a batch."""

    def __init__(self, rows=16, **options):
        shapes = {"raw": (rows, IN_DIM), "out.weight": (2, rows), "out.bias": 2}
        super().__init__(IN_DIM, shapes, **options)

    def record(self, tape, x):
        h = x.linear(tape.parameter("raw").tanh()).relu()
        return h.linear(tape.parameter("out.weight"), tape.parameter("out.bias"))


class TwoTables(Network):
    """Two tables of features, and two heads: a number and one class of three."""

    rate = 0.2

    def __init__(self, width=8, **options):
        shapes = {"left": (width, IN_DIM), "image": (width, 16), "bias": width}
        shapes |= {"price.weight": (1, width), "class.weight": (3, width), "class.bias": 3}
        super().__init__({"left": IN_DIM, "image": (1, 4, 4)}, shapes, **options)

    def record(self, tape, left, image):
        p = tape.parameter
        h = left.linear(p("left")) + image.reshape(-1, 16).linear(p("image"), p("bias"))
        h = tape.dropout(tape.layer("shared", h.tanh()), self.rate)
        return {
            "price": h.linear(p("price.weight")),
            "class": h.linear(p("class.weight"), p("class.bias")),
        }


def two_tables(count, dtype, seed):
    """Return features and targets by name."""
    rng = np.random.default_rng(seed)
    x = {"left": rng.standard_normal((count, IN_DIM)), "image": rng.random((count, 1, 4, 4))}
    x = {name: values.astype(dtype) for name, values in x.items()}
    y = {"price": np.sin(2 * x["left"][:, :1]), "class": x["left"].argmax(axis=1) % 3}
    return x, y


class Autoencoder(Network):
    """A variational autoencoder, whose second output is the divergence of its code."""

    def __init__(self, code=2, width=8, **options):
        shapes = {"in.weight": (width, IN_DIM), "in.bias": width}
        shapes |= {"code.weight": (2 * code, width), "code.bias": 2 * code}
        shapes |= {"up.weight": (width, code), "up.bias": width}
        shapes |= {"out.weight": (IN_DIM, width), "out.bias": IN_DIM}
        super().__init__(IN_DIM, shapes, **options)

    def record(self, tape, x):
        def dense(name, h):
            return h.linear(tape.parameter(f"{name}.weight"), tape.parameter(f"{name}.bias"))

        mean, log_variance = dense("code", dense("in", x).tanh()).chunk(2, axis=1)
        divergence = (mean * mean + log_variance.exp() - log_variance - 1).sum(1, keepdims=True)
        z = tape.layer("code", tape.normal(mean, (log_variance * 0.5).exp()))
        return {"x": dense("out", dense("up", z).tanh()), "kl": divergence * 0.5}


def reconstructed(count, dtype, seed):
    """Return features, and them as targets."""
    x, _ = rows(count, dtype=dtype, seed=seed)
    return x, {"x": x}


SEVERAL = {
    "autoencoder": (
        Autoencoder,
        {"x": MeanSquaredError(), "kl": MeanOutput()},
        {"kl": 0.01},
        reconstructed,
    ),
    "two tables": (
        TwoTables,
        {"price": MeanSquaredError(), "class": SoftmaxCrossEntropy()},
        {"class": 0.3},
        two_tables,
    ),
}
"""Networks of several inputs or outputs, their losses, the weights of these, and their rows."""


class Mixture(Network):
    """A soft mixture of experts: each row has its own weights of what they compute."""

    def __init__(self, experts=3, width=5, **options):
        self.shape = experts, width
        parameters = {
            "gate.weight": (experts, IN_DIM),
            "experts.weight": (experts * width, IN_DIM),
            "experts.scale": np.ones((experts, 1)),
            "out.weight": (2, width),
        }
        super().__init__(IN_DIM, parameters, **options)

    def record(self, tape, x):
        p, (experts, width) = tape.parameter, self.shape
        gate = x.linear(p("gate.weight")).softmax().reshape(x.shape[0], experts, 1)
        each = x.linear(p("experts.weight")).reshape(x.shape[0], experts, width)
        h = (gate * (each * p("experts.scale")).tanh()).sum(axis=1)
        return tape.layer("mixture", h).linear(p("out.weight"))


class Attention(Network):
    """Self-attention over 16 tokens, each with a learned place, and the mean of what it finds."""

    def __init__(self, tokens=16, width=4, **options):
        self.shape = tokens, width
        parameters = {
            "embed.weight": (tokens * width, IN_DIM),
            "places": (tokens, width),
            **{f"{name}.weight": (width, width) for name in ("query", "key", "value")},
            "norm.scale": np.ones(width),
            "out.weight": (2, width),
        }
        super().__init__(IN_DIM, parameters, **options)

    def record(self, tape, x):
        p, (tokens, width) = tape.parameter, self.shape
        h = x.linear(p("embed.weight")).reshape(x.shape[0], tokens, width) + p("places")
        query, key, value = (h.linear(p(f"{n}.weight")) for n in ("query", "key", "value"))
        near = (query @ key.transpose(0, 2, 1) * width**-0.5).softmax()
        h = tape.layer("attention", (h + near @ value).layer_norm(p("norm.scale")))
        return h.mean(axis=1).linear(p("out.weight"))


class Siamese(Network):
    """Two halves of a row through the same layers, and how far apart they come out."""

    def __init__(self, width=8, **options):
        parameters = {
            "weight": (width, IN_DIM // 2),
            "bias": width,
            "out.weight": (2, width),
            "out.bias": 2,
        }
        super().__init__(IN_DIM, parameters, **options)

    def record(self, tape, x):
        p, half = tape.parameter, IN_DIM // 2
        one, other = (
            part.linear(p("weight"), p("bias")).tanh() for part in (x[:, :half], x[:, half:])
        )
        apart = tape.layer("distance", (one - other).abs())
        return apart.linear(p("out.weight"), p("out.bias"))


class Digits(Network):
    """A small convolution over images of digits, with pooling, and the scores of ten classes."""

    def __init__(self, channels=4, **options):
        shapes = {"filters": (channels, 1, 3, 3), "out.weight": (10, 9 * channels), "out.bias": 10}
        super().__init__((1, 8, 8), shapes, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = tape.layer("pooled", x.conv2d(p("filters")).relu().max_pool2d(2))
        return h.reshape(x.shape[0], -1).linear(p("out.weight"), p("out.bias"))


@cache
def images_of_digits():
    table = read_table("digits")
    *pixels, digit = (table[name].values for name in table.names)
    return np.stack(pixels, axis=1).reshape(-1, 1, 8, 8) / 16, digit.astype(np.int64)


def digits(count, dtype, seed):
    """Return images and the classes of what they show."""
    x, y = images_of_digits()
    order = np.random.default_rng(seed).integers(0, len(x), count)
    return x[order].astype(dtype), y[order]


class BatchNormed(Network):
    """A convolution over a row as an image, with batch norm."""

    def __init__(self, channels=3, **options):
        parameters = {
            "filters": (channels, 1, 1, 3),
            "norm.scale": np.ones(channels),
            "norm.bias": channels,
            "out.weight": (2, 4 * channels),
        }
        buffers = {"norm.mean": channels, "norm.variance": np.ones(channels)}
        super().__init__((1, 1, IN_DIM), parameters, buffers=buffers, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.conv2d(p("filters"))
        h = tape.batch_norm(h, p("norm.scale"), p("norm.bias"), running="norm").relu()
        h = tape.layer("convolution", h)
        return h.reshape(x.shape[0], -1).linear(p("out.weight"))


class NormedLayers(Network):
    """Two dense layers with batch norm, the second without scale and bias; two momenta."""

    def __init__(self, **options):
        shapes = {"w": (7, IN_DIM), "scale": np.ones(7), "bias": 7, "w2": (8, 7)}
        buffers = {"a.mean": 7, "a.variance": np.ones(7), "b.mean": 8, "b.variance": np.ones(8)}
        super().__init__(IN_DIM, shapes | {"out": (2, 8)}, buffers=buffers, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w"))
        h = tape.batch_norm(h, p("scale"), p("bias"), running="a", momentum=0.2).relu()
        h = tape.batch_norm(h.linear(p("w2")), running="b").tanh()
        return tape.layer("body", h).linear(p("out"))


class NormedPixels(Network):
    """Batch norm over the pixels of channels, without a scale."""

    def __init__(self, **options):
        shapes = {"w": (12 * 2, IN_DIM), "bias": 12, "out": (2, 12 * 2)}
        buffers = {"n.mean": 12, "n.variance": np.ones(12)}
        super().__init__(IN_DIM, shapes, buffers=buffers, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w")).reshape(-1, 12, 1, 2)
        h = tape.batch_norm(h, None, p("bias"), running="n").tanh()
        return h.reshape(-1, 24).linear(p("out"))


class Stopped(Network):
    """A gate that reads a detached layer, the variance of each row, and those of the weights."""

    def __init__(self, **options):
        shapes = {"w": (8, IN_DIM), "b": 8, "gate": (8, 8), "out.weight": (2, 9), "out.bias": 2}
        super().__init__(IN_DIM, shapes, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w"), p("b")).tanh()
        gate = h.detach().linear(p("gate")).sigmoid()
        h = tape.layer("gated", gate * h.detach() + h)
        spread = p("w").var(axis=0).var() + p("b").var(ddof=1)
        h = cat([h, h.var(axis=1, ddof=1, keepdims=True)], axis=1)
        return h.linear(p("out.weight"), p("out.bias")) + spread


class Penalized(Network):
    """A residual network whose second output is how far its slope is from 1 (WGAN-GP)."""

    def __init__(self, **options):
        shapes = {"w": (8, IN_DIM), "b": 8, "scale": np.ones(8), "w2": (8, 8)}
        super().__init__(IN_DIM, {**shapes, "w3": (4, 8), "out": (2, 4)}, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("w"), p("b")).tanh()
        h = tape.layer("block", h + h.layer_norm(p("scale")).linear(p("w2")).silu())
        y = h.linear(p("w3")).tanh().linear(p("out"))  # short rows share vectors
        slope = tape.gradient(y, x)
        norm = ((slope * slope).sum(axis=1, keepdims=True) + 1e-9).sqrt()
        return {"y": y, "penalty": (norm - 1) ** 2}


NETWORKS = {
    "residual": Residual,
    "residual with dropout": lambda **options: Residual(dropout=0.25, **options),
    "tied": Tied,
    "gated": Gated,
    "computed": Computed,
    "mixture": Mixture,
    "attention": Attention,
    "siamese": Siamese,
}

EIGHT = (
    *("residual with dropout", "two tables", "tied", "autoencoder"),
    *("mixture", "digits", "attention", "siamese"),
)
"""Networks of eight kinds, which show that whatever takes an `Mlp` takes a network of one's own."""

LAYERS = {
    "residual": ["in", "block 0", "block 1", "output"],
    "residual with dropout": ["in", "block 0", "block 1", "output"],
    "tied": ["code", "output"],
    "gated": ["gated", "output"],
    "computed": ["output"],
    "mixture": ["mixture", "output"],
    "attention": ["attention", "output"],
    "siamese": ["distance", "output"],
    "two tables": ["shared", "price", "class"],
    "autoencoder": ["code", "x", "kl"],
    "digits": ["pooled", "output"],
}


def rows(count, name="residual", dtype="float32", seed=0):
    """Return features and targets: of the autoencoder, the features themselves."""
    x = np.random.default_rng(seed).standard_normal((count, IN_DIM)).astype(dtype)
    return x, x.copy() if name == "tied" else np.sin(2 * x[:, :2])


def images(count, dtype="float32", seed=0):
    """Return images of one row, of different brightness and contrast, and targets."""
    x, y = rows(count, dtype=dtype, seed=seed)
    return (3 * x + 2).reshape(count, 1, 1, -1).astype(dtype), y


def shifted(count, dtype, seed):
    """Return features that are not centered, and targets."""
    x, y = rows(count, dtype=dtype, seed=seed)
    return x + np.ones_like(x), y


def penalized(count, dtype, seed):
    """Return features, and targets of the output that has some."""
    x, y = rows(count, dtype=dtype, seed=seed)
    return x, {"y": y}


OTHERS = {
    **SEVERAL,
    "digits": (Digits, SoftmaxCrossEntropy(), None, digits),
    "batch norm": (BatchNormed, MeanSquaredError(), None, images),
    "batch norm of layers": (NormedLayers, MeanSquaredError(), None, shifted),
    "batch norm of pixels": (NormedPixels, MeanSquaredError(), None, shifted),
    "stopped": (Stopped, MeanSquaredError(), None, shifted),
    "penalized": (
        Penalized,
        {"y": MeanSquaredError(), "penalty": MeanOutput()},
        {"penalty": 0.1},
        penalized,
    ),
}
"""Networks that take other rows than `NETWORKS`, as in `SEVERAL`."""


def make_network(name, **options):
    """Return one of `NETWORKS` or `OTHERS`."""
    return NETWORKS[name](**options) if name in NETWORKS else OTHERS[name][0](**options)


def make_step(name, *, seed=1, dtype="float32", batch=BATCH, **options):
    """Return a step of such a network, by NumPy unless another backend is given."""
    losses, weights = OTHERS[name][1:3] if name in OTHERS else (MeanSquaredError(), None)
    network = make_network(name, seed=seed, dtype=dtype)
    options = {"backend": "numpy", "clip_norm": 0.5, **options}
    optimizer = AdamW(network, lr=1e-2, weight_decay=0.1)
    return TrainingStep(network, losses, optimizer, batch, loss_weights=weights, **options)


def data(name, count, dtype="float32", seed=0):
    """Return features and targets of such a network."""
    if name in OTHERS:
        return OTHERS[name][3](count, dtype, seed)
    return rows(count, name, dtype, seed)


def part(values, which):
    return {n: v[which] for n, v in values.items()} if isinstance(values, dict) else values[which]


def losses_of(step, name, epochs=4, count=40):
    """Train; the last batch of each epoch is a short one."""
    x, y = data(name, count, step.mlp.dtype)
    size = step.batch_size
    batches = [slice(i, i + size) for i in range(0, count, size)]
    return [step(part(x, b), part(y, b)) for _ in range(epochs) for b in batches]


def loop_of(name, epochs, backend, callbacks=()):
    """Return a loop over 60 rows, with validation on 20 others."""
    parts = (Split(x, y, y) for x, y in (data(name, 60), data(name, 20, seed=5)))
    return Loop(
        make_step(name, backend=backend),
        LossOnly(),
        *parts,
        epochs=epochs,
        early_stopping=EarlyStopping(patience=50),
        seed=7,
        callbacks=callbacks,
    )
