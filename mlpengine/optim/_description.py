"""An optimizer's step as data, for executors other than NumPy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlpengine.spec import Array


@dataclass(frozen=True, eq=False)
class UpdateDescription:
    """What `Optimizer.describe_update` returns.

    Attributes:
        rule: the name of the update.
        params: the flat vector.
        moments: flat vectors by name.
        numbers: the hyper-parameters of the rule, in its order.
        weight_decay: and `decayed`, the ranges of the parameters that decay.
        flush_every: steps between two flushes of what is nearly zero.
        floors: the least value of the moments that are squares; in the others entries smaller
            than `threshold` become zero.
    """

    rule: str
    params: Array
    moments: Mapping[str, Array]
    numbers: Sequence[float]
    weight_decay: float
    decayed: Sequence[tuple[int, int]]
    flush_every: int
    floors: Mapping[str, float]
    threshold: float
