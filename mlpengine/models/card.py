"""What a model file tells about a model: its columns, what it predicts, and its training."""

from typing import Any

from mlpengine.models.model import Model


def card(model: Model) -> dict[str, Any]:
    """Return target, columns with types and levels, size, and the record of training, as data."""
    preprocessor = model.preprocessor
    levels = {category.column: category.levels for category in preprocessor.categories}
    return {
        "task": preprocessor.task,
        "target": model.target,
        "classes": [str(label) for label in model.classes],
        "columns": [
            {"name": name, "type": str(preprocessor.kinds[name]), "levels": levels.get(name, [])}
            for name in preprocessor.kinds
        ],
        "reads": model.columns,
        "networks": len(model.networks),
        "architecture": model.mlp.title,
        "sizes": list(model.mlp.sizes),
        "parameters": int(model.params.size),
        "loss": model.loss,
        "record": dict(model.record),
    }
