"""A trained network with everything that turns a table into predictions, in one file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlpengine.data import Preprocessor
from mlpengine.errors import CheckpointError, MlpEngineError, RunError
from mlpengine.nn import Mlp
from mlpengine.nn.tensors import read_tensors, write_tensors
from mlpengine.train.checkpoint import CHECKPOINTS, Checkpoints
from mlpengine.train.task import Task, task_for

MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class Model:
    """A network, the preprocessing fitted with it, and the name of its loss.

    The file is one that `Mlp.load` reads, too.
    """

    mlp: Mlp
    preprocessor: Preprocessor
    loss: str

    @property
    def task(self) -> Task:
        """How to read the outputs."""
        return task_for(self.preprocessor.target, self.loss)

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, ready for JSON."""
        return {
            "mlp": self.mlp.describe(),
            "preprocessing": self.preprocessor.state_dict(),
            "loss": self.loss,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], where: Path) -> "Model":
        """Return the model that `describe` described, all weights zero.

        Raises: CheckpointError, naming `where`, if the description is not one.
        """
        missing = {"mlp", "preprocessing", "loss"} - description.keys()
        if missing:
            names = ", ".join(sorted(missing))
            raise CheckpointError(f"{where}: is not a model ({names} missing)")
        try:
            preprocessor = Preprocessor.from_state(description["preprocessing"])
            mlp = Mlp.from_description(description["mlp"])
            model = cls(mlp, preprocessor, str(description["loss"]))
            fits = (preprocessor.n_features, model.task.outputs) == (mlp.sizes[0], mlp.sizes[-1])
        except (KeyError, TypeError, ValueError, AttributeError, MlpEngineError) as error:
            raise CheckpointError(f"{where}: is not a whole model ({error})") from error
        if not fits:
            raise CheckpointError(f"{where}: preprocessing and network do not fit each other")
        return model

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all; equal models give equal bytes."""
        write_tensors(path, self.mlp.params.views, self.describe())

    @classmethod
    def load(cls, path: str | Path) -> "Model":
        """Read a model.  Raises: CheckpointError if the file is damaged or holds no such thing."""
        arrays, header = read_tensors(path)
        model = cls.from_description(header, Path(path))
        model.mlp.load_state_dict(arrays)
        return model


def load_model(run: Path) -> Model:
    """Return the model of a run directory, or of a model file.

    A run that was killed has the best weights of its newest checkpoint.
    Raises: RunError if there is no model; CheckpointError if it is damaged.
    """
    if not run.is_dir():
        return Model.load(run)
    if (run / MODEL_FILE).is_file():
        return Model.load(run / MODEL_FILE)
    found = Checkpoints(run / CHECKPOINTS).newest()
    if found is None:
        raise RunError(f"{run}: holds no model and no checkpoint; is it the directory of a run?")
    model = Model.from_description(found.header.get("model", {}), found.path)
    weights = found.state["best"]["weights"] if found.state["best"]["epoch"] else None
    if weights is None:
        model.mlp.load_state_dict(found.state["weights"])
    else:
        model.mlp.params.flat[...] = weights
    return model
