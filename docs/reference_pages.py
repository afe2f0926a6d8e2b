"""What the reference takes from the code: commands, config keys, Python names.

A page of it, such as ``docs/reference/config.md``, has a title and `MARK`; what follows the mark is
for readers of the repository, and the built page has the text from the code in its place.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click

MODULES = {
    "mlpengine": "The names that most programs need.",
    "mlpengine.step": "One training step, and the steps of several networks.",
    "mlpengine.training": "Loops, callbacks, the trainer.",
    "mlpengine.models": "Models, tasks, metrics.",
    "mlpengine.nn": "Networks, their buffers and initial weights.",
    "mlpengine.ops": "Ops, activations and losses.",
    "mlpengine.core.spec": "Shapes, dtypes and bound calls, for ops.",
    "mlpengine.formula": "Formulas of element-wise functions.",
    "mlpengine.tape": "Recording, programs and gradients.",
    "mlpengine.optim": "Optimizers, schedules and clipping.",
    "mlpengine.settings": "What a run is: network, features, training, split.",
    "mlpengine.diagnostics": "Gradient diagnostics and verdicts.",
    "mlpengine.data.tables": "Tables from files and data frames.",
    "mlpengine.data.features": "Preprocessing, splits, batches.",
    "mlpengine.config": "Configs and their schema.",
    "mlpengine.estimators": "Estimators for scikit-learn.",
    "mlpengine.export": "ONNX and other formats.",
    "mlpengine.export.c_train": "Training on a device, as C.",
    "mlpengine.report": "The page of a run, of several, or of a sweep.",
    "mlpengine.core.errors": "Every exception that is raised on purpose.",
}
"""Public modules and what they contain."""

MARK = "<!-- from the code -->\n"
"""Where the text from the code begins."""


def complete(page: str, text: str) -> str:
    """Return the text of a page with what the code says, if it is one of `PAGES`."""
    if page not in PAGES:
        return text
    return text[: text.index(MARK)] + PAGES[page]()


def commands() -> str:
    """Return the help of every command."""
    from mlpengine_cli.main import COMMANDS, group

    parts = []
    with click.Context(group, info_name="mlpengine", max_content_width=100) as context:
        parts += ["## mlpengine", fenced(group.get_help(context), "text")]
        for name in COMMANDS:
            command = group.get_command(context, name)
            assert command is not None
            with click.Context(command, info_name=name, parent=context) as inner:
                inner.max_content_width, inner.terminal_width = 100, 100
                parts += [f"## mlpengine {name}", fenced(command.get_help(inner), "text")]
    return "\n\n".join(parts) + "\n"


def config() -> str:
    """Return every key of a config with its type, default, limits and meaning."""
    from mlpengine.config import json_schema

    schema = json_schema()
    definitions = schema["$defs"]
    parts = [table("the file", schema, definitions)]
    for name, definition in sorted(definitions.items()):
        if definition.get("properties"):
            text = definition.get("description", "")
            parts += [f"## {name}", text, table(name, definition, definitions)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(name: str, definition: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return the keys of one section as a table."""
    required = set(definition.get("required", ()))
    lines = [f"| key of {name} | meaning | type | default |", "| --- | --- | --- | --- |"]
    for key, entry in definition.get("properties", {}).items():
        default = "*required*" if key in required else default_of(entry)
        cells = [f"`{key}`", entry.get("description", ""), kind(entry, definitions), default]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def default_of(entry: dict[str, Any]) -> str:
    """Return a default as it would stand in a config; of a section, its name if it has one."""
    value = entry.get("default")
    if isinstance(value, dict) and value:
        return f"`{value['name']}`" if "name" in value else "its defaults"
    return f"`{json.dumps(value)}`"


def kind(entry: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return a type and its limits in words."""
    return " or ".join(kinds(entry, definitions))


def kinds(entry: dict[str, Any], definitions: dict[str, Any]) -> list[str]:
    """Return the types that a key may have; the name of a section that can be linked is a link."""
    if "$ref" in entry:
        name = entry["$ref"].rsplit("/", 1)[1]
        own = definitions[name].get("properties", {}).get("name", {}).get("const")
        return [f"[{f'`{json.dumps(own)}`' if own else name}](#{name.lower()})"]
    for key in ("anyOf", "oneOf"):
        if key in entry:
            texts = dict.fromkeys(t for one in entry[key] for t in kinds(one, definitions))
            linked = {text[1:].partition("]")[0] for text in texts if text.startswith("[")}
            return [text for text in texts if text not in linked]
    if "const" in entry or "enum" in entry:
        values = [entry["const"]] if "const" in entry else entry["enum"]
        return [f"`{json.dumps(value)}`" for value in values]
    name = str(entry.get("type", "any"))
    if name == "array":
        items = entry.get("items") or entry.get("prefixItems", [{}])[0]
        return [f"list of {kind(items, definitions)}"]
    signs = {"minimum": "at least", "maximum": "at most"}
    signs |= {"exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    limits = [f"{text} {limit(entry[key])}" for key, text in signs.items() if key in entry]
    return [", ".join([name, *limits])]


def limit(value: float) -> str:
    """Return a limit as people write it."""
    return "2^63" if value == 2**63 else f"{value:,}"


def public() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the public modules, what they contain, and their names that no earlier one has."""
    listed: set[int] = set()
    for name, text in MODULES.items():
        module = import_module(name)
        values = {n: getattr(module, n) for n in module.__all__}
        yield name, text, {n: value for n, value in values.items() if id(value) not in listed}
        listed |= {id(value) for value in values.values()}


def names() -> str:
    """Return a line for every public name, by module."""
    parts = []
    for module, text, values in public():
        lines = [f"| `{n}` | {in_one_line(value)} |" for n, value in values.items()]
        table = "\n".join([f"| {module} | |", "| --- | --- |", *lines])
        parts += [f"## {module}", text, table]
    return "\n\n".join(parts) + "\n"


def in_one_line(value: object) -> str:
    """Return the beginning of a docstring up to its first stop; of data, their type."""
    if not callable(value):
        return f"({type(value).__name__})"
    text = " ".join((value.__doc__ or "a type").split("\n\n")[0].split())
    return text.split(". ")[0].removesuffix(".").replace("|", "\\|")


def python() -> str:
    """Return every public name, from its docstring."""
    parts = []
    for name, text, values in public():
        parts += [f"## {name}", text]
        directives = "\n".join(directive(name, n, value) for n, value in values.items())
        parts.append(fenced(f".. py:module:: {name}\n\n{directives}", "{eval-rst}"))
    return "\n\n".join(parts) + "\n"


def directive(module: str, name: str, value: object) -> str:
    """Return the autodoc directive of a name."""
    if isinstance(value, type):
        routing = ", ".join(
            n for n in dir(value) if n.startswith("set_") and n.endswith("_request")
        )
        exclude = f"   :exclude-members: {routing}\n" if routing else ""
        return f".. autoclass:: {module}.{name}\n   :members:\n{exclude}"
    if callable(value):
        return f".. autofunction:: {module}.{name}\n"
    return f".. py:data:: {name}\n   :type: {type(value).__name__}\n"


def fenced(text: str, language: str) -> str:
    """Return a fenced block."""
    return f"```{language}\n{text.strip()}\n```"


PAGES = {
    "reference/commands": commands,
    "reference/config": config,
    "reference/names": names,
    "reference/python": python,
}
"""Pages, and what the code says on them."""
