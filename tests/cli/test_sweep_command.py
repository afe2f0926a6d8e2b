"""`mlpengine sweep`: workers that come, go and are killed, the best config, and misuse."""

import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from small import SMALL

from mlpengine.config.sweep import SpaceSection, SweepSection
from mlpengine.models import metrics
from mlpengine_cli import study as study_module
from mlpengine_cli import sweep as sweep_module
from mlpengine_cli import trials as trials_module
from mlpengine_cli.main import run

SPACE = "{optimizer.lr: {log: [1e-4, 1e-1]}, model.hidden: {choice: [[4], [6, 3]]}}"
FILES = ("model.safetensors", "metrics.csv", "config.resolved.yaml")


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Write a config as s.yaml, with other settings of the section; a sweep has one worker."""
    monkeypatch.setattr(sweep_module, "cores", lambda: 1)

    def write(space=SPACE, **settings):
        settings = {"trials": 4, "sampler": "random", **settings, "space": space}
        lines = "".join(f"  {key}: {value}\n" for key, value in settings.items())
        (tmp_path / "s.yaml").write_text(f"{SMALL}sweep:\n{lines}")

    write()
    return write


def trials(directory):
    """Return what a sweep left: its best config, and the files of each trial."""
    runs = sorted(Path(directory, "trials").iterdir())
    contents = {run.name: [(run / name).read_bytes() for name in FILES] for run in runs}
    best = Path(directory, "best.yaml").read_text().splitlines()
    return contents, [line for line in best if not line.startswith("# Its")]


def values(ran):
    """Return value and settings of each trial of a command that printed JSON."""
    assert ran.code == 0, ran.err
    return [(one["state"], one["value"], one["values"]) for one in json.loads(ran.out)["trials"]]


@pytest.mark.parametrize(("sampler", "count"), [("tpe", 11), ("grid", 4)], ids=str)
def test_a_sweep_repeats_itself_and_its_best_config_trains(sampler, count, sweep, mlpengine):
    grid = "{training.batch_size: {int: [31, 32]}, model.hidden: {choice: [[4], [3]]}}"
    sweep(grid if sampler == "grid" else SPACE, sampler=sampler, trials=count)
    given = ("--set", "training.epochs=1")
    first = mlpengine("sweep", "s.yaml", "-o", "first", "-q", "--json", *given)
    drawn = values(first)
    listed = json.loads(mlpengine("ls", "first", "--json").out)
    assert [one["run"] for one in listed] == [f"first/trials/{k:04d}" for k in range(len(listed))]
    assert len(listed) == len(drawn)
    assert "first is a sweep" in mlpengine("ls", ".").out
    assert [state for state, _, _ in drawn] == ["complete"] * count
    assert len({str(one) for *_, one in drawn}) == count
    again = mlpengine("sweep", "s.yaml", "-o", "again", "-q", "--json", *given)
    assert values(again) == drawn
    assert trials("first") == trials("again")
    best = json.loads(first.out)["best"]
    assert best["value"] == min(value for _, value, _ in drawn)
    assert mlpengine("train", best["config"], "-o", "best", "-q").code == 0
    assert Path("best/model.safetensors").read_bytes() == Path(best["model"]).read_bytes()


def test_a_config_of_init_is_swept_by_its_score_out_of_fold(mlpengine):
    assert mlpengine("init", "diabetes", "-o", "d.yaml").code == 0
    assert "folds: 8" in Path("d.yaml").read_text()
    space = f"sweep={{trials: 3, sampler: random, space: {SPACE}}}"
    few = ("training.epochs=2", "training.folds=2", "report=false", space)
    done = mlpengine("sweep", "d.yaml", "-o", "s", "-q", "--json", settings=few)
    drawn = values(done)
    results = [json.loads(Path(f"s/trials/{k:04d}/result.json").read_text()) for k in range(3)]
    assert [value for _, value, _ in drawn] == [one["out_of_fold"]["loss"] for one in results]
    best = json.loads(done.out)["best"]
    assert mlpengine("train", best["config"], "-o", "best", "-q").code == 0
    assert Path("best/model.safetensors").read_bytes() == Path(best["model"]).read_bytes()
    shutil.rmtree(best["run_dir"])
    assert mlpengine("sweep", "--join", "s").code == 1


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_bad_trials_end_early(pruner, sweep, mlpengine):
    rates = "{optimizer.lr: {choice: [0.01, 0.02, 0.03, 0.04, 0.05, 1e-7, 2e-7]}}"
    sweep(rates, pruner=pruner, sampler="grid", trials=9, metric="log_loss")
    given = ("--set", "training.epochs=9")
    drawn = values(mlpengine("sweep", "s.yaml", "-q", "--json", *given))
    states = {one["optimizer.lr"]: state for state, _, one in drawn}
    assert "pruned" in (states[1e-7], states[2e-7])
    pruned = [i for i, (state, *_) in enumerate(drawn) if state == "pruned"]
    for number in pruned:
        run = Path(f"runs/s/trials/{number:04d}")
        assert 1 < len((run / "metrics.csv").read_text().splitlines()) < 10
        assert json.loads((run / "result.json").read_text())["ending"] == "interrupted"


def test_trials_with_a_metric_that_is_nan_fail(sweep, mlpengine, monkeypatch):
    odd = metrics.OwnMetric(lambda *_: np.nan, "labels", False)
    monkeypatch.setitem(metrics.OWN_METRICS, "odd", odd)
    sweep(metric="odd", trials=1)
    ran = mlpengine("sweep", "s.yaml", "-q")
    assert (ran.code, "every trial failed (the first: odd must be" in ran.err) == (1, True)


def at_epoch(monkeypatch, number, action):
    """Call `action` at the end of that epoch of the first worker, which may be a fork of this."""
    epochs, real = [], trials_module.Reporter.on_train_epoch_end

    def count(self, loop, row):
        epochs.append(row.epoch)
        if len(epochs) == number:
            action()
        real(self, loop, row)

    monkeypatch.setattr(trials_module.Reporter, "on_train_epoch_end", count)


def in_fork(*args):
    """Return the exit code of a command in a fork."""
    process = get_context("fork").Process(target=lambda: sys.exit(run(args)))
    process.start()
    process.join()
    return process.exitcode


def test_ctrl_c_leaves_a_sweep_that_goes_on(sweep, mlpengine, monkeypatch):
    sweep(sampler="tpe", trials=3)
    whole = mlpengine("sweep", "s.yaml", "-o", "whole", "-q", "--json")
    with monkeypatch.context() as patched:
        at_epoch(patched, 5, lambda: signal.raise_signal(signal.SIGINT))
        ran = mlpengine("sweep", "s.yaml", "-o", "my part")
    assert ran.code == 130
    assert "1 trial of 3: 1 complete\n" in ran.out
    assert "resume with: mlpengine sweep --join 'my part'" in ran.out
    assert "mlpengine sweep --join 'my part'" in mlpengine("train", "--resume", "my part").err
    assert "my part/trials/0001  " in mlpengine("ls", "my part").out
    assert "must be a name" in mlpengine("sweep", "s.yaml", "--out", ".").err
    ran = mlpengine("sweep", "--join", "my part", "-q", "--json")
    by_slot = sorted(values(ran), key=str)
    assert by_slot == sorted(values(whole), key=str)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_trial_of_a_killed_worker_is_run_again_by_the_others(
    sweep, mlpengine, monkeypatch, tmp_path
):
    whole = mlpengine("sweep", "s.yaml", "-o", "whole", "-q", "--json")

    def kill_one():
        with suppress(FileExistsError):
            (tmp_path / "once").mkdir()
            kill()

    at_epoch(monkeypatch, 2, kill_one)
    ran = mlpengine("sweep", "s.yaml", "-o", "part", "--workers", "2", "--json")
    assert ran.err.count("a worker was killed") == 1
    assert sorted(values(ran), key=str) == sorted(values(whole), key=str)


def test_a_trial_that_kills_every_worker_fails(sweep, mlpengine, monkeypatch):
    sweep(trials=1)
    with monkeypatch.context() as patched:
        at_epoch(patched, 1, kill)
        assert in_fork("sweep", "s.yaml", "-q") == -signal.SIGKILL
        for _ in range(study_module.RETRIES):
            assert in_fork("sweep", "--join", "runs/s", "-q") == -signal.SIGKILL
    ran = mlpengine("sweep", "--join", "runs/s")
    assert ran.code == 1
    assert "every trial failed (the first: its worker was killed)" in ran.err


def test_two_sweeps_of_one_directory_share_the_trials(sweep, mlpengine, monkeypatch):
    """The second joins while the first trains."""
    whole = mlpengine("sweep", "s.yaml", "-o", "whole", "-q", "--json")
    with monkeypatch.context() as patched:
        join = ("sweep", "--join", "my part", "-q")
        at_epoch(patched, 2, lambda: in_fork(*join))
        first = mlpengine("sweep", "s.yaml", "-o", "part", "-q", "--json")
    assert sorted(values(first), key=str) == sorted(values(whole), key=str)


@pytest.mark.parametrize(
    ("settings", "given", "count"),
    [
        ({"sampler": "random"}, None, 2),
        ({"sampler": "tpe"}, None, 1),
        ({"sampler": "random", "pruner": "median"}, None, 1),
        ({"sampler": "tpe"}, 3, 3),
    ],
)
def test_a_worker_for_each_core_where_no_trial_depends_on_others(
    settings, given, count, monkeypatch
):
    monkeypatch.setattr(sweep_module, "cores", lambda: 2)
    section = SweepSection(space={"seed": SpaceSection(int=[0, 9])}, **settings)
    assert sweep_module.worker_count(section, given) == count


def test_workers_of_a_sweep_by_default_give_the_bits_of_one(sweep, mlpengine, monkeypatch):
    one = mlpengine("sweep", "s.yaml", "-o", "one", "-q", "--json")
    monkeypatch.setattr(sweep_module, "cores", lambda: 2)
    two = mlpengine("sweep", "s.yaml", "-o", "two", "-q", "--json")
    assert values(one) == values(two)
    assert trials("one") == trials("two")


def test_a_trial_that_cannot_train_is_told_and_the_others_go_on(sweep, mlpengine, monkeypatch):
    taken = iter([True])  # in between, another worker ends the first trial that waits

    def ask(study, real=study_module.optuna.Study.ask):
        if next(taken, False):
            raise study_module.UpdateFinishedTrialError
        return real(study)

    monkeypatch.setattr(study_module.optuna.Study, "ask", ask)
    space = "{training.clip_norm: {choice: [null, 1.0]}, optimizer.lr: {choice: [0.01, 1e30]}}"
    sweep(space, sampler="grid")
    ran = mlpengine("sweep", "s.yaml", "--json", "--set", "loss=bce_with_logits", "-q")
    assert ran.code == 2  # penguins are of three species: the base config cannot train
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
    ran = mlpengine("sweep", "s.yaml", "--json", "-q")
    states = [state for state, *_ in values(ran)]
    assert sorted(states) == ["complete", "complete", "failed", "failed"]
    reasons = [one["reason"] for one in json.loads(ran.out)["trials"] if one["reason"]]
    assert all("finite" in reason for reason in reasons)
    assert mlpengine("ls", "runs/s/trials").out.count(" failed\n") == 2


def test_a_trial_without_memory_fails_and_the_others_go_on(sweep, mlpengine, monkeypatch):
    def limited(data, real=trials_module.trainer_of):
        return real(data) if data.file.config.model.hidden == (4,) else np.empty(1 << 58)

    sweep("{model.hidden: {choice: [[6, 3], [4]]}}", sampler="grid")
    monkeypatch.setattr(trials_module, "trainer_of", limited)
    ran = mlpengine("sweep", "s.yaml", "--json", "-q")
    assert [state for state, *_ in values(ran)] == ["failed", "complete"]


def test_a_damaged_or_lost_journal_is_named(sweep, mlpengine):
    assert mlpengine("sweep", "s.yaml", "-q").code == 0
    journal = Path("runs/s/journal.log")
    lines = journal.read_text().splitlines(keepends=True)
    for text in ("".join([*lines[:3], "{damaged\n", *lines[4:]]), ""):
        journal.write_text(text)
        ran = mlpengine("sweep", "--join", "runs/s")
        assert (ran.code, len(ran.err.splitlines())) == (1, 1)
        assert "journal.log: the sweep's journal cannot be used (" in ran.err


MISUSE = {
    "both": (("s.yaml", "--join", "runs/s"), 2, "--join: a sweep keeps its settings"),
    "joins a run": (
        ("--join", "run"),
        2,
        "run: is not the directory of a sweep (there is no sweep",
    ),
    "edited": (("--join", "edited"), 1, "sweep.yaml: must be as it was when the sweep began"),
    "damaged": (("--join", "damaged"), 1, "damaged/sweep.json: is damaged ("),
}


@pytest.mark.parametrize(("args", "code", "message"), MISUSE.values(), ids=MISUSE)
def test_misuse(args, code, message, sweep, mlpengine, tmp_path):
    for name, settings in (
        ("edited", '{"name": "s", "settings": [], "config_sha256": "0"}'),
        ("damaged", "{"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sweep.json").write_text(settings)
        (tmp_path / name / "sweep.yaml").write_text(SPACE)
    (tmp_path / "run").mkdir()
    ran = mlpengine("sweep", *args)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert "secret" not in ran.err
    assert "nothing is lost" not in ran.err  # there is no sweep to join
    assert not Path("runs/s").exists()


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_sweep_begins_in_one_process(rank, sweep, mlpengine, monkeypatch):
    monkeypatch.setenv("PMI_RANK", rank)
    monkeypatch.setenv("PMI_SIZE", "2")
    ran = mlpengine("sweep", "s.yaml", "-q")
    told = "sweep: must begin in one process (mpiexec started 2)"
    assert (ran.code, ran.out, told in ran.err) == (2, "", rank == "0")
    assert not Path("runs").exists()
    monkeypatch.delenv("PMI_SIZE")
    assert mlpengine("sweep", "s.yaml", "-q").code == 0
    monkeypatch.setenv("PMI_SIZE", "2")
    assert mlpengine("sweep", "--join", "runs/s", "-q").code == 0
