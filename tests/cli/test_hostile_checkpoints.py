"""Checkpoints whose hash is right and whose contents are not: a line and an exit code, or a run."""

import shutil

import pytest
from dying import saving_until
from hostile import mutations, write

from mlpengine.nn.safetensors_file import read_tensors
from mlpengine_cli import session

EACH = 17
"""Of so many changed headers one is tried."""


def resumed(mlpengine, tmp_path):
    """Resume runs with changed checkpoints; return their exit codes."""
    settings = ("training.epochs=2", "training.checkpoint.every_epochs=1")
    with saving_until(lambda step, _: step >= 12):
        mlpengine("train", "small.yaml", "--out", "run", "-q", settings=settings)
    first, *_ = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))
    arrays, header = read_tensors(first)
    shutil.copytree(tmp_path / "run", tmp_path / "saved")
    codes = []
    for number, (what, changed) in enumerate(mutations(header, start=3, each=1)):
        if number % EACH:
            continue
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(tmp_path / "saved", tmp_path / "run")
        write(first, arrays, changed)
        try:
            done = mlpengine("train", "--resume", "run", "-q")
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
        codes.append(done.code)
        assert done.code == 0 or done.err.startswith(("error: ", "warning: ")), what
    return codes


def test_a_changed_checkpoint_is_refused_or_resumed(mlpengine, config, tmp_path):
    codes = resumed(mlpengine, tmp_path)
    assert len(codes) > 20
    assert {0, 1} <= set(codes) <= {0, 1, 2}  # 2: the data do not fit the changed classes


@pytest.mark.no_cover
def test_the_changes_find_what_is_not_checked(mlpengine, config, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "conform", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="Error"):
        resumed(mlpengine, tmp_path)
