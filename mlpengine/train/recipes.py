"""Recipes: settings of a network and its training that were measured together."""

from collections.abc import Callable, Mapping
from typing import Any

from mlpengine.nn import Front
from mlpengine.optim import Group
from mlpengine.optim.schedules import named_schedule
from mlpengine.settings.recipes import (  # noqa: F401
    FOLDED_ROWS,
    LINEAR_CELLS,
    MIDDLE,
    PRESETS,
    encodes,
    folds_for,
    kinds_for,
)
from mlpengine.settings.training import LINEAR, Kind, in_order, trained  # noqa: F401

PLAIN: dict[float, dict[str, Any]] = {
    rows: {
        "model": {"hidden": hidden, "activation": "relu"},
        "optimizer": {"name": "adamw", "lr": lr, "weight_decay": decay},
        "schedule": {"name": "cosine"},
        "training": {
            "epochs": epochs,
            "batch_size": batch,
            "clip_norm": 1.0,
            "early_stopping": {"patience": patience},
        },
    }
    for rows, hidden, lr, decay, epochs, batch, patience in (
        (1_000, [16], 0.003, 0.1, 200, 16, 50),
        (4_000, [32, 32], 0.003, 0.1, 120, 32, 30),
        (MIDDLE, [128, 128], 0.002, 0.05, 60, 128, 20),
        (100_000, [128, 128], 0.002, 0.01, 48, 256, 10),
        (float("inf"), [256, 128], 0.002, 0.01, 40, 256, 20),
    )
}
"""By number of rows; measured with eight folds (November 2026), those of up to 4,000 rows with
networks of two kinds in each."""


def _realmlp(task: str) -> dict[str, Any]:
    """Return the recipe of Holzmueller et al. 2024, arXiv 2407.04491, table A.1 (RealMLP-TD).

    Left out: embeddings of categories, which one-hot features equal in the paper's ablation.
    Without label smoothing the log loss of one network on three tables of 178 to 569 rows was 1.4
    to 3.8 times as large.  The temperature, which is not part of the paper's recipe, undoes what
    smoothing does to probabilities.
    """
    numbers = task == "regression"
    smoothed = {"name": "softmax_cross_entropy", "label_smoothing": 0.1}
    return {
        **({"loss": smoothed} if task == "classification" else {}),
        "data": {"standardize": "robust", **({"bound_predictions": True} if numbers else {})},
        "model": {
            "hidden": [256, 256, 256],
            "activation": "mish" if numbers else "selu",
            "learned_activation": True,
            "front": {"embedding": "pbld", "scaling": True},
            "parametrization": "neural_tangent",
            "initializer": "unit_variance",
            "dropout": 0.15,
            "dropout_schedule": "flat_cosine",
        },
        "optimizer": {
            "name": "adamw",
            "lr": 0.2 if numbers else 0.04,
            "betas": [0.9, 0.95],
            "weight_decay": 0.02,
            "decay_schedule": "flat_cosine",
            "groups": {
                "embedding": {"lr": 0.1, "weight_decay": 1.0},
                "scaling": {"lr": 6.0, "weight_decay": 1.0},
                "biases": {"lr": 0.1, "weight_decay": 0.0},
                "alphas": {"lr": 0.1, "weight_decay": 1.0},
            },
        },
        "schedule": {"name": "coslog", "cycles": 4},
        "training": {
            "epochs": 256,
            "batch_size": 256,
            "drop_last": True,
            "early_stopping": {"patience": 256},
            **({"calibration": "temperature"} if task == "classification" else {}),
        },
    }


def recipe(preset: str, task: str, rows: float = MIDDLE) -> dict[str, Any]:
    """Return the sections of a preset for a task and a number of rows."""
    if preset == "realmlp":
        return _realmlp(task)
    return next(sections for limit, sections in PLAIN.items() if rows <= limit)


def network_options(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Mlp` for the section `model` of a recipe, but for the sizes."""
    others = "hidden", "front", "dropout_schedule"
    options = {name: value for name, value in model.items() if name not in others}
    if "front" in model:
        options["front"] = Front(**model["front"])
    return options


def optimizer_options(
    sections: Mapping[str, Any], total_steps: int | None, steps_per_epoch: int = 1
) -> dict[str, Any]:
    """Return the arguments of a recipe's optimizer in a training of that many steps.

    Without `total_steps`, learning rate and decay stay as they are.
    """
    options = {name: value for name, value in sections["optimizer"].items() if name != "name"}
    decay = options.pop("decay_schedule", None)
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    if "groups" in options:
        options["groups"] = {name: Group(**one) for name, one in options["groups"].items()}
    if total_steps:
        steps: dict[str, Any] = {"total_steps": total_steps, "steps_per_epoch": steps_per_epoch}
        options["schedule"] = named_schedule(**steps, **sections["schedule"])
        options["decay_schedule"] = named_schedule(decay or "constant", total_steps, 1)
    return options


def dropout_schedule(
    sections: Mapping[str, Any], total_steps: int | None
) -> Callable[[int], float] | None:
    """Return the schedule of a recipe's dropout in a training of that many steps, if any."""
    name = sections["model"].get("dropout_schedule")
    return named_schedule(name, total_steps, 1) if name and total_steps else None
