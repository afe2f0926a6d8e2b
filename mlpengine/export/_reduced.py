"""Smaller networks for exports, without the parts that do not affect the outputs.

An export needs no factors that can be multiplied into weights, and no features without a reader.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mlpengine.core.spec import Array
from mlpengine.nn import InputLayer, Mlp, Network, Residual, TabularNetwork
from mlpengine.nn.input_layer import SCALE
from mlpengine.ops import GradOp


class Reduced(NamedTuple):
    """A network, and the indices (kept,) of the features that it reads; None for all."""

    network: Network
    columns: Array | None = None


def reduced(network: Network) -> Reduced:
    """Return a network with fewer weights and the same outputs as `network`, up to rounding.

    Factors of the input layer are multiplied into the first weights.  A learned activation becomes
    a plain activation if all alphas are 1, and is left out if all are 0.  A layer without
    activation is merged with the next layer, unless the merged layer is larger.  An embedding that
    no weight reads is left out.  Features that no weight reads are left out if this saves more
    numbers than a list of the kept features has.  If nothing is left out, or for classes other than
    `Mlp` and `Residual`, the result is `network` itself.
    """
    made = Reduced(network)
    if type(network) is Mlp:  # a subclass may record something else
        made = _dense(network)
    elif type(network) is Residual:
        made = _blocks(network)
    reads_all = made.columns is None
    fewer = len(made.network.params) < len(network.params)
    return made if fewer or not reads_all else Reduced(network)


class _Layer(NamedTuple):
    """A dense layer; `alpha` has the shares of a learned activation."""

    weight: Array
    bias: Array
    activation: GradOp | None = None
    alpha: Array | None = None


def _dense(mlp: Mlp) -> Reduced:
    views, factors = mlp.params.views, _factors(mlp)
    layers: list[_Layer] = []
    for layer in mlp.layers:
        weight = views[layer.weight_name] * (layer.factor * factors)
        bias, factors = views[layer.bias_name].astype(np.float64), np.ones(1)
        op, alpha = layer.activation, views.get(layer.alpha_name or "")
        if alpha is not None and not alpha.any():
            op = alpha = None
        if layers and layers[-1].activation is None:
            before = layers[-1]
            product = weight @ before.weight
            if product.size <= weight.size + before.weight.size:
                layers.pop()
                weight, bias = product, weight @ before.bias + bias
        layers.append(_Layer(weight, bias, op, alpha))
    return _stacked(mlp, layers)


def _stacked(network: TabularNetwork, layers: Sequence[_Layer]) -> Reduced:
    """Return an `Mlp` with the input layer of `network` and these layers."""
    input_layer, columns, first = _read(network, layers[0].weight)
    alphas = [layer.alpha for layer in layers if layer.alpha is not None]
    mlp = Mlp(
        [_in_dim(network, columns), *(len(layer.bias) for layer in layers)],
        activation=[layer.activation for layer in layers[:-1]],
        output_activation=layers[-1].activation,
        initializer="zeros",
        dtype=network.dtype,
        input_layer=input_layer,
        learned_activation=any((alpha != 1).any() for alpha in alphas),
    )
    values = dict(network.params.views)
    for new, old in zip(mlp.layers, [layers[0]._replace(weight=first), *layers[1:]], strict=True):
        values |= {new.weight_name: old.weight, new.bias_name: old.bias}
        if new.alpha_name is not None and old.alpha is not None:
            values[new.alpha_name] = old.alpha
    return _filled(mlp, columns, values)


def _blocks(network: Residual) -> Reduced:
    views = network.params.views
    weight = views["first.weight"] * _factors(network)
    input_layer, columns, first = _read(network, weight)
    changes = {"in_dim": _in_dim(network, columns), "input_layer": input_layer}
    residual = Residual(**network.options | changes | {"initializer": "zeros"})
    return _filled(residual, columns, {**views, "first.weight": first})


def _factors(network: TabularNetwork) -> Array:
    """Return the scaling (n_inputs,) of the input layer, in float64."""
    return np.ones(network.n_inputs) * network.params.views.get(SCALE, 1)


def _read(network: TabularNetwork, weight: Array) -> tuple[InputLayer | None, Array | None, Array]:
    """Return what weights (units, n_inputs) read: input layer, features, columns of the weights."""
    features, input_layer = network.in_dim, network.input_layer or InputLayer()
    spread = np.zeros((len(weight), input_layer.made(features)))
    spread[:, input_layer.read(features)] = weight
    used: Array = np.any(spread, axis=0)
    if used[features:].any():
        return replace(input_layer, scaling=False), None, weight
    used[0] |= not used.any()
    kept = np.flatnonzero(used[:features])
    if (features - len(kept)) * len(weight) <= len(kept):
        return None, None, spread[:, :features]
    return None, kept, spread[:, kept]


def _in_dim(network: TabularNetwork, columns: Array | None) -> int:
    return network.in_dim if columns is None else len(columns)


def _filled(network: TabularNetwork, columns: Array | None, values: Mapping[str, Array]) -> Reduced:
    """Set the parameters of a network from `values`, by name."""
    for name, view in network.params.views.items():
        view[...] = values[name]
    return Reduced(network, columns)
