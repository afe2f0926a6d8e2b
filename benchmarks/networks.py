"""Training steps of networks of one's own against PyTorch and JAX, on one thread.

Run ``python benchmarks/networks.py`` (``--smoke`` for seconds, ``--only "tied 64"``, ``--fast``
without torch.compile).  A residual network with layer norm at several widths, a tied autoencoder,
a Siamese network, a soft mixture of experts, attention, a convolution, two tables with two losses,
and a variational autoencoder, by Adam.  All contestants of a network run in turn, window by window;
units: microseconds a step, medians over the windows.
"""

import argparse
import statistics
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from machine import describe, figure, restart_clean, table
from peer_libraries import LOOPED, Steps
from peers import hold_to, measure
from products import torch
from threadpoolctl import threadpool_limits

from mlpengine import Adam, MeanSquaredError, SoftmaxCrossEntropy, TrainingStep
from mlpengine.nn import Network
from mlpengine.ops import MeanOutput

BATCH, FEATURES, BLOCKS, EXPERTS, TOKENS, CODE = 64, 16, 2, 4, 16, 4


class Compared(Network):
    """A network that is written for PyTorch and JAX, too; `torch` and `jax` are its output."""

    losses: ClassVar[Any] = MeanSquaredError()
    loss_weights: ClassVar[dict[str, float] | None] = None

    def torch_loss(self, p, x, y):
        return torch.nn.functional.mse_loss(self.torch(p, x), y)

    def jax_loss(self, jnp, p, x, y, key):
        return jnp.square(self.jax(jnp, p, x) - y).mean()


class Residual(Compared):
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

    def torch(self, p, x):
        f = torch.nn.functional
        h = x @ p["in"].T
        for i in range(BLOCKS):
            z = f.layer_norm(h, h.shape[1:], p[f"scale {i}"], p[f"shift {i}"])
            h = h + torch.relu(z @ p[f"up {i}"].T) @ p[f"down {i}"].T
        return h @ p["out"].T

    def jax(self, jnp, p, x):
        h = x @ p["in"].T
        for i in range(BLOCKS):
            z = (h - h.mean(1, keepdims=True)) / jnp.sqrt(h.var(1, keepdims=True) + 1e-5)
            z = z * p[f"scale {i}"] + p[f"shift {i}"]
            h = h + jnp.maximum(z @ p[f"up {i}"].T, 0) @ p[f"down {i}"].T
        return h @ p["out"].T


class Tied(Compared):
    """An autoencoder whose decoder has the transposed weights of its encoder."""

    def __init__(self, width: int) -> None:
        super().__init__(FEATURES, {"weight": (width, FEATURES), "code": width}, seed=0)

    def record(self, tape, x):
        p = tape.parameter
        return x.linear(p("weight"), p("code")).tanh() @ p("weight")

    def torch(self, p, x):
        return torch.tanh(x @ p["weight"].T + p["code"]) @ p["weight"]

    def jax(self, jnp, p, x):
        return jnp.tanh(x @ p["weight"].T + p["code"]) @ p["weight"]


class Siamese(Compared):
    """Both halves of a row through the same layers, and how far apart they come out."""

    def __init__(self, width: int) -> None:
        shapes = {"in": (width, FEATURES // 2), "deep": (width, width), "out": (1, width)}
        super().__init__(FEATURES, shapes, seed=0)

    def record(self, tape, x):
        p, half = tape.parameter, FEATURES // 2
        one, other = (
            h.linear(p("in")).tanh().linear(p("deep")).tanh() for h in (x[:, :half], x[:, half:])
        )
        return (one - other).abs().linear(p("out"))

    def _forward(self, lib, p, x):
        half = FEATURES // 2
        one, other = (
            lib.tanh(lib.tanh(h @ p["in"].T) @ p["deep"].T) for h in (x[:, :half], x[:, half:])
        )
        return abs(one - other) @ p["out"].T

    def torch(self, p, x):
        return self._forward(torch, p, x)

    def jax(self, jnp, p, x):
        return self._forward(jnp, p, x)


class Mixture(Compared):
    """A soft mixture of experts: each row has its own weights of what they compute."""

    def __init__(self, width: int) -> None:
        shapes = {"gate": (EXPERTS, FEATURES), "experts": (EXPERTS * width, FEATURES)}
        super().__init__(FEATURES, {**shapes, "out": (1, width)}, seed=0)

    def record(self, tape, x):
        p, rows = tape.parameter, x.shape[0]
        gate = x.linear(p("gate")).softmax().reshape(rows, EXPERTS, 1)
        each = x.linear(p("experts")).reshape(rows, EXPERTS, -1).tanh()
        return (gate * each).sum(axis=1).linear(p("out"))

    def torch(self, p, x):
        gate = torch.softmax(x @ p["gate"].T, 1)[:, :, None]
        each = torch.tanh((x @ p["experts"].T).reshape(len(x), EXPERTS, -1))
        return (gate * each).sum(1) @ p["out"].T

    def jax(self, jnp, p, x):
        scores = x @ p["gate"].T
        gate = jnp.exp(scores - scores.max(1, keepdims=True))
        gate = (gate / gate.sum(1, keepdims=True))[:, :, None]
        each = jnp.tanh((x @ p["experts"].T).reshape(len(x), EXPERTS, -1))
        return (gate * each).sum(1) @ p["out"].T


class Attention(Compared):
    """Self-attention over 16 tokens, each with a learned place, and the mean of what it finds."""

    def __init__(self, width: int) -> None:
        shapes = dict.fromkeys(("query", "key", "value"), (width, width))
        shapes |= {"embed": (TOKENS * width, FEATURES), "places": (TOKENS, width)}
        super().__init__(FEATURES, {**shapes, "out": (1, width)}, seed=0)

    def record(self, tape, x):
        p, width = tape.parameter, self.params.views["out"].shape[1]
        h = x.linear(p("embed")).reshape(x.shape[0], TOKENS, width) + p("places")
        query, key, value = (h.linear(p(name)) for name in ("query", "key", "value"))
        near = (query @ key.transpose(0, 2, 1) * width**-0.5).softmax()
        return (h + near @ value).mean(axis=1).linear(p("out"))

    def _forward(self, softmax, p, x):
        width = p["out"].shape[1]
        h = (x @ p["embed"].T).reshape(len(x), TOKENS, width) + p["places"]
        query, key, value = (h @ p[name].T for name in ("query", "key", "value"))
        near = softmax(query @ key.swapaxes(1, 2) * width**-0.5)
        return (h + near @ value).mean(1) @ p["out"].T

    def torch(self, p, x):
        return self._forward(lambda scores: torch.softmax(scores, 2), p, x)

    def jax(self, jnp, p, x):
        def softmax(scores):
            raised = jnp.exp(scores - scores.max(2, keepdims=True))
            return raised / raised.sum(2, keepdims=True)

        return self._forward(softmax, p, x)


class Convolution(Compared):
    """A convolution of three by three over images of eight by eight, and a dense layer."""

    def __init__(self, width: int) -> None:
        shapes = {"filters": (width, 1, 3, 3), "out": (1, 36 * width)}
        super().__init__((1, 8, 8), shapes, seed=0)

    def record(self, tape, x):
        h = x.conv2d(tape.parameter("filters")).relu()
        return h.reshape(x.shape[0], -1).linear(tape.parameter("out"))

    def torch(self, p, x):
        h = torch.relu(torch.nn.functional.conv2d(x, p["filters"]))
        return h.flatten(1) @ p["out"].T

    def jax(self, jnp, p, x):
        from jax.lax import conv

        h = jnp.maximum(conv(x, p["filters"], (1, 1), "VALID"), 0)
        return h.reshape(len(x), -1) @ p["out"].T


class TwoTables(Compared):
    """Two tables of features, and two heads: a number and one class of three."""

    losses: ClassVar[Any] = {"price": MeanSquaredError(), "class": SoftmaxCrossEntropy()}
    loss_weights: ClassVar = {"class": 0.3}

    def __init__(self, width: int) -> None:
        shapes = {"left": (width, FEATURES), "right": (width, FEATURES), "bias": width}
        shapes |= {"price": (1, width), "class": (3, width)}
        super().__init__({"left": FEATURES, "right": FEATURES}, shapes, seed=0)

    def record(self, tape, left, right):
        p = tape.parameter
        h = (left.linear(p("left")) + right.linear(p("right"), p("bias"))).tanh()
        return {"price": h.linear(p("price")), "class": h.linear(p("class"))}

    def torch_loss(self, p, x, y):
        f = torch.nn.functional
        h = torch.tanh(x["left"] @ p["left"].T + x["right"] @ p["right"].T + p["bias"])
        price = f.mse_loss(h @ p["price"].T, y["price"])
        return price + 0.3 * f.cross_entropy(h @ p["class"].T, y["class"])

    def jax_loss(self, jnp, p, x, y, key):
        h = jnp.tanh(x["left"] @ p["left"].T + x["right"] @ p["right"].T + p["bias"])
        scores = h @ p["class"].T
        scores = scores - scores.max(1, keepdims=True)
        chosen = jnp.take_along_axis(scores, y["class"][:, None], 1)[:, 0]
        entropy = (jnp.log(jnp.exp(scores).sum(1)) - chosen).mean()
        return jnp.square(h @ p["price"].T - y["price"]).mean() + 0.3 * entropy


class Variational(Compared):
    """A variational autoencoder, whose second output is the divergence of its code."""

    losses: ClassVar[Any] = {"x": MeanSquaredError(), "kl": MeanOutput()}
    loss_weights: ClassVar = {"kl": 0.01}

    def __init__(self, width: int) -> None:
        shapes = {"in": (width, FEATURES), "code": (2 * CODE, width), "up": (width, CODE)}
        super().__init__(FEATURES, {**shapes, "out": (FEATURES, width)}, seed=0)

    def record(self, tape, x):
        p = tape.parameter
        mean, logs = x.linear(p("in")).tanh().linear(p("code")).chunk(2, axis=1)
        kl = (mean * mean + logs.exp() - logs - 1).sum(1, keepdims=True) * 0.5
        code = tape.normal(mean, (logs * 0.5).exp())
        return {"x": code.linear(p("up")).tanh().linear(p("out")), "kl": kl}

    def _loss(self, lib, p, x, normals):
        h = lib.tanh(x @ p["in"].T) @ p["code"].T
        mean, logs = h[:, :CODE], h[:, CODE:]
        kl = (mean**2 + lib.exp(logs) - logs - 1).sum(1).mean() / 2
        code = mean + lib.exp(logs / 2) * normals
        output = lib.tanh(code @ p["up"].T) @ p["out"].T
        return lib.square(output - x).mean() + 0.01 * kl

    def torch_loss(self, p, x, y):
        return self._loss(torch, p, x, torch.randn(len(x), CODE))

    def jax_loss(self, jnp, p, x, y, key):
        from jax.random import normal

        return self._loss(jnp, p, x, normal(key, (len(x), CODE)))


def each(function, values):
    """Return what a function makes of an array, or of each one of several by name."""
    if isinstance(values, dict):
        return {name: function(array) for name, array in values.items()}
    return function(values)


@dataclass(frozen=True)
class Work:
    """A network, and features and targets of four batches."""

    kind: type[Compared]
    width: int

    @property
    def name(self) -> str:
        name = {TwoTables: "two tables"}.get(self.kind, self.kind.__name__.lower())
        return f"{name} {self.width}"

    def data(self) -> tuple[Any, Any]:
        shape = (1, 8, 8) if self.kind is Convolution else (FEATURES,)
        x = np.random.default_rng(0).standard_normal((4 * BATCH, *shape)).astype("f4")
        if self.kind is TwoTables:
            y = {"price": np.sin(x[:, :1]), "class": x.argmax(axis=1) % 3}
            return {"left": x, "right": x[::-1].copy()}, y
        if self.kind is Variational:
            return x, {"x": x.copy()}
        return x, x.copy() if self.kind is Tied else np.sin(x.reshape(len(x), -1)[:, :1])

    def order(self) -> np.ndarray:
        rng = np.random.default_rng(1)
        return np.concatenate([rng.permutation(4 * BATCH) for _ in range(LOOPED // 4)])


WORKS = (
    *(Work(Residual, width) for width in (32, 128, 512)),
    *(Work(kind, 64) for kind in (TwoTables, Tied, Variational, Mixture, Siamese)),
    *(Work(kind, 8) for kind in (Attention, Convolution)),
)
SMOKE = ("residual 32", "tied 64")


def engine(work: Work, backend: str, *, looped: bool = False) -> Steps:
    network = work.kind(work.width)
    options = {"backend": backend, "loss_weights": network.loss_weights}
    step = TrainingStep(network, network.losses, Adam(network), BATCH, **options)
    x, y = work.data()
    if looped:
        order = work.order()
        return (lambda: step.run_many(x, y, order)), LOOPED
    x, y = (each(lambda rows: rows[:BATCH], values) for values in (x, y))
    return (lambda: step(x, y)), 1


def torch_steps(work: Work, *, compiled: bool) -> Steps | None:
    """Return the eager step with the fused optimizer, or a compiled one; None without PyTorch."""
    if torch is None:
        return None
    torch.set_num_threads(1)
    network = work.kind(work.width)
    state = network.state_dict()
    p = {name: torch.tensor(value, requires_grad=True) for name, value in state.items()}
    optimizer = torch.optim.Adam(p.values(), lr=1e-3, **({} if compiled else {"fused": True}))
    x, y = (each(lambda a: torch.from_numpy(a[:BATCH]), values) for values in work.data())

    def step() -> object:
        optimizer.zero_grad()
        value = network.torch_loss(p, x, y)
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

    network = work.kind(work.width)
    params = {name: jnp.array(value) for name, value in network.state_dict().items()}
    zeros = [jax.tree.map(jnp.zeros_like, params) for _ in range(2)]
    holder = [(params, *zeros, jnp.zeros((), "f4"))]
    x, y = (each(jnp.asarray, values) for values in work.data())

    def loss_of(p, x, y, t):
        key = jax.random.fold_in(jax.random.key(0), t.astype(int))
        return network.jax_loss(jnp, p, x, y, key)

    def advance(state, x, y):
        p, m, v, t = state
        value, grads = jax.value_and_grad(loss_of)(p, x, y, t)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        rate = 1e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        p = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), p, m, v)
        return (p, m, v, t), value

    def many(state, x, y, order):
        def one(state, rows):
            return advance(state, *(each(lambda a: a[rows], values) for values in (x, y)))

        return jax.lax.scan(one, state, order)

    first = [each(lambda a: a[:BATCH], values) for values in (x, y)]
    run, arguments = jax.jit(advance, donate_argnums=0), first
    if looped:
        order = jnp.asarray(work.order().reshape(LOOPED, BATCH))
        run, arguments = jax.jit(many, donate_argnums=0), [x, y, order]

    def step() -> object:
        holder[0], value = run(holder[0], *arguments)
        return value.block_until_ready()

    return step, LOOPED if looped else 1


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
    parser.add_argument("--fast", action="store_true", help="without torch.compile, which is slow")
    parser.add_argument("--only", nargs="+", choices=[work.name for work in WORKS])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each contestant")
    args = parser.parse_args()
    names = args.only or (SMOKE if args.smoke else [work.name for work in WORKS])
    seconds, windows = (0.05, 3) if args.smoke else (args.seconds, 100)
    hold_to(1)
    rows, heads = [], []
    with threadpool_limits(1):
        for work in (work for work in WORKS if work.name in names):
            runs = contestants(work, fast=args.fast or args.smoke)
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
