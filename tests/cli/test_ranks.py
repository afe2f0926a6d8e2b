"""Training on several ranks: the bits of one, elastic resume, errors of any rank."""

import os
import re
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import numpy as np
import pytest
import rank_runs

from mlpengine.backends.compiled import emitter
from mlpengine.core.errors import install_line
from mlpengine.step.ranks import Ranks
from mlpengine_cli.ranks import launched, start_ranks

RUNS = Path(__file__).with_name("rank_runs.py")

CONFIGS = {
    "classes": """\
data: {source: penguins, split: {validation: 0.2, test: 0.103}}
model: {hidden: [6, 5], dropout: 0.2}
training: {epochs: 2, batch_size: 30, shards: 4, clip_norm: 0.5, backend: compiled}
report: false
""",
    "numbers": """\
data: {source: diabetes}
model: {hidden: [5]}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
training: {epochs: 2, batch_size: 64, shards: 8, backend: numpy, clip_norm: 0.2}
report: false
""",
    "folds": """\
data: {source: diabetes}
model: {hidden: [5], dropout: 0.2}
training: {epochs: 4, batch_size: 64, folds: 5, early_stopping: {patience: 1}, backend: compiled}
report: false
""",
    "shared": """\
data: {source: diabetes}
model: {hidden: [300, 60], dropout: 0.1}
training: {epochs: 2, batch_size: 62, shards: 4, clip_norm: 0.5, backend: compiled}
report: false
""",
    "stream": """\
data: {source: rows.csv, target: y, stream: true}
model: {hidden: [4]}
training: {epochs: 1, batch_size: 64, shards: 4, backend: numpy}
report: false
""",
}
"""Steps of NumPy and compiled ones, whole batches and shorter ones, one network and several."""

RUNS_OF = {
    1: ["classes 1 2", "numbers 1", "folds 1", "shared 1", "stream 1"],
    2: ["classes 1 2", "numbers 1", "folds 2", "shared 2", "stream 1"],
    4: ["numbers 1", "folds 1"],
}
"""Names of configs and numbers of threads, by the number of ranks."""

LONG = """\
data: {source: penguins}
model: {hidden: [6]}
training: {epochs: 4, batch_size: 30, shards: 4, checkpoint: {every_steps: 4}, backend: numpy}
report: false
"""

LONG_FOLDS = LONG.replace("shards: 4", "folds: 3").replace("every_steps: 4", "every_epochs: 1")


@pytest.mark.parametrize("count", ["1", "x", ""])
def test_variables_of_a_launcher_of_one_process_start_no_ranks(count, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", count)
    assert (launched(), start_ranks(asked=False)) == ((0, 1), None)


def located(name: str) -> str:
    """Return the path of a file of the package of MPICH; it need not be in this environment."""
    (path,) = (f.locate() for f in files("mpich") or [] if f.name == name and f.parts[-2] != "etc")
    return str(path.resolve())


@pytest.fixture
def mpiexec(tmp_path):
    """Call as ``mpiexec(2, "train", ...)`` in an empty directory; gives the finished process."""
    environment = {**os.environ, "MPI4PY_LIBMPI": located("libmpi.so.12")}
    command = located("mpiexec.hydra")

    def call(ranks, *arguments):
        launch = [command, "-n", str(ranks)] if ranks else []
        return subprocess.run(
            [*launch, sys.executable, RUNS, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return call


def contents(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in ("model.safetensors", "metrics.csv")]


def test_ranks_and_threads_give_the_same_bits(mpiexec, mlpengine, tmp_path, capsys, monkeypatch):
    """Commands, and compiled steps with reads, copies and errors between them."""
    monkeypatch.setattr(
        emitter, "STEP_TERMS_PER_THREAD", emitter.STEP_TERMS_PER_THREAD
    )  # put back after
    monkeypatch.setattr(Ranks, "share_of_cores", Ranks.share_of_cores)
    rows = np.random.default_rng(0).standard_normal((300, 3))
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,y", comments="")
    for name, text in CONFIGS.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    of_two = ("updates",)
    assert rank_runs.updates() == 0
    assert [rank_runs.bits(*one.split()) for one in RUNS_OF[1]] == [0] * len(CONFIGS)
    expected = printed(capsys.readouterr().out)
    assert len(expected) == len(rank_runs.UPDATES)
    assert all(re.search("row 60 of the .*row 14 of the batch", one) for one in expected)
    for ranks, first in ((2, of_two), (4, ())):
        commands = [*first, *(f"bits {one}" for one in RUNS_OF[ranks])]
        done = mpiexec(ranks, "each", *commands)
        assert [f"{one}: 0" in done.stderr for one in commands] == [True] * len(commands), done
        assert printed(done.stdout) == (expected if first else [])
    for name in CONFIGS:
        runs = sorted(tmp_path.glob(f"{name}-*"))
        each = [one.split() for of_ranks in RUNS_OF.values() for one in of_ranks]
        count = sum(len(threads) for other, *threads in each if other == name)
        assert [contents(run) for run in runs] == [contents(runs[0])] * count
        assert {p.name for p in runs[-1].iterdir()} == {p.name for p in runs[0].iterdir()}


def printed(text: str) -> list[str]:
    """Return the lines of results."""
    return re.findall("^update.*", text, re.MULTILINE)


@pytest.mark.parametrize("config", [LONG, LONG_FOLDS], ids=["shards", "folds"])
def test_a_killed_rank_ends_the_run_which_goes_on_with_other_ranks(
    config, mpiexec, mlpengine, tmp_path
):
    (tmp_path / "long.yaml").write_text(config)
    assert mpiexec(2, "killed", "long.yaml", "-o", "cut").returncode != 0
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    done = mpiexec(2, "stopped", "--resume", "cut")
    assert done.returncode == 143, done.stderr
    assert "error" not in done.stderr
    assert mlpengine("train", "--resume", "cut").code == 0
    assert mlpengine("train", "long.yaml", "-o", "whole").code == 0
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


NAN = """\
seed: 1
data: {source: rows.csv, target: y, standardize: none, split: {validation: 0}}
model: {hidden: [4], activation: "x ** 2"}
training: {epochs: 3, batch_size: 64, shards: 2, backend: numpy}
report: false
"""

NAN_FOLDS = NAN.replace("shards: 2", "folds: 2").replace("seed: 1", "seed: 2")
NAN_FOLDS = NAN_FOLDS.replace(", split: {validation: 0}", "")

MISUSE = {
    "train small.yaml": ["small.yaml:1: training.shards", "multiple of the ranks: 2, 4"],
    "train smal.yaml": ["smal.yaml: cannot read", "did you mean"],
    "other_version small.yaml --set training.shards=2": [
        "packages must be the same on all ranks "
        "(rank 0 has {'mlpengine': '0.0'}, rank 1 has {'mlpengine': '0.1'})"
    ],
    "train --resume nowhere": ["nowhere: there is no such run"],
}


def test_errors_of_ranks_are_one_line(mpiexec, tmp_path):
    """A row that is not finite in the share of rank 1, and wrong usage."""
    rows = np.random.default_rng(0).standard_normal((80, 2))
    lines = ["x,y", *(f"{x},{y}" for x, y in rows)]
    lines[40] = "1e30,1"
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (tmp_path / "rows.yaml").write_text(NAN)
    (tmp_path / "folds.yaml").write_text(NAN_FOLDS)
    (tmp_path / "small.yaml").write_text("data: {source: penguins}\nreport: false\n")
    infinite, of_member_2 = "train rows.yaml -q", "train folds.yaml -q"
    alone = mpiexec(0, "each", infinite, of_member_2, "train small.yaml --mpi").stderr.splitlines()
    shared = mpiexec(2, "each", of_member_2, infinite, *MISUSE).stderr.splitlines()
    message, other = (alone[alone.index(f"{one}: 1") - 1] for one in (infinite, of_member_2))
    assert message.startswith("error: step 1: ")
    assert re.search(r"row (3[2-9]|[45]\d|6[0-3]) of the batch.*rows.csv: line 41", message)
    assert other.startswith("error: member 2: step 1: ")
    assert shared[shared.index(f"{of_member_2}: 1") - 1] == other
    assert "mpiexec -n 2" in alone[-2]
    assert install_line("mpi") in alone[-2]
    assert alone[-1] == "train small.yaml --mpi: 2"
    assert shared[shared.index(f"{infinite}: 1") - 1] == message
    lines = shared[shared.index(f"{infinite}: 1") + 1 :]
    lines = [line for line in lines if not line.startswith("warning: ")]
    assert lines[1::2] == [f"{command}: 2" for command in MISUSE]
    for line, texts in zip(lines[::2], MISUSE.values(), strict=True):
        assert line.startswith("error: ")
        assert all(text in line for text in texts), line
    runs = {p.name for p in (tmp_path / "runs").iterdir()}
    assert runs == {"rows", "rows-002", "folds", "folds-002"}


def test_a_rank_that_ends_before_mpi_has_started_ends_the_job(mpiexec, tmp_path):
    """Before, rank 0 waited for it without end."""
    (tmp_path / "small.yaml").write_text("data: {source: penguins}\nreport: false\n")
    done = mpiexec(2, "wrong_usage_of_one")
    assert done.returncode == 2
    assert "no such option '--epoch'" in done.stdout + done.stderr
    assert not (tmp_path / "runs").exists()
