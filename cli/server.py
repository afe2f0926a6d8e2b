"""The HTTP server of `mlpengine serve`: slow connections, worker processes, signals."""

import gc
import logging
import os
import signal
import socket
import time
from asyncio import Transport
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from errno import EADDRINUSE
from multiprocessing import connection, get_context, parent_process
from multiprocessing.process import BaseProcess
from operator import attrgetter
from threading import Thread
from types import FrameType
from typing import Any

from mlpengine.core.errors import UsageError, importing
from mlpengine.core.system import EXIT_CODES, START_METHOD, open_files
from mlpengine.models.model import Model

from .service import HEADER_LIMIT, service
from .stopping import handled

with importing("mlpengine serve", "serve"):
    from uvicorn import Config, Server
    from uvicorn.protocols.http.h11_impl import H11Protocol

OPEN_FILES = open_files()
"""Limit of open files of this process; at most half of them are connections."""

BACKLOG = 2_048
"""Maximum number of connections that wait to be accepted."""

REQUEST_SECONDS = 20
"""A connection is closed if it has no new request in this many seconds."""

STOP_SECONDS = 30
"""Seconds in which a stopped service finishes the requests that it has begun to read."""

TICK = 0.2
"""Seconds between two checks of signals and workers."""


class _Connection(H11Protocol):
    """A connection that is closed if a request takes too long, or if too many are open."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begun = self.loop.time()
        self._timer = self.loop.call_later(REQUEST_SECONDS, self._close_unless_new, None)
        if len(self.connections) > OPEN_FILES // 2:
            waiting = [one for one in self.connections if one.is_waiting()]  # type: ignore[union-attr]
            min(waiting, key=attrgetter("_begun")).transport.abort()

    def is_waiting(self) -> bool:
        """Return whether the connection is open and waits for its client."""
        if self.transport.is_closing():
            return False
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _close_unless_new(self, before: Any) -> None:
        """Close the connection if its request is still `before`, the request at the last check."""
        if self.cycle is before:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(REQUEST_SECONDS, self._close_unless_new, self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)


class _Server(Server):
    """A server that leaves signals to `serve`, with a long queue of waiting connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)  # `Config.backlog` limits the connections accepted at once

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def listen_at(host: str, port: int) -> socket.socket:
    """Return a listening socket.  Raises: UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        name = host[:256].encode("idna").decode()  # a name has at most 253 characters
        made = socket.create_server((name, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason, number = getattr(error, "strerror", None) or error, getattr(error, "errno", None)
        free = "; --port 0 takes a free one" if number == EADDRINUSE else ""
        raise UsageError(f"serve: {host}, port {port}: {reason}{free}") from None
    # asyncio sets TCP_NODELAY only if a socket has IPPROTO_TCP; without it, answers take 40 ms
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, made.detach())


def serve(model: Model, name: str, listening: socket.socket, access_log: bool) -> int:
    """Answer requests until a signal; return the exit code of the signal.

    A second signal ends a single process at once; `keep_workers` ends worker processes.
    """
    config = Config(
        service(model, name),
        http=_Connection,
        ws="none",
        lifespan="off",
        backlog=min(64, OPEN_FILES // 16),
        h11_max_incomplete_event_size=HEADER_LIMIT,
        log_config=None,
        access_log=access_log,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    server, supervisor = _Server(config), parent_process()
    codes: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if codes and supervisor is None:
            os._exit(codes[0])
        codes.append(EXIT_CODES[signal.Signals(number)])
        server.should_exit = True

    for number in handled():
        signal.signal(number, stop)
    if supervisor is not None:
        Thread(target=_stop_after, args=(supervisor,), daemon=True).start()
    gc.set_threshold(700, 10, 10)  # Python's default; connections leave reference cycles
    server.run([listening])
    return codes[0] if codes else 1


def _stop_after(process: BaseProcess) -> None:
    """Stop this process when its parent process has ended, even by a kill."""
    process.join()
    signal.raise_signal(signal.SIGTERM)


def _work(work: Callable[[], int]) -> None:
    os._exit(work())  # without waiting for busy threads


def keep_workers(work: Callable[[], int], count: int) -> int:
    """Keep `count` processes that call `work` until a signal; return the signal's exit code.

    A process that ends is replaced.  At a signal, all processes are terminated.  At a second
    signal, or if they do not end in time, they are killed.
    """
    codes: list[int] = []
    for number in handled():
        signal.signal(number, lambda number, _: codes.append(EXIT_CODES[signal.Signals(number)]))
    workers: list[BaseProcess] = []
    processes: Any = get_context(START_METHOD)
    until = float("inf")
    while not codes or workers:
        workers = [worker for worker in workers if worker.is_alive()]
        if codes:
            until = min(until, time.monotonic() + STOP_SECONDS + 5)
            late = len(codes) > 1 or time.monotonic() > until
            for worker in workers:
                worker.kill() if late else worker.terminate()
        else:
            missing = count - len(workers)
            for _ in range(missing):
                worker = processes.Process(target=_work, args=[work])
                worker.start()
                workers.append(worker)
        connection.wait([worker.sentinel for worker in workers], TICK)
    return codes[0]
