"""Arguments and options that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Any], Any]

FILE_PATH = click.Path(path_type=Path, dir_okay=False)
DIRECTORY_PATH = click.Path(path_type=Path, file_okay=False)

MODEL_ARGUMENT = click.argument("run", type=click.Path(path_type=Path))
QUIET_OPTION = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
AS_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as one line of JSON."
)


def overrides_like(example: str) -> Decorator:
    """Return the option --set with an example in its help."""
    text = f"Override, as in {example}"
    return click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=text)
