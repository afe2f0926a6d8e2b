"""Warm start: initial weights from trained networks."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from mlpengine.core.errors import UsageError, at_setting
from mlpengine.models.smooth import is_smooth
from mlpengine.nn import TabularNetwork

_log = logging.getLogger("mlpengine")


def copy_weights(sources: Iterable[TabularNetwork], networks: Sequence[TabularNetwork]) -> None:
    """Copy the weights of trained networks into networks with the same inputs.

    Raises: UsageError if the architectures differ (with the setting), or no network gets weights.
    """
    given, alone = [*sources], 0
    if not given:
        return
    own = _units(networks[0])
    sources = [one for one in given if _units(one) == own or not (one.is_linear or is_smooth(one))]
    for k, network in enumerate(networks):
        same = [one for one in sources if one.reads == network.reads]
        same = [one for one in same if one.sizes == network.sizes] or same
        if same or len(networks) == 1 == len(sources):
            _copy_weights((same or sources)[k % len(same or sources)], network)
        else:
            alone += 1
    if alone == len(networks):
        raise UsageError(
            "warm start: training cannot continue with the networks of this model, because they "
            "are smooth or linear members; train without a warm start"
        )
    if alone:
        text = (
            "have random initial weights: the model of the warm start has no network of their type"
        )
        _log.warning("warning: training.members: %d of %d networks %s", alone, len(networks), text)


def _units(network: TabularNetwork) -> tuple[object, ...]:
    return network.sizes, network.describe()["settings"].get("activation")


def _copy_weights(source: TabularNetwork, mlp: TabularNetwork) -> None:
    kinds = [net.describe() for net in (source, mlp)]
    theirs, own = ({"network": kind["name"], **kind["settings"], "dropout": 0.0} for kind in kinds)
    for key in theirs | own:
        known: Any = theirs.get(key)
        now: Any = own.get(key)
        if known != now:
            setting = "hidden" if key == "sizes" else key
            if key == "sizes" and (known[0], known[-1]) == (now[0], now[-1]):
                known, now = list(known[1:-1]), list(now[1:-1])
            with at_setting("training" if key == "dtype" else "network", setting):
                text = f"must be as in the model of the warm start, {known} (got {now})"
                raise UsageError(f"{setting}: {text}")
    mlp.params.flat[...] = source.params.flat
