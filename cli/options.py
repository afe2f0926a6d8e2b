"""Arguments and options that several commands share."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mlpengine.core.errors import UsageError
from mlpengine.core.files import keep_own_files
from mlpengine.core.wording import quoted

if TYPE_CHECKING:
    from mlpengine.models.model import Model

Decorator = Callable[[Any], Any]


class OutputPath(click.Path):
    """The path of a file that a command writes.  Files that belong to a run are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path.  Raises: UsageError."""
        keep_own_files(value)
        if value == "-" and self.type is Path:  # other commands write to stdout
            raise UsageError(f"{value}: is no file; name one, or write /dev/stdout")
        return super().convert(value, param, ctx)


class Share(click.types.FloatParamType):
    """A share from 0 to 1; a command may exclude 0 and 1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, _: click.Context | None) -> float:
        """Return the share.  Raises: UsageError; for "30%" or 30 the message advises 0.3."""
        number = float("nan")
        text = str(value).strip()
        with suppress(ValueError):
            number = float(text.removesuffix("%"))
        if 0 <= number <= 1 and "%" not in text:
            return number
        is_percentage = 0 < number <= 100 and ("%" in text or number >= 2)
        hint = f"; write {number / 100:g}" if is_percentage else ""
        option = param.opts[0] if param else "--threshold"
        raise UsageError(f"{option}: must be a share from 0 to 1 (got {quoted(value)}){hint}")


SHARE = Share()


def with_threshold(model: "Model", given: str | None) -> "Model":
    """Return the model with the share of --threshold.  Raises: UsageError, first for the task."""
    if given is None:
        return model
    model.with_threshold(0.5)  # raises unless there are two classes
    return model.with_threshold(SHARE.convert(given, None, None))


OUTPUT_FILE = OutputPath(path_type=Path, dir_okay=False)
DIRECTORY_PATH = click.Path(path_type=Path, file_okay=False)

MODEL_ARGUMENT = click.argument("run", type=click.Path(path_type=Path))
QUIET_OPTION = click.option("-q", "--quiet", is_flag=True, help="Print no progress on stderr.")
AS_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as one line of JSON."
)
HISTORY_OPTION = click.option(
    "--history", metavar="OLD", help="A table of the rows before FILE, for data.lags."
)


def check_history(history: str | None, file: object) -> None:
    """Check that --history is given only with a table.  Raises: UsageError."""
    if history is not None and file is None:
        raise UsageError("--history: needs a table of the rows after OLD; name this table, too")


def overrides_like(example: str) -> Decorator:
    """Return the option --set with an example in its help."""
    text = f"Override a setting, such as {example}"
    return click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=text)
