"""`mlpengine train` with every option, and with options and data that do not fit."""

import os
import subprocess
import sys

import pytest
from small import SMALL

from mlpengine.backends.compiled.target import compiler_command
from mlpengine.training.result import read_result


@pytest.mark.parametrize("command", ["check", "train"])
def test_a_network_beyond_the_address_space_is_refused(command, mlpengine, config):
    found = mlpengine(command, config, "--set", "model.hidden=[1000000000000]")
    assert found.code == 2
    assert "must be at most 1000000 (got 1000000000000)" in found.err
    assert len(found.err.splitlines()) == 1


def test_a_run_directory_that_is_not_utf_8(tmp_path):
    """Bytes of a path are printed as they are."""
    (tmp_path / "c.yaml").write_text(SMALL)
    name = b"run-\xff"
    command = [sys.executable, "-m", "mlpengine_cli.main", "train", "c.yaml", "--out"]
    done = subprocess.run([*command, name], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert name + b"/model.safetensors" in done.stdout
    assert read_result(tmp_path / os.fsdecode(name))["run_dir"].endswith(r"run-\xff")


@pytest.mark.parametrize(
    ("level", "message"),
    [
        ("sse5", "MLPENGINE_TARGET: must be one of avx512, avx2, baseline, native (got 'sse5')"),
        ("avx512", "must have avx512 (it has "),
    ],
)
def test_a_target_that_is_not_there_is_refused_in_one_line(
    level, message, mlpengine, config, tmp_path, monkeypatch
):
    (tmp_path / "cc").write_text(
        f'#!/bin/sh\nexec {" ".join(compiler_command())} "$@" -mno-avx512f 2> /dev/null\n'
    )
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    monkeypatch.setenv("MLPENGINE_TARGET", level)
    found = mlpengine("train", config, "--set", "training.backend=compiled", "-q")
    assert found.code == 2
    assert message in found.err
    assert found.err.count("\n") == 1
