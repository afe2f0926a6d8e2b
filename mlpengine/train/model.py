"""A trained network with everything that turns a table into predictions, in one file."""

from dataclasses import dataclass
from pathlib import Path

from mlpengine.data import Preprocessor
from mlpengine.errors import CheckpointError, DataError
from mlpengine.nn import Mlp
from mlpengine.nn.tensors import read_tensors, write_tensors
from mlpengine.train.files import writing
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

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all; equal models give equal bytes."""
        header = {
            "mlp": self.mlp.describe(),
            "preprocessing": self.preprocessor.state_dict(),
            "loss": self.loss,
        }
        with writing(Path(path)):
            write_tensors(path, self.mlp.params.views, header)

    @classmethod
    def load(cls, path: str | Path) -> "Model":
        """Read a model.  Raises: CheckpointError if the file is damaged or holds no such thing."""
        arrays, header = read_tensors(path)
        missing = {"mlp", "preprocessing", "loss"} - header.keys()
        if missing:
            raise CheckpointError(f"{path}: is not a model ({', '.join(sorted(missing))} missing)")
        try:
            preprocessor = Preprocessor.from_state(header["preprocessing"])
        except DataError as error:
            raise CheckpointError(f"{path}: {error}") from error
        mlp = Mlp.from_description(header["mlp"])
        mlp.load_state_dict(arrays)
        return cls(mlp, preprocessor, header["loss"])
