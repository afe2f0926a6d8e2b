"""Small tanh networks that use all rows in each step, for targets that vary smoothly."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array, DTypeLike
from mlpengine.models.linear import of_features
from mlpengine.models.task import Split
from mlpengine.nn import Mlp, TabularNetwork
from mlpengine.ops import MeanSquaredError
from mlpengine.optim import BayesianRegularization, LevenbergMarquardt
from mlpengine.step.step import TrainingStep

UNITS, FEWEST_UNITS = 30, 2
"""Number of hidden units, and smallest number of hidden units.

Networks have fewer than `UNITS` units if there would be more than `PARAMETERS` parameters.
"""

PARAMETERS = 250
"""Maximum number of parameters; the time of a step grows with the cube of this number."""

DECAY_ROWS, DECAY_LOSS = 1_000, 0.05
"""Several weight decays are tried on up to `DECAY_ROWS` rows, if the loss of the best other member
type is below `DECAY_LOSS` (1 is the loss of the mean).  On noisy targets they helped little.
"""

DECAYS = tuple(10.0**-k for k in range(2, 12))
"""Weight decays, tried one after another; each starts at the weights of the decay before it."""

WORSE = 2.0
"""Several decays are used if their held-out loss is at most `WORSE` times the loss without them.

With a factor of 1, the errors on three functions were 0.97 to 1.9 times as large.
"""

NARROW = 10**0.5
"""With several decays, features are divided by `NARROW`, and initial hidden weights are multiplied
by it.  So a decay shrinks hidden weights more than other weights.
"""

OVERFIT, GAP = 1.1, 2.0
"""Training ends after two held-out losses in a row that are above `OVERFIT` times the lowest one.

The last one must also be above `GAP` times the training loss: losses may rise at a saddle point.
"""

DECAY_STEPS = 20
"""Maximum number of steps with a decay."""

STEPS, LAST_STEPS = 300, 100
"""Maximum number of steps on the first rows, and of later steps on all rows (see `FIRST_ROWS`)."""

FIRST_ROWS = 1_000
"""Networks train on every k-th row before they train on all rows, with k = rows // `FIRST_ROWS`.

Steps on few rows take little time: without noise, errors were about half after the same time.
"""

SLOW_STEPS, DECAY_SLOW_STEPS, SLOW = 10, 5, 0.05
"""Training ends if the loss falls by less than the fraction `SLOW` in `SLOW_STEPS` steps.

With one of `DECAYS`, it ends if the loss falls so little in `DECAY_SLOW_STEPS` steps.
"""

CLEAR, CLEAR_STEPS, CLEAR_SLOW_STEPS = 1e-5, 700, 20
"""Bayesian regularization ends at a loss below `CLEAR`, because noise is then small.

Up to `CLEAR_STEPS` steps without regularization follow.  They end if the loss falls by less than
the fraction `SLOW` in `CLEAR_SLOW_STEPS` steps.  Held-out losses choose the weights before or after
these steps.
On 2 * `FIRST_ROWS` rows or more, regularization does not end at `CLEAR`.
"""

STUCK = 9.0
"""A network with a loss above this multiple of the median loss is trained again from other weights.

Such a network is in a local minimum.
"""


def smooth_units(inputs: int, outputs: int) -> int:
    """Return the number of hidden units of a network with `inputs` and `outputs`."""
    return min(UNITS, (PARAMETERS - outputs) // (inputs + 1 + outputs))


def is_smooth(network: TabularNetwork) -> bool:
    """Return whether a network has the layers of a smooth member: one hidden tanh layer."""
    inputs, *hidden, outputs = network.sizes
    possible = {smooth_units(some, outputs) for some in range(1, inputs + 1)}
    activation = network.describe()["settings"].get("activation")
    return len(hidden) == 1 and hidden[0] in possible and activation == [{"name": "tanh"}]


def check_smooth(loss: str, inputs: int, outputs: int, others: Sequence[str]) -> None:
    """Raise UsageError if smooth networks cannot train with this loss or with so many inputs.

    `others` are the other ensemble member types.
    """
    fix = f"write training.members: [{', '.join(others)}]"
    if loss != MeanSquaredError.name:
        text = f"needs the loss mse and all targets of each row (got {loss})"
        raise UsageError(f"members: smooth {text}; {fix}")
    most = (PARAMETERS - outputs) // FEWEST_UNITS - 1 - outputs
    if inputs > most:
        raise UsageError(f"members: smooth reads at most {most} features (got {inputs}); {fix}")


def smooth_networks(
    train: Split,
    folds: Array,
    projection: Array,
    seed: int,
    dtype: DTypeLike,
    *,
    loss: float = 0.0,
    helps: Callable[[Mlp], bool] = lambda _: True,
    threads: int = 1,
) -> list[Mlp]:
    """Return a network for each fold, trained on the rows of the other folds.

    Networks train by Bayesian regularization.  On few rows, a network may train with several weight
    decays instead, the largest first (see `DECAY_ROWS`; `loss` is the loss of the best other member
    type).  The network of the first fold is trained in both ways; its mean squared errors on the
    rows of this fold choose the way of the others (see `WORSE`).  The errors on the rows of all
    folds choose the decay, or the steps without regularization (see `CLEAR`).  Each network
    predicts the rows of its fold.

    With several decays, the other networks try one decay more than the best one of the first fold.
    If `helps` is False for the network of the first fold, no other network is trained, and the
    result is empty; on few rows, the network is first trained again from other weights.

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
    weights = np.ones(len(train)) if train.weights is None else train.weights / train.weights.mean()

    def fit(k: int, decays: Sequence[float], more: int = 0, count: int | None = None) -> _Fits:
        """Train a network with `count` decays, or with as many as lower the held-out loss."""
        narrow = NARROW if decays else 1.0
        rows, held = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
        part = [x[rows] / narrow, train.y[rows].astype(np.float64)]
        if train.weights is not None:
            part.append(train.weights[rows])
        mlp = Mlp(sizes, activation="tanh", seed=seed + k + more, dtype="float64")
        mlp.weights[0][...] *= narrow
        fits = _Fits(decays)
        for last in islice(_training(mlp, part, decays), count):
            errors = np.square(mlp.predict(x[held] / narrow) - train.y[held]).mean(axis=1)
            fits.add(last, float(np.mean(weights[held] * errors)), whole(mlp, narrow))
            if count is None and fits.overfit:
                break
        return fits

    def whole(mlp: Mlp, narrow: float) -> Mlp:
        """Return the network for features that are not standardized."""
        result = Mlp([train.x.shape[1], *sizes[1:]], activation="tanh", dtype=dtype)
        first = mlp.weights[0] / (narrow * scale)
        result.weights[0][...] = of_features(first, projection, train.x.shape[1])
        result.biases[0][...] = mlp.biases[0] - first @ shift
        result.weights[1][...], result.biases[1][...] = mlp.weights[1], mlp.biases[1]
        return result

    folds_count = int(folds.max()) + 1
    several = len(train) <= DECAY_ROWS and loss < DECAY_LOSS
    for more in (0, folds_count) if several else (0,):
        trials = [fit(0, decays, more) for decays in ([(), DECAYS] if several else [()])]
        first = min(trials, key=lambda fits: min(fits.held) / (WORSE if fits.decays else 1.0))
        best = int(np.argmin(first.held))
        if helps(first.networks[best]):
            break
    else:
        return []
    again = partial(fit, decays=first.decays, count=best + 2)
    with ThreadPoolExecutor(threads) as pool:
        fits = [first, *pool.map(again, range(1, folds_count))]
        held = zip(*(one.held for one in fits), strict=False)  # the first may have more decays
        best = int(np.argmin([sum(losses) for losses in held]))
        limit = STUCK * np.median([one.losses[best] for one in fits])
        stuck = [k for k, one in enumerate(fits) if one.losses[best] > limit]
        retrained = pool.map(partial(again, more=folds_count), stuck)
        for k, other in zip(stuck, retrained, strict=True):
            fits[k] = min(fits[k], other, key=lambda one: one.losses[best])
    return [one.networks[best] for one in fits]


class _Fits:
    """One network after training with each decay: training and held-out losses, and weights."""

    def __init__(self, decays: Sequence[float]) -> None:
        self.decays = decays
        self.losses: list[float] = []
        self.held: list[float] = []
        self.networks: list[Mlp] = []

    def add(self, loss: float, held: float, network: Mlp) -> None:
        self.losses.append(loss)
        self.held.append(held)
        self.networks.append(network)

    @property
    def overfit(self) -> bool:
        """Whether the last two held-out losses are far above the lowest and the training loss."""
        high = min(self.held[-2:]) > OVERFIT * min(self.held)
        return high and self.held[-1] > GAP * self.losses[-1]


def _training(mlp: Mlp, part: Sequence[Array], decays: Sequence[float]) -> Iterator[float]:
    """Train a network with each of `decays`, or by Bayesian regularization if there are none.

    Yield the loss after each, and after steps without regularization (see `CLEAR`).  `part` has
    features, targets and maybe weights.
    """
    weighted, loss = len(part) > 2, MeanSquaredError()
    if decays:
        optimizer = LevenbergMarquardt(mlp)
        step = TrainingStep(mlp, loss, optimizer, len(part[0]), weighted=weighted)
        for decay in decays:
            optimizer.decay = decay
            yield _train(step, part, DECAY_STEPS, DECAY_SLOW_STEPS, decay=decay)
        return
    optimizer = BayesianRegularization(mlp)
    apart = len(part[0]) // FIRST_ROWS
    clear = CLEAR if apart <= 1 else 0.0
    for every, steps in [(apart, STEPS), (1, LAST_STEPS)] if apart > 1 else [(1, STEPS)]:
        some = [values[::every] for values in part]
        step = TrainingStep(mlp, loss, optimizer, len(some[0]), weighted=weighted)
        last = _train(step, some, steps, SLOW_STEPS, clear=clear)
    yield last
    if last < clear:
        step = TrainingStep(mlp, loss, LevenbergMarquardt(mlp), len(part[0]), weighted=weighted)
        last = _train(step, part, CLEAR_STEPS, CLEAR_SLOW_STEPS)
    yield last


def _train(
    step: TrainingStep,
    part: Sequence[Array],
    steps: int,
    slow_steps: int,
    decay: float = 0.0,
    clear: float = 0.0,
) -> float:
    """Make up to `steps` steps; return the last loss.

    Training ends at a loss below `clear`, or if the loss, with the sum of squared weights times
    `decay`, falls too little in `slow_steps` steps.
    """
    weights, losses, loss = step.mlp.params.flat, [], np.inf
    for _ in range(steps):
        penalty = decay * float(weights @ weights)
        loss = step(*part)
        losses.append(loss + penalty)
        slow = len(losses) > slow_steps and losses[-1] > (1 - SLOW) * losses[-1 - slow_steps]
        if slow or loss < clear:
            break
    return loss
