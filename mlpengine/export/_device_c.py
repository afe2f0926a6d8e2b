"""The C text of a training step for a device: header and source."""

from collections.abc import Iterator
from zlib import crc32

import numpy as np

from mlpengine.backends.compiled.statements import If, Statement
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
from mlpengine.export._device import DeviceStep
from mlpengine.export._table_c import prediction

DEVICE_HEADER = """\
/* {name}.h, written by mlpengine: a network that trains on a device.

   {title}

   All numbers are of the type {upper}_REAL ({real} by default).  To use {other}, compile every file
   with -D{upper}_REAL={other}.  The functions allocate no memory.  They may be interrupted, and may
   run for different states at the same time. */
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
#define {upper}_PARAMETERS {parameters} /* trained weights and biases */

{definitions}
typedef struct {{
  {upper}_REAL params[{upper}_PARAMETERS];
{members}  {upper}_REAL lr; /* the learning rate; may be changed between steps */
  {upper}_REAL norm; /* of the last gradient, before clipping */
  uint32_t steps; /* completed steps */
  uint32_t skipped; /* steps without an update: a number of the step was not finite */
}} {name}_state;

/* Bytes of a state, and of the stack that a call needs (plus 512 for registers and arguments). */
#define {upper}_STATE_BYTES sizeof({name}_state)
#define {upper}_SCRATCH_BYTES ({scratch} * sizeof({upper}_REAL))

/* Sets the weights to the weights of the exported model, and all counters and moments to 0. */
void {name}_init({name}_state *state);

/* Predicts one row: writes {about} to out.  Returns 1.  If x has a number that cannot
   be used, returns 0 and writes NaN to out. */
int {name}_predict(const {name}_state *state, const {upper}_REAL *x, {upper}_REAL *out);

/* Makes a training step on a row and returns its loss before the step.  If the loss, the gradient
   or the learning rate is not finite, the step is skipped: only norm and skipped change. */
{upper}_REAL {name}_train({name}_state *state, const {upper}_REAL *x, const {upper}_REAL *y);

/* Returns a check sum of a state.  To keep a state while the power is off, store the state and its
   sum.  If the sum of the loaded state differs, the state is damaged, or of another model. */
uint32_t {name}_check_sum(const {name}_state *state);

#ifdef __cplusplus
}}
#endif
#endif
"""

SOURCE = """\
/* {name}.c, written by mlpengine; see {name}.h.  C99 without an allocator or stdio. */
#include "{name}.h"

#include <math.h>
#include <string.h>

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

CHECK_SUM = """\
/* CRC-32 as in zlib, bit by bit: small, not fast */
uint32_t {name}_check_sum(const {name}_state *state)
{{
  const unsigned char *bytes = (const unsigned char *)state;
  uint32_t sum = {fingerprint}u;
  for (size_t i = 0; i < sizeof *state; i++) {{
    sum ^= bytes[i];
    for (int k = 0; k < 8; k++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
  }}
  return ~sum;
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

"""


def header(step: DeviceStep) -> str:
    """Return the header."""
    table, upper, update = step.table, step.upper, step.update
    members = [f"  {upper}_REAL {name}[{upper}_PARAMETERS];\n" for name in update.moments]
    has_dates = step.model is not None and "date" in step.model.preprocessor.kinds.values()
    return DEVICE_HEADER.format(
        name=step.name,
        upper=upper,
        title=comment_text(network_title(step)),
        real=step.real,
        other="double" if step.real == "float" else "float",
        needs_double=CHECK_DOUBLE.format(upper=upper) if has_dates else "",
        inputs=step.inputs,
        targets=step.targets,
        outputs=step.outputs,
        parameters=step.parameters,
        definitions=table.macros if table else "",
        members="".join(members),
        scratch=scratch(step),
        about=table.about if table else "the outputs",
    )


def network_title(step: DeviceStep) -> str:
    """Return a line that describes the network."""
    sizes = "-".join(map(str, step.mlp.sizes))
    frozen = f", layers {', '.join(map(str, step.frozen))} frozen" if step.frozen else ""
    clip = f", gradients clipped to the norm {step.clip_norm:g}" if step.clip_norm else ""
    return (
        f"{sizes}, {plural(step.parameters, 'trained parameter')}{frozen}; loss {step.loss.title}, "
        f"{type(step.optimizer).__name__}, learning rate {step.optimizer.lr:g}{clip}"
    )


def scratch(step: DeviceStep) -> int:
    """Return the number of reals on the stack of train or of predict, whichever is larger."""
    return max(1, step.step.size, step.forward.size)


def source(step: DeviceStep) -> str:
    """Return the source file."""
    train, predict, norms = _train(step), _predict(step), _norms(step)  # change `step.functions`
    body = "".join(
        [
            *_initial(step),
            c_definitions(step.functions.definitions),
            c_definitions(step.table.definitions if step.table else ()),
            norms,
            step.update.function(),
            _update_layer(step),
            _init(step),
            predict,
            train,
        ]
    )
    body += CHECK_SUM.format(name=step.name, fingerprint=crc32(body.encode()))
    return SOURCE.format(name=step.name, mathematics=mathematics(body, step.upper), body=body)


def _initial(step: DeviceStep) -> Iterator[str]:
    yield Constants("initial", step.layer_values(step.trained), by_name=True).c + "\n"
    for i in step.frozen:
        yield Constants(f"frozen_{i}", step.layer_values([i])).c + "\n"


def _norms(step: DeviceStep) -> str:
    info = np.finfo(np.float32 if step.real == "float" else np.float64)
    smallest = float(info.tiny) / float(info.eps) * step.parameters
    text = NORM_FUNCTION.format(dot=dot(step.functions), smallest=real_constant(smallest))
    return text + HYPOTENUSE


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
    lines = [
        "memset(state, 0, sizeof *state);",
        f"for (size_t i = 0; i < {step.parameters}; i++) state->params[i] = initial[i];",
        f"state->lr = {real_constant(step.optimizer.lr)};",
    ]
    return INIT.format(name=step.name, body=c_text(lines))


def _predict(step: DeviceStep) -> str:
    body = c_text(prediction(step.forward, step.outputs, has_table=step.table is not None))
    return DEVICE_PREDICT.format(name=step.name, upper=step.upper, body=body)


def _train(step: DeviceStep) -> str:
    parts, lines = step.step, list[Statement]()
    if step.table:
        features, *targets = parts.given
        lines.append(f"const int usable = features(x, {features});")
        lines += (f"learned(y, {place});" for place in targets)
        lines.append(
            If("!usable", ["state->norm = R(NAN);", "state->skipped++;", "return R(NAN);"])
        )
    lines += [*parts.statements, "real norm = 0;"]
    for i, (dy, x) in parts.factors.items():
        layer = step.mlp.layers[i]
        length = f"hypotenuse(norm_of({x}, {layer.in_dim}), 1)"
        lines.append(f"norm = hypotenuse(norm, norm_of({dy}, {layer.out_dim}) * {length});")
    lines += [
        "state->norm = norm;",
        If(
            "!is_finite(value) || !is_finite(norm) || !is_finite(state->lr)",
            ["state->skipped++;", "return value;"],
        ),
        _factor(step),
        *step.update.statements(),
        *_updates(step),
        "state->steps++;",
        "return value;",
    ]
    body = c_text(lines)
    return TRAIN.format(name=step.name, upper=step.upper, scratch=scratch(step), body=body)


def _factor(step: DeviceStep) -> str:
    if step.clip_norm is None:
        return "const real factor = 1;"
    limit = f"{real_constant(step.clip_norm)} / (norm + {real_constant(1e-6)})"
    return f"const real factor = vmin({limit}, R(1));"


def _updates(step: DeviceStep) -> Iterator[str]:
    update, keeps = step.update, {True: "keep", False: "1"}
    for i, (weight, bias) in step.decayed().items():
        (dy, x), layer = step.step.factors[i], step.mlp.layers[i]
        arguments = update.arguments(keeps[weight]) + f", {keeps[bias]}" * update.decays
        yield (
            f"update_layer(state, {step.offsets[i]}, {dy}, {x}, "
            f"{layer.in_dim}, {layer.out_dim}, factor{arguments});"
        )
