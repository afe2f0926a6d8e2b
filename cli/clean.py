"""`mlpengine clean`: removes the files that `data.stream` prepared."""

import json
from pathlib import Path

import click

from mlpengine.core.errors import UsageError
from mlpengine.core.files import similar_file
from mlpengine.core.wording import plural
from mlpengine.data.tables.stored import remove_prepared

from .options import AS_JSON, DIRECTORY_PATH
from .outcome import shortest
from .streams import say

EPILOG = """\b
Examples:
  mlpengine clean
  mlpengine clean scratch/prepared --json
"""


@click.command("clean", epilog=EPILOG)
@click.argument("directory", type=DIRECTORY_PATH, default="runs/prepared")
@AS_JSON
def command(directory: Path, as_json: bool) -> None:
    """Remove the files that data.stream prepared in DIRECTORY (by default runs/prepared).

    Runs that use them continue; the next run prepares them again. Other files stay.
    """
    if not directory.is_dir() and directory != Path("runs/prepared"):
        raise UsageError(f"{directory}: there is no such directory{similar_file(directory)}")
    removed, in_use = remove_prepared(directory)
    size = sum(removed.values())
    if as_json:
        say(json.dumps({"removed": list(map(str, removed)), "bytes": size, "in_use": in_use}))
        return
    for path in removed:
        say(str(shortest(path)))
    say(f"removed {plural(len(removed), 'file')}, {plural(size, 'byte')}")
    if in_use:
        say(f"{plural(in_use, 'file is', 'files are')} being written by another process, and left")
