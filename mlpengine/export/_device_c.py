"""The C text of a training step for a device: header and source."""

from collections.abc import Iterator

import numpy as np

from mlpengine.backends.compiled.statements import ForLoop, If, Statement
from mlpengine.backends.scalar.definitions import (
    Constants,
    c_definitions,
    c_text,
    comment_text,
    real_constant,
)
from mlpengine.backends.scalar.layer_functions import dot
from mlpengine.backends.scalar.math import mathematics
from mlpengine.core.wording import plural
from mlpengine.diagnostics.spikes import DOUBLE
from mlpengine.diagnostics.thresholds import SPIKE_DECAY, SPIKE_DEVIATIONS, SPIKE_WARM_UP
from mlpengine.export._device import BLOB_VERSION, MAGIC, DeviceStep
from mlpengine.export._table_c import prediction

DEVICE_HEADER = """\
/* {name}.h, written by mlpengine: a network that trains on a device.

   {title}

   All numbers are {upper}_REAL ({real} by default); compile every file with -D{upper}_REAL=double
   for others.  A state needs no memory but its own; the functions may be interrupted, and called
   for different states at the same time. */
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#ifndef {upper}_REAL
#define {upper}_REAL {real}
#endif

/* Whether {upper}_REAL is double. */
#define {upper}_IS_float 0
#define {upper}_IS_double 1
#define {upper}_JOIN_(a, b) a##b
#define {upper}_JOIN(a, b) {upper}_JOIN_(a, b)
#define {upper}_DOUBLE {upper}_JOIN({upper}_IS_, {upper}_REAL)
{needs_double}
#define {upper}_INPUTS {inputs} /* numbers in a row x */
#define {upper}_TARGETS {targets} /* numbers in a row's target y */
#define {upper}_OUTPUTS {outputs} /* numbers in a prediction */
#define {upper}_BATCH {batch} /* rows of a training step */
#define {upper}_PARAMETERS {parameters} /* trained weights and biases */

{definitions}
typedef struct {{
  {upper}_REAL params[{upper}_PARAMETERS];
{members}  {upper}_REAL lr; /* the learning rate; may be changed between steps */
  {upper}_REAL norm; /* of the last gradient, before clipping */
  {upper}_REAL norm_limit; /* a norm above it is a spike */
  {upper}_REAL norm_weight, norm_mean, norm_spread; /* running sums of log norms */
  uint32_t steps; /* completed steps */
  uint32_t skipped; /* steps without an update: an input, the loss or a gradient was not finite */
  uint32_t spikes; /* steps with an unusually large gradient norm */
}} {name}_state;

/* Bytes of a state, of the stack that a call needs (beside 512 for registers and arguments), and of
   a saved state. */
#define {upper}_STATE_BYTES sizeof({name}_state)
#define {upper}_SCRATCH_BYTES ({scratch} * sizeof({upper}_REAL))
#define {upper}_SAVED_BYTES ({reals} * sizeof({upper}_REAL) + 32)

/* Sets the weights of the exported model, and everything else to its start. */
void {name}_init({name}_state *state);

/* Predicts one row: writes {about} to out.  Returns 1; or 0, and NaN in out, if x
   holds a number that cannot be used. */
int {name}_predict(const {name}_state *state, const {upper}_REAL *x, {upper}_REAL *out);

/* Makes a training step on {upper}_BATCH rows, one after another in x and y, and returns their mean
   loss before it.  A loss or gradient that is not finite changes nothing but norm and skipped. */
{upper}_REAL {name}_train({name}_state *state, const {upper}_REAL *x, const {upper}_REAL *y);

/* Returns the norm of the last gradient, before clipping. */
{upper}_REAL {name}_norm(const {name}_state *state);

/* Writes {upper}_SAVED_BYTES: the same for processors of either byte order, with a check sum. */
void {name}_save(const {name}_state *state, unsigned char *bytes);

/* Reads what {name}_save wrote.  Returns 1; or 0, and leaves the state as it is, if the bytes are
   damaged, or of another network, version or {upper}_REAL. */
int {name}_load({name}_state *state, const unsigned char *bytes, size_t length);

#ifdef __cplusplus
}}
#endif
#endif
"""

SOURCE = """\
/* {name}.c, written by mlpengine; see {name}.h.  C99 without an allocator or stdio. */
#include "{name}.h"

#include <string.h>
{include}
{mathematics}
{body}"""

CHECK_DOUBLE = """\
#if !{upper}_DOUBLE
#error "dates, seconds since 1970, need {upper}_REAL double"
#endif
"""

NORM_FUNCTION = """\
/* The norm of a vector, accurate at every magnitude */
static real norm_of(const real *v, size_t n)
{{
  const real sum = {dot}(v, v, n);
  real largest = 0, scaled = 0;
  if (is_finite(sum) && sum > {smallest}) return v_sqrt(sum);
  for (size_t i = 0; i < n; i++) {{
    if (!is_finite(v[i])) return v[i];
    largest = vmax(v_abs(v[i]), largest);
  }}
  if (!(largest > 0)) return 0;
  for (size_t i = 0; i < n; i++) scaled += (v[i] / largest) * (v[i] / largest);
  return largest * v_sqrt(scaled);
}}

"""

HYPOTENUSE = """\
/* sqrt(a^2 + b^2) for a and b of 0 or more */
static real hypotenuse(real a, real b)
{
  const real large = vmax(a, b), small = vmin(a, b);
  if (!(large > 0) || !is_finite(large)) return large;
  return large * v_sqrt(1 + (small / large) * (small / large));
}

"""

OBSERVE = """\
/* Counts a norm beyond the mean of log norms by {deviations} deviations and twice the mean as a
   spike, and adds it to mean and deviation. */
static void observe({name}_state *state, real norm)
{{
  if (norm > state->norm_limit) {{
    state->spikes++;
    norm = state->norm_limit;
  }}
  if (!(norm > 0)) return;
  const real value = v_log(norm), old = value - state->norm_mean;
  state->norm_weight = {decay} * state->norm_weight + 1;
  state->norm_mean += old / state->norm_weight;
  state->norm_spread = {decay} * state->norm_spread + old * (value - state->norm_mean);
  if (state->steps + 1 < {warm_up}) return;
  const real deviation = v_sqrt(state->norm_spread / state->norm_weight);
  state->norm_limit = v_exp(state->norm_mean + vmax({deviations} * deviation, {double}));
}}

"""

SAVING = """\
static unsigned char *put(unsigned char *to, bits value, size_t size)
{{
  for (size_t i = 0; i < size; i++) *to++ = (unsigned char)(value >> (8 * i) & 0xff);
  return to;
}}

static bits get(const unsigned char *from, size_t size)
{{
  bits value = 0;
  for (size_t i = size; i-- > 0;) value = (bits)(value << 8) | from[i];
  return value;
}}

static unsigned char *put_reals(unsigned char *to, const real *from, size_t n)
{{
  for (size_t i = 0; i < n; i++) {{
    bits value;
    memcpy(&value, from + i, sizeof value);
    to = put(to, value, sizeof value);
  }}
  return to;
}}

static const unsigned char *get_reals(const unsigned char *from, real *to, size_t n)
{{
  for (size_t i = 0; i < n; i++) {{
    const bits value = get(from, sizeof value);
    memcpy(to + i, &value, sizeof value);
    from += sizeof value;
  }}
  return from;
}}

/* CRC-32 as in zlib, bit by bit: small, not fast */
static uint32_t check_sum(const unsigned char *bytes, size_t length)
{{
  uint32_t sum = 0xffffffffu;
  for (size_t i = 0; i < length; i++) {{
    sum ^= bytes[i];
    for (int k = 0; k < 8; k++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
  }}
  return ~sum;
}}

static unsigned char *put_head(unsigned char *to)
{{
  to = put(to, {magic}u, 4);
  to = put(to, (bits)({blob_version} << 8 | sizeof(real)), 4);
  to = put(to, {fingerprint}u, 4);
  return put(to, (bits){upper}_SAVED_BYTES, 4);
}}

void {name}_save(const {name}_state *state, unsigned char *bytes)
{{
  unsigned char *to = put_head(bytes);
{puts}  to = put(to, state->steps, 4);
  to = put(to, state->skipped, 4);
  to = put(to, state->spikes, 4);
  put(to, check_sum(bytes, {upper}_SAVED_BYTES - 4), 4);
}}

int {name}_load({name}_state *state, const unsigned char *bytes, size_t length)
{{
  unsigned char head[16];
  put_head(head);
  if (length != {upper}_SAVED_BYTES || memcmp(head, bytes, sizeof head) != 0) return 0;
  if (get(bytes + length - 4, 4) != check_sum(bytes, length - 4)) return 0;
  bytes += sizeof head;
{gets}  state->steps = (uint32_t)get(bytes, 4);
  state->skipped = (uint32_t)get(bytes + 4, 4);
  state->spikes = (uint32_t)get(bytes + 8, 4);
  return 1;
}}
"""

INIT = """\
void {name}_init({name}_state *state)
{{
{body}}}

"""

DEVICE_PREDICT = """\
int {name}_predict(const {name}_state *state, const {upper}_REAL *x, {upper}_REAL *out)
{{
{body}}}

"""

TRAIN = """\
{upper}_REAL {name}_train({name}_state *state, const {upper}_REAL *x, const {upper}_REAL *y)
{{
  real scratch[{scratch}];
{body}}}

{upper}_REAL {name}_norm(const {name}_state *state)
{{
  return state->norm;
}}

"""

NORMS = ("norm", "norm_limit", "norm_weight", "norm_mean", "norm_spread")
"""Members of the state that describe gradients; the last three start at zero."""


def header(step: DeviceStep) -> str:
    """Return the header."""
    table, upper, update = step.table, step.upper, step.update
    members = [f"  {upper}_REAL {name}[{upper}_PARAMETERS];\n" for name in update.moments]
    members += [f"  {upper}_REAL {name};\n" for name in update.carried]
    return DEVICE_HEADER.format(
        name=step.name,
        upper=upper,
        title=comment_text(network_title(step)),
        real=step.real,
        needs_double=CHECK_DOUBLE.format(upper=upper) if _has_dates(step) else "",
        inputs=step.inputs,
        targets=step.targets,
        outputs=step.outputs,
        batch=step.batch,
        parameters=step.parameters,
        definitions=table.macros if table else "",
        members="".join(members),
        reals=reals(step),
        scratch=scratch(step),
        about=table.about if table else "the outputs",
    )


def network_title(step: DeviceStep) -> str:
    """Return what the network is, in a line."""
    sizes = "-".join(map(str, step.mlp.sizes))
    frozen = f", layers {', '.join(map(str, step.frozen))} frozen" if step.frozen else ""
    clip = f", gradients clipped to the norm {step.clip_norm:g}" if step.clip_norm else ""
    return (
        f"{sizes}, {plural(step.parameters, 'trained parameter')}{frozen}; loss {step.loss.name}, "
        f"{type(step.optimizer).__name__}, learning rate {step.optimizer.lr:g}{clip}"
    )


def reals(step: DeviceStep) -> int:
    """Return the number of reals in a state."""
    vectors = 1 + len(step.update.moments)
    return vectors * step.parameters + len(step.update.carried) + 1 + len(NORMS)


def scratch(step: DeviceStep) -> int:
    """Return the number of reals that the larger of train and predict needs on the stack."""
    gradient = step.parameters if step.batch > 1 else 0
    return max(1, step.step.size + gradient, step.forward.size)


def _has_dates(step: DeviceStep) -> bool:
    return step.model is not None and "date" in step.model.preprocessor.kinds.values()


def source(step: DeviceStep) -> str:
    """Return the source file."""
    train, predict, norms = _train(step), _predict(step), _norms(step)  # which add functions
    body = "".join(
        [
            *_initial(step),
            c_definitions(step.functions.definitions),
            c_definitions(step.table.definitions if step.table else ()),
            norms,
            step.update.function(),
            _update_layer(step) if step.batch == 1 else "",
            _init(step),
            predict,
            train,
            _saving(step),
        ]
    )
    return SOURCE.format(
        name=step.name,
        include="#include <math.h>\n" if step.libm else "",
        mathematics=mathematics(body, step.upper, libm=step.libm),
        body=body,
    )


def _initial(step: DeviceStep) -> Iterator[str]:
    yield Constants("initial", step.layer_values(step.trained), by_name=True).c + "\n"
    for i in step.frozen:
        yield Constants(f"frozen_{i}", step.layer_values([i])).c + "\n"


def _norms(step: DeviceStep) -> str:
    info = np.finfo(np.float32 if step.real == "float" else np.float64)
    smallest = float(info.tiny) / float(info.eps) * step.parameters
    text = NORM_FUNCTION.format(dot=dot(step.functions), smallest=real_constant(smallest))
    text += HYPOTENUSE if step.batch == 1 else ""
    return text + OBSERVE.format(
        name=step.name,
        decay=real_constant(SPIKE_DECAY),
        deviations=real_constant(SPIKE_DEVIATIONS),
        double=real_constant(DOUBLE),
        warm_up=SPIKE_WARM_UP,
    )


def _update_layer(step: DeviceStep) -> str:
    update = step.update
    parameters = update.parameters + ", real keep_bias" * update.decays
    return (
        "/* A step for a layer; its gradient is the product of dy and x. */\n"
        f"static void update_layer({step.name}_state *state, size_t at, const real *dy, "
        f"const real *x, size_t in, size_t out, real factor{parameters})\n{{\n"
        "  for (size_t i = 0; i < out; i++)\n"
        f"    update(state, at + i * in, in, x, dy[i] * factor{update.arguments()});\n"
        f"  update(state, at + in * out, out, dy, factor{update.arguments('keep_bias')});\n}}\n\n"
    )


def _init(step: DeviceStep) -> str:
    update = step.update
    lines = [
        "memset(state, 0, sizeof *state);",
        f"for (size_t i = 0; i < {step.parameters}; i++) state->params[i] = initial[i];",
        *(f"state->{n} = {real_constant(v)};" for n, v in update.carried.items() if v),
        f"state->lr = {real_constant(step.optimizer.lr)};",
        "state->norm_limit = R(INFINITY);",
    ]
    return INIT.format(name=step.name, body=c_text(lines))


def _predict(step: DeviceStep) -> str:
    """Return the function that predicts."""
    body = c_text(prediction(step.forward, step.outputs, has_table=step.table is not None))
    return DEVICE_PREDICT.format(name=step.name, upper=step.upper, body=body)


def _train(step: DeviceStep) -> str:
    """Return the function that makes a step."""
    parts, lines = step.step, list[Statement]()
    if step.batch > 1:
        lines.append(f"real *const gradient = scratch + {parts.size};")
    if step.table:
        lines += _given(step)
        lines.append(
            If("!usable", ["state->norm = R(NAN);", "state->skipped++;", "return R(NAN);"])
        )
    lines += parts.statements
    if step.batch == 1:
        lines.append("real norm = 0;")
        for i, (dy, x) in parts.factors.items():
            layer = step.mlp.layers[i]
            length = f"hypotenuse(norm_of({x}, {layer.in_dim}), 1)"
            lines.append(f"norm = hypotenuse(norm, norm_of({dy}, {layer.out_dim}) * {length});")
    else:
        lines.append(f"const real norm = norm_of(gradient, {step.parameters});")
    lines += [
        "state->norm = norm;",
        If("!is_finite(value) || !is_finite(norm)", ["state->skipped++;", "return value;"]),
        "observe(state, norm);",
        _factor(step),
        *step.update.statements(),
        *_updates(step),
        "state->steps++;",
        "return value;",
    ]
    body = c_text(lines)
    return TRAIN.format(name=step.name, upper=step.upper, scratch=scratch(step), body=body)


def _given(step: DeviceStep) -> Iterator[Statement]:
    """Yield the statements that fill the features and the targets."""
    assert step.table is not None
    features, *targets = step.step.given
    if step.batch == 1:
        yield f"const int usable = features(x, {features});"
        yield from (f"learned(y, {place});" for place in targets)
        return
    at = f"{features} + row * {step.mlp.sizes[0]}"
    row = [f"usable &= features(x + row * {step.inputs}, {at});"]
    row += [f"learned(y + row * {step.targets}, {p} + row * {step.targets});" for p in targets]
    yield "int usable = 1;"
    yield ForLoop("row", 0, step.batch, row)


def _factor(step: DeviceStep) -> str:
    if step.clip_norm is None:
        return "const real factor = 1;"
    limit = f"{real_constant(step.clip_norm)} / (norm + {real_constant(1e-6)})"
    return f"const real factor = vmin({limit}, R(1));"


def _updates(step: DeviceStep) -> Iterator[str]:
    """Yield the calls that update the parameters."""
    update, decayed = step.update, step.decayed()
    keeps = {True: "keep", False: "1"}
    if step.batch == 1:
        for i, (dy, x) in step.step.factors.items():
            layer, (weight, bias) = step.mlp.layers[i], decayed[i]
            arguments = update.arguments(keeps[weight]) + f", {keeps[bias]}" * update.decays
            yield (
                f"update_layer(state, {step.offsets[i]}, {dy}, {x}, "
                f"{layer.in_dim}, {layer.out_dim}, factor{arguments});"
            )
        return
    if not update.decays:
        yield f"update(state, 0, {step.parameters}, gradient, factor{update.arguments()});"
        return
    for i, decays in decayed.items():
        start, sizes = step.offsets[i], (step.mlp.weights[i].size, step.mlp.biases[i].size)
        for keep, size in zip(decays, sizes, strict=True):
            arguments = update.arguments(keeps[keep])
            yield f"update(state, {start}, {size}, gradient + {start}, factor{arguments});"
            start += size


def _saving(step: DeviceStep) -> str:
    update, count = step.update, step.parameters
    vectors = ["params", *update.moments]
    numbers = [*update.carried, "lr", *NORMS]
    places = [(f"state->{name}", count) for name in vectors]
    places += [(f"&state->{name}", 1) for name in numbers]
    return SAVING.format(
        name=step.name,
        upper=step.upper,
        magic=MAGIC,
        blob_version=BLOB_VERSION,
        fingerprint=step.fingerprint(),
        puts="".join(f"  to = put_reals(to, {place}, {n});\n" for place, n in places),
        gets="".join(f"  bytes = get_reals(bytes, {place}, {n});\n" for place, n in places),
    )
