"""Files that are written whole or not at all: links, threads, devices, errors with a name."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from mlpengine import Mlp
from mlpengine.core.errors import RunError, UsageError
from mlpengine.core.files import (
    TEMPORARY,
    first_line,
    flush,
    similar_file,
    unflushed,
    write_atomically,
)
from mlpengine.data.tables import read_table
from mlpengine.training.loading import load


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_path_without_a_name_is_refused(path):
    with pytest.raises(RunError, match="it is a directory"):
        write_atomically(path, b"")


def test_eight_threads_write_one_path(tmp_path):
    path = tmp_path / "model.safetensors"
    networks = [Mlp([3, 4, 1], seed=seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: networks[i % 8].save(path), range(64)))
    weights = Mlp.load(path).params.flat.tobytes()
    assert weights in [network.params.flat.tobytes() for network in networks]
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    "temporary",
    [f"{TEMPORARY}{os.getpid()}-mine.csv", f"{TEMPORARY}0"],
    ids=["by process", "by number"],
)
def test_a_link_of_somebody_else_is_not_followed(temporary, tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    victim, folder = tmp_path / "victim", tmp_path / "shared"
    victim.write_text("precious")
    folder.mkdir()
    (folder / temporary).symlink_to(victim)
    with suppress(RunError):  # it may refuse, and must where the name is taken
        write_atomically(folder / "mine.csv", b"text")
    assert victim.read_text() == "precious"


def test_a_directory_that_is_swapped_does_not_redirect(tmp_path, monkeypatch):
    folder, moved, other = tmp_path / "out", tmp_path / "moved", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "a").write_text("precious")
    real = os.fsync

    def swapping(descriptor):
        if not moved.exists():
            folder.rename(moved)
            folder.symlink_to(other)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", swapping)
    write_atomically(folder / "a", b"new")
    assert (moved / "a").read_bytes() == b"new"
    assert (other / "a").read_text() == "precious"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    path, received = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()), daemon=True)
    reader.start()
    write_atomically(path, b"text")
    assert path.is_fifo()
    reader.join(10)
    assert received == [b"text"]


def test_a_name_of_the_greatest_length(tmp_path):
    write_atomically(tmp_path / ("n" * 255), b"text")
    assert os.listdir(tmp_path) == ["n" * 255]


@pytest.mark.parametrize("name", ["open", "write", "fsync", "close", "replace"])
def test_an_error_names_the_file_and_leaves_the_one_before(name, tmp_path, monkeypatch):
    path, real = tmp_path / "a.csv", getattr(os, name)
    path.write_text("before")

    def failing(*args, **options):
        if name == "close":
            real(*args, **options)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing)
        with pytest.raises(RunError, match=r"a\.csv: cannot be written \(Input/output error\)"):
            write_atomically(path, b"after")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("read", [load, Mlp.load, read_table])
def test_what_is_no_path_is_refused_in_one_line(read):
    with pytest.raises(UsageError, match=r"\(got None\)$"):
        read(None)


def test_files_of_the_first_seconds_are_not_flushed(tmp_path, monkeypatch):
    real, flushed = os.fsync, []

    def noted(descriptor):
        flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    path = tmp_path / "file"
    with unflushed(1e9):
        write_atomically(path, b"content")
        assert flushed == []
        flush(path)
        assert flushed == ["file", tmp_path.name]
        with unflushed(0):
            write_atomically(path, b"other")
            assert len(flushed) == 4
    write_atomically(path, b"again")
    assert len(flushed) == 6
    with pytest.raises(RunError, match="none: cannot be written"):
        flush(tmp_path / "none")


def test_no_model_file_is_taken_for_text(tmp_path):
    """A model file begins with a number of eight bytes, some of them letters or newlines."""
    for start in (b"X\n\0\0\0\0\0\0{", b"Xy\0\0\0\0\0\0{", b"\x08\1\0\0\0\0\0\0{"):
        (tmp_path / "model.safetensors").write_bytes(start)
        assert first_line(tmp_path / "model.safetensors") == ""
    (tmp_path / "rows.csv").write_text("area,rooms\n1,2\n")
    assert first_line(tmp_path / "rows.csv") == (
        "it begins with 'area,rooms': a table, not a model"
    )


def test_a_path_that_exists_is_not_suggested_in_its_own_place(tmp_path):
    (tmp_path / "data.csv").symlink_to(tmp_path / "nothing")
    assert similar_file(tmp_path / "data.csv") == " (the link leads nowhere)"
    os.mkfifo(tmp_path / "pipe")
    assert similar_file(tmp_path / "pipe") == ""
    assert similar_file(tmp_path / "pope") == f" - did you mean {str(tmp_path / 'pipe')!r}?"
