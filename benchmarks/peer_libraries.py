"""The training step of a workload in other libraries, each in its fastest form."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from mlpengine import MeanSquaredError, Mlp, SoftmaxCrossEntropy

try:
    import torch
except ImportError:
    torch = None

Steps = tuple[Callable[[], object], int]
"""A function, and the number of training steps that one call makes."""

LOOPED = 64
"""Steps in one call, for libraries that can loop without Python."""


@dataclass(frozen=True)
class Workload:
    """A network, a batch, a loss and an optimizer; `double` measures the engine in float64, too."""

    name: str
    sizes: tuple[int, ...]
    batch: int
    activation: str = "relu"
    loss: str = "cross_entropy"
    optimizer: str = "adam"
    double: bool = False

    @property
    def title(self) -> str:
        shape = "-".join(map(str, self.sizes))
        return f"{self.name}: {shape}, batch {self.batch}, {self.activation}, {self.optimizer}"

    @property
    def label(self) -> str:
        """The name in the README; the optimizer is named unless it is Adam."""
        name = f"{'-'.join(map(str, self.sizes))}, batch {self.batch:,}"
        return name if self.optimizer == "adam" else f"{name}, {self.optimizer.upper()}"

    def data(self, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
        """Return features and targets of four batches."""
        rng = np.random.default_rng(0)
        rows = 4 * self.batch
        x = rng.standard_normal((rows, self.sizes[0])).astype(dtype)
        if self.loss == "mse":
            return x, rng.standard_normal((rows, self.sizes[-1])).astype(dtype)
        return x, rng.integers(0, self.sizes[-1], rows)

    def order(self, steps: int) -> np.ndarray:
        """Return shuffled row indices for `steps` steps."""
        rng, rows = np.random.default_rng(1), 4 * self.batch
        epochs = [rng.permutation(rows) for _ in range(-(-steps // 4))]
        return np.concatenate(epochs)[: steps * self.batch]

    def mlp(self, dtype: str = "float32") -> Mlp:
        return Mlp(self.sizes, activation=self.activation, seed=0, dtype=dtype)

    def engine_loss(self) -> MeanSquaredError | SoftmaxCrossEntropy:
        return MeanSquaredError() if self.loss == "mse" else SoftmaxCrossEntropy()


COMPILE_MODES = ("default", "max-autotune-no-cudagraphs")
"""The modes of torch.compile.  For each workload the faster mode is measured."""


def torch_compiled(work: Workload, threads: int) -> Steps | None:
    """Return torch.compile of the whole step in its fastest mode; None without PyTorch.

    Compiled code is dropped before each mode: otherwise, after a few workloads, PyTorch reaches its
    limit of recompilations and runs later workloads eagerly without a warning.
    """
    if torch is None:
        return None
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    speeds = {}
    for mode in COMPILE_MODES:
        torch._dynamo.reset()
        run = torch.compile(torch_steps(work, threads, compiled=True)[0], mode=mode)
        for _ in range(5):
            run()
        start = time.perf_counter()
        for _ in range(20):
            run()
        speeds[mode] = time.perf_counter() - start
    best = min(speeds, key=speeds.__getitem__)
    if best != mode:
        torch._dynamo.reset()
        run = torch.compile(torch_steps(work, threads, compiled=True)[0], mode=best)
    return run, 1


def torch_steps(work: Workload, threads: int, *, compiled: bool = False) -> Steps | None:
    """Return the eager step with the fused optimizer, or a step for torch.compile."""
    if torch is None:
        return None
    torch.set_num_threads(threads)
    activation = torch.nn.Tanh if work.activation == "tanh" else torch.nn.ReLU
    modules: list[torch.nn.Module] = []
    for i, (in_dim, out_dim) in enumerate(pairwise(work.sizes)):
        modules += [torch.nn.Linear(in_dim, out_dim)]
        modules += [activation()] if i < len(work.sizes) - 2 else []
    net = torch.nn.Sequential(*modules)
    kind = torch.optim.Adam if work.optimizer == "adam" else torch.optim.SGD
    options = {} if compiled else {"fused": True}
    optimizer = kind(net.parameters(), lr=1e-3, **options)
    loss_of = torch.nn.MSELoss() if work.loss == "mse" else torch.nn.CrossEntropyLoss()
    x, y = (torch.from_numpy(a[: work.batch]) for a in work.data())

    def step() -> object:
        optimizer.zero_grad()
        value = loss_of(net(x), y)
        value.backward()
        optimizer.step()
        return value

    return step, 1


def jax_steps(work: Workload, *, looped: bool) -> Steps | None:
    """Return the jitted step with donated buffers, or `LOOPED` of them in one call."""
    try:
        import jax
    except ImportError:
        return None
    import jax.numpy as jnp

    advance = _jax_step(work)
    mlp = work.mlp()
    params = [(jnp.array(w), jnp.array(b)) for w, b in zip(mlp.weights, mlp.biases, strict=True)]
    zeros = jax.tree.map(jnp.zeros_like, params)
    holder = [(params, zeros, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), "f4"))]
    x, y = (jnp.asarray(a) for a in work.data())
    if looped:
        order = jnp.asarray(work.order(LOOPED).reshape(LOOPED, work.batch))

        def many(state, x, y, order):
            return jax.lax.scan(lambda s, rows: advance(s, x[rows], y[rows]), state, order)

        run, arguments = jax.jit(many, donate_argnums=0), (x, y, order)
    else:
        run, arguments = jax.jit(advance, donate_argnums=0), (x[: work.batch], y[: work.batch])

    def step() -> object:
        holder[0], value = run(holder[0], *arguments)
        return value.block_until_ready()

    return step, LOOPED if looped else 1


def jax_population(work: Workload, orders: np.ndarray) -> Steps | None:
    """Return the looped step of a batch of networks, one network for each of `orders`."""
    try:
        import jax
    except ImportError:
        return None
    import jax.numpy as jnp

    advance, steps = _jax_step(work), orders.shape[1] // work.batch
    nets = [Mlp(work.sizes, activation=work.activation, seed=k) for k in range(len(orders))]
    layers = range(len(work.sizes) - 1)
    params = [
        tuple(jnp.stack([getattr(net, name)[i] for net in nets]) for name in ("weights", "biases"))
        for i in layers
    ]
    first, second = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    holder = [(params, first, second, jnp.zeros(len(nets), "f4"))]
    x, y = (jnp.asarray(a) for a in work.data())
    batches = jnp.asarray(orders.reshape(len(nets), steps, work.batch))

    def many(state, order):
        return jax.lax.scan(lambda s, rows: advance(s, x[rows], y[rows]), state, order)

    run = jax.jit(jax.vmap(many), donate_argnums=0)

    def call() -> object:
        holder[0], value = run(holder[0], batches)
        return value.block_until_ready()

    return call, steps


def _jax_step(work: Workload):
    """Return the step from state and batch to the next state and the loss."""
    return jax_advance(partial(_jax_loss, work), work.optimizer)


def jax_advance(loss_of: Callable[..., object], optimizer: str = "adam"):
    """Return a function from (state, x, y) to the next state and the loss of (params, x, y)."""
    import jax
    import jax.numpy as jnp

    def advance(state, x, y):
        params, first, second, t = state
        value, grads = jax.value_and_grad(loss_of)(params, x, y)
        if optimizer == "sgd":
            params = jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)
            return (params, first, second, t), value
        t = t + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        rate, scale = 1e-3 / (1 - 0.9**t), 1 / (1 - 0.999**t)
        params = jax.tree.map(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v * scale) + 1e-8), params, first, second
        )
        return (params, first, second, t), value

    return advance


def _jax_loss(work: Workload, params, x, y):
    import jax
    import jax.numpy as jnp

    for i, (w, b) in enumerate(params):
        x = x @ w.T + b
        if i < len(params) - 1:
            x = jnp.tanh(x) if work.activation == "tanh" else jax.nn.relu(x)
    if work.loss == "mse":
        return jnp.mean((x - y) ** 2)
    picked = jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], axis=1)
    return -jnp.mean(picked)


def scikit_steps(work: Workload) -> Steps | None:
    """Return the step of scikit-learn; None if it is not installed."""
    try:
        from sklearn.neural_network import MLPClassifier, MLPRegressor
    except ImportError:
        return None
    kind = MLPRegressor if work.loss == "mse" else MLPClassifier
    x, y = (a[: work.batch] for a in work.data())
    net = kind(
        hidden_layer_sizes=work.sizes[1:-1],
        activation=work.activation,
        solver=work.optimizer,
        batch_size=work.batch,
        alpha=0,
    )
    if work.loss == "mse":
        target = y.ravel() if y.shape[1] == 1 else y
        return (lambda: net.partial_fit(x, target)), 1
    classes = np.arange(work.sizes[-1])
    return (lambda: net.partial_fit(x, y, classes=classes)), 1


def product_steps(work: Workload, threads: int) -> dict[str, Steps]:
    """Return only the matrix products of a step, in each installed library.

    A training step that uses the products of this library cannot be faster.
    """
    rng = np.random.default_rng(0)
    products = []
    for i, (in_dim, out_dim) in enumerate(pairwise(work.sizes)):
        shapes = {"x": (work.batch, in_dim), "w": (out_dim, in_dim), "dy": (work.batch, out_dim)}
        data = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
        products += [(form, data) for form in ("y", "dw", *(["dx"] if i else []))]
    makers: dict[str, Callable[..., Callable[[], object]]] = {"NumPy": blas}
    if torch is not None:
        torch.set_num_threads(threads)
        makers["PyTorch"] = torch_product
    steps = {}
    for name, make in makers.items():
        calls = [make(form, data) for form, data in products]
        steps[f"products, {name}"] = (partial(_run_all, calls), 1)
    return steps


def blas(form: str, data: dict[str, np.ndarray]) -> Callable[[], object]:
    """Return the product in NumPy."""
    x, w, dy = data["x"], data["w"], data["dy"]
    a, b = {"y": (x, w.T), "dw": (dy.T, x), "dx": (dy, w)}[form]
    out = np.empty((a.shape[0], b.shape[1]), "f4")
    return lambda: np.dot(a, b, out)


def torch_product(form: str, data: dict[str, np.ndarray]) -> Callable[[], object]:
    """Return the product in PyTorch, with PyTorch's current number of threads."""
    x, w, dy = (torch.from_numpy(data[name]) for name in ("x", "w", "dy"))
    a, b = {"y": (x, w.T), "dw": (dy.T, x), "dx": (dy, w)}[form]
    out = torch.empty((a.shape[0], b.shape[1]))
    return lambda: torch.mm(a, b, out=out)


def _run_all(calls: list[Callable[[], object]]) -> None:
    for run in calls:
        run()
