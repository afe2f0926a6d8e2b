"""Run directories, CSV logs, threads and model files."""

import errno
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from math import nan
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from mlpengine.backends.compiled.cache import available_targets, chosen_target
from mlpengine.core import system
from mlpengine.core.errors import RunError
from mlpengine.core.system import processor
from mlpengine.step import blas_threads as threads
from mlpengine.training import run_directory
from mlpengine.training.diagnose import SampleLog
from mlpengine.training.history import CsvLog, cell, csv_lines
from mlpengine.training.run_directory import LOCK_FILE, RunDirectory, environment


def test_an_empty_directory_is_taken_and_a_full_one_is_not(tmp_path):
    for name in ("empty", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "empty-002").write_text("")  # a file in the way
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert RunDirectory.create(tmp_path / "empty").path == tmp_path / "empty"
    assert RunDirectory.create(tmp_path / "full").path == tmp_path / "full-002"
    assert os.listdir(tmp_path / "full") == ["notes.txt"]
    with RunDirectory.create(tmp_path / "empty") as third:
        assert third.path == tmp_path / "empty-003"
    assert RunDirectory.create(tmp_path / "empty").path == third.path  # it has only a free lock


def test_many_at_once_get_one_directory_each(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: RunDirectory.create(tmp_path / "run").path, range(16)))
    assert len(set(made)) == 16
    assert all(os.listdir(path) == [LOCK_FILE] for path in made)


def test_no_directory_can_be_made_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the run directory"):
        RunDirectory.create(tmp_path / "file" / "run")


def test_names_run_out_with_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory, "MAX_TRIES", 2)
    RunDirectory.create(tmp_path / "run")
    with pytest.raises(RunError, match="2 runs of this name exist"):
        RunDirectory.create(tmp_path / "run")


@pytest.mark.parametrize("level", [target.level for target in available_targets()])
def test_the_environment_names_what_decides_the_bits(level, monkeypatch):
    monkeypatch.setenv("MLPENGINE_TARGET", level)
    found = environment(2, "compiled")
    assert found["target"] == level
    assert found["compiler"] == f"{chosen_target().version}, {chosen_target().flag}"
    found = environment(2, "numpy")
    assert found["target"] is found["compiler"] is None
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["numexpr"] == metadata.version("numexpr")
    assert found["processor"] == processor()
    assert found["threads"] == 2
    assert "openblas" in found["blas"] or found["blas"]
    json.dumps(found, allow_nan=False)


def test_a_cell_reads_back_the_same():
    texts = {"": None, "0.1": np.float64(0.1), "1e-30": 1e-30, "nan": nan, "7": 7, "text": "text"}
    assert [*map(cell, texts.values())] == [*texts]


def test_a_log_goes_on_behind_the_rows_it_keeps(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"epoch,loss\n0,0.0\n1,0.5\n2,0.")  # what a crash leaves behind
    log = CsvLog(path, csv_lines(["epoch", "loss"], [0, 0.0]))
    log.append([1, 1 / 3])
    log.sync()
    log.close()
    assert path.read_text() == "epoch,loss\n0,0.0\n1,0.3333333333333333\n"


def test_half_a_header_becomes_a_header(tmp_path):
    path = tmp_path / "diagnostics.csv"
    path.write_bytes(b"step,layer,qu")  # the run was killed there
    SampleLog(path, []).close()
    assert path.read_text() == "step,layer,quantity,value\n"


def test_what_cannot_be_written_is_named_with_its_cause(tmp_path, monkeypatch):
    log = CsvLog(tmp_path / "log.csv", b"epoch\n")
    directory = RunDirectory.create(tmp_path / "run")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    message = r"cannot be written \(No space left on device\); make room and start again \(a run: "
    with pytest.raises(RunError, match=r"log\.csv: " + message):
        log.append([1])
    with pytest.raises(RunError, match=r"a\.txt: " + message):
        directory.write("a.txt", "text")
    log.close()
    assert os.listdir(directory.path) == [LOCK_FILE]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "processor\t: 0\nmodel name\t: Fast CPU @ 3: x\n\nmodel name\t: Other\n",
            "Fast CPU @ 3: x",
        ),
        ("", None),
        (None, None),
    ],
)
def test_the_processor_has_the_name_that_the_system_gives_it(text, name, monkeypatch, tmp_path):
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.delenv("PROCESSOR_IDENTIFIER", raising=False)
    monkeypatch.setattr(system, "Path", lambda _: file)
    assert processor() == name


def test_threads_are_pinned_and_set_back(monkeypatch):
    counts = []
    fake = SimpleNamespace(set_num_threads=lambda n: counts.append(n) or 5, MAX_THREADS=64)
    monkeypatch.setitem(sys.modules, "numexpr", fake)

    def blas():
        return [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]

    before = blas()
    with threads.pinned(1):
        assert set(blas()) == {1}
    assert blas() == before
    assert counts == [1, 5]


CONTROL_GROUPS = {
    "a group above": (
        "0::/job/one\n",
        {"job/one/cpu.max": "max 100000\n", "job/cpu.max": "300000 100000\n"},
        3,
    ),
    "its own root": ("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5),
    "another root": ("0::/../other\n", {"cpu.max": "200000 100000\n"}, 2),
    "without a quota": ("0::/job\n", {"job/cpu.max": "max 100000\n"}, np.inf),
    "unreadable": ("0::/job\n", {"job/cpu.max": "much\n"}, np.inf),
    "no groups": (None, {}, np.inf),
}
"""What /proc/self/cgroup says, files below /sys/fs/cgroup, and the cores they allow."""


@pytest.mark.parametrize("name", CONTROL_GROUPS)
def test_a_cpu_quota_counts_as_cores(name, tmp_path, monkeypatch):
    own, files, expected = CONTROL_GROUPS[name]
    if own is not None:
        files = {**{f"sys/fs/cgroup/{k}": v for k, v in files.items()}, "proc/self/cgroup": own}
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert threads.cpu_quota(tmp_path) == expected
    monkeypatch.setattr(threads, "usable_cores", lambda: set(range(64)))
    assert threads.cores(tmp_path) == min(64, max(1, int(min(expected, 64))))
