"""What is asked of the operating system has one meaning on each."""

import os
import signal
import subprocess
import sys

import pytest

from mlpengine.core import system


@pytest.fixture
def opened(tmp_path):
    """Give a function that opens the file `name` of an empty directory; close what it opened."""
    descriptors = []

    def call(name="file", flags=os.O_RDWR | os.O_CREAT, **options):
        descriptors.append(system.open_file(tmp_path / name, flags, **options))
        return descriptors[-1]

    yield call
    for descriptor in descriptors:
        os.close(descriptor)


def test_bytes_are_written_as_they_are(opened, tmp_path):
    content = b"a\nb\r\n\x1ac\n"
    os.write(opened(), content)
    assert (tmp_path / "file").read_bytes() == content
    assert os.read(opened(flags=os.O_RDONLY), 100) == content


def test_one_of_two_has_the_lock(opened):
    first, second = opened(), opened()
    assert system.lock(first)
    assert not system.lock(second, wait=False)
    os.write(second, b"a lock keeps nobody from reading and writing")
    os.lseek(first, 0, os.SEEK_SET)
    assert os.read(first, 6) == b"a lock"


HOLDER = """\
import os, sys
from pathlib import Path
from mlpengine.core import system
file = system.open_file(Path(sys.argv[1]), os.O_RDWR | os.O_CREAT)
print(system.lock(file, wait=sys.argv[2] == "wait"), flush=True)
sys.stdin.read()
"""


def holder(path, how="now"):
    """Start a process that locks a file until its standard input is closed."""
    command = [sys.executable, "-c", HOLDER, str(path), how]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_lock_of_a_killed_process_is_free(opened, tmp_path):
    with holder(tmp_path / "file") as process:
        assert process.stdout.readline() == "True\n"
        assert not system.lock(opened(), wait=False)
        process.kill()
    assert system.lock(opened())  # waits until the system has released it


def test_a_process_waits_for_the_lock(opened, tmp_path):
    file = system.open_file(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert system.lock(file)
    with holder(tmp_path / "file", "wait") as waiting, holder(tmp_path / "file") as refused:
        assert refused.communicate("")[0] == "False\n"
        os.close(file)
        assert waiting.stdout.readline() == "True\n"
        waiting.communicate("")


READER = """\
import sys, time
with open(sys.argv[1], "rb") as file:
    print("open", flush=True)
    sys.stdin.readline()
"""


def test_a_rename_waits_for_a_process_that_reads_the_file(tmp_path, monkeypatch):
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    command = [sys.executable, "-c", READER, str(tmp_path / "old")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"open")
        monkeypatch.setattr(system.time, "sleep", lambda _: process.communicate(b"\n"))
        system.replace(tmp_path / "new", tmp_path / "old")
        assert (tmp_path / "old").read_bytes() == b"new"


WORKER = """\
import signal, sys
from mlpengine.core import system
def stop(number, frame):
    print("stopped", flush=True)
    sys.exit(7)
signal.signal(signal.SIGINT, stop)
system.start_worker()
print("ready", flush=True)
while True:
    for i in range(10**6):
        pass
"""


def test_a_worker_is_interrupted():
    with subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().split() == [b"ready"]
        leads = sys.platform == "win32" or os.getsid(process.pid) == process.pid
        system.interrupt(process.pid)
        assert process.stdout.readline().split() == [b"stopped"]
    assert (leads, process.returncode) == (True, 7)


def test_signals_that_end_a_command():
    assert system.EXIT_CODES[signal.SIGINT] == 130
    assert system.EXIT_CODES[signal.SIGTERM] == 143
    assert all(isinstance(number, signal.Signals) for number in system.EXIT_CODES)


def test_every_core_in_use_is_one_of_the_machine():
    assert system.usable_cores() <= set(range(os.cpu_count() or 1))


def test_a_command_is_split_at_spaces_that_are_not_quoted():
    path = sys.executable  # with backslashes on Windows
    assert system.words_of(f'{path} "{path}" -m  x') == [path, path, "-m", "x"]
    with pytest.raises(ValueError, match="quotation"):
        system.words_of(f'"{path}')


def test_a_process_whose_parent_lives_is_no_orphan():
    assert not system.is_orphan(os.getppid())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other owners and no alarm")
def test_a_file_of_this_user_is_trusted_and_that_of_another_user_is_not(tmp_path, monkeypatch):
    assert not system.other_writers(tmp_path.stat())
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert "must belong to this user" in system.other_writers(tmp_path.stat())


def test_windows_has_no_alarm_and_no_writers_among_others(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with system.ends_within(1):
        assert system.other_writers(tmp_path.stat()) == ""
