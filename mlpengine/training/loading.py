"""Loading of models from a run directory, a checkpoint or a file."""

import logging
import os
from pathlib import Path

from mlpengine.core.errors import CheckpointError, RunError, UsageError
from mlpengine.core.files import checked_path, first_line, is_run, missing, not_a_run
from mlpengine.models.model import MODEL_FILE, POPULATIONS, Model, stacked
from mlpengine.nn.safetensors_file import check_finite
from mlpengine.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    Checkpoints,
    read_checkpoint,
)
from mlpengine.training.result import failure
from mlpengine.training.run_directory import FAILURE_FILE, RESULT_FILE

_log = logging.getLogger("mlpengine")


def load(run: str | Path) -> Model:
    """Return the model of a run directory, of a model file or of a checkpoint.

    A checkpoint gives its best weights.  A run that has not ended gives the best weights of its
    newest checkpoint, and a warning.

    Raises: RunError if there is no model or the run failed; CheckpointError if the model is
    damaged; UsageError if `run` is not a run.
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
        if run.parent.name == CHECKPOINTS:
            return _best_so_far(read_checkpoint(run))
        return Model.load(run)
    model, checkpoints = run / MODEL_FILE, Checkpoints(run / CHECKPOINTS)
    if (run / FAILURE_FILE).is_file():
        earlier = [path for path in (*checkpoints.paths()[-1:], model) if path.is_file()]
        advice = f", or name a file of earlier weights: {earlier[-1]}" if earlier else ""
        text = f"must be a run that has not failed ({failure(run)}); train again{advice}"
        raise RunError(f"{run}: {text}")
    if model.is_file():
        return Model.load(model)
    checkpoint = checkpoints.newest()
    if checkpoint is None and is_run(run):
        raise RunError(f"{run}: has no model; the run was stopped before its first checkpoint")
    if checkpoint is None:
        raise not_a_run(run)
    best = _best_so_far(checkpoint)
    epochs = {one["best"]["epoch"] for one in checkpoint.state["members"]}
    text = " to ".join(map(str, sorted({min(epochs), max(epochs)})))
    why = f"{MODEL_FILE} is missing" if (run / RESULT_FILE).is_file() else "has not ended"
    _log.warning("warning: %s: %s; the model is the best so far (epoch %s)", run, why, text)
    return best


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
    for network in model.networks:
        check_finite(network.params.views, where)
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
