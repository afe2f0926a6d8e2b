"""Member types of an ensemble: the inputs of each type, and the weighted mean of all types."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array
from mlpengine.data.features.numbers import Numbers
from mlpengine.models.evaluate import Scorer
from mlpengine.models.forward import Features, each_block, outputs_of
from mlpengine.models.linear import linear_networks
from mlpengine.models.smooth import smooth_networks
from mlpengine.models.task import Split, Task
from mlpengine.nn import TabularNetwork
from mlpengine.ops.loss import Loss
from mlpengine.settings.recipes import SEVERAL_MEMBERS_ROWS
from mlpengine.settings.training import LINEAR, SMOOTH, MemberType

WEIGHT_ROUNDS = 20
"""Number of rounds of `best_weights`; so weights are multiples of 1/20."""

USELESS = 2.0
"""A smooth member is left out if its first network has this multiple of the loss of the best other
type, on the rows of its fold.

On more than `SEVERAL_MEMBERS_ROWS` rows, where training takes long, its loss must be lower.
"""


@dataclass(frozen=True, eq=False)
class NetworkMean:
    """One network, or several networks with the mean of their predictions.

    Networks of several member types are ordered by type and, within a type, by fold.
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
        """Return one output for the mean of the predictions of all networks."""
        if len(outputs) == 1:
            return outputs[0]
        weights = self.network_weights if self.ensemble_weights else None
        return self._combined(np.asarray(outputs), weights)

    def of_each_type(self, x: Array, folds: Array) -> Array:
        """Return the outputs (types, rows, out_dim) of each row by the networks of its fold."""
        types = len(self.ensemble_weights) or 1
        count = len(self.networks) // types
        outputs = np.empty((types, len(x), self.task.outputs), self.networks[0].dtype)
        for number, network in enumerate(self.networks):
            rows = np.flatnonzero(folds == number % count)
            (outputs[number // count, rows],) = outputs_of([network], x[rows])
        return outputs

    def out_of_fold(self, x: Array, folds: Array) -> Array:
        """Return the mean output for each row of features by the networks of its fold."""
        outputs = self.of_each_type(x, folds)
        if not self.ensemble_weights:
            return np.asarray(outputs[0])
        return self._combined(outputs, np.array(self.ensemble_weights))

    def by_fold(self, x: Array) -> Array:
        """Return the outputs (folds, rows, out_dim) of the networks of each fold."""
        each = np.stack(outputs_of(self.networks, x))
        if not self.ensemble_weights:
            return each
        weights = np.array(self.ensemble_weights)
        by_type = each.reshape(len(weights), -1, *each.shape[1:])
        return np.stack([self.task.combine(fold, weights) for fold in by_type.swapaxes(0, 1)])

    def _combined(self, outputs: Array, weights: Array | None) -> Array:
        return self.task.combine(outputs, weights).astype(outputs.dtype)


def equal_weights(types: int) -> tuple[float, ...]:
    """Return equal weights of member types, used until out-of-fold rows choose the weights."""
    return (1 / types,) * types if types > 1 else ()


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
) -> tuple[NetworkMean, dict[MemberType, float]]:
    """Return the mean of all member `types` with the best ensemble weights, and these weights.

    `mean` is the mean of the types that the loop trained.  Linear and smooth networks read one of
    `projections` and are fitted here; `seed` is for the initial weights of smooth networks.
    `losses` are the training loss, which linear networks minimize, and the evaluation loss, which
    chooses the ensemble weights on out-of-fold outputs.  Types with weight 0 are left out.
    """
    task, networks, outputs = mean.task, [*mean.networks], mean.of_each_type(train.x, folds)
    scorer = Scorer(losses[1], task, task.outputs, networks[0].dtype)
    light = replace(train, x=np.empty((len(train), 0)))  # losses do not read features

    def mean_loss(output: Array) -> float:
        return scorer.mean_loss(output, light)

    if LINEAR in types:
        linear, output = linear_networks(
            networks[0], losses[0], train, folds, projections, mean_loss, threads=threads
        )
        networks += linear
        outputs = np.concatenate([outputs, output[None]])
    if SMOOTH in types:
        others = [mean_loss(output) for output in outputs]
        with_smooth, rows = outputs[int(np.argmin(others))].copy(), np.flatnonzero(folds == 0)

        useless = USELESS if len(train) <= SEVERAL_MEMBERS_ROWS else 1.0

        def helps(first: TabularNetwork) -> bool:
            (with_smooth[rows],) = outputs_of([first], train.x[rows])
            share = len(rows) / len(train)
            return mean_loss(with_smooth) < (1 + share * (useless - 1)) * min(others)

        smooth = smooth_networks(
            train, folds, projections[-1], seed, networks[0].dtype, helps=helps, threads=threads
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

    `outputs` (types, rows, out_dim) are out-of-fold outputs, and `mean_loss` is the loss of an
    output.  The search starts with the best type.  Each round adds the type that makes the mean
    best; a type may be added several times.

    Source: Caruana et al. 2004, "Ensemble selection from libraries of models", section 2.
    """
    counts = np.zeros(len(outputs))
    for _ in range(WEIGHT_ROUNDS):
        trials = counts + np.eye(len(outputs))
        losses = [mean_loss(task.combine(outputs, one / one.sum())) for one in trials]
        counts = trials[int(np.argmin(losses))]
    return tuple((counts / WEIGHT_ROUNDS).tolist())


def inputs_of(member: str, numbers: Numbers, n_features: int, in_dim: int) -> Array:
    """Return which inputs of layer 0 a member type reads: (in_dim,) bool.

    The first inputs are the `n_features` features, beginning with those of `numbers`; then their
    cosines follow.
    """
    read = np.ones(in_dim, np.bool_)
    first = len(numbers.sources)
    read[first : first + len(numbers.bins)] = member == "piecewise"
    read[n_features:] = member == "periodic"
    return read


def linear_projections(numbers: Numbers, n_features: int) -> list[Array]:
    """Return projections; linear networks may read the product of x and one of these.

    A projection is a matrix (n_features, columns).  The first projection selects the columns that
    the plain type reads, as an array of indices.  Smooth clipping makes these columns nonlinear in
    the numbers.  Then a second projection restores the numbers: it adds the components of their
    bins, multiplied by the widths of the bins.  The restored numbers are linear up to one bin
    beyond the range of the training rows, and constant from there.
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
