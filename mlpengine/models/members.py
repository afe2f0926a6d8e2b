"""Member types of an ensemble: the inputs of each, and the weighted mean of all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array
from mlpengine.data.features.numbers import Numbers
from mlpengine.models.evaluate import Scorer
from mlpengine.models.forward import Features, each_block, outputs_of
from mlpengine.models.linear import linear_networks
from mlpengine.models.task import Split, Task
from mlpengine.nn import TabularNetwork
from mlpengine.ops.loss import Loss
from mlpengine.settings.training import LINEAR, Kind

SHARE_ROUNDS = 20
"""Choices of `best_shares`, by which shares are multiples of 1/20."""


@dataclass(frozen=True, eq=False)
class NetworkMean:
    """One network, or several networks with the mean of their predictions.

    Networks of several kinds follow each other kind by kind.  Within a kind they follow the order
    of their folds.  `shares` are the weights of the kinds in the mean, none for a single kind.
    """

    networks: Sequence[TabularNetwork]
    task: Task
    shares: tuple[float, ...] = ()

    @cached_property
    def weights(self) -> Array:
        """The weight of each network, (networks,)."""
        shares = np.array(self.shares or (1.0,))
        count = len(self.networks) // len(shares)
        return np.repeat(shares / count, count)

    def forward(self, x: Features) -> Array:
        """Return the output (rows, out_dim) for features (rows, in_dim)."""
        output: Array = self.networks[0].empty_outputs(len(x))

        def keep(rows: slice, outputs: Sequence[Array]) -> None:
            output[rows] = self.combine(outputs)

        each_block(self.networks, x, keep)
        return output

    def combine(self, outputs: Sequence[Array]) -> Array:
        """Return one output for the mean of the predictions of all networks."""
        if len(outputs) == 1:
            return outputs[0]
        return self._combined(np.stack(outputs), self.weights if self.shares else None)

    def of_each_kind(self, x: Array, folds: Array) -> Array:
        """Return the outputs (kinds, rows, out_dim) of each row by the networks of its fold."""
        kinds = len(self.shares) or 1
        count = len(self.networks) // kinds
        outputs = np.empty((kinds, len(x), self.task.outputs), self.networks[0].dtype)
        for number, network in enumerate(self.networks):
            rows = np.flatnonzero(folds == number % count)
            (outputs[number // count, rows],) = outputs_of([network], x[rows])
        return outputs

    def out_of_fold(self, x: Array, folds: Array) -> Array:
        """Return for each row of features the output of the networks of its fold, of all kinds."""
        kinds = self.of_each_kind(x, folds)
        return self._combined(kinds, np.array(self.shares)) if self.shares else np.asarray(kinds[0])

    def by_fold(self, x: Array) -> Array:
        """Return the outputs (folds, rows, out_dim) of the networks of each fold."""
        each = np.stack(outputs_of(self.networks, x))
        if not self.shares:
            return each
        kinds = each.reshape(len(self.shares), -1, *each.shape[1:])
        shares = np.array(self.shares)
        return np.stack([self.task.combine(fold, shares) for fold in kinds.swapaxes(0, 1)])

    def _combined(self, outputs: Array, weights: Array | None) -> Array:
        return self.task.combine(outputs, weights).astype(outputs.dtype)


def equal_shares(kinds: int) -> tuple[float, ...]:
    """Return equal shares of the kinds, used until out-of-fold rows choose the shares."""
    return (1 / kinds,) * kinds if kinds > 1 else ()


def best_mean(
    mean: NetworkMean,
    kinds: Sequence[Kind],
    losses: tuple[Loss, Loss],
    train: Split,
    folds: Array,
    projections: Sequence[Array],
    *,
    threads: int = 1,
) -> tuple[NetworkMean, dict[Kind, float]]:
    """Return the mean of all `kinds` with the shares that are best out of fold, and these shares.

    `mean` is the mean of the kinds that were trained by steps.  Linear networks read one of
    `projections` and are fitted here.  `losses` are the training loss and the score's loss: linear
    networks minimize the first, and the second chooses the shares.  Networks of kinds without a
    share are left out.
    """
    task, networks, outputs = mean.task, [*mean.networks], mean.of_each_kind(train.x, folds)
    scorer = Scorer(losses[1], task, task.outputs, networks[0].dtype)
    light = replace(train, x=np.empty((len(train), 0)))  # losses do not read features

    def mean_loss(output: Array) -> float:
        return scorer.mean_loss(output, light)

    if LINEAR in kinds:
        linear, output = linear_networks(
            networks[0], losses[0], train, folds, projections, mean_loss, threads=threads
        )
        networks += linear
        outputs = np.concatenate([outputs, output[None]])
    best = best_shares(task, outputs, mean_loss)
    count = len(networks) // len(best)
    used = [network for k, network in enumerate(networks) if best[k // count]]
    shares = tuple(share for share in best if share)
    return NetworkMean(used, task, shares if len(shares) > 1 else ()), dict(
        zip(kinds, best, strict=True)
    )


def best_shares(
    task: Task, outputs: Array, mean_loss: Callable[[Array], float]
) -> tuple[float, ...]:
    """Return the shares of several kinds of networks in a mean with a low loss.

    `outputs` (kinds, rows, out_dim) are out-of-fold outputs, and `mean_loss` is the loss of such an
    output.
    The search starts with the best kind.  Each round then adds the kind that makes the mean best; a
    kind may be added several times.

    Source: Caruana et al. 2004, "Ensemble selection from libraries of models", section 2.
    """
    counts = np.zeros(len(outputs))
    for _ in range(SHARE_ROUNDS):
        trials = counts + np.eye(len(outputs))
        losses = [mean_loss(task.combine(outputs, one / one.sum())) for one in trials]
        counts = trials[int(np.argmin(losses))]
    return tuple((counts / SHARE_ROUNDS).tolist())


def inputs_of(kind: str, numbers: Numbers, n_features: int, in_dim: int) -> Array:
    """Return which inputs of layer 0 a kind of network reads: (in_dim,) bool.

    The `n_features` features come first, beginning with the features of `numbers`; then their
    cosines follow.
    """
    read = np.ones(in_dim, np.bool_)
    first = len(numbers.sources)
    read[first : first + len(numbers.bins)] = kind == "piecewise"
    read[n_features:] = kind == "periodic"
    return read


def linear_projections(numbers: Numbers, n_features: int) -> list[Array]:
    """Return projections: linear networks may read the product of x and one of them.

    A projection is a matrix (n_features, columns).  The first one picks the columns that the plain
    kind reads, and is given as their indices.  Smooth clipping bends numbers; then a second
    projection takes them from the components of their bins, times the widths of the bins.  These
    numbers are linear up to one bin beyond the range of the training rows, and constant from there.
    """
    clipped = np.flatnonzero(inputs_of("plain", numbers, n_features, n_features))
    bins, first = numbers.bins, len(numbers.sources)
    if not (numbers.clip and len(bins)):
        return [clipped]
    straight = np.eye(n_features)[:, clipped]
    straight[bins.columns, bins.columns] = 0
    components = np.arange(first, first + len(bins))
    straight[components, bins.columns] = bins.width * numbers.factor[bins.columns]
    return [clipped, straight]
