"""A network as whole numbers: 8-bit weights, 16-bit values, 32-bit sums; in NumPy and as C.

A value is an integer times a scale.  A layer adds products (w - zero) x of 8-bit weights, whose
scale and zero are those of their unit, and 16-bit inputs; the sum becomes a pre-activation
by a multiplier of 15 bits and a shift.  Scales of inputs and pre-activations are those of training
rows, with some headroom; what is beyond saturates.  Biases are such that pre-activations have the
means of the float network's on these rows.  Activations but relu are lines between 257 places of a
table.

Sources: Jacob et al. 2018, Quantization and training of neural networks for efficient
integer-arithmetic-only inference, sections 2.1 to 2.3; Nagel et al. 2019, Data-free quantization
through weight equalization and bias correction, section 4.2 (the means).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mlpengine.backends.scalar.text import Functions, array, indented, real_constant
from mlpengine.core.errors import UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import plural
from mlpengine.export.network_c import NetworkCode, Real, title_of
from mlpengine.models.model import Model
from mlpengine.nn import Mlp
from mlpengine.ops import Activation, FormulaActivation, GradOp
from mlpengine.tape import quantize

HEADROOM = 1.25
"""Largest value that a scale holds, in units of the largest one on training rows."""

LARGEST_VALUE = 32767
"""The largest 16-bit value."""

TABLE_SIZE = 257
"""Entries of a table, one at every 256th value from -32768."""

LARGEST_SUM = 2**31 - 1

INTEGER_FUNCTIONS = """\
/* The nearest integer, at most limit in size */
static int16_t rounded(real value, int16_t limit)
{
  if (!(value > R(-limit))) return (int16_t)-limit;
  if (value > R(limit)) return limit;
  return (int16_t)(value + (value < 0 ? R(-0.5) : R(0.5)));
}

/* For each unit, with its numbers zero, multiplier, shift and bias:
   z = (sum of (w - zero) x) multiplier / 2^(16 + shift) + bias, at most limit in size.
   Negative numbers are shifted as all usual compilers do: with their sign. */
static void dense(const int16_t *x, const IN_FLASH int8_t *w, const IN_FLASH int16_t *unit,
                  int16_t *z, int16_t limit, size_t in, size_t out)
{
  for (size_t i = 0; i < out; i++, w += in, unit += 4) {
    const int16_t zero = unit[0];
    int32_t sum = 0;
    for (size_t j = 0; j < in; j++) sum += (int32_t)(int16_t)(w[j] - zero) * x[j];
    const int32_t low = (int32_t)((uint32_t)(uint16_t)sum * (uint16_t)unit[1] >> 16);
    sum = (int32_t)(int16_t)(sum >> 16) * unit[1] + low;
    sum = ((sum + ((int32_t)1 << (unit[2] - 1))) >> unit[2]) + unit[3];
    z[i] = (int16_t)(sum > limit ? limit : sum < -limit ? -limit : sum);
  }
}

"""

RELU = """\
/* relu(z), in place */
static void relu(int16_t *z, size_t n)
{
  for (size_t i = 0; i < n; i++) z[i] = z[i] > 0 ? z[i] : 0;
}

"""

ACTIVATE = """\
/* The line between two places of a table, in place */
static void activate(const IN_FLASH int16_t *table, int16_t *z, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    const uint16_t place = (uint16_t)(z[i] + (int32_t)32768);
    const int16_t left = table[place >> 8];
    const int32_t rise = (int32_t)table[(place >> 8) + 1] - left;
    z[i] = (int16_t)(left + ((rise * (int16_t)(place & 255) + 128) >> 8));
  }
}

"""

INTEGER_NETWORK = """\
{arrays}
void {name}(const real *input, real *output)
{{
{body}}}

"""


@dataclass(frozen=True, eq=False)
class IntegerLayer:
    """A layer of whole numbers.

    Attributes:
        weights: int8, (out, in).
        units: int16, (out, 4): zero of the weights, multiplier, shift, bias.
        limit: the largest pre-activation.
        activation: ``relu``, a table of `TABLE_SIZE` places, or None.
        scale: of what it returns.
    """

    weights: Array
    units: Array
    limit: int
    activation: Array | str | None
    scale: float

    def products(self, x: Array) -> Array:
        """Return pre-activations without their bias, int64 (rows, out)."""
        zero, multiplier, shift, _ = self.units.astype(np.int64).T
        sums = x @ self.weights.T.astype(np.int64) - x.sum(axis=1, keepdims=True) * zero
        scaled: Array = (((sums * multiplier) >> 16) + (1 << (shift - 1))) >> shift
        return scaled

    def __call__(self, x: Array) -> Array:
        """Return the values, int64 (rows, out), for inputs (rows, in)."""
        z: Array = self.products(x) + self.units[:, 3]
        z = np.clip(z, 0 if isinstance(self.activation, str) else -self.limit, self.limit)
        if not isinstance(self.activation, np.ndarray):
            return z
        table, place = self.activation.astype(np.int64), z + 32768
        left, right = table[place >> 8], table[(place >> 8) + 1]
        y: Array = left + (((right - left) * (place & 255) + 128) >> 8)
        return y


@dataclass(frozen=True, eq=False)
class IntegerNetwork:
    """A network of whole numbers, from features to outputs.

    `scale` is that of the features, `limit` the largest of their integers.
    """

    layers: list[IntegerLayer]
    scale: float
    limit: int
    title: str

    def outputs(self, features: Array) -> Array:
        """Return the outputs, (rows, out_dim) of the dtype of the features (rows, in_dim)."""
        real, x = features.dtype.type, _rounded(features, self.scale, self.limit)
        for layer in self.layers:
            x = layer(x)
        y: Array = x.astype(real) * real(self.layers[-1].scale)
        return y

    @property
    def widths(self) -> tuple[int, int]:
        """The lengths of two arrays that the values of layers alternate between."""
        sizes = [self.layers[0].weights.shape[1], *(len(one.weights) for one in self.layers)]
        return max(sizes[::2]), max(sizes[1::2])

    def code(self, name: str, functions: Functions, real: Real) -> NetworkCode:
        """Return the weights and ``void name(input, output)`` for one row, as C alone."""
        first, last = self.layers[0].weights.shape[1], len(self.layers[-1].weights)
        kinds = {type(one.activation) for one in self.layers}
        text = INTEGER_FUNCTIONS + RELU * (str in kinds) + ACTIVATE * (np.ndarray in kinds)
        arrays = {
            "int8_t": {"weights": [one.weights for one in self.layers]},
            "int16_t": {"units": [one.units for one in self.layers]},
        }
        for i, layer in enumerate(self.layers):
            if isinstance(layer.activation, np.ndarray):
                arrays["int16_t"][f"table_{i}"] = [layer.activation]
        printed = "".join(
            array(f"IN_FLASH {kind}", f"{name}_{what}", map(str, np.concatenate(parts, None)))
            for kind, named in arrays.items()
            for what, parts in named.items()
        )
        body = [
            f"int16_t a[{self.widths[0]}], b[{self.widths[1]}];",
            f"for (size_t i = 0; i < {first}; i++)",
            f"  a[i] = rounded(input[i] * {real_constant(1 / self.scale)}, {self.limit});",
            *self._calls(name),
            f"for (size_t i = 0; i < {last}; i++)",
            f"  output[i] = R({'ab'[len(self.layers) % 2]}[i]) * "
            f"{real_constant(self.layers[-1].scale)};",
        ]
        text += INTEGER_NETWORK.format(name=name, arrays=printed, body=indented(body))
        return NetworkCode(self.title, name, real, first, last, functions.text + text)

    def _calls(self, name: str) -> Iterator[str]:
        weight = unit = 0
        for i, layer in enumerate(self.layers):
            x, z = "ab" if i % 2 == 0 else "ba"
            out, size = layer.weights.shape
            yield (
                f"dense({x}, {name}_weights + {weight}, {name}_units + {unit}, {z}, "
                f"{layer.limit}, {size}, {out});"
            )
            if isinstance(layer.activation, str):
                yield f"relu({z}, {out});"
            elif layer.activation is not None:
                yield f"activate({name}_table_{i}, {z}, {out});"
            weight, unit = weight + out * size, unit + 4 * out


def integer_network(model: Model, features: Array) -> IntegerNetwork:
    """Return the network of a model as whole numbers, with the scales of training rows.

    `features` are those of the rows, (rows, in_dim).
    Raises: UsageError for several networks, or one that is more than layers and element-wise
        activations, and for rows or activations that are not finite.
    """
    mlp = _checked(model, features)
    wide = mlp.without_dropout("float64")
    scratch = wide.scratch(len(features))
    wide.forward(features.astype(np.float64), scratch)
    inputs = [scratch.input, *scratch.activations[:-1]]
    scaled = [w * one.factor for w, one in zip(wide.weights, wide.layers, strict=True)]
    weights = [quantize(w, axis=0) for w in scaled]
    steps = [q.values.astype(np.int64) - q.zero_point for q in weights]
    limits = [_limit(one) for one in steps] + [LARGEST_VALUE]
    scale = start = _scale(inputs[0], limits[0])
    x = _rounded(inputs[0], scale, limits[0])
    layers = []
    for i, (layer, q) in enumerate(zip(wide.layers, weights, strict=True)):
        z = inputs[i] @ scaled[i].T + wide.biases[i]
        unit_scale = np.where(steps[i].any(axis=1), q.scale[:, 0], 0.0) * scale
        plain = layer.activation is None or layer.activation.name == "relu"
        limit = limits[i + 1] if plain else LARGEST_VALUE
        largest = float(np.abs(wide.biases[i]).max())
        scale = max(_scale(z, limit), largest / limit, 4 * float(unit_scale.max()))
        units, wanted = _units(unit_scale / scale, q.zero_point[:, 0]), z / scale
        table: Array | str | None = None
        if layer.activation is not None and plain:
            table = "relu"
        elif layer.activation is not None:
            values = _values(layer.activation, scale)
            scale = _scale(values, limits[i + 1], 1.0)
            table = np.rint(values / scale).astype(np.int16)
        layers.append(IntegerLayer(q.values, units, limit, table, scale))
        bias = np.mean(wanted - layers[-1].products(x), axis=0)
        units[:, 3] = np.clip(np.rint(bias), -LARGEST_VALUE, LARGEST_VALUE)
        x = layers[-1](x)
    title = f"{title_of(mlp)}, {plural(len(mlp.params), 'parameter')}, weights of 8 bits"
    return IntegerNetwork(layers, start, limits[0], title)


def _checked(model: Model, features: Array) -> Mlp:
    """Return the network of a model.  Raises: UsageError as `integer_network`."""
    mlp = model.mlp
    if model.members is not None:
        raise UsageError(
            f"export: 8-bit weights need one network (got {len(model.networks)}); "
            "`mlpengine distill` makes one of them"
        )
    if not isinstance(mlp, Mlp) or mlp.front is not None or mlp.learned_activation:
        raise UsageError(
            "export: 8-bit weights need an Mlp without front or learned activation "
            f"(got {title_of(mlp)})"
        )
    for layer in mlp.layers:
        if not isinstance(layer.activation, Activation | FormulaActivation | None):
            raise UsageError(
                f"export: 8-bit weights need element-wise activations (got {layer.activation.name})"
            )
    if not len(features) or not np.isfinite(features).all():
        raise UsageError("export: 8-bit weights need training rows with finite features")
    return mlp


def _rounded(features: Array, scale: float, limit: int) -> Array:
    """Return the nearest integers, halves away from zero."""
    real = features.dtype.type
    steps = np.clip(features * real(1 / scale), real(-limit), real(limit))
    nearest: Array = np.trunc(steps + np.copysign(real(0.5), steps)).astype(np.int64)
    return nearest


def _limit(steps: Array) -> int:
    """Return the largest size of inputs whose sums of products with weights fit 32 bits."""
    largest = int(np.abs(steps).sum(axis=1).max())
    return min(LARGEST_VALUE, LARGEST_SUM // max(largest, 1))


def _scale(values: Array, limit: int, headroom: float = HEADROOM) -> float:
    return max(headroom * float(np.abs(values).max()), float(np.finfo(np.float32).tiny)) / limit


def _units(factor: Array, zero: Array) -> Array:
    """Return units as `IntegerLayer` has them, whose sums are multiplied by a factor below 1/4.

    Their bias is yet to be set.
    """
    shift = np.clip(-1 - np.frexp(factor)[1], 1, 30)
    multiplier = np.minimum(np.rint(factor * 2.0 ** (16 + shift)), LARGEST_VALUE)
    return np.stack([zero, multiplier, shift, np.zeros_like(shift)], axis=1).astype(np.int16)


def _values(activation: GradOp, scale: float) -> Array:
    """Return an activation at the places of a table.  Raises: UsageError where it is not finite."""
    places = (np.arange(TABLE_SIZE) * 256.0 - 32768) * scale
    unit = Mlp([1, 1], activation=(), output_activation=activation, dtype="float64")
    unit.weights[0][...], unit.biases[0][...] = 1, 0
    values: Array = unit.predict(places[:, None])[:, 0]
    if not np.isfinite(values).all():
        raise UsageError(
            f"export: 8-bit weights need activations that are finite between {places[0]:.3g} and "
            f"{places[-1]:.3g} ({activation.name} is not)"
        )
    return values
