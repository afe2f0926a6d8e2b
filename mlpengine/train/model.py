"""A trained network with everything that turns a table into predictions, in one file."""

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from mlpengine.data import Preprocessor
from mlpengine.errors import CheckpointError, MlpEngineError, RunError
from mlpengine.files import similar_file
from mlpengine.nn import Mlp
from mlpengine.nn.tensors import check_finite, read_tensors, write_tensors
from mlpengine.ops import REGISTRY, Loss
from mlpengine.spec import Array
from mlpengine.structure import conform
from mlpengine.train.checkpoint import CHECKPOINTS, Checkpoints
from mlpengine.train.task import Task, task_for

MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class Model:
    """A network, the preprocessing fitted with it, and its loss: the name, and options by name.

    `Mlp.load` reads the file, too.
    """

    mlp: Mlp
    preprocessor: Preprocessor
    loss: str
    loss_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> Task:
        """How to read the outputs."""
        return task_for(self.preprocessor.target, self.loss)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the weights, ready for JSON."""
        return {
            "mlp": self.mlp.to_dict(),
            "preprocessing": self.preprocessor.state_dict(),
            "loss": self.loss,
            **({"loss_options": dict(self.loss_options)} if self.loss_options else {}),
        }

    @property
    def plain_loss(self) -> Loss:
        """The loss for evaluation, without class weights and label smoothing."""
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in self.loss_options.items()}
        loss = REGISTRY[self.loss](**options)
        assert isinstance(loss, Loss)
        return loss

    @classmethod
    def restored(
        cls, description: Mapping[str, Any], state: Mapping[str, Array], where: Path
    ) -> "Model":
        """Return the model that `to_dict` returned, with these parameters.

        Raises: CheckpointError, naming `where`, if the description or the parameters are invalid.
        """
        if not isinstance(description, Mapping) or not isinstance(state, Mapping):
            raise CheckpointError(f"{where}: is not a model (got {description!r:.60})")
        missing = {"mlp", "preprocessing", "loss"} - description.keys()
        if missing:
            names = ", ".join(sorted(missing))
            raise CheckpointError(f"{where}: is not a model ({names} missing)")
        try:
            preprocessor = Preprocessor.from_state(description["preprocessing"])
            mlp = Mlp.restored(description["mlp"], state)
            loss, options = _loss_name(description["loss"]), description.get("loss_options", {})
            _check_options(loss, options)
            model = cls(mlp, preprocessor, loss, options)
            _ = model.plain_loss  # refuses values that the loss does not take
            fits = (preprocessor.n_features, model.task.outputs) == (mlp.sizes[0], mlp.sizes[-1])
        except MlpEngineError as error:
            raise CheckpointError(f"{where}: is not a whole model ({error})") from error
        if not fits:
            raise CheckpointError(f"{where}: preprocessing and network do not fit each other")
        return model

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all; equal models give equal bytes."""
        write_tensors(path, self.mlp.params.views, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Model":
        """Read a model.  Raises: CheckpointError if the file is damaged or not a model."""
        arrays, header = read_tensors(path)
        model = cls.restored(header, arrays, Path(path))
        check_finite(arrays, path)
        return model


def load_model(run: str | Path) -> Model:
    """Return the model of a run directory, or of a model file.

    A run that was killed has the best weights of its newest checkpoint.
    Raises: RunError if there is no model; CheckpointError if it is damaged.
    """
    run = Path(run)
    if not run.exists():
        raise CheckpointError(f"{run}: there is no such run or model file{similar_file(run)}")
    if not run.is_dir():
        return Model.load(run)
    if (run / MODEL_FILE).is_file():
        return Model.load(run / MODEL_FILE)
    checkpoint = Checkpoints(run / CHECKPOINTS).newest()
    if checkpoint is None:
        raise RunError(f"{run}: holds no model and no checkpoint; is it the directory of a run?")
    where, state = checkpoint.path, checkpoint.state
    try:
        model = Model.restored(checkpoint.header.get("model", {}), state["weights"], where)
        if state["best"]["epoch"]:
            best = state["best"]["weights"]
            if best.shape != model.mlp.params.flat.shape:
                raise CheckpointError(f"{where}: the best weights are of another network")
            model.mlp.params.flat[...] = best
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{where}: is not the checkpoint of a model ({error!r})") from error
    check_finite(model.mlp.params.views, where)
    return model


def _check_options(loss: str, options: object) -> None:
    """Check the structure of a loss's options in a file."""
    kind = REGISTRY[loss]
    if is_dataclass(kind):
        conform(options, kind, "loss_options")
    elif options != {}:
        raise CheckpointError(f"loss_options: {loss} has none (got {options!r:.60})")


def _loss_name(name: object) -> str:
    if not isinstance(name, str) or not issubclass(REGISTRY.get(name, object), Loss):
        raise CheckpointError(f"loss: must be the name of one (got {name!r})")
    return name
