"""Settings for `fit` whose other keys have the defaults of configs, not what `init` proposes."""

from typing import Any

SECTIONS: dict[str, dict[str, Any]] = {
    "data": {
        "task": "auto",
        "drop": [],
        "encoding": "none",
        "missing": "mean",
        "split": {"test": 0.15},
    },
    "model": {"hidden": [64, 64]},
    "optimizer": {"name": "adam", "lr": 0.001, "weight_decay": 0.0},
    "training": {
        "epochs": 100,
        "batch_size": 32,
        "clip_norm": None,
        "early_stopping": None,
        "folds": None,
    },
}


def plain(**settings: Any) -> dict[str, Any]:
    """Return the settings with those defaults of configs that `init` decides otherwise."""
    merged: dict[str, Any] = {"schedule": "constant"}
    for name, value in (SECTIONS | settings).items():
        both = isinstance(value, dict) and name in SECTIONS
        merged[name] = SECTIONS[name] | value if both else value
    return merged
