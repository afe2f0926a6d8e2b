"""Pages of the reference that are written from the code: commands, config keys, Python names."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import click

MODULES = {
    "mlpengine": "The names that most programs need.",
    "mlpengine.nn": "Networks, their buffers and initial weights.",
    "mlpengine.ops": "Ops, activations and losses.",
    "mlpengine.formula": "Formulas of element-wise functions.",
    "mlpengine.tape": "Recording, programs and derivatives.",
    "mlpengine.optim": "Optimizers, schedules and clipping.",
    "mlpengine.train": "Training steps, loops, callbacks and runs.",
    "mlpengine.diagnostics": "Gradient diagnostics and verdicts.",
    "mlpengine.data": "Tables, preprocessing, splits.",
    "mlpengine.config": "Configs and their schema.",
    "mlpengine.estimators": "Estimators for scikit-learn.",
    "mlpengine.export": "ONNX and other formats.",
    "mlpengine.errors": "Exceptions.",
}
"""Public modules and what they contain."""


def write(directory: Path) -> None:
    """Write the generated pages into a directory."""
    directory.mkdir(exist_ok=True)
    pages = {"commands.md": commands(), "config.md": config(), "python.md": python()}
    for name, text in pages.items():
        path = directory / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def commands() -> str:
    """Return the page of the command line: the help of every command."""
    from mlpengine_cli.main import COMMANDS, group

    parts = ["# The command line", "What `mlpengine COMMAND --help` prints, command by command."]
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
    """Return the page of the config: every key with its type, default, limits and meaning."""
    from mlpengine.config import json_schema

    schema = json_schema()
    parts = [
        "# The config",
        "A config is a YAML file with these sections. Every key has a default unless the table "
        "says *required*; a key that is not listed here is an error that names its line and the "
        "nearest valid name. `mlpengine schema` prints the same as JSON Schema for editors.",
        table("the file", schema),
    ]
    for name, definition in sorted(schema["$defs"].items()):
        if definition.get("properties"):
            parts += [f"## {name}", definition.get("description", ""), table(name, definition)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(name: str, definition: dict[str, Any]) -> str:
    """Return the keys of one section as a table."""
    required = set(definition.get("required", ()))
    lines = [f"| key of {name} | type | default | meaning |", "| --- | --- | --- | --- |"]
    for key, entry in definition.get("properties", {}).items():
        default = "*required*" if key in required else f"`{json.dumps(entry.get('default'))}`"
        cells = [f"`{key}`", kind(entry), default, entry.get("description", "")]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def kind(entry: dict[str, Any]) -> str:
    """Return a type and its limits in words."""
    if "$ref" in entry:
        name = entry["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in entry:
            return " or ".join(dict.fromkeys(map(kind, entry[key])))
    if "const" in entry:
        return f"`{json.dumps(entry['const'])}`"
    if "enum" in entry:
        return " or ".join(f"`{json.dumps(value)}`" for value in entry["enum"])
    name = str(entry.get("type", "any"))
    if name == "array":
        return f"list of {kind(entry.get('items', {}))}"
    signs = {"minimum": "at least", "maximum": "at most"}
    signs |= {"exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    limits = [f"{text} {entry[key]}" for key, text in signs.items() if key in entry]
    return ", ".join([name, *limits])


def python() -> str:
    """Return the page of the Python interface: every public name, from its docstring."""
    parts = ["# The Python interface", "Every public name, by module."]
    listed: set[int] = set()
    for name, text in MODULES.items():
        module = import_module(name)
        names = [n for n in getattr(module, "__all__", ()) if n != "__version__"]
        fresh = [n for n in names if id(getattr(module, n)) not in listed]
        listed |= {id(getattr(module, n)) for n in fresh}
        parts += [f"## {name}", text]
        directives = "\n".join(directive(name, n, getattr(module, n)) for n in fresh)
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
