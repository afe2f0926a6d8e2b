"""The card of a model: its columns, its predictions and its training, as data."""

from typing import Any

from mlpengine.core.wording import label_text
from mlpengine.models.members import networks_text
from mlpengine.models.model import Model


def facts_of(model: Model) -> dict[str, Any]:
    """Return the task, the networks and the loss of a model, as data."""
    linear = [network.is_linear for network in model.networks]
    return {
        "task": model.preprocessor.task,
        "target": model.target,
        "classes": [*map(label_text, model.classes)],
        "networks": len(linear) - sum(linear),
        "linear_models": sum(linear),
        "linear_weight": float(model.mean.network_weights @ linear),
        "architecture": networks_text(model.networks),
        "sizes": list(model.mlp.sizes),
        "parameters": model.n_parameters,
        "loss": model.loss,
        **({"threshold": model.threshold_text} if model.threshold else {}),
    }


def card(model: Model) -> dict[str, Any]:
    """Return `facts_of`, the columns with types and levels, and the record, as data."""
    kinds = model.preprocessor.kinds
    levels = {category.column: category.levels for category in model.preprocessor.categories}
    return facts_of(model) | {
        "columns": [
            {"name": name, "type": str(kind), "levels": levels.get(name, [])}
            for name, kind in kinds.items()
        ],
        "reads": model.columns,
        "record": dict(model.record),
    }
