"""`mlpengine schema`: the JSON Schema of configs, for editors."""

import json
from pathlib import Path

import click

from mlpengine.config import json_schema
from mlpengine.core.files import is_device, keep_other_kinds, write_atomically

from .options import AS_JSON, OUTPUT_FILE
from .streams import say, write_file

SCHEMA_FILE = "mlpengine.schema.json"

EPILOG = """\b
Examples:
  mlpengine schema -o mlpengine.schema.json
  mlpengine schema --json | python -m json.tool

\b
Editors with a YAML language server use the schema for files that begin with
  # yaml-language-server: $schema=mlpengine.schema.json
"""


@click.command("schema", epilog=EPILOG)
@click.option("-o", "--out", type=OUTPUT_FILE, help="The file; by default stdout.")
@AS_JSON
def command(out: Path | None, as_json: bool) -> None:
    """Print the JSON Schema of configs; editors use it to complete and check configs."""
    if out is not None:
        write_schema(out)
        say(json.dumps({"out": str(out)}) if as_json else f"wrote {out}", err=is_device(out))
        return
    if as_json:
        say(json.dumps(json_schema()))
    else:
        write_file(schema_text())


def schema_text() -> str:
    """Return the schema as readable JSON."""
    return json.dumps(json_schema(), indent=2) + "\n"


def write_schema(path: Path) -> None:
    """Write the schema, atomically.  Raises: UsageError unless `path` is new or ends in .json."""
    keep_other_kinds(path, ".json")
    write_atomically(path, schema_text().encode())
