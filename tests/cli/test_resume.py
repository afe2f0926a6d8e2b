"""`mlpengine train --resume`: killed runs, finished runs, locks, changed data, other machines."""

import json
import logging
import os
import re
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
from dying import saving_until

from mlpengine.nn.safetensors_file import read_tensors, write_tensors
from mlpengine.training.checkpoint import Checkpoints
from mlpengine.training.run_directory import RunDirectory
from mlpengine_cli import session as session_module
from mlpengine_cli.main import run

COMPARED = ("model.safetensors", "metrics.csv", "diagnostics.csv")
CONFIG = """\
data: {source: rows.csv, target: y}
model:
  hidden: [6]
  dropout: 0.3
  initializer: unit_normal
optimizer:
  name: adamw
  groups: {biases: {lr: 0.1, weight_decay: 0}, weights: {lr: 6}}
training: {epochs: 8, batch_size: 8, checkpoint: {every_steps: 5}}
diagnostics: {every: 3}
report: false
"""


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Return a directory with a table, a config and its whole run."""
    path = tmp_path_factory.mktemp("whole")
    lines = [f"{i},{i * i % 11},{'yn'[i * i % 11 > 4]}" for i in range(50)]
    (path / "rows.csv").write_text("a,b,y\n" + "\n".join(lines) + "\n")
    (path / "c.yaml").write_text(CONFIG)
    with chdir(path):
        assert run(["train", "c.yaml", "--out", "a", "-q"]) == 0
    return path


@pytest.fixture
def rows(once, tmp_path):
    """Copy table and config."""
    for name in ("rows.csv", "c.yaml"):
        shutil.copy(once / name, tmp_path)


@pytest.fixture
def a(once, rows, tmp_path):
    """Copy the whole run, too; return its directory.  Its data stay where they were."""
    return shutil.copytree(once / "a", tmp_path / "a")


@pytest.mark.parametrize("number", [1, 20])
def test_a_run_that_died_goes_on(number, mlpengine, a, caplog):
    with saving_until(lambda step, _: step >= number):
        assert mlpengine("train", "c.yaml", "--out", "died", "-q").code == 130
    kept = [*Path("died", "checkpoints").glob("step-*")]
    for command in (["predict", "died", "rows.csv"], ["export", "died"], ["evaluate", "died"]):
        assert mlpengine(*command).code == (not kept)
        assert not kept or "died: has not ended; the model is the best so far" in caplog.text
        caplog.clear()
    Path("died", "failure.json").write_text('{"error": "the reason"}')
    for command in (["predict", "died", "rows.csv"], ["export", "died"], ["compare", "died", "a"]):
        found = mlpengine(*command)
        assert (found.code, "the reason" in found.err) == (1, True)
        assert str(kept[-1] if kept and command[0] != "compare" else "died") in found.err
    for path in kept[-1:]:
        assert mlpengine("predict", path, "rows.csv").code == 0
    for left in (".tmp-1-model.safetensors", "checkpoints/.tmp-1-step-000000005.safetensors"):
        Path("died", left).parent.mkdir(exist_ok=True)
        Path("died", left).write_text("half")
    found = mlpengine("train", "--resume", "died")
    assert found.code == 0
    assert ("resumed  step-" in found.err) == (number > 5)
    assert all(Path(a, f).read_bytes() == Path("died", f).read_bytes() for f in COMPARED)
    assert not list(Path("died").rglob(".tmp-*"))
    Path("died", "model.safetensors").unlink()
    assert mlpengine("predict", "died", "rows.csv").code == 0
    assert "died: model.safetensors is missing" in caplog.text


def test_a_finished_run_stays_as_it_is(mlpengine, rows):
    first = json.loads(mlpengine("train", "c.yaml", "--out", "a", "-q", "--json").out)
    before = [Path("a", f).read_bytes() for f in COMPARED]
    again = json.loads(mlpengine("train", "--resume", "a", "-q", "--json").out)
    assert [Path("a", f).read_bytes() for f in COMPARED] == before
    for name in ("peak_bytes", "ended"):  # of the process
        assert again.pop(name) >= first.pop(name)
    assert again == first


def test_one_process_at_a_time(mlpengine, a, tmp_path):
    with RunDirectory.open(tmp_path / "a"):
        found = mlpengine("train", "--resume", "a")
    assert (found.code, len(found.err.splitlines())) == (1, 1)
    assert "another process is using this run" in found.err
    again = mlpengine("train", "--resume", "a")
    assert again.code == 0
    assert re.search(r"\ncomplete the run .*: train --resume a --epochs \d+\n", again.err)
    os.mkfifo("a/pipe")
    assert "a/pipe: must be a file" in mlpengine("train", "--resume", "a").err


def test_data_that_changed_are_noticed(mlpengine, rows, tmp_path, caplog):
    mlpengine("train", "c.yaml", "--out", "a", "-q")
    text = (tmp_path / "rows.csv").read_text()
    (tmp_path / "rows.csv").write_text(text.replace("\n7,", "\n8,"))
    found = mlpengine("train", "--resume", "a")
    assert "its data have changed since it began" in found.err
    for command in ("evaluate", "explain"):
        caplog.clear()
        assert mlpengine(command, "a").code == 0
        assert "rows.csv: has changed" in caplog.text


def test_another_environment_is_a_warning_and_threads_are_pinned(mlpengine, a, caplog, monkeypatch):
    for path in Checkpoints(Path("a", "checkpoints")).paths():
        arrays, header = read_tensors(path)
        header["environment"]["threads"] = 2
        header["environment"]["packages"]["numpy"] = "1.0"
        write_tensors(path, arrays, header)
    seen = []
    real = session_module.environment
    monkeypatch.setattr(session_module, "environment", lambda n, e: seen.append(n) or real(n, e))
    with caplog.at_level(logging.WARNING, "mlpengine"):
        assert mlpengine("train", "--resume", "a", "-q").code == 0
    assert "not as in the checkpoint: packages ({'numpy': '1.0'}" in caplog.text
    assert seen == [2]


def test_what_was_stopped_too_early_cannot_go_on(mlpengine, tmp_path):
    RunDirectory.create(tmp_path / "a").close()
    found = mlpengine("train", "--resume", "a")
    assert found.code == 1
    assert "there is nothing to resume: train again" in found.err


def test_without_checkpoints_a_run_begins_again(mlpengine, rows):
    settings = ["-q", "--set", "training.checkpoint=false"]
    mlpengine("train", "c.yaml", "--out", "a", *settings)
    before = [Path("a", f).read_bytes() for f in COMPARED]
    assert not Path("a", "checkpoints").exists()
    assert mlpengine("train", "--resume", "a", "-q").code == 0
    assert [Path("a", f).read_bytes() for f in COMPARED] == before


def flip(path, place, bit):
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


@pytest.mark.parametrize("checkpoints", ["{every_steps: 5}", "false"])
def test_a_config_that_changed_is_refused(checkpoints, mlpengine, rows, tmp_path):
    mlpengine("train", "c.yaml", "--out", "a", "-q", "--set", f"training.checkpoint={checkpoints}")
    path = tmp_path / "a" / "config.resolved.yaml"
    flip(path, path.read_bytes().index(b"epochs: 8") + 8, 0x01)
    assert b"epochs: 9" in path.read_bytes()
    found = mlpengine("train", "--resume", "a", "-q")
    assert found.code == 1
    assert "config.resolved.yaml: must be unchanged" in found.err


@pytest.mark.parametrize("name", ["metrics.csv", "timings.csv"])
def test_a_damaged_log_of_epochs_is_written_again(name, mlpengine, a, tmp_path):
    path = tmp_path / "a" / name
    before = path.read_bytes()
    flip(path, len(before) // 2, 0x02)
    assert mlpengine("train", "--resume", "a", "-q").code == 0
    assert path.read_bytes() == before
