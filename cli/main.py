"""The command `mlpengine`: import and run a subcommand, and exit with a code."""

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from types import FrameType
from typing import Any, NoReturn

import click

from mlpengine import __version__
from mlpengine.core.system import EXIT_CODES

from .ranks import end_job, launched
from .stopping import handled
from .streams import CLOSED, complain, explain, keep_streams

COMMANDS = {
    "init": "Write a config for a table.",
    "check": "Report problems in the data of a config.",
    "train": "Train a network from a config, or resume a run.",
    "distill": "Train one small network to imitate a run.",
    "sweep": "Train a config with many settings, and find the best.",
    "summary": "Show what a model reads and predicts.",
    "evaluate": "Measure a trained model.",
    "predict": "Predict new rows with a trained model.",
    "serve": "Answer HTTP requests with predictions of a trained model.",
    "explain": "Show which columns drive the predictions of a model.",
    "report": "Show a run on one HTML page.",
    "diagnose": "Explain how a run went.",
    "compare": "Show the differences between two runs.",
    "ls": "List runs, with their scores and verdicts.",
    "schema": "Print the JSON Schema of configs.",
    "export": "Write a trained model as ONNX, C, JavaScript or other formats.",
}
"""Help line of each subcommand.  Subcommand NAME is the object `command` of the module NAME."""

EPILOG = """\b
Example: from a table to predictions
  mlpengine init data.csv --target price -o price.yaml
  mlpengine train price.yaml
  mlpengine predict runs/price new.csv -o predictions.csv

\b
Shell completion: add the line for your shell to its start file
  bash   eval "$(_MLPENGINE_COMPLETE=bash_source mlpengine)"
  zsh    eval "$(_MLPENGINE_COMPLETE=zsh_source mlpengine)"
  fish   _MLPENGINE_COMPLETE=fish_source mlpengine | source
"""

RUNTIME_VARIABLES = {
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "OPENBLAS_THREAD_TIMEOUT": "24",
}
"""Default values of environment variables.

PYDANTIC_DISABLE_PLUGINS keeps pydantic from searching every installed package for plugins.
OPENBLAS_THREAD_TIMEOUT=n lets idle threads of OpenBLAS spin for 2^n cycles before they sleep.  Its
default is 26.  With n far below 24, threads would sleep between two matrix products."""

CLOSED_PIPE = 141
"""Exit code if the reader of stdout has closed the pipe; shells use the same code."""


@contextmanager
def _while_read() -> Iterator[None]:
    """Exit with `CLOSED_PIPE` if the reader closes stdout; click would exit with 1."""
    try:
        yield
    except BrokenPipeError as error:
        if error.strerror == CLOSED:
            run = "" if error.filename == "stdout" else f"; the run is in {error.filename}"
            complain(f"error: stdout {CLOSED}{run}")
        raise click.exceptions.Exit(CLOSED_PIPE) from error


class LazyGroup(click.Group):
    """Command group that imports a subcommand when it is called, not for the list of commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"{__package__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; for an unknown name, suggest a similar one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            from mlpengine.core.wording import suggestion

            hint = suggestion(name, COMMANDS) or f" ({', '.join(COMMANDS)})"
            if name == "help":
                hint = f" - write mlpengine {' '.join([*args[1:2], '--help'])}"
            raise click.UsageError(f"no such command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the command line; --help and --version print their text and exit."""
        with _while_read():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        with _while_read():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, message="mlpengine %(version)s", help="Show the version.")
def group(debug: bool) -> None:
    """Train multilayer perceptrons of fixed architecture in preallocated buffers."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    # Imports create about this many permanent objects.  With Python's default threshold, garbage
    # collection takes a fifth of the processor time of a short `train` (Xeon, Nov. 2026).
    gc.set_threshold(300_000)
    for name, value in RUNTIME_VARIABLES.items():
        os.environ.setdefault(name, value)
    keep_streams()
    code = run_in_job(list(sys.argv[1:] if args is None else args))
    for number in EXIT_CODES:
        signal.signal(number, signal.SIG_IGN)  # no signal may change the exit code now
    gc.freeze()
    sys.exit(code)


def run_in_job(args: list[str]) -> int:
    """Run the command line; if an MPI rank fails before MPI has started, end all ranks.

    A rank handles no signal before MPI has started: a signal ends the rank, and the launcher
    notices this.
    """
    is_rank = launched()[1] > 1 and next((a for a in args if a[:1] != "-"), "") == "train"
    if not is_rank:
        return run(args)
    try:
        code = run(args, [])
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if code and "mpi4py.MPI" not in sys.modules:
        sys.stderr.flush()
        end_job(code)
    return code


def run(args: list[str], signals: Sequence[signal.Signals] | None = None) -> int:
    """Run the command line and return its exit code; expected errors print no traceback.

    `signals` are the signals to handle, by default `handled()`.
    """
    received: list[int] = []

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        received.append(EXIT_CODES[signal.Signals(number)])
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(received[-1])

    for number in handled() if signals is None else signals:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]  # --debug may be given anywhere
    try:
        os.getcwd()
    except OSError as error:
        complain(
            f"error: the working directory must exist ({error.strerror}); change to another one"
        )
        return 2
    try:
        code = group.main(args, prog_name="mlpengine", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        return CLOSED_PIPE  # quietly, as in ``| head``
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return EXIT_CODES[signal.SIGINT]
    except click.ClickException as error:
        complain(_usage(error, args))
        return error.exit_code
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    except Exception as error:
        if received:  # an import may replace the signal's exception by another
            complain("interrupted")
            return received[-1]
        if debug:
            raise
        return explain(error)


def _usage(error: click.ClickException, args: Sequence[str]) -> str:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    text = error.format_message().rstrip(".")
    text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    if context is None:
        return f"error: {text}"
    takes_settings = any(option.metavar == "KEY=VALUE" for option in context.command.params)
    if isinstance(error, click.NoSuchOption):
        from mlpengine.core.wording import nearest

        names = [name for option in context.command.params for name in option.opts]
        near = nearest(error.option_name.strip("-"), [name.strip("-") for name in names])
        hint = f" - did you mean '--{near}'?" if f"--{near}" in names else ""
        if takes_settings:
            hint = _setting(error.option_name, args) or hint
        text = f"no such option {error.option_name!r}{hint}"
    elif takes_settings and "unexpected extra" in text and ("--set" in args or "=" in text):
        text += "; write --set KEY=VALUE, in quotes if it has spaces"
    return f"error: {text}\n{context.get_usage()}\nhelp: {context.command_path} --help"


def _setting(option: str, args: Sequence[str]) -> str:
    """Return a hint `` - write --set KEY=VALUE`` if an unknown option has a setting's name."""
    from mlpengine.config.problems import OTHER_NAMES, key_paths, path_of
    from mlpengine.config.schema import Config

    key = option.lstrip("-").replace("-", "_")
    path = path_of(OTHER_NAMES.get(key, key))
    words = tuple(key.partition("=")[0].split("."))
    if words[1:] and words in key_paths(Config):
        path = words
    keys = [str(one[-1]) for one in key_paths(Config) if path and one[:-1] == path]
    if path and keys and "name" not in keys:
        return f" - write --set {'.'.join(map(str, path))}.KEY=VALUE, KEY one of {', '.join(keys)}"
    after = next((later for one, later in pairwise([*args, ""]) if one == option), "")
    inside = next((one for one in args if one.startswith(f"{option}=")), "").partition("=")[2]
    return f" - write --set {'.'.join(map(str, path))}={inside or after}" if path else ""


if __name__ == "__main__":
    main()
