"""Groups of parameters, with factors of learning rate and weight decay for each group."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from mlpengine.backends.update_rules import ParameterRange
from mlpengine.core.errors import UsageError
from mlpengine.core.fields import NonNegative, check_options
from mlpengine.core.wording import quoted, suggestion
from mlpengine.tape.flat import Flat


@dataclass(frozen=True)
class Group:
    """Factors of learning rate and weight decay for a group of parameters.

    The weight decay of a step is multiplied by both factors, as in PyTorch's parameter groups.
    """

    lr: Annotated[NonNegative, "Factor of the learning rate."] = 1.0
    weight_decay: Annotated[
        NonNegative | None, "Factor of the weight decay; by default 1 for weights, 0 for biases."
    ] = None

    def __post_init__(self) -> None:
        check_options(self)


def check_group(where: str, name: str, members: Collection[str]) -> None:
    """Raise UsageError unless `members` contains `name`; `where` begins the message."""
    if name not in members:
        known = ", ".join(members) or "none"
        raise UsageError(
            f"{where}: groups must be groups of the network: {known} (got {name!r})"
            f"{suggestion(name, members)}"
        )


def find_ranges(
    where: str,
    params: Flat,
    groups: Mapping[str, Group],
    members: Mapping[str, Sequence[str]],
    *,
    decays: bool,
    decay_biases: bool,
) -> list[ParameterRange]:
    """Return ranges of trained parameters with equal factors; `members` maps groups to names."""
    factors: dict[str, Group] = {}
    for name, group in groups.items():
        check_group(where, name, members)
        if not isinstance(group, Group):
            raise UsageError(f"{where}: a group must be a Group(lr=0.1, ...) (got {quoted(group)})")
        factors |= dict.fromkeys(members[name], group)
    ranges: list[ParameterRange] = []
    for name, place in params.places.items():
        if name in params.frozen:
            continue
        group, view = factors.get(name, Group()), params.views[name]
        decay = group.weight_decay
        if decay is None:
            decay = float(decay_biases or view.ndim >= 2)
        run = ParameterRange(place.start, place.stop, float(group.lr), decay if decays else 0.0)
        last = ranges[-1] if ranges else None
        if last and (last.stop, last.lr, last.weight_decay) == (
            run.start,
            run.lr,
            run.weight_decay,
        ):
            run = ParameterRange(ranges.pop().start, run.stop, run.lr, run.weight_decay)
        ranges.append(run)
    return ranges
