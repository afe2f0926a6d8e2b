"""Arguments and options that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mlpengine.core.errors import UsageError
from mlpengine.core.files import keep_own_files

Decorator = Callable[[Any], Any]


class OutputPath(click.Path):
    """The path of a file that a command writes; a file that a run needs is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.  Raises: UsageError."""
        keep_own_files(value)
        return super().convert(value, param, ctx)


OUTPUT_FILE = OutputPath(path_type=Path, dir_okay=False)
DIRECTORY_PATH = click.Path(path_type=Path, file_okay=False)

MODEL_ARGUMENT = click.argument("run", type=click.Path(path_type=Path))
QUIET_OPTION = click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
AS_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as one line of JSON."
)
HISTORY_OPTION = click.option(
    "--history", metavar="OLD", help="A table of the rows before, for data.lags."
)


def check_history(history: str | None, file: object) -> None:
    """Check that --history is given only with a table.  Raises: UsageError."""
    if history is not None and file is None:
        raise UsageError("--history: needs a table that OLD comes before; name it, too")


def overrides_like(example: str) -> Decorator:
    """Return the option --set with an example in its help."""
    text = f"Override, as in {example}"
    return click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=text)
