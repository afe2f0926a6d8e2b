"""Loading of models from a run directory, a checkpoint or a file."""

import os
from pathlib import Path

from mlpengine.core.errors import CheckpointError, RunError, UsageError
from mlpengine.core.files import checked_path, first_line, is_run, missing, not_a_run
from mlpengine.models.model import MODEL_FILE, POPULATIONS, Model, stacked
from mlpengine.nn.safetensors_file import check_finite
from mlpengine.training.checkpoint import CHECKPOINTS, Checkpoint, Checkpoints


def load(run: str | Path) -> Model:
    """Return the model of a run directory or of a model file.

    The model of a killed run has the best weights of its newest checkpoint.
    Raises: RunError if there is no model; CheckpointError if it is damaged; UsageError if `run` is
    no run.
    """
    run = checked_path(run, "load")
    if not os.path.exists(run):  # Path.exists raises if a name is too long
        raise missing(run, "run or model file")
    if not run.is_dir():
        if not run.is_file():  # a pipe without a writer would wait for ever
            raise UsageError(f"{run}: a model must be a file (got a pipe or a device)")
        if begins := first_line(run):
            raise UsageError(
                f"{run}: the directory of a run, or a model file, is needed ({begins}); commands "
                "take the run first, then the table"
            )
        return Model.load(run)
    if (run / MODEL_FILE).is_file():
        return Model.load(run / MODEL_FILE)
    checkpoint = Checkpoints(run / CHECKPOINTS).newest()
    if checkpoint is None and is_run(run):
        raise RunError(f"{run}: holds no model and no checkpoint; the run was stopped before one")
    if checkpoint is None:
        raise not_a_run(run)
    model = _best_so_far(checkpoint)
    for network in model.networks:
        check_finite(network.params.views, checkpoint.path)
    return model


def _best_so_far(checkpoint: Checkpoint) -> Model:
    """Return the model of a checkpoint; each network has its best weights."""
    where, state = checkpoint.path, checkpoint.state
    try:
        model = restored_model(checkpoint)
        for network, one in zip(model.networks, state["members"], strict=True):
            if one["best"]["epoch"]:
                best = one["best"]["weights"]
                if best.shape != network.params.flat.shape:
                    raise CheckpointError(f"{where}: the best weights are of another network")
                network.params.flat[...] = best
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(f"{where}: is not the checkpoint of a model ({error!r})") from error
    return model


def restored_model(checkpoint: Checkpoint) -> Model:
    """Return the model of a checkpoint, with the weights of the last step."""
    try:
        weights = [member["weights"] for member in checkpoint.state["members"]]
        description = checkpoint.header.get("model", {})
        arrays = stacked(weights, description.get(POPULATIONS))
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint.path}: is not the checkpoint of a model ({error!r})"
        ) from error
    return Model.restored(description, arrays, checkpoint.path)
