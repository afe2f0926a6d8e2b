"""Facts about a network and its layers, such as names, units and activations."""

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.nn import NETWORKS, Network
from mlpengine.nn.recording import Recording
from mlpengine.ops import Activation, Dropout, GradOp
from mlpengine.ops.softmax import AlongAxis
from mlpengine.tape.record import Record, Value, dependents
from mlpengine.tape.tape import RecordedLayer


class LayerFacts(NamedTuple):
    """Facts about a layer.

    `units` is the number of entries of the output per row.  `activation` is the op that computes
    the output, or None if this op is not an activation.  `weights` are the names of the layer's
    parameters in the group "weights".  `is_passage` is True if every path through the network
    passes the output of the layer.  `weighs_all` is True if every path passes an op that reads the
    weights.
    """

    name: str
    units: int
    activation: GradOp | None
    weights: tuple[str, ...]
    is_passage: bool
    weighs_all: bool


class NetworkFacts(NamedTuple):
    """Facts that rules read about a network of this engine or of another library.

    `layers` are in forward order; `dropout` has the rates of dropout.  `features` and `outputs` are
    entries per row.  `params` are the current parameters by name; `dtype` is the dtype of
    activations.  `kind` is the name of the network in configs, "" for your own network.  `frozen`
    are the names of parameters that are not trained.
    """

    layers: tuple[LayerFacts, ...]
    dropout: tuple[float, ...]
    features: int
    outputs: int
    params: Mapping[str, Array]
    dtype: np.dtype[Any] = np.dtype("float32")
    kind: str = ""
    frozen: Collection[str] = ()

    @classmethod
    def of(cls, network: Network) -> "NetworkFacts":
        """Return the facts about a network of this engine."""
        recording, weights = network.recorded(2, training=True), set(network.groups["weights"])
        layers, records = [], recording.tape.records
        for layer in recording.layers:
            record = activation_record(recording, layer)
            op = record.op if record else None
            layers.append(
                LayerFacts(
                    layer.name,
                    prod(layer.output.spec.shape[1:]),
                    op,
                    own := tuple(name for name in layer.parameters if name in weights),
                    _ends_at(recording, [r for r in records if r.key == layer.output.index]),
                    _ends_at(recording, [r for r in records if own and _reads(r, own)]),
                )
            )
        ops = (record.op for record in records)
        rates = tuple(op.rate for op in ops if isinstance(op, Dropout))
        inputs = recording.tape.inputs
        features = sum(prod(node.spec.shape[1:]) for node in inputs)
        kind = next((name for name, one in NETWORKS.items() if isinstance(network, one)), "")
        params = network.params
        return cls(tuple(layers), rates, features, network.outputs, params.views, network.dtype,
                   kind, params.frozen)  # fmt: skip


def maker(records: Sequence[Record], value: Value) -> Record | None:
    """Return the record that computes a value; None for a leaf."""
    return next((r for r in records for y in r.outputs if y.index == value.index), None)


def before_dropout(recording: Recording, layer: RecordedLayer) -> Value:
    """Return a layer's output or, if dropout made the output, the value that dropout read."""
    record = maker(recording.tape.records, layer.output)
    dropped = record.operands[0] if record and isinstance(record.op, Dropout) else None
    return layer.output if dropped is None else dropped


def activation_record(recording: Recording, layer: RecordedLayer) -> Record | None:
    """Return the record of a layer's activation, or None."""
    record = maker(recording.tape.records, before_dropout(recording, layer))
    if record is None:
        return None
    named = layer.pre_activation is not layer.output and record.operands[0] is layer.pre_activation
    return record if named or isinstance(record.op, Activation | AlongAxis) else None


def _ends_at(recording: Recording, removed: Sequence[Record]) -> bool:
    """Return whether every path from an input to an output passes one of the records `removed`."""
    records = recording.tape.records
    others = [record for record in records if record not in removed]
    read = {x.index for record in records for x in record.operands if x is not None}
    ends = {layer.output.index for layer in recording.layers} - read
    return ends.isdisjoint(dependents(others, recording.tape.inputs))


def _reads(record: Record, names: Sequence[str]) -> bool:
    return any(x is not None and x.is_leaf and x.name in names for x in record.operands)
