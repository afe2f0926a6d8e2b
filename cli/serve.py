"""`mlpengine serve`: predictions of a trained model over HTTP."""

import gc
import os
import signal
import socket
from collections.abc import Callable
from errno import EADDRINUSE
from functools import partial
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING

import click

from mlpengine.core.errors import UsageError
from mlpengine.core.system import EXIT_CODES
from mlpengine.training.loading import load

from .options import MODEL_ARGUMENT
from .stopping import handled
from .streams import say

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from uvicorn.supervisors.multiprocess import Process

BACKLOG = 2_048
"""Connections that wait to be accepted."""

STOP_SECONDS = 30
"""So long a service that is stopped goes on with the requests that it has begun to read."""

EPILOG = """\b
Examples:
  mlpengine serve runs/penguins
  mlpengine serve runs/penguins --port 8080 --workers 4
  mlpengine serve model.safetensors --max-rows 100 --max-bytes 100000

\b
Another shell:
  curl http://127.0.0.1:8000/openapi.json
  curl -H 'Content-Type: application/json' -d '{"x": 1.5}' http://127.0.0.1:8000/predict
"""


@click.command("serve", epilog=EPILOG)
@MODEL_ARGUMENT
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at; by default programs of this machine alone reach it.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8000,
    show_default=True,
    help="0 takes a free one, which the first line of stdout names.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Processes, each with the model.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    metavar="N",
    default=10_000,
    show_default=True,
    help="Rows of a request.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    metavar="N",
    default=8_000_000,
    show_default=True,
    help="Bytes of the body of a request.",
)
def command(run: Path, host: str, port: int, workers: int, max_rows: int, max_bytes: int) -> None:
    """Answer HTTP requests with predictions of the model of RUN, a run directory or model file.

    POST /predict takes a row as a JSON object of cells by column, or a list of rows, and answers
    with what `mlpengine predict` writes, by the same names; ?interval=0.9 and ?set=0.9 add
    intervals and sets of classes.  GET /openapi.json describes the columns, and GET /health tells
    that the service runs, and its version.  A signal stops it after the requests under way, a
    second one at once.

    There is no encryption and no password: put a server that has both before it where others than
    programs of this machine reach it.
    """
    application = _application(run, max_rows, max_bytes)
    from uvicorn import Config, Server
    from uvicorn.supervisors import Multiprocess

    listening = _listening(host, port)
    config = Config(
        partial(_worker, run, max_rows, max_bytes) if workers > 1 else application,
        factory=workers > 1,
        workers=workers,
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    run_all: Callable[[], None]
    started: list[Process] = []
    if workers > 1:
        several = Multiprocess(config, [listening])
        started = several.processes
        run_all, end = several.run, partial(several.signal_queue.append, signal.SIGTERM)
    else:
        server = Server(config)
        run_all, end = (
            partial(server.run, [listening]),
            partial(setattr, server, "should_exit", True),
        )
    codes: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if codes:
            for worker in started:
                worker.process.kill()
            os._exit(codes[0])
        codes.append(EXIT_CODES[signal.Signals(number)])
        end()

    for number in handled():
        signal.signal(number, stop)  # the server has its own while it runs, and passes them on
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    say(f"serving {run} at {address} (POST /predict, GET /health, GET /openapi.json)")
    gc.freeze()
    run_all()
    click.get_current_context().exit(codes[0] if codes else 1)


def _worker(run: Path, max_rows: int, max_bytes: int) -> "Starlette":
    """Return the application of a worker, which a killed service cannot tell to stop."""
    Thread(target=_stop_after, args=(parent_process(),), daemon=True).start()
    return _application(run, max_rows, max_bytes)


def _stop_after(process: BaseProcess) -> None:
    """Stop this process, as SIGTERM does, when that one has ended."""
    process.join()
    signal.raise_signal(signal.SIGTERM)


def _application(run: Path, max_rows: int, max_bytes: int) -> "Starlette":
    """Load a model and return its application, in a worker or for the only process."""
    from .service import service

    return service(load(run), run.resolve().stem, max_rows=max_rows, max_bytes=max_bytes)


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, before the first line says so.  Raises: UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        free = "; --port 0 takes a free one" if error.errno == EADDRINUSE else ""
        raise UsageError(f"serve: {host}, port {port}: {error.strerror or error}{free}") from None
    # asyncio sends at once (TCP_NODELAY) where a socket says that it is TCP: else 40 ms an answer
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, made.detach())
