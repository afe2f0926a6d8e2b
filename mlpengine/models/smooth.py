"""Small tanh networks that use all rows in each step, for targets that vary smoothly."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import itemgetter

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array, DTypeLike
from mlpengine.models.linear import of_features
from mlpengine.models.task import Split
from mlpengine.nn import Mlp
from mlpengine.ops import MeanSquaredError
from mlpengine.optim import BayesianRegularization
from mlpengine.step.step import TrainingStep

UNITS, FEWEST_UNITS = 30, 2
"""Number of hidden units, and smallest number of hidden units.

Networks have fewer than UNITS units if there would be more than `PARAMETERS` parameters.
"""

PARAMETERS = 250
"""Maximum number of parameters; the time of a step grows with the cube of this number."""

STEPS, FEWER_STEPS = 300, 100
"""Maximum number of steps on few rows, and on many rows."""

STEP_ROWS = 500_000
"""Maximum number of rows times steps, unless this allows less than FEWER_STEPS steps."""

SLOW_STEPS, SLOW = 10, 0.05
"""Training ends if the loss falls by less than the share SLOW in SLOW_STEPS steps."""

STUCK = 9.0
"""A network with a loss above this multiple of the median loss is trained again from other weights.

Such a network is in a local minimum.
"""


def smooth_units(inputs: int, outputs: int) -> int:
    """Return the number of hidden units of a network with `inputs` and `outputs`."""
    return min(UNITS, (PARAMETERS - outputs) // (inputs + 1 + outputs))


def smooth_steps(rows: int) -> int:
    """Return the maximum number of steps for a number of training rows."""
    return min(STEPS, max(FEWER_STEPS, STEP_ROWS // rows))


def check_smooth(loss: str, inputs: int, outputs: int) -> None:
    """Raise UsageError if smooth networks cannot train with this loss or with so many inputs."""
    if loss != MeanSquaredError.name:
        raise UsageError(
            f"members: smooth needs the loss mse and all targets of each row (got {loss}); "
            "leave smooth out"
        )
    if smooth_units(inputs, outputs) < FEWEST_UNITS:
        raise UsageError(f"members: smooth reads fewer features (got {inputs}); leave smooth out")


def smooth_networks(
    train: Split,
    folds: Array,
    projection: Array,
    seed: int,
    dtype: DTypeLike,
    *,
    helps: Callable[[Mlp], bool] = lambda _: True,
    threads: int = 1,
) -> list[Mlp]:
    """Return a network for each fold, trained on the rows of the other folds.

    The network of the first fold is trained first.  If `helps` is False for this network, no other
    network is trained, and the result is empty.

    Hidden layers read x @ projection, standardized; as in `linear_networks`, an array of indices
    selects columns of x.  Networks have `dtype`, but training computes in float64.  Fold k has the
    seed `seed` + k, or another seed after a local minimum.  Training uses `threads` threads.
    """
    picks = projection.ndim == 1
    x = train.x.astype(np.float64)
    x = x[:, projection] if picks else x @ projection
    shift, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
    x -= shift
    x /= scale
    sizes = [x.shape[1], smooth_units(x.shape[1], train.y.shape[1]), train.y.shape[1]]

    def fit(k: int, more: int = 0) -> tuple[float, Mlp]:
        rows = np.flatnonzero(folds != k)
        part = [x[rows], train.y[rows].astype(np.float64)]
        if train.weights is not None:
            part.append(train.weights[rows])
        mlp = Mlp(sizes, activation="tanh", seed=seed + k + more, dtype="float64")
        loss = _train(mlp, part)
        whole = Mlp([train.x.shape[1], *sizes[1:]], activation="tanh", dtype=dtype)
        first = mlp.weights[0] / scale
        whole.weights[0][...] = of_features(first, projection, train.x.shape[1])
        whole.biases[0][...] = mlp.biases[0] - first @ shift
        whole.weights[1][...], whole.biases[1][...] = mlp.weights[1], mlp.biases[1]
        return loss, whole

    first, count = fit(0), int(folds.max()) + 1
    if not helps(first[1]):
        return []
    with ThreadPoolExecutor(threads) as pool:
        fits = [first, *pool.map(fit, range(1, count))]
        limit = STUCK * np.median([loss for loss, _ in fits])
        stuck = [k for k, (loss, _) in enumerate(fits) if loss > limit]
        for k, again in zip(stuck, pool.map(partial(fit, more=count), stuck), strict=True):
            fits[k] = min(fits[k], again, key=itemgetter(0))
    return [mlp for _, mlp in fits]


def _train(mlp: Mlp, part: Sequence[Array]) -> float:
    """Train a network; return its last loss.  `part` has features, targets and maybe weights."""
    optimizer, weighted = BayesianRegularization(mlp), len(part) > 2
    step = TrainingStep(mlp, MeanSquaredError(), optimizer, len(part[0]), weighted=weighted)
    losses: list[float] = []
    for _ in range(smooth_steps(len(part[0]))):
        losses.append(step(*part))
        if len(losses) > SLOW_STEPS and losses[-1] > (1 - SLOW) * losses[-1 - SLOW_STEPS]:
            break
    return losses[-1]
