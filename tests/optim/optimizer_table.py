"""The table of optimizers: how to make each here and in PyTorch, and its formula in float64.

Run as a script, where torch is installed, it writes the golden values again.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlpengine.core.spec import Array, Spec
from mlpengine.optim import Adam, AdamW, CosineSchedule, Lion, Optimizer, RmsProp, Sgd
from mlpengine.tape.flat import Flat

GOLDEN = Path(__file__).with_name("optimizers_torch.json")
GOLDEN_STEPS = (1, 2, 3, 10, 50, 200)
STEPS = 200
SHAPES = {"0.weight": (3, 2), "0.bias": (3,), "2.weight": (1, 3), "2.bias": (1,)}
WEIGHTS = np.concatenate([np.full(np.prod(s), float(len(s) > 1)) for s in SHAPES.values()])
PLACES = np.arange(WEIGHTS.size, dtype=np.float64)


def start() -> Array:
    return np.cos(1.0 + 2.0 * PLACES)


def gradient(params: Array, step: int) -> Array:
    """A bowl with a moving center: every entry at its own pace, so no two steps are alike."""
    return (0.5 + 0.1 * PLACES) * params + np.sin(0.3 * step * (1.0 + 0.1 * PLACES) + PLACES)


def make_model(dtype: str = "float64") -> SimpleNamespace:
    params = Flat({name: Spec(shape, np.dtype(dtype)) for name, shape in SHAPES.items()})
    params.flat[...] = start()
    return SimpleNamespace(params=params)


def make_grads(model: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(flat=np.zeros_like(model.params.flat))


@dataclass(frozen=True)
class Case:
    name: str
    make: type[Optimizer]
    formula: Callable[..., Any]
    options: dict[str, Any]
    torch_name: str | None
    """None where PyTorch lacks the optimizer."""

    @property
    def lr(self) -> float:
        return float(self.options["lr"])

    def lr_at(self, steps: int) -> float:
        schedule = self.options.get("schedule")
        return self.lr if schedule is None else self.lr * schedule(steps)

    @property
    def decay(self) -> float:
        return float(self.options.get("weight_decay", 0.01 if self.make is AdamW else 0.0))

    def run_formula(self, steps: int) -> Iterator[Array]:
        """Yield the parameters after each step of the textbook's formula."""
        params = start()
        direction = self.formula(**self.options)
        next(direction)
        for step in range(steps):
            grads, lr = gradient(params, step), self.lr_at(step)
            params = params - lr * self.decay * WEIGHTS * params
            params = params - lr * direction.send(grads)
            yield params

    def run(self, steps: int, dtype: str = "float64") -> Iterator[Array]:
        """Yield the parameters after each step of the optimizer."""
        model = make_model(dtype)
        grads, optimizer = make_grads(model), self.make(model, **self.options)
        for step in range(steps):
            grads.flat[...] = gradient(model.params.flat, step)
            optimizer.step(model, grads)
            yield model.params.flat.copy()

    def run_torch(self, steps: int) -> Iterator[Array]:
        """Yield the parameters after each step of PyTorch's optimizer, in float64.

        Only its AdamW knows decoupled decay; for the others it is done by hand.
        """
        import torch

        model = make_model()
        tensors = [torch.tensor(view) for view in model.params.views.values()]
        native = self.torch_name == "AdamW"
        groups = [
            {"params": [t], "weight_decay": self.decay if native and t.ndim > 1 else 0.0}
            for t in tensors
        ]
        apart = ("weight_decay", "schedule")
        options = {name: v for name, v in self.options.items() if name not in apart}
        assert self.torch_name is not None
        optimizer = getattr(torch.optim, self.torch_name)(groups, **options)
        for step in range(steps):
            flat = np.concatenate([t.numpy().reshape(-1) for t in tensors])
            model.params.flat[...] = gradient(flat, step)
            for tensor, grad in zip(tensors, model.params.views.values(), strict=True):
                tensor.grad = torch.tensor(grad)
                if tensor.ndim > 1 and not native:
                    tensor.mul_(1.0 - self.lr_at(step) * self.decay)
            for group in optimizer.param_groups:
                group["lr"] = self.lr_at(step)
            optimizer.step()
            yield np.concatenate([t.numpy().reshape(-1) for t in tensors])


def sgd_formula(*, momentum: float = 0.0, nesterov: bool = False, **_: Any) -> Any:
    velocity, direction = np.zeros(WEIGHTS.size), np.zeros(WEIGHTS.size)
    while True:
        grads = yield direction
        velocity = momentum * velocity + grads
        direction = grads + momentum * velocity if nesterov else velocity


def adam_formula(*, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, **_: Any) -> Any:
    m, v, direction = np.zeros(WEIGHTS.size), np.zeros(WEIGHTS.size), np.zeros(WEIGHTS.size)
    powers = np.ones(2)
    while True:
        grads = yield direction
        powers = powers * betas
        m = betas[0] * m + (1 - betas[0]) * grads
        v = betas[1] * v + (1 - betas[1]) * grads**2
        direction = (m / (1 - powers[0])) / (np.sqrt(v / (1 - powers[1])) + eps)


def rmsprop_formula(
    *, alpha: float = 0.99, eps: float = 1e-8, momentum: float = 0.0, **_: Any
) -> Any:
    v, velocity = np.zeros(WEIGHTS.size), np.zeros(WEIGHTS.size)
    while True:
        grads = yield velocity
        v = alpha * v + (1 - alpha) * grads**2
        velocity = momentum * velocity + grads / (np.sqrt(v) + eps)


def lion_formula(*, betas: tuple[float, float] = (0.9, 0.99), **_: Any) -> Any:
    m, direction = np.zeros(WEIGHTS.size), np.zeros(WEIGHTS.size)
    while True:
        grads = yield direction
        direction = np.sign(betas[0] * m + (1 - betas[0]) * grads)
        m = betas[1] * m + (1 - betas[1]) * grads


CASES = [
    Case("sgd", Sgd, sgd_formula, {"lr": 0.1}, "SGD"),
    Case("sgd-decay", Sgd, sgd_formula, {"lr": 0.1, "weight_decay": 0.2}, "SGD"),
    Case("sgd-momentum", Sgd, sgd_formula, {"lr": 0.05, "momentum": 0.9}, "SGD"),
    Case(
        "sgd-nesterov",
        Sgd,
        sgd_formula,
        {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
        "SGD",
    ),
    Case("adam", Adam, adam_formula, {"lr": 1e-2}, "Adam"),
    Case("adam-betas", Adam, adam_formula, {"lr": 1e-2, "betas": (0.5, 0.9)}, "Adam"),
    Case("adam-eps", Adam, adam_formula, {"lr": 1e-2, "eps": 0.1, "weight_decay": 0.1}, "Adam"),
    Case("adamw", AdamW, adam_formula, {"lr": 1e-2}, "AdamW"),
    Case(
        "adamw-cosine",
        AdamW,
        adam_formula,
        {"lr": 2e-2, "weight_decay": 0.3, "schedule": CosineSchedule(150, 0.1, warmup_epochs=20)},
        "AdamW",
    ),
    Case("lion", Lion, lion_formula, {"lr": 1e-3}, None),
    Case(
        "lion-decay",
        Lion,
        lion_formula,
        {"lr": 1e-2, "betas": (0.8, 0.9), "weight_decay": 1.0},
        None,
    ),
    Case("rmsprop", RmsProp, rmsprop_formula, {"lr": 1e-2}, "RMSprop"),
    Case("rmsprop-eps", RmsProp, rmsprop_formula, {"lr": 1e-2, "eps": 0.1}, "RMSprop"),
    Case(
        "rmsprop-momentum",
        RmsProp,
        rmsprop_formula,
        {"lr": 1e-2, "alpha": 0.9, "momentum": 0.9, "weight_decay": 0.1},
        "RMSprop",
    ),
]


def write_golden() -> None:
    """Write PyTorch's parameters at a few steps of every case."""
    import torch

    golden: dict[str, Any] = {"made with": f"torch {torch.__version__}"}
    for case in CASES:
        if case.torch_name is None:
            continue
        runs = dict(enumerate(case.run_torch(STEPS), start=1))
        golden[case.name] = {str(step): runs[step].tolist() for step in GOLDEN_STEPS}
    GOLDEN.write_text(json.dumps(golden, indent=0) + "\n")


if __name__ == "__main__":
    write_golden()
