"""A PostgreSQL server of a test's own, where the programs are installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = [*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/local/bin")]
SETTINGS = ["-c", "fsync=off", "-c", "listen_addresses=", "-c", "max_connections=20"]


def programs() -> dict[str, str]:
    """Return the paths of initdb and pg_ctl; fewer than two where they are not installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, PLACES)])
    found = {name: shutil.which(name, path=path) for name in ("initdb", "pg_ctl")}
    return {name: place for name, place in found.items() if place}


class Server:
    """A server that listens on a socket in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses root
        if user:
            shutil.chown(directory, user)
        self._options = {"user": user, "cwd": directory, "capture_output": True, "check": True}
        self._data = str(directory / "data")
        initdb = [programs()["initdb"], "-D", self._data, "-U", "tester", "-A", "trust", "-N"]
        subprocess.run([*initdb, "--no-locale", "-E", "UTF8"], **self._options)

    @property
    def url(self) -> str:
        return f"postgresql://tester@/postgres?host={self.directory}"

    def start(self) -> None:
        settings = " ".join([*SETTINGS, "-k", str(self.directory)])
        log = str(self.directory / "log")
        self._control("start", "-w", "-l", log, "-o", settings)

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def _control(self, *arguments: str) -> None:
        command = [programs()["pg_ctl"], "-D", self._data, *arguments]
        # not captured: the server would keep the pipe open
        options = {**self._options, "capture_output": False}
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


@contextmanager
def server() -> Iterator[Server]:
    """Run a server until the context ends."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as directory:
        one = Server(Path(directory))
        one.start()
        try:
            yield one
        finally:
            one.stop()
