"""`mlpengine serve`: predictions of a trained model over HTTP."""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from mlpengine.training.loading import load

from .options import MODEL_ARGUMENT
from .streams import say

EPILOG = """\b
Examples:
  mlpengine serve runs/penguins
  mlpengine serve runs/penguins --port 8080 --workers 4
  mlpengine serve model.safetensors --access-log

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
    help="The address to listen at; by default, only programs on this machine can connect.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8000,
    show_default=True,
    help="The port; 0 takes a free port, and the first line of stdout names the port.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="Number of processes; each loads the model.",
)
@click.option("--access-log", is_flag=True, help="Write a line for each request to stderr.")
def command(run: Path, host: str, port: int, workers: int, access_log: bool) -> None:
    """Answer HTTP requests with predictions of the model of RUN, a run directory or model file.

    POST /predict takes a row, a JSON object of values by column, or a list of rows.  It answers
    with the columns that `mlpengine predict` writes; ?interval=0.9 and ?set=0.9 add intervals and
    prediction sets.  GET / is a page to try predictions, /openapi.json describes the columns,
    /health reports that the service runs, and /metrics has counters for Prometheus.  The model is
    read once, at the start.  The first signal (such as Ctrl-C) stops the service after the current
    requests; a second signal stops it at once.

    The service has no encryption and no password.  If other machines can connect, put a reverse
    proxy with encryption and passwords in front of the service.
    """
    with TemporaryDirectory(prefix="mlpengine-") as counts:
        if workers > 1:  # prometheus_client reads this variable at its import
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = counts
        from .server import keep_workers, listen_at, serve

        model, listening = load(run), listen_at(host, port)
        work = partial(serve, model, run.resolve().stem, listening, access_log)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"
        with suppress(BrokenPipeError):  # stdout has no reader
            say(f"serving {run} at {address} (POST /predict, GET /, GET /openapi.json)")
        code = keep_workers(work, workers) if workers > 1 else work()
    os._exit(code)  # without waiting for busy threads
