"""A model as one JavaScript module."""

from pathlib import Path
from typing import Any

from mlpengine.backends.scalar.definitions import Definition, comment_text
from mlpengine.backends.scalar.javascript import JavaScript
from mlpengine.backends.values import UnsupportedError
from mlpengine.core.errors import UsageError
from mlpengine.core.wording import label_text, script_json
from mlpengine.export._exported import Exported
from mlpengine.export._model_c import model_code
from mlpengine.export.network_c import NetworkCode, network_code
from mlpengine.models.model import Model
from mlpengine.models.task import Classification, MultiLabel, Regression
from mlpengine.nn import Network

MODULE_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Levels of the intervals and sets in a module."""

ROUNDED_IN_PAGES = 1e-6
"""Maximum rounding error of an input as a float, in units of the column's standard deviation.

With a larger error, all numbers are doubles; JavaScript computes with doubles equally fast."""

TITLE = """\
/* {title}, written by mlpengine: an ES module without dependencies. */
"""

RUN_FUNCTION = """
const $x = {x}, $out = {out};

/* The outputs for numbers, or null for a row that cannot be used. */
function run(cells) {{
  $memory.set(cells, $x);
  const usable = {call};
  return usable ? Array.from($memory.subarray($out, $out + {outputs})) : null;
}}

"""

PREDICT = """
/* Outputs of the network for an array of {inputs} numbers.{about} */
export function predict(input) {{
  if (input?.length !== {inputs}) throw new RangeError("predict: {inputs} numbers are needed");
  for (const x of input) {{
    if (typeof x !== "number") throw new TypeError(`predict: needs numbers (got ${{x}})`);
  }}
  return run(input);
}}
"""


def to_js(model: Model | Network) -> tuple[bytes, Exported]:
    """Return an ES module that predicts rows; a row is an object such as ``{age: 3, sex: "f"}``.

    Raises: UsageError for a part without a JavaScript form.
    """
    code, definitions, call, inputs, outputs = _definitions(model)
    script = JavaScript(code.real == "float")
    try:
        script.add(definitions)
    except UnsupportedError as error:
        raise UsageError(f"export: every op must have a JavaScript form (got {error})") from error
    x, out = script.reserve(inputs), script.reserve(outputs)
    module = TITLE.format(title=comment_text(code.title)) + script.text()
    module += RUN_FUNCTION.format(x=x, out=out, outputs=outputs, call=call.format("$x, $out"))
    return (module + _interface(model, inputs, code.about)).encode(), _exported(model)


def _definitions(
    model: Model | Network,
) -> tuple[NetworkCode, list[Definition], str, int, int]:
    """Return the network, all definitions, a call as a format string, input and output length."""
    if isinstance(model, Network):
        code = network_code(model, name="network")
        return code, code.definitions, "(network({}), 1)", code.in_dim, code.out_dim
    whole = model_code(model, "model", rounded=ROUNDED_IN_PAGES)
    code, table, call = whole.network, whole.table, f"{whole.predict}({{}})"
    return code, [*code.definitions, *whole.definitions], call, table.inputs, table.outputs


def _interface(model: Model | Network, inputs: int, about: str) -> str:
    """Return the JavaScript exports of a module that reads `inputs` numbers."""
    if isinstance(model, Network):
        return PREDICT.format(inputs=inputs, about=about)
    known = description(model)
    has_dates = any(c["kind"] == "date" or "seconds" in c for c in known["columns"])
    parts = ["row", *["dates"] * has_dates, *["intervals"] * ("intervals" in known)]
    folder = Path(__file__).parent
    text = "\n".join((folder / f"{part}.js").read_text(encoding="utf-8") for part in parts)
    return text.replace("DESCRIPTION", script_json(known), 1)


def description(model: Model) -> dict[str, Any]:
    """Return the facts about columns and predictions that a module contains, ready for JSON."""
    preprocessor, task = model.preprocessor, model.task
    categories = {category.column: category for category in preprocessor.categories}
    numbers = preprocessor.fitted_numbers
    columns: list[dict[str, Any]] = []
    for name in preprocessor.columns:
        if category := categories.get(name):
            column = {"kind": "category", "gaps": not category.strict, "levels": category.levels}
            column |= {} if category.text else {"numeric": True}
            if (seconds := category.seconds) is not None:
                column["seconds"] = seconds.tolist()
        else:
            column = {"kind": preprocessor.kinds.get(name, "number"), "gaps": not numbers.strict}
        if column["kind"] == "date" or "seconds" in column:
            pattern = preprocessor.options.reading.date_pattern(name)
            if pattern is not None:
                column["dates"] = f"^{pattern.pattern.replace('(?P<', '(?<')}$"
        columns.append({"name": name, **column})
    known: dict[str, Any] = {
        "columns": columns,
        "gaps": sorted(preprocessor.options.reading.missing),
        "names": model.classes,
        "task": "labels" if isinstance(task, MultiLabel) else "classes",
        "levels": [],
    }
    if isinstance(task, Classification) and task.predicts_median:
        known["median"] = True
    if model.threshold is not None:
        known["threshold"] = {"value": model.threshold.value, "positive": model.threshold.positive}
    if model.sets is not None:
        lowest = [model.sets.lowest(level) for level in MODULE_LEVELS]
        known |= {"levels": list(MODULE_LEVELS), "lowest": lowest}
    if not isinstance(task, Regression):
        return known
    known |= {"task": "numbers", "names": list(task.column_names)}
    if model.residuals is None:
        return known
    ends = [model.residuals.ends(level) for level in MODULE_LEVELS]
    intervals = [
        {
            "name": name,
            "output": i * len(task.loss.predictions) + task.loss.point,
            "ends": [[float(low[i]), float(high[i])] for low, high in ends],
            "places": model.residuals.places[:, i].tolist(),
            "scales": model.residuals.scales[:, i].tolist(),
        }
        for i, name in enumerate(model.predicts)
    ]
    bounds = [end if abs(end) < float("inf") else None for end in task.target_range]
    return known | {"levels": list(MODULE_LEVELS), "intervals": intervals, "range": bounds}


def _exported(model: Model | Network) -> Exported:
    if isinstance(model, Network):
        return Exported("js", {"input": "numbers"}, {"output": "numbers"})
    known = description(model)
    inputs = {column["name"]: column["kind"] for column in known["columns"]}
    return Exported("js", inputs, dict.fromkeys(map(label_text, known["names"]), "number"))
