"""Test that random configs compile to one program each, with the same numbers as NumPy.

``python benchmarks/fused.py`` draws 300 configs from the schema (some minutes); ``--count`` sets
the number, ``--seed`` draws other configs, ``--smoke`` draws two.  Every config trains 20 steps in
float64, by NumPy and by compiled code; two steps have short batches.  A config fails if its
compiled step is not a single program, or if a parameter or an output of the trained network differs
from NumPy's by more than 1e-6.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mlpengine.config import load_config, parse_override
from mlpengine.config.build import load_data, trainer_of
from mlpengine.core.errors import NumericalError
from mlpengine.nn import ACTIVATIONS
from mlpengine.step.step import TrainingStep

ROWS, STEPS, SHORT, TOLERANCE = 90, 18, (1, 5), 1e-6

FORMULAS = ("x * tanh(softplus(x))", "where(x > 0, x, 0.1 * x)", "sin(x) + x / 2")

LOSSES: dict[str, list[Any]] = {
    "three": ["auto", {"name": "softmax_cross_entropy", "label_smoothing": 0.1}],
    "two": [
        "bce_with_logits",
        {"name": "bce_with_logits", "positive_weight": 2.5},
        {"name": "binary_focal", "gamma": 2, "alpha": 0.3},
        {"formula": "softplus(y) - t * y"},
        "softmax_cross_entropy",
    ],
    "number": [
        "mse",
        "mae",
        {"name": "huber", "delta": 0.7},
        "log_cosh",
        {"name": "quantile", "levels": 0.8},
        {"name": "quantile", "levels": [0.1, 0.5, 0.9]},
        "gaussian_nll",
        {"formula": "abs(y - t) ** 1.5"},
    ],
    "positive": ["poisson", "gamma"],
    "labels": ["bce_with_logits", {"name": "binary_focal", "gamma": 1}],
}

OPTIMIZERS: list[Any] = [
    {"name": "sgd", "lr": 0.02},
    {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"name": "adam", "lr": 1e-3},
    {"name": "adamw", "lr": 2e-3, "weight_decay": 0.1, "groups": {"biases": {"weight_decay": 1.0}}},
    {"name": "rmsprop", "lr": 1e-3, "momentum": 0.5},
    {"name": "lion", "lr": 1e-4},
]

SCHEDULES = ["constant", "cosine", {"name": "step", "every_epochs": 1, "warmup_epochs": 0.5}]


def write_table(folder: Path) -> Path:
    """Write the rows of all tasks as one CSV file."""
    rng = np.random.default_rng(0)
    lines = ["a,b,c,color,weight,three,two,number,positive,first,second"]
    for a, b, c in rng.standard_normal((ROWS, 3)):
        color, three = rng.choice(["red", "green"]), rng.choice(["x", "y", "z"])
        two, first, second = ("yes" if v else "no" for v in rng.random(3) < 0.5)
        number = a * b + 0.5 * c
        lines.append(
            f"{a:.4f},{b:.4f},{c:.4f},{color},{rng.random() + 0.1:.3f},{three},{two},{number:.4f},"
            f"{np.exp(number):.4f},{int(first == 'yes')},{int(second == 'yes')}"
        )
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def draw(rng: np.random.Generator, source: Path) -> dict[str, Any]:
    """Return a random config."""

    def one(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    def sometimes(share: float = 0.3) -> bool:
        return bool(rng.random() < share)

    target = one(list(LOSSES))
    targets = ["three", "two", "number", "positive", "first", "second"]
    used = ["first", "second"] if target == "labels" else [target]
    hidden = [int(n) for n in rng.integers(1, 40, int(rng.integers(0, 4)))]
    names = [name for name in ACTIVATIONS if name != "identity"]
    activation = [one(FORMULAS) if sometimes(0.15) else one(names) for _ in hidden]
    model: dict[str, Any] = {
        "hidden": hidden,
        "activation": activation or ["relu"],
        "dropout": one([0.0, 0.0, 0.1, [0.5, *[0.0] * (len(hidden) - 1)]]),
    }
    data: dict[str, Any] = {
        "source": str(source),
        "target": used,
        "task": "multilabel" if target == "labels" else "auto",
        "drop": [name for name in targets if name not in used],
        "split": {"validation": 0.0, "test": 0.1},
    }
    if sometimes():
        data["weight"] = "weight"
    else:
        data["drop"].append("weight")
    if target == "three" and sometimes():
        data["class_weights"] = "balanced"
    training: dict[str, Any] = {
        "batch_size": one([7, 16, 24]),
        "epochs": 5,
        "dtype": "float64",
        "rematerialization": "balanced" if sometimes(0.15) else "keep",
        "clip_norm": one([None, 0.5, 0.02]),
    }
    if hidden and sometimes(0.15):
        training["freeze"] = [0]
    return {
        "seed": int(rng.integers(1000)),
        "data": data,
        "model": model,
        "loss": one(LOSSES[target]),
        "optimizer": one(OPTIMIZERS),
        "schedule": one(SCHEDULES),
        "training": training,
    }


def trained(path: Path, backend: str) -> TrainingStep:
    """Return the step of a config after `STEPS` full batches and two short batches."""
    trainer = trainer_of(
        load_data(load_config(path, [parse_override(f"training.backend={backend}")]))
    )
    step, part = trainer.step, trainer.train
    x, y = (np.ascontiguousarray(values) for values in (part.x, part.y))
    order = np.random.default_rng(1).integers(0, len(x), STEPS * step.batch_size)
    step.run_many(x, y, order, part.weights)
    for rows in SHORT:
        step(x[:rows], y[:rows], None if part.weights is None else part.weights[:rows])
    return step


def problem_of(config: dict[str, Any], folder: Path) -> str:
    """Return the reason why a config fails, or ""."""
    path = folder / "config.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    steps: list[TrainingStep] = []
    errors = []
    for backend in ("numpy", "compiled"):
        try:
            steps.append(trained(path, backend))
        except NumericalError as error:  # a config that diverges must do so on both backends
            errors.append(str(error))
    if errors:
        return "" if len(errors) > 1 else f"diverges on one backend ({errors[0]})"
    plain, compiled = steps
    if compiled.backend != "compiled":
        return "is not compiled"
    if not compiled.fused:
        return "is split"
    ours, theirs = compiled.mlp.params.flat, plain.mlp.params.flat
    apart = np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))
    if not apart.max() <= TOLERANCE:
        return f"differs by {apart.max():.2g}"
    if compiled.fused and not (far := outputs_apart(compiled)) <= TOLERANCE:
        return f"computes outputs that differ by {far:.2g}"
    return ""


def outputs_apart(step: TrainingStep) -> float:
    """Return the largest difference from NumPy's outputs for random rows; NaN if not compiled."""
    mlp, program = step.mlp, step.bound(step.batch_size).forward
    if program is None:
        return np.nan
    shape = step.batch_size + 3, step.bound(step.batch_size).scratch.input.shape[1]
    x = np.random.default_rng(2).standard_normal(shape).astype(mlp.dtype)
    outputs = np.full((len(x), mlp.sizes[-1]), np.nan, mlp.dtype)
    program.forward(x, outputs)
    theirs = mlp.predict(x)
    return float((np.abs(outputs - theirs) / np.maximum(1, np.abs(theirs))).max())


def main() -> int:
    """Draw, train, compare; return 1 if a config failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    failed, losses = 0, Counter[str]()
    rng = np.random.default_rng(given.seed)
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = write_table(folder)
        for number in range(2 if given.smoke else given.count):
            config = draw(rng, source)
            losses[json.dumps(config["loss"])] += 1
            if problem := problem_of(config, folder):
                failed += 1
                print(f"config {number} {problem}: {json.dumps(config)}", flush=True)
    print(f"{sum(losses.values())} configs, {len(losses)} losses, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
