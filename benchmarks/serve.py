"""Test ``mlpengine serve`` under load: latency of one row, malformed requests, growth of memory.

``python benchmarks/serve.py`` (``--smoke`` for a few seconds; ``--workers 2`` for two processes).
The model has 64-64 units, 8 number columns and 4 categorical columns.  If wrk is installed, it
sends requests as fast as answers come, and then about 500 requests a second from 20 connections
with random pauses.  Otherwise a client in Python sends one request after another.  Then randomly
damaged requests follow: no answer may have a status of 500 or more, and the memory of the process
must not grow.
"""

import argparse
import http.client
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from machine import describe, figure, restart_clean, table

import mlpengine

ROWS = 2_000
SETTINGS: dict[str, Any] = {"model": {"hidden": [64, 64]}, "training": {"epochs": 2, "folds": None}}
LETTERS = np.array(list("abcdef"))

MALFORMED, WARM_UP = 10_000, 2_000
"""Number of malformed requests, and number of requests before the first measurement of memory."""

GROWTH = 2_048
"""Allowed growth of the memory in kB, because the allocator keeps some pages."""

POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [==[{body}]==]
"""

PACED = "function delay() return math.random(30, 48) end\n"
"""Milliseconds between an answer and the next request: 500 a second from 20 connections."""

KIND = {"Content-Type": "application/json"}

CELLS: list[Any] = [None, True, -1, 1e308, 10**400, "", "a", "\ud800", "x" * 5_000, [], {}, [[1]]]


def mixed() -> dict[str, Any]:
    """Return columns of numbers and of texts, and a class to predict."""
    g = np.random.default_rng(1)
    columns: dict[str, Any] = {f"x{i}": g.standard_normal(ROWS) for i in range(8)}
    columns |= {f"t{i}": LETTERS[g.integers(0, 6, ROWS)] for i in range(4)}
    return columns | {"y": np.where(columns["x0"] > 0, "yes", "no")}


@contextmanager
def serving(folder: Path, workers: int) -> Iterator[tuple[int, int]]:
    """Yield the id of a process that serves ``folder/model.safetensors``, and its port."""
    program = "from mlpengine_cli.main import main; main()"
    script = folder / "run.py"  # worker processes import this file
    script.write_text(f"if __name__ == '__main__':\n    {program}\n")
    model = str(folder / "model.safetensors")
    words = [sys.executable, str(script), "serve", model, "--port", "0", "--workers", str(workers)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split(":")[2].split()[0])
            yield process.pid, port
            process.terminate()
            code = process.wait(60)
            if code != 143:
                sys.exit(f"the service ended with {code}, not 143")
        finally:
            process.kill()


def post(port: int, bodies: Iterator[bytes], count: int) -> tuple[Counter[int], list[float]]:
    """Return the statuses of `count` requests on one connection, and their sorted milliseconds."""
    statuses: Counter[int] = Counter()
    times = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for _ in range(count):
            body = next(bodies)
            begun = time.perf_counter()
            connection.request("POST", "/predict", body, KIND)
            answer = connection.getresponse()
            answer.read()
            times.append((time.perf_counter() - begun) * 1e3)
            statuses[answer.status] += 1
    return statuses, sorted(times)


def wrk(folder: Path, port: int, script: str, connections: int, seconds: int) -> list[str]:
    """Return requests per second, and the 50th and 99th percentile of the latency in ms."""
    (folder / "post.lua").write_text(script)
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", "post.lua"]
    words.append(f"http://127.0.0.1:{port}/predict")
    shown = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in shown or "Socket errors" in shown:
        sys.exit(f"wrk: requests failed:\n{shown}")
    factors = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    parts = re.findall(r"^ +(50|99)% +([\d.]+)(us|ms|s)$", shown, re.MULTILINE)
    milliseconds = {percent: float(number) * factors[unit] for percent, number, unit in parts}
    (rate,) = re.findall(r"^Requests/sec: +([\d.]+)$", shown, re.MULTILINE)
    return [figure(float(rate)), *(f"{milliseconds[percent]:.2f}" for percent in ("50", "99"))]


def latencies(folder: Path, port: int, row: dict[str, Any], *, smoke: bool) -> None:
    """Print rates and latencies of one row."""
    body = json.dumps(row)
    head = ("one row", "requests/s", "median, ms", "99th percentile, ms")
    rows = []
    if shutil.which("wrk"):
        seconds, script = 1 if smoke else 10, POST.format(body=body)
        for connections in (1, 2, 8):
            title = f"wrk, {connections} connections, no pause"
            rows.append((title, *wrk(folder, port, script, connections, seconds)))
        title = "wrk, 20 connections, 500 a second"
        rows.append((title, *wrk(folder, port, script + PACED, 20, seconds)))
    else:
        count = 200 if smoke else 5_000
        begun = time.perf_counter()
        statuses, times = post(port, iter(lambda: body.encode(), b""), count)
        rate = count / (time.perf_counter() - begun)
        assert set(statuses) == {200}
        ends = [f"{times[count * percent // 100]:.2f}" for percent in (50, 99)]
        rows.append(("Python, one connection", figure(rate), *ends))
    print(f"\n{table(head, rows)}", flush=True)


def damaged(row: dict[str, Any]) -> Iterator[bytes]:
    """Yield damaged bodies: wrong types, missing or repeated columns, cut or changed bytes."""
    draw = random.Random(0)
    names = list(row)
    while True:
        rows = [{**row, draw.choice(names): draw.choice(CELLS)} for _ in range(draw.choice((1, 3)))]
        if draw.random() < 0.3:
            del rows[0][draw.choice([*rows[0]])]
        value = draw.choice((rows, rows[0], [rows], [1, *rows], None, "text", 7))
        body = bytearray(json.dumps(value).encode())
        for _ in range(draw.choice((0, 0, 1, 3))):
            body[draw.randrange(len(body))] = draw.randrange(256)
        if draw.random() < 0.2:
            del body[draw.randrange(len(body)) :]
        if draw.random() < 0.01:
            body = bytearray(draw.choice((b"[" * 500_000, b'{"a":' * 100_000, b"9" * 9_000_000)))
        yield bytes(body)


def kilobytes(process: int) -> int | None:
    """Return the memory of a process in kB; None if the system does not report it."""
    try:
        text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0])


def malformed(port: int, process: int, row: dict[str, Any], *, smoke: bool) -> None:
    """Print the answers to malformed requests, and the growth of the memory."""
    bodies, count = damaged(row), MALFORMED // (20 if smoke else 1)
    before, _ = post_all(port, bodies, WARM_UP // (20 if smoke else 1))
    first = kilobytes(process)
    after, refused = post_all(port, bodies, count)
    last = kilobytes(process)
    statuses = before + after
    print(f"\n{statuses.total():,} malformed requests: {dict(sorted(statuses.items()))}")
    print(f"connections closed by the service before all was sent (too large): {refused}")
    if max(statuses) >= 500:
        sys.exit("the service failed")
    if first is not None and last is not None:
        print(f"memory after {before.total():,}: {first:,} kB, after all: {last:,} kB")
        if last - first > GROWTH and not smoke:
            sys.exit("the memory grew")


def post_all(port: int, bodies: Iterator[bytes], count: int) -> tuple[Counter[int], int]:
    """Return the statuses of `count` answers, and the number of connections that were closed."""
    statuses: Counter[int] = Counter()
    closed = 0
    while statuses.total() < count:
        try:
            statuses += post(port, bodies, 1)[0]
        except (BrokenPipeError, ConnectionResetError):
            closed += 1
    return statuses, closed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    describe()
    columns = mixed()
    model, _ = mlpengine.fit(columns, "y", **SETTINGS)
    row = {name: cells[0].item() for name, cells in columns.items() if name != "y"}
    with TemporaryDirectory() as name:
        folder = Path(name)
        model.save(folder / "model.safetensors")
        with serving(folder, args.workers) as (process, port):
            post(port, iter(lambda: json.dumps(row).encode(), b""), 200)
            latencies(folder, port, row, smoke=args.smoke)
            malformed(port, process, row, smoke=args.smoke)


if __name__ == "__main__":
    restart_clean()
    main()
