"""Time training steps of custom networks, compared with PyTorch and JAX, on one thread.

Run ``python benchmarks/networks.py`` (``--smoke`` takes seconds; ``--only "tables 32"``).
The networks are: residual blocks with layer norm at several widths, two input tables with two
losses, a variational autoencoder (with random numbers drawn in advance), a convolution over images
of digits, and attention over 16 tokens.  The optimizer is Adam.  All libraries start with the same
weights and must compute the same first loss.  They are timed in turn, in windows of equal length.
Units: microseconds per step, medians over the windows.
"""

import argparse
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from machine import describe, figure, restart_clean, table
from peer_libraries import LOOPED, Steps, jax_advance, torch
from peers import hold_to, measure
from threadpoolctl import threadpool_limits

from mlpengine import Adam, MeanSquaredError, SoftmaxCrossEntropy, TrainingStep
from mlpengine.data.tables import load_dataset
from mlpengine.nn import Network
from mlpengine.ops import MeanOutput

BATCH, FEATURES, BLOCKS = 64, 16, 2
ROWS = 4 * BATCH


def of_torch() -> SimpleNamespace:
    """Return the functions of PyTorch that `forward` of a network uses."""
    f = torch.nn.functional
    return SimpleNamespace(
        tanh=torch.tanh,
        relu=torch.relu,
        exp=torch.exp,
        softmax=lambda h: torch.softmax(h, -1),
        layer_norm=lambda h, scale, shift: f.layer_norm(h, h.shape[-1:], scale, shift),
        conv2d=f.conv2d,
        mse=f.mse_loss,
        cross_entropy=f.cross_entropy,
    )


def of_jax() -> SimpleNamespace:
    """Return the functions of JAX that `forward` of a network uses."""
    import jax
    import jax.numpy as jnp

    def layer_norm(h, scale, shift):
        apart = h - h.mean(-1, keepdims=True)
        return apart / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5) * scale + shift

    def cross_entropy(h, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(h), y[:, None], 1).mean()

    return SimpleNamespace(
        tanh=jnp.tanh,
        relu=lambda h: jnp.maximum(h, 0),
        exp=jnp.exp,
        softmax=jax.nn.softmax,
        layer_norm=layer_norm,
        conv2d=lambda x, filters: jax.lax.conv_general_dilated(x, filters, (1, 1), "VALID"),
        mse=lambda h, y: jnp.square(h - y).mean(),
        cross_entropy=cross_entropy,
    )


class Peered(Network):
    """A network with losses and data; `forward` is the network in another library."""

    losses: Any = MeanSquaredError()
    loss_weights: Mapping[str, float] | None = None

    def data(self) -> tuple[Any, Any]:
        """Return features and targets of four batches."""
        x = normal(ROWS, FEATURES)
        return x, np.sin(x[:, :1])

    def loss(self, m, p, x, y):
        """Return the loss in a library with functions `m`; `p` has the parameters by name."""
        return m.mse(self.forward(m, p, x), y)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("f4")


class Residual(Peered):
    """Two blocks of layer norm and dense layers, each added to what it reads."""

    def __init__(self, width: int) -> None:
        shapes = {"in": (width, FEATURES), "out": (1, width)}
        for i in range(BLOCKS):
            shapes |= {f"scale {i}": np.ones(width), f"shift {i}": width}
            shapes |= {f"up {i}": (2 * width, width), f"down {i}": (width, 2 * width)}
        super().__init__(FEATURES, shapes, seed=0)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("in"))
        for i in range(BLOCKS):
            z = h.layer_norm(p(f"scale {i}"), p(f"shift {i}")).linear(p(f"up {i}")).relu()
            h = h + z.linear(p(f"down {i}"))
        return h.linear(p("out"))

    def forward(self, m, p, x):
        h = x @ p["in"].T
        for i in range(BLOCKS):
            z = m.layer_norm(h, p[f"scale {i}"], p[f"shift {i}"])
            h = h + m.relu(z @ p[f"up {i}"].T) @ p[f"down {i}"].T
        return h @ p["out"].T


class Tables(Peered):
    """Two input tables, and two outputs: a number and one of three classes."""

    losses = {"price": MeanSquaredError(), "class": SoftmaxCrossEntropy()}  # noqa: RUF012
    loss_weights = {"class": 0.3}  # noqa: RUF012

    def __init__(self, width: int) -> None:
        shapes = {"left.weight": (width, FEATURES), "right.weight": (width, FEATURES)}
        shapes |= {"bias": width, "up": (width, width), "price": (1, width), "class": (3, width)}
        super().__init__({"left": FEATURES, "right": FEATURES}, shapes, seed=0)

    def record(self, tape, left, right):
        p = tape.parameter
        h = left.linear(p("left.weight")) + right.linear(p("right.weight"), p("bias"))
        h = h.relu().linear(p("up")).relu()
        return {"price": h.linear(p("price")), "class": h.linear(p("class"))}

    def data(self):
        x = normal(ROWS, 2 * FEATURES)
        left, right = np.ascontiguousarray(x[:, :FEATURES]), np.ascontiguousarray(x[:, FEATURES:])
        targets = {"price": np.sin(left[:, :1]), "class": right.argmax(axis=1) % 3}
        return {"left": left, "right": right}, targets

    def loss(self, m, p, x, y):
        h = x["left"] @ p["left.weight"].T + x["right"] @ p["right.weight"].T + p["bias"]
        h = m.relu(m.relu(h) @ p["up"].T)
        classes = m.cross_entropy(h @ p["class"].T, y["class"])
        return m.mse(h @ p["price"].T, y["price"]) + 0.3 * classes


class Variational(Peered):
    """A variational autoencoder; the second output is the KL divergence."""

    losses = {"x": MeanSquaredError(), "divergence": MeanOutput()}  # noqa: RUF012
    loss_weights = {"divergence": 0.01}  # noqa: RUF012

    def __init__(self, width: int) -> None:
        shapes = {"in": (width, FEATURES), "mean": (8, width), "logs": (8, width)}
        shapes |= {"up": (width, 8), "out": (FEATURES, width)}
        super().__init__({"x": FEATURES, "noise": 8}, shapes, seed=0)

    def record(self, tape, x, noise):
        p = tape.parameter
        h = x.linear(p("in")).tanh()
        mean, logs = h.linear(p("mean")), h.linear(p("logs"))
        code = mean + (logs * 0.5).exp() * noise
        divergence = (mean * mean + logs.exp() - logs - 1).sum(1, keepdims=True) * 0.5
        return {"x": code.linear(p("up")).tanh().linear(p("out")), "divergence": divergence}

    def data(self):
        x = normal(ROWS, FEATURES + 8)
        given = {"x": np.ascontiguousarray(x[:, :FEATURES]), "noise": x[:, FEATURES:].copy()}
        return given, {"x": given["x"].copy()}

    def loss(self, m, p, x, y):
        h = m.tanh(x["x"] @ p["in"].T)
        mean, logs = h @ p["mean"].T, h @ p["logs"].T
        code = mean + m.exp(logs * 0.5) * x["noise"]
        divergence = (mean * mean + m.exp(logs) - logs - 1).sum(1) * 0.5
        again = m.tanh(code @ p["up"].T) @ p["out"].T
        return m.mse(again, y["x"]) + 0.01 * divergence.mean()


class Convolution(Peered):
    """A small convolutional network for images of digits, with logits of ten classes."""

    losses = SoftmaxCrossEntropy()

    def __init__(self, width: int) -> None:
        shapes = {"filters": (width, 1, 3, 3), "out": (10, 36 * width), "bias": 10}
        super().__init__((1, 8, 8), shapes, seed=0)

    def record(self, tape, x):
        p = tape.parameter
        return (
            x.conv2d(p("filters")).relu().reshape(-1, p("out").shape[1]).linear(p("out"), p("bias"))
        )

    def data(self):
        digits = load_dataset("digits").rows(np.arange(ROWS))
        *pixels, digit = (digits[name].values for name in digits.names)
        images = np.stack(pixels, axis=1).reshape(-1, 1, 8, 8) / 16
        return images.astype("f4"), digit.astype(np.int64)

    def loss(self, m, p, x, y):
        h = m.relu(m.conv2d(x, p["filters"])).reshape(len(x), -1)
        return m.cross_entropy(h @ p["out"].T + p["bias"], y)


class Attention(Peered):
    """Self-attention over 16 tokens with learned positions, then the mean of the tokens."""

    def __init__(self, width: int) -> None:
        self.width = width
        shapes = {"embed": (16 * width, FEATURES), "places": (16, width), "scale": np.ones(width)}
        shapes |= dict.fromkeys(("query", "key", "value"), (width, width))
        shapes |= {"shift": width, "out": (1, width)}
        super().__init__(FEATURES, shapes, seed=0)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("embed")).reshape(-1, 16, self.width) + p("places")
        query, key, value = (h.linear(p(name)) for name in ("query", "key", "value"))
        near = (query @ key.transpose(0, 2, 1) * self.width**-0.5).softmax()
        return (h + near @ value).layer_norm(p("scale"), p("shift")).mean(axis=1).linear(p("out"))

    def forward(self, m, p, x):
        h = (x @ p["embed"].T).reshape(-1, 16, self.width) + p["places"]
        query, key, value = (h @ p[name].T for name in ("query", "key", "value"))
        near = m.softmax(query @ key.swapaxes(1, 2) * self.width**-0.5)
        return m.layer_norm(h + near @ value, p["scale"], p["shift"]).mean(1) @ p["out"].T


@dataclass(frozen=True)
class Work:
    """A network, and features and targets of four batches."""

    kind: type[Peered]
    width: int

    @property
    def name(self) -> str:
        return f"{self.kind.__name__.lower()} {self.width}"

    def order(self) -> np.ndarray:
        rng = np.random.default_rng(1)
        return np.concatenate([rng.permutation(ROWS) for _ in range(LOOPED // 4)])


WORKS = (
    *(Work(Residual, width) for width in (32, 128, 512)),
    *(Work(Tables, 32), Work(Variational, 32), Work(Convolution, 8), Work(Attention, 32)),
)
SMOKE = ("residual 32", "tables 32", "convolution 8")


def each(function, values):
    """Return function(values), or a dictionary of results for a dictionary of arrays."""
    if isinstance(values, dict):
        return {name: function(value) for name, value in values.items()}
    return function(values)


def engine(work: Work, backend: str, *, looped: bool = False) -> Steps:
    network = work.kind(work.width)
    weights = network.loss_weights
    step = TrainingStep(
        network, network.losses, Adam(network), BATCH, backend=backend, loss_weights=weights
    )
    x, y = network.data()
    if looped:
        order = work.order()
        return (lambda: step.run_many(x, y, order)), LOOPED
    x, y = (each(lambda a: a[:BATCH], values) for values in (x, y))
    return (lambda: step(x, y)), 1


def torch_steps(work: Work, *, compiled: bool) -> Steps | None:
    """Return the eager step with the fused optimizer, or a compiled step; None without PyTorch."""
    if torch is None:
        return None
    torch.set_num_threads(1)
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.reset()  # else later networks would run eagerly, without a warning
    network, functions = work.kind(work.width), of_torch()
    state = network.state_dict()
    p = {name: torch.tensor(value, requires_grad=True) for name, value in state.items()}
    optimizer = torch.optim.Adam(p.values(), lr=1e-3, **({} if compiled else {"fused": True}))
    x, y = (each(lambda a: torch.from_numpy(a[:BATCH]), values) for values in network.data())

    def step() -> object:
        optimizer.zero_grad()
        value = network.loss(functions, p, x, y)
        value.backward()
        optimizer.step()
        return value

    return (torch.compile(step) if compiled else step), 1


def jax_steps(work: Work, *, looped: bool) -> Steps | None:
    """Return the jitted step with donated buffers, or `LOOPED` of them in one call."""
    try:
        import jax
    except ImportError:
        return None
    import jax.numpy as jnp

    network, functions = work.kind(work.width), of_jax()
    params = {name: jnp.array(value) for name, value in network.state_dict().items()}
    zeros = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)]
    holder = [(params, *zeros, jnp.zeros((), "f4"))]
    x, y = (each(jnp.asarray, values) for values in network.data())

    advance = jax_advance(partial(network.loss, functions))

    def rows_of(values, rows):
        return each(lambda a: a[rows], values)

    def many(state, x, y, order):
        return jax.lax.scan(
            lambda s, rows: advance(s, rows_of(x, rows), rows_of(y, rows)), state, order
        )

    run = jax.jit(advance, donate_argnums=0)
    arguments = [rows_of(x, slice(0, BATCH)), rows_of(y, slice(0, BATCH))]
    if looped:
        order = jnp.asarray(work.order().reshape(LOOPED, BATCH))
        run, arguments = jax.jit(many, donate_argnums=0), [x, y, order]

    def step() -> object:
        holder[0], value = run(holder[0], *arguments)
        return value.block_until_ready()

    return step, LOOPED if looped else 1


def check_losses(work: Work, runs: dict[str, Steps]) -> None:
    """Check that all libraries compute the same loss for the same rows.  Raises: SystemExit."""
    first = {
        name: float(np.ravel(value[0] if isinstance(value, tuple) else value.tolist())[0])
        if not isinstance(value, float)
        else value
        for name, value in ((name, run()) for name, (run, _) in runs.items())
    }
    for kind in (True, False):  # a looped run begins with other rows
        losses = {name: loss for name, loss in first.items() if ("looped" in name) == kind}
        if losses and not np.allclose([*losses.values()], next(iter(losses.values())), rtol=1e-4):
            raise SystemExit(f"networks: {work.name}: losses differ: {losses}")


def contestants(work: Work, *, fast: bool) -> dict[str, Steps]:
    candidates = {
        "compiled, looped": engine(work, "compiled", looped=True),
        "compiled, per call": engine(work, "compiled"),
        "NumPy": engine(work, "numpy"),
        "JAX, looped": jax_steps(work, looped=True),
        "JAX, per call": jax_steps(work, looped=False),
        "torch eager": torch_steps(work, compiled=False),
        "torch.compile": None if fast else torch_steps(work, compiled=True),
    }
    return {name: steps for name, steps in candidates.items() if steps is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a fraction of a second a contestant")
    parser.add_argument("--only", nargs="+", choices=[work.name for work in WORKS])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each contestant")
    args = parser.parse_args()
    names = args.only or (SMOKE if args.smoke else [work.name for work in WORKS])
    seconds, windows = (0.05, 3) if args.smoke else (args.seconds, 100)
    hold_to(1)
    rows, heads = [], []
    with threadpool_limits(1):
        for work in (work for work in WORKS if work.name in names):
            runs = contestants(work, fast=args.smoke)
            check_losses(work, runs)
            if not rows:
                describe()
            times = measure(runs, seconds, windows)
            heads = ["one thread", *times]
            rows.append([work.name, *(figure(statistics.median(v)) for v in times.values())])
    print(f"\n{table(heads, rows)}\n", flush=True)


if __name__ == "__main__":
    restart_clean()
    np.seterr(all="ignore")
    main()
