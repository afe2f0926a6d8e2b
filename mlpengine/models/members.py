"""Member types of an ensemble: the inputs of each type, and the weighted mean of all types."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.data.features.numbers import Numbers
from mlpengine.models.evaluate import Scorer
from mlpengine.models.forward import Features, each_block, outputs_of
from mlpengine.models.linear import linear_networks
from mlpengine.models.smooth import smooth_networks
from mlpengine.models.task import Split, Task
from mlpengine.nn import TabularNetwork
from mlpengine.ops.loss import Loss
from mlpengine.settings.training import LINEAR, SMOOTH, MemberType

WEIGHT_ROUNDS = 20
"""Number of rounds of `best_weights`; weights are multiples of 1/20."""

EARLY = 1 / 4
"""Smooth networks are not tried if all best epochs are before this share of the epochs.

The rows are then noisy or few.
"""


def networks_text(networks: Sequence[TabularNetwork]) -> str:
    """Return text such as ``8 networks of 5-16-1, 8 of 9-16-1 and 2 linear models``.

    The first size is the number of features that the network reads.  One network is ``8-16-1``.
    """
    if len(networks) == 1 and not networks[0].is_linear:
        return networks[0].title
    counts = Counter("" if one.is_linear else one.title for one in networks)
    linear = counts.pop("", 0)
    texts = [
        f"{f'{count:,}' if k else plural(count, 'network')} of {title}"
        for k, (title, count) in enumerate(counts.items())
    ]
    texts += [plural(linear, "linear model")] * (linear > 0)
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


@dataclass(frozen=True, eq=False)
class NetworkMean:
    """One network, or several networks with the mean of their predictions.

    Networks of several member types are ordered by type and, within a type, by fold.  The networks
    of fold k are trained without the rows of fold k.
    `ensemble_weights` are the weights of the types in the mean; empty for a single type.
    """

    networks: Sequence[TabularNetwork]
    task: Task
    ensemble_weights: tuple[float, ...] = ()

    @cached_property
    def network_weights(self) -> Array:
        """The weight of each network, (networks,)."""
        weights = np.array(self.ensemble_weights or (1.0,))
        count = len(self.networks) // len(weights)
        return np.repeat(weights / count, count)

    def forward(self, x: Features) -> Array:
        """Return the output (rows, out_dim) for features (rows, in_dim)."""
        output: Array = self.networks[0].empty_outputs(len(x))

        def keep(rows: slice, outputs: Sequence[Array]) -> None:
            output[rows] = self.combine(outputs)

        each_block(self.networks, x, keep)
        return output

    def combine(self, outputs: Sequence[Array] | Array) -> Array:
        """Combine the outputs (rows, out_dim) of all networks into one output (`Task.combine`)."""
        if len(outputs) == 1:
            return outputs[0]
        weights = self.network_weights if self.ensemble_weights else None
        return self._combined(np.asarray(outputs), weights)

    def of_each_type(self, x: Array, folds: Array) -> Array:
        """Return out-of-fold outputs (types, rows, out_dim); `folds` has the fold of each row."""
        types = len(self.ensemble_weights) or 1
        count = len(self.networks) // types
        outputs = np.empty((types, len(x), self.task.outputs), self.networks[0].dtype)
        for number, network in enumerate(self.networks):
            rows = np.flatnonzero(folds == number % count)
            (outputs[number // count, rows],) = outputs_of([network], x[rows])
        return outputs

    def out_of_fold(self, x: Array, folds: Array) -> Array:
        """Return the combined out-of-fold outputs (rows, out_dim) of all types."""
        outputs = self.of_each_type(x, folds)
        if not self.ensemble_weights:
            return np.asarray(outputs[0])
        return self._combined(outputs, np.array(self.ensemble_weights))

    def by_fold(self, x: Array) -> Array:
        """Return outputs (folds, rows, out_dim); each combines the networks of one fold."""
        each = np.stack(outputs_of(self.networks, x))
        if not self.ensemble_weights:
            return each
        weights = np.array(self.ensemble_weights)
        by_type = each.reshape(len(weights), -1, *each.shape[1:])
        return np.stack([self.task.combine(fold, weights) for fold in by_type.swapaxes(0, 1)])

    def _combined(self, outputs: Array, weights: Array | None) -> Array:
        return self.task.combine(outputs, weights).astype(outputs.dtype)


def best_mean(
    mean: NetworkMean,
    types: Sequence[MemberType],
    losses: tuple[Loss, Loss],
    train: Split,
    folds: Array,
    projections: Sequence[Array],
    *,
    seed: int = 0,
    threads: int = 1,
    trained: float = 1.0,
) -> tuple[NetworkMean, dict[MemberType, float]]:
    """Return the mean of all member `types` with the best ensemble weights, and these weights.

    `mean` has the networks that the training loop trained.  Linear and smooth networks are fitted
    here; their inputs are the features times one of `projections` (see `linear_projections`).
    `seed` is for the initial weights of smooth networks.  Smooth networks are left out if the first
    one is no better on its fold than the best other type, or if `trained`, the last best epoch
    divided by the number of epochs, is below `EARLY`.  `losses` are two losses: the training loss
    fits linear networks, and the ensemble weights minimize the evaluation loss of out-of-fold
    outputs.  Types with weight 0 are left out of the mean.
    """
    task, networks, outputs = mean.task, [*mean.networks], mean.of_each_type(train.x, folds)
    scorer = Scorer(losses[1], task, task.outputs, networks[0].dtype)
    light = replace(train, x=np.empty((len(train), 0)))  # a loss needs no features

    def mean_loss(output: Array) -> float:
        return scorer.mean_loss(output, light)

    if LINEAR in types:
        linear, output = linear_networks(
            networks[0], losses[0], train, folds, projections, mean_loss, threads=threads
        )
        networks += linear
        outputs = np.concatenate([outputs, output[None]])
    if SMOOTH in types and trained >= EARLY:
        others = [mean_loss(output) for output in outputs]
        with_smooth, rows = outputs[int(np.argmin(others))].copy(), np.flatnonzero(folds == 0)

        def helps(first: TabularNetwork) -> bool:
            (with_smooth[rows],) = outputs_of([first], train.x[rows])
            return mean_loss(with_smooth) < min(others)

        smooth = smooth_networks(
            train,
            folds,
            projections[-1],
            seed,
            networks[0].dtype,
            loss=min(others),
            helps=helps,
            threads=threads,
        )
        if smooth:
            networks += smooth
            more = NetworkMean(smooth, task).of_each_type(train.x, folds)
            outputs = np.concatenate([outputs, more])
    best = best_weights(task, outputs, mean_loss)
    count = len(networks) // len(best)
    used = [network for k, network in enumerate(networks) if best[k // count]]
    weights = tuple(weight for weight in best if weight)
    shown = {**dict.fromkeys(types, 0.0), **dict(zip(types, best, strict=False))}
    return NetworkMean(used, task, weights if len(weights) > 1 else ()), shown


def best_weights(
    task: Task, outputs: Array, mean_loss: Callable[[Array], float]
) -> tuple[float, ...]:
    """Return weights of several member types for a mean with a low loss.

    `outputs` (types, rows, out_dim) are out-of-fold, and `mean_loss` returns the loss of an output
    (rows, out_dim).  The search starts with the best type.  Each round adds the type that gives the
    mean with the lowest loss; a type may be added several times.

    Source: Caruana et al. 2004, "Ensemble selection from libraries of models", section 2.
    """
    counts = np.zeros(len(outputs))
    for _ in range(WEIGHT_ROUNDS):
        trials = counts + np.eye(len(outputs))
        losses = [mean_loss(task.combine(outputs, one / one.sum())) for one in trials]
        counts = trials[int(np.argmin(losses))]
    return tuple((counts / WEIGHT_ROUNDS).tolist())


def inputs_of(member: str, numbers: Numbers, n_features: int) -> Array:
    """Return the mask (n_features,) of the features that a member type reads.

    The features of `numbers` come first.
    """
    read = np.ones(n_features, np.bool_)
    first = len(numbers.sources)
    read[first : first + len(numbers.bins)] = member == "piecewise"
    return read


def linear_projections(numbers: Numbers, n_features: int) -> list[Array]:
    """Return one or two projections of the features x, as inputs of linear networks.

    The first projection is an array of indices (columns,): it selects the features that the plain
    type reads.  If numbers are clipped smoothly and have bins, there is a second projection, a
    matrix (n_features, columns) for x @ matrix.  Its columns are the numbers without clipping.  A
    number is restored as the sum of its bin features times the widths of the bins.  Restored
    numbers are linear up to one bin beyond the range of training rows, and constant from there.
    """
    clipped = np.flatnonzero(inputs_of("plain", numbers, n_features))
    bins, first = numbers.bins, len(numbers.sources)
    if not (numbers.clip and len(bins)):
        return [clipped]
    straight = np.eye(n_features)[:, clipped]
    straight[bins.columns, bins.columns] = 0
    components = np.arange(first, first + len(bins))
    straight[components, bins.columns] = bins.width * numbers.factor[bins.columns]
    return [clipped, straight]
