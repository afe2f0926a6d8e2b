"""A model as C code: from the columns of a row to predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlpengine.backends.scalar.definitions import (
    Definition,
    FreshNames,
    Functions,
    ScalarFunction,
    c_definitions,
    comment_text,
    identifier,
    real_constant,
)
from mlpengine.core.errors import DataError, UsageError
from mlpengine.core.spec import Array
from mlpengine.core.wording import label_text
from mlpengine.data.tables.table import number_text
from mlpengine.export._exported import Exported
from mlpengine.export._lags_c import lags_c
from mlpengine.export._table_c import TableCode, prediction, table_code
from mlpengine.export.network_c import (
    NetworkCode,
    PredictionCode,
    Real,
    c_file,
    network_code,
)
from mlpengine.models.model import Model
from mlpengine.models.task import MultiLabel, Regression
from mlpengine.nn import Network

LATEST = 1e12
"""Maximum distance from 1970 of a date in the example, in seconds."""

ROUNDED = 5e-5
"""Maximum rounding error of an input as a float, in units of the column's standard deviation."""

ABOUT = """\
Predicts one row.  x has {inputs} numbers, one for each column; the index of a column
   is {upper}_X_....  A missing value is NaN; a category is its code {upper}_CODE_....
   out gets {outputs} numbers, {about}.
   Returns 1.  If the row cannot be used, returns 0 and writes NaN to out.
{example}"""

PREDICTION_HEADER = """\
/* Predictions of a model, written by mlpengine. */
#ifndef {upper}_H
#define {upper}_H
{definitions}
/* The type of all numbers{reason}. */
#define {upper}_REAL {real}

#ifdef __cplusplus
extern "C" {{
#endif

{declarations}
#ifdef __cplusplus
}}
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
/* A call with arrays of another type must not compile; by default, compilers only warn. */
#define {name}_of_real(p) _Generic(&(p)[0], const {real} *: (p), {real} *: (p))
{checks}#endif

#endif
"""

CHECKED = "#define {name}(x, out) {name}({prefix}_of_real(x), {prefix}_of_real(out))\n"
"""Macro that checks the argument types of a function with the same name."""

PREDICT_DECLARATION = """\
/* Reads the {inputs} numbers of a row and writes {outputs}: {about}.
   Returns 1.  If the row cannot be used, returns 0 and writes NaN to out. */
int {name}_predict(const {real} *x, {real} *out);
"""

NETWORK_DECLARATION = """\
/* Reads {inputs} features and writes {outputs} outputs of the network.{about} */
void {name}(const {real} *input, {real} *output);
"""

SELF_TEST = """\
#ifdef {macro} /* cc -D{macro} FILE -lm && ./a.out: the example above */
#include <stdio.h>

int main(void)
{{
  static const real x[{inputs}] = {{{row}}};
  static const double expected[{outputs}] = {{{answer}}};
  real out[{outputs}];
  int right = {predict}(x, out);
  for (int i = 0; i < {outputs}; i++) {{
    const double apart = fabs((double)out[i] - expected[i]), size = fabs(expected[i]);
    if (!(apart <= {tolerance} * (size > {scale} ? size : {scale}))) right = 0;
    printf("%.9g (expected %.9g)\\n", (double)out[i], expected[i]);
  }}
  puts(right ? "right" : "WRONG");
  return !right;
}}
#endif
"""


@dataclass(frozen=True)
class ModelCode:
    """The C code of a model: the definitions of `network`, then `definitions`.

    The last definition is the function ``int predict(x, out)`` for a row; `predict` is its name.

    Attributes:
        example: a row, its numbers for the C function, and the prediction (NaN if it is unknown).
        names: names of the outputs.
        tolerance: relative tolerance of C's prediction for the example.
    """

    network: NetworkCode
    table: TableCode
    predict: str
    definitions: list[Definition]
    example: tuple[dict[str, Any], list[float], Array]
    names: list[str]
    tolerance: float


def model_code(
    model: Model,
    name: str | None = None,
    *,
    rounded: float = ROUNDED,
) -> ModelCode:
    """Return the code of a model.  If `name` is given, all names in C begin with `name`."""
    predict, network = (f"{name}_{one}" if name else one for one in ("predict", "network"))
    prefix = name or "mlp"
    functions = Functions(FreshNames({predict}))
    real: Real = "double" if why_double(model, rounded) else "float"
    table = table_code(model, prefix, functions, real=real, trains=False)
    row, cells = _example(model)
    answer = _answer(model, row)
    names = _names(model)
    known = bool(np.isfinite(answer).all())
    inputs = model.mlp.in_dim
    raw = f"values + {inputs}"
    forward = PredictionCode(
        [f"{network}(values, {raw});"], inputs + model.task.outputs, "values", raw
    )
    about = ABOUT.format(
        upper=identifier(prefix, upper=True),
        inputs=table.inputs,
        outputs=table.outputs,
        about=table.about,
        example=_shown(row, dict(zip(names, answer.tolist(), strict=True))) if known else "",
    )
    body = prediction(forward, table.outputs, has_table=True)
    whole = ScalarFunction(
        predict, {"x": "reads", "out": "writes"}, body, about, "int", static=False
    )
    code = network_code(
        model.networks if model.populations else model.mlp,
        name=network,
        log_link=model.task.log_link,
        weights=model.mean.network_weights.tolist(),
        real=real,
        functions=functions,
    )
    tolerance = 1e-4 if model.mlp.dtype == np.float32 else 1e-9
    definitions = [*table.definitions, whole]
    return ModelCode(code, table, predict, definitions, (row, cells, answer), names, tolerance)


def to_c(model: Model | Network, name: str | None = None) -> tuple[bytes, Exported]:
    """Return a C file with functions for the network (from features) and the model (from columns).

    If `name` is given, functions and macros begin with `name`, and a header declares the functions.

    Raises: UsageError for preprocessing without a C form, or a name that is not a C identifier.
    """
    if name is not None and not (str(name).isidentifier() and str(name).isascii()):
        raise UsageError(
            f"export: name must be a C identifier, such as {identifier(str(name))} (got {name!r})"
        )
    upper = identifier(name or "mlp", upper=True)
    if isinstance(model, Network):
        dtype, predict = model.dtype.name, f"{name}_predict" if name else "predict"
        alone = network_code(model, name=predict)
        beside = _header(name, [predict], alone.real, "", _declared(alone), "")
        exported = Exported("c", {"input": dtype}, {"output": dtype}, beside=beside)
        return c_file(alone).encode(), exported
    code = model_code(model, name)
    table, real = code.table, code.network.real
    columns = model.preprocessor.columns
    declarations, body = lags_c(model.preprocessor.history, columns, name, real)
    text = f"{table.macros}\n{c_definitions(code.definitions)}{declarations}{body}"
    macro = f"{upper}_SELF_TEST" if np.isfinite(code.example[2]).all() else ""
    if macro:
        text += _self_test(model, code, macro)
    sizes = {"inputs": table.inputs, "outputs": table.outputs}
    declared = PREDICT_DECLARATION.format(name=name, real=real, about=table.about, **sizes)
    declared += _declared(code.network) + declarations
    functions, reason = [code.predict, code.network.name], why_double(model)
    beside = _header(name, functions, real, table.macros, declared, reason)
    kinds, outputs = (dict.fromkeys(n, real) for n in (columns, code.names))
    exported = Exported("c", kinds, outputs, beside=beside, self_test=macro)
    return c_file(code.network, text).encode(), exported


def _declared(code: NetworkCode) -> str:
    sizes = {"inputs": code.in_dim, "outputs": code.out_dim}
    return NETWORK_DECLARATION.format(name=code.name, real=code.real, about=code.about, **sizes)


def _header(
    name: str | None, functions: Sequence[str], real: Real, macros: str, text: str, reason: str
) -> dict[str, bytes]:
    """Return the header as {".h": content}; {} if `name` is None."""
    if name is None:
        return {}
    header = PREDICTION_HEADER.format(
        name=name,
        upper=identifier(name, upper=True),
        definitions=macros,
        real=real,
        reason=f", because {comment_text(reason)}" if reason else "",
        declarations=text,
        checks="".join(CHECKED.format(name=one, prefix=name) for one in functions),
    )
    return {".h": header.encode()}


def why_double(model: Model, rounded: float = ROUNDED) -> str:
    """Return the reason why a model's C needs double numbers, or "" if float is enough.

    The reasons are a float64 network, dates, numbers beyond the range of float, and a column with
    rounding errors above `rounded`, in units of its standard deviation or of its narrowest bin.
    """
    if model.mlp.dtype == np.float64:
        return "the network is float64"
    numbers, kinds = model.preprocessor.fitted_numbers, model.preprocessor.kinds
    for name, kind in kinds.items():
        if kind == "date":
            return f"a float rounds dates to minutes ({name})"
    constants = [numbers.fill, numbers.center, numbers.factor, numbers.bins.left]
    if isinstance(model.task, Regression):
        target = model.task.target
        constants += [target.center, target.scale]
        constants += [] if target.bounds is None else [target.bounds]
        if target.log and target.bounds is not None:  # exp of a small number must not be 0
            constants.append(1 / target.bounds)
        if np.any(np.abs(target.center) * 2.0**-24 > rounded * target.scale) and not target.log:
            return "a float rounds the predictions"
    if any(np.abs(one).max(initial=0) > np.finfo(np.float32).max for one in constants):
        return "a number of the table is beyond the range of float"
    varies = numbers.factor > 0
    spread = np.divide(1.0, numbers.factor, out=np.zeros_like(numbers.factor), where=varies)
    size = np.abs(numbers.center) + 3 * spread
    np.minimum.at(spread, numbers.bins.columns, numbers.bins.width)
    whole = np.array([kinds.get(source.column) == "integer" for source in numbers.sources], bool)
    is_rounded = 2.0**-24 * size > rounded * spread
    places = np.flatnonzero(is_rounded & varies & ~(whole & (size < 2.0**24)))
    if places.size:
        return f"a float rounds the values of {numbers.sources[places[0]].column}"
    return ""


def _example(model: Model) -> tuple[dict[str, Any], list[float]]:
    """Return a row of typical values, and its numbers for the C function."""
    preprocessor = model.preprocessor
    numbers = preprocessor.fitted_numbers
    categories = {c.column: c for c in preprocessor.categories}
    fills = {s.column: i for i, s in enumerate(numbers.sources) if not s.part and not s.minus}
    row: dict[str, Any] = {}
    cells: list[float] = []
    for name in preprocessor.columns:
        kind = preprocessor.kinds.get(name, "number")
        if name in categories:
            levels = categories[name].levels
            row[name], code = (levels[0], 0.0) if levels else ("", -1.0)
            cells.append(code)
            continue
        usual = preprocessor.operands[name].center if name in preprocessor.operands else 0.0
        if name in fills:
            i = fills[name]
            usual = float(numbers.center[i] if numbers.factor[i] else numbers.fill[i])
        value = float(round(usual)) if kind in ("boolean", "integer", "date") else usual
        if kind != "date":
            value = float(f"{value:.6g}")
        elif abs(value) > LATEST:
            value = 0.0
        row[name] = number_text("date", value) if kind == "date" else value
        cells.append(value)
    return row, cells


def _answer(model: Model, row: dict[str, Any]) -> Array:
    """Return the prediction of the model for a row, in the order of the C function."""
    try:
        output = model.outputs(row)
    except DataError:  # a typical value cannot be read, so there is no example
        return np.full(len(_names(model)), np.nan)
    answer: Array = model.task.predicted_numbers(output)[0]
    return answer


def _names(model: Model) -> list[str]:
    if isinstance(model.task, Regression):
        return list(model.task.column_names)
    kind = "label" if isinstance(model.task, MultiLabel) else "probability of"
    return [f"{kind} {label_text(name)}" for name in model.classes]


def _shown(row: dict[str, Any], answer: dict[str, float]) -> str:
    lines = ["", "   Example:"]
    lines += [
        f"     {comment_text(name)} = {comment_text(str(cell))}" for name, cell in row.items()
    ]
    lines += ["   gives"]
    lines += [f"     {comment_text(name)} = {value:.9g}" for name, value in answer.items()]
    return "\n".join(lines)


def _self_test(model: Model, code: ModelCode, macro: str) -> str:
    task, (_, cells, answer) = model.task, code.example
    scale = float(np.abs(task.target.scale).max()) if isinstance(task, Regression) else 1.0
    return SELF_TEST.format(
        inputs=code.table.inputs,
        outputs=code.table.outputs,
        row=", ".join(map(real_constant, cells)),
        answer=", ".join(map(repr, answer.tolist())),
        tolerance=code.tolerance,
        scale=repr(scale),
        predict=code.predict,
        macro=macro,
    )
