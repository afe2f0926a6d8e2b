"""`mlpengine sweep`: workers that come, go and are killed, the best config, and misuse."""

import errno
import fcntl
import json
import os
import shutil
import signal
import sys
from collections import Counter
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import postgres
import pytest
from small import SMALL

from mlpengine.core.errors import RunError, install_line
from mlpengine.core.system import usable_cores
from mlpengine.training.checkpoint import Checkpoints
from mlpengine.training.run_directory import RunDirectory
from mlpengine_cli import stopping
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


@pytest.mark.parametrize(("sampler", "count"), [("tpe", 12), ("grid", 4)], ids=str)
def test_a_sweep_repeats_itself_and_its_best_config_trains(sampler, count, sweep, mlpengine):
    grid = "{training.batch_size: {int: [31, 32]}, model.hidden: {choice: [[4], [3]]}}"
    sweep(grid if sampler == "grid" else SPACE, sampler=sampler, trials=count)
    given = ("--set", "training.epochs=1")
    first = mlpengine("sweep", "s.yaml", "-o", "first", "-q", "--json", *given)
    drawn = values(first)
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
    """Before, the sweep asked for a part for validation, which folds replace."""
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


def test_the_table_names_the_best_trial_and_where_its_weights_are(sweep, mlpengine):
    sweep(metric="accuracy")
    ran = mlpengine("sweep", "s.yaml", "--set", "report=true")
    assert ran.code == 0
    assert ran.out.splitlines()[0].split()[:2] == ["trial", "accuracy"]
    shown = [line.split() for line in ran.out.splitlines()[1:5]]
    assert sorted(row[0] for row in shown) == ["0", "1", "2", "3"]
    accuracies = [float(row[1]) for row in shown]
    assert accuracies == sorted(accuracies, reverse=True)
    assert f"the best is trial {shown[0][0]}; its weights are kept, not trained again" in ran.out
    assert f"runs/s/trials/{int(shown[0][0]):04d}/model.safetensors" in ran.out
    assert "4 trials of 4: 4 complete" in ran.out
    assert "resume with" not in ran.out
    assert "runs/s/report.html" in ran.out
    assert ran.err.count("trial ") == 4


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_bad_trials_end_early(pruner, sweep, mlpengine):
    rates = "{optimizer.lr: {choice: [0.01, 0.02, 0.03, 0.04, 0.05, 1e-7, 2e-7]}}"
    sweep(rates, pruner=pruner, sampler="grid", trials=9)
    given = ("--set", "training.epochs=9")
    drawn = values(mlpengine("sweep", "s.yaml", "-q", "--json", *given))
    states = {one["optimizer.lr"]: state for state, _, one in drawn}
    assert "pruned" in (states[1e-7], states[2e-7])
    pruned = [i for i, (state, *_) in enumerate(drawn) if state == "pruned"]
    for number in pruned:
        run = Path(f"runs/s/trials/{number:04d}")
        assert 1 < len((run / "metrics.csv").read_text().splitlines()) < 10
        assert json.loads((run / "result.json").read_text())["ending"] == "interrupted"


def test_ctrl_c_leaves_a_sweep_that_goes_on(sweep, mlpengine, monkeypatch):
    sweep(sampler="tpe", trials=3)
    assert mlpengine("sweep", "s.yaml", "-o", "whole", "-q").code == 0
    epochs = []

    def interrupt(self, loop, row):
        epochs.append(row.epoch)
        if len(epochs) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(trials_module.Reporter, "on_train_epoch_end", interrupt)
    ran = mlpengine("sweep", "s.yaml", "-o", "part")
    assert ran.code == 130
    assert "2 trials of 3: 1 complete, 1 running\n" in ran.out
    assert "resume with: mlpengine sweep --join part" in ran.out
    ran = mlpengine("sweep", "--join", "part", "-q")
    assert (ran.code, "3 trials of 3: 3 complete" in ran.out) == (0, True)
    whole, part = trials("whole"), trials("part")
    assert whole[0] == part[0]


EVERY = ("--set", "training.checkpoint={every_epochs: 1, every_seconds: null}")


def killed(number, *args):
    """Run a command in a fork that kills itself with its checkpoint of that number."""
    real, saved = Checkpoints.save, []

    def save(*args, **options):
        saved.append(real(*args, **options))
        if len(saved) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return saved[-1]

    def work():
        Checkpoints.save = save
        run(args)

    process = get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_the_trial_of_a_killed_worker_goes_on_and_nothing_else_is_lost(
    sweep, mlpengine, monkeypatch, tmp_path
):
    assert mlpengine("sweep", "s.yaml", "-o", "whole", "-q", *EVERY).code == 0
    real, saved = Checkpoints.save, []

    def save(*args, **options):
        saved.append(real(*args, **options))
        if len(saved) == 2:  # one of the workers, which are forks of this process, kills itself
            with suppress(FileExistsError):
                (tmp_path / "once").mkdir()
                os.kill(os.getpid(), signal.SIGKILL)
        return saved[-1]

    monkeypatch.setattr(Checkpoints, "save", save)
    ran = mlpengine("sweep", "s.yaml", "-o", "part", "--workers", "2", "--json", *EVERY)
    assert ran.err.count("a worker was killed") == 1
    assert [state for state, *_ in values(ran)] == ["complete"] * 4
    assert trials("whole")[0] == trials("part")[0]


WORKERS = {
    "random": ({}, (), 2),
    "grid": ({"sampler": "grid", "trials": 3}, (), 2),
    "fewer trials": ({"trials": 1}, (), 1),
    "learns": ({"sampler": "tpe"}, (), 1),
    "pruner": ({"pruner": "median"}, (), 1),
    "SQLite": ({"storage": "sqlite:///s.db"}, (), 1),
    "given": ({"sampler": "tpe"}, ("--workers", "3"), 3),
}


@pytest.mark.parametrize("case", WORKERS)
def test_a_worker_for_each_core_where_no_trial_depends_on_others(
    case, sweep, mlpengine, monkeypatch
):
    settings, given, count = WORKERS[case]
    monkeypatch.setattr(sweep_module, "cores", lambda: 2)
    started = []
    monkeypatch.setattr(trials_module.Worker, "run", lambda *_: started.append(1))
    monkeypatch.setattr(sweep_module, "supervise", lambda *args, **_: started.append(args[1]) or 0)
    sweep("{model.hidden: {choice: [[4], [3], [2]]}}", **settings)
    assert mlpengine("sweep", "s.yaml", *given).code == 0
    assert started == [count]


def test_workers_of_a_sweep_by_default_give_the_bits_of_one(sweep, mlpengine, monkeypatch):
    one = mlpengine("sweep", "s.yaml", "-o", "one", "-q", "--json")
    monkeypatch.setattr(sweep_module, "cores", lambda: 2)
    two = mlpengine("sweep", "s.yaml", "-o", "two", "-q", "--json")
    assert values(one) == values(two)
    assert trials("one") == trials("two")


def test_a_wait_that_a_signal_interrupts_goes_on(sweep, mlpengine, monkeypatch):
    real, calls = sweep_module.wait, []

    def interrupted(processes):
        calls.append(len(processes))
        if len(calls) == 1:  # what Windows does after the handler of Ctrl-C
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        return real(processes)

    monkeypatch.setattr(sweep_module, "wait", interrupted)
    ran = mlpengine("sweep", "s.yaml", "--workers", "2", "--json")
    assert [state for state, *_ in values(ran)] == ["complete"] * 4
    assert calls[:2] == [2, 2]


def test_a_line_of_the_journal_that_was_cut_off_is_removed(sweep, mlpengine):
    assert mlpengine("sweep", "s.yaml", "-q").code == 0
    with Path("runs/s/journal.log").open("ab") as journal:
        journal.write(b'{"op_code": 8, "tri')  # as a full disk or a killed worker leaves it
    study = trials_module.Sweep.load(Path("runs/s")).study()
    assert study.claim() is None
    study.sweep = study.sweep.model_copy(update={"trials": 5})
    assert study.claim().trial.number == 4
    lines = Path("runs/s/journal.log").read_text().splitlines()
    assert all(json.loads(line) for line in lines)


def test_a_trial_that_kills_every_worker_fails(sweep, mlpengine, monkeypatch):
    sweep(trials=1)
    monkeypatch.setattr(trials_module.Worker, "run", lambda *_: None)
    assert mlpengine("sweep", "s.yaml", "-q").code == 0
    for _ in range(study_module.MAX_DEATHS):
        worker = trials_module.Sweep.load(Path("runs/s")).study()
        worker.claim().directory.close()  # as when the process is killed
    assert worker.claim() is None
    ran = mlpengine("sweep", "--join", "runs/s")
    assert ran.code == 1
    assert "every trial failed (the first: its worker died 3 times without progress)" in ran.err


def test_a_trial_whose_workers_die_goes_on_as_long_as_it_progresses(sweep, mlpengine):
    """Before, it failed with the third of them."""
    sweep(trials=1)
    given = ("-q", *EVERY, "--set", "training.epochs=6")
    assert mlpengine("sweep", "s.yaml", "-o", "whole", *given).code == 0
    killed(1, "sweep", "s.yaml", "-o", "part", *given)
    for _ in range(study_module.MAX_DEATHS):
        killed(1, "sweep", "--join", "part", "-q")
    ran = mlpengine("sweep", "--join", "part", "-q", "--json")
    assert [state for state, *_ in values(ran)] == ["complete"]
    assert trials("part")[0] == trials("whole")[0]


def test_a_trial_that_cannot_train_is_told_and_the_others_go_on(sweep, mlpengine):
    sweep(
        "{training.clip_norm: {choice: [null, 1.0]}, optimizer.lr: {choice: [0.01, 1e300]}}",
        sampler="grid",
    )
    ran = mlpengine("sweep", "s.yaml", "--json", "--set", "loss=bce_with_logits", "-q")
    assert ran.code == 2  # penguins are of three species: the base config cannot train
    assert not Path("runs").exists() or not list(Path("runs").iterdir())
    ran = mlpengine("sweep", "s.yaml", "--json", "-q")
    states = [state for state, *_ in values(ran)]
    assert sorted(states) == ["complete", "complete", "failed", "failed"]
    reasons = [one["reason"] for one in json.loads(ran.out)["trials"] if one["reason"]]
    assert all("finite" in reason for reason in reasons)


def test_postgresql(sweep, mlpengine, capsys):
    if len(postgres.programs()) < 2:
        with capsys.disabled():
            print("\nNOT TESTED: sweeps on PostgreSQL (initdb and pg_ctl are not installed)")
        return
    with postgres.server() as server:
        sweep(storage=f'"{server.url}"', trials=6)
        killed(5, "sweep", "s.yaml", "-o", "one", "-q", "--workers", "1", *EVERY)
        late = mlpengine("sweep", "--join", "one", "--workers", "2", "-q", "--json")
        assert [state for state, *_ in values(late)] == ["complete"] * 6
        taken = mlpengine("sweep", "s.yaml", "-o", "two", "-q")
        assert taken.code == 2
        assert "holds a sweep of the name 's' (" in taken.err
        assert not Path("two").exists()
        server.stop()
        down = mlpengine("sweep", "--join", "one")
        assert (down.code, len(down.err.splitlines())) == (1, 1)
        assert "the sweep's storage cannot be used (" in down.err
        assert "nothing is lost: mlpengine sweep --join" in down.err
        server.start()
        assert values(mlpengine("sweep", "--join", "one", "-q", "--json")) == values(late)


def test_sqlite_has_one_worker(sweep, mlpengine, tmp_path):
    sweep(storage="sqlite:///s.db", trials=2)
    refused = mlpengine("sweep", "s.yaml", "--workers", "2")
    assert refused.code == 2
    assert refused.err.startswith("error: --workers: SQLite is for one worker (got 2): it locks")
    assert mlpengine("sweep", "s.yaml", "-q").code == 0
    assert mlpengine("sweep", "--join", "runs/s", "--workers", "2").code == 2
    lock = os.open("runs/s/sqlite.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    taken = mlpengine("sweep", "--join", "runs/s")
    os.close(lock)
    assert (taken.code, "another worker is at work, and SQLite is for one" in taken.err) == (
        1,
        True,
    )


def test_a_sweep_that_failed_at_its_start_or_is_gone_begins_again(sweep, mlpengine, monkeypatch):
    """Before, its name was taken for ever in the database."""
    sweep(storage="sqlite:///s.db", trials=1)
    real, given = RunDirectory.write_json, ("sweep", "s.yaml", "-q", "--json")

    def full(directory, name, *args, **options):
        if name == "sweep.json":
            raise RunError("sweep.json: cannot be written (No space left on device)")
        real(directory, name, *args, **options)

    for killed_at_once in (False, True):
        with monkeypatch.context() as patched:
            patched.setattr(RunDirectory, "write_json", full)
            if killed_at_once:  # which leaves the directory
                patched.setattr(shutil, "rmtree", lambda *_, **__: None)
            assert mlpengine(*given).code == 1
    assert [path.name for path in Path("runs").iterdir()] == ["s"]
    with RunDirectory.open(Path("runs/s")):  # as while it begins
        assert "holds a sweep of the name 's'" in mlpengine(*given).err
    first = mlpengine(*given)
    assert [state for state, *_ in values(first)] == ["complete"]
    taken = mlpengine(*given)
    assert (taken.code, "holds a sweep of the name 's' (" in taken.err) == (2, True)
    shutil.rmtree(json.loads(first.out)["sweep_dir"])
    with monkeypatch.context() as patched:
        patched.setattr(study_module, "node", lambda: "another machine")
        assert mlpengine(*given).code == 2
    assert values(mlpengine(*given)) == values(first)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_full_disk_loses_nothing(workers, sweep, mlpengine, monkeypatch, tmp_path):
    """Before, each of two workers told it, and so did the end of the sweep."""
    real = Checkpoints.save

    def full(*args, **options):
        with suppress(FileExistsError):
            (tmp_path / "once").mkdir()
            raise RunError("trials/0000: cannot be written (No space left on device); make room")
        return real(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", full)
        ran = mlpengine("sweep", "s.yaml", "-q", "--workers", workers)
    assert (ran.code, ran.out) == (1, "")
    if workers == "1":
        assert len(ran.err.splitlines()) == 1
        assert "device); make room; nothing is lost: mlpengine sweep --join" in ran.err
    else:  # the worker, which is another process, has told it
        assert ran.err == ""
    assert [state for state, *_ in values(mlpengine("sweep", "--join", "runs/s", "-q", "--json"))]


def test_a_trial_flushes_its_weights_and_two_records(sweep, mlpengine, monkeypatch):
    """Before, it flushed 24 times, three of them while it held the lock of the sweep."""
    real, flushed, locked = os.fsync, Counter(), []

    def counted(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if "trials" in path.parts or path.name == "journal.log":
            flushed[path.name] += 1
        with Path("runs/s/run.lock").open() as lock, suppress(FileNotFoundError):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                locked.append(Path("runs/s/trials").exists())
        real(descriptor)

    sweep(trials=1)
    monkeypatch.setattr(os, "fsync", counted)
    assert mlpengine("sweep", "s.yaml", "-q").code == 0
    begun = 1
    assert flushed == {"journal.log": begun + 2, "model.safetensors": 1, "0000": 1}
    assert not any(locked)


DAMAGED = {
    "config": ("config.resolved.yaml",),
    "checkpoints": ("checkpoints/*.safetensors",),
    "newest checkpoint": ("checkpoints/step-*8.safetensors",),
    "everything": ("*.*", "checkpoints/*"),
}


def test_a_trial_that_a_power_cut_damaged_is_repeated(sweep, mlpengine, monkeypatch):
    """The system may leave files empty that were not flushed."""
    sweep(trials=2)
    assert mlpengine("sweep", "s.yaml", "-o", "whole", "-q", *EVERY).code == 0
    real, saved = Checkpoints.save, []

    def stopped(*args, **options):
        if len(saved) == 2:
            raise RunError("stopped")
        saved.append(real(*args, **options))

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", stopped)
        assert mlpengine("sweep", "s.yaml", "-o", "part", "-q", *EVERY).code == 1
    shutil.copytree("part", "stopped")
    for files in DAMAGED.values():
        shutil.rmtree("part")
        shutil.copytree("stopped", "part")
        emptied = [one for name in files for one in Path("part/trials/0000").glob(name)]
        for path in emptied:
            path.write_bytes(b"")
        assert emptied
        assert mlpengine("sweep", "--join", "part", "-q").code == 0
        assert trials("part") == trials("whole")


def test_a_damaged_journal_is_named(sweep, mlpengine):
    """Before, a sweep whose journal was emptied or cut short began anew without a word."""
    sweep(trials=3)
    assert mlpengine("sweep", "s.yaml", "-q").code == 0
    journal = Path("runs/s/journal.log")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([*lines[:3], "{damaged\n", *lines[4:]]))
    ran = mlpengine("sweep", "--join", "runs/s")
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert "journal.log: the sweep's storage cannot be used (" in ran.err
    asked = [i for i, line in enumerate(lines) if json.loads(line)["op_code"] == 4]
    journal.write_text("".join(lines[: asked[1]]))
    ran = mlpengine("sweep", "--join", "runs/s", "-q")
    assert ran.code == 0
    assert "warning: runs/s: 2 trials had results that the storage has lost (it was cut " in ran.err
    assert "warning" not in mlpengine("sweep", "--join", "runs/s", "-q").err
    journal.write_text("")
    for _ in range(2):
        ran = mlpengine("sweep", "--join", "runs/s")
        assert (ran.code, len(ran.err.splitlines())) == (1, 1)
        assert "journal.log: holds nothing of the sweep" in ran.err
        assert "(it was emptied, removed or replaced): the results are gone" in ran.err


def test_a_full_disk_below_the_journal_loses_nothing(sweep, mlpengine, monkeypatch):
    sweep(trials=2)
    real, calls = os.fsync, []

    def full(descriptor):
        if "journal.log" in os.readlink(f"/proc/self/fd/{descriptor}"):
            calls.append(descriptor)
            if len(calls) > 2:  # after those of the study and of a trial that begins
                raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        ran = mlpengine("sweep", "s.yaml", "-q")
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert "journal.log: the sweep's storage cannot be used ([Errno 28] No space left" in ran.err
    assert [state for state, *_ in values(mlpengine("sweep", "--join", "runs/s", "-q", "--json"))]


MISUSE = {
    "neither": ((), 2, "sweep: give a CONFIG, or --join SWEEP"),
    "both": (("s.yaml", "--join", "runs/s"), 2, "--join: a sweep keeps its settings"),
    "joins nothing": (("--join", "runs/none"), 2, "runs/none: there is no such sweep"),
    "joins a run": (
        ("--join", "run"),
        2,
        "run: is not the directory of a sweep (there is no sweep",
    ),
    "edited": (("--join", "edited"), 1, "sweep.yaml: must be as it was when the sweep began"),
    "damaged": (("--join", "damaged"), 1, "damaged/sweep.json: is damaged ("),
    "no workers": (("s.yaml", "--workers", "0"), 2, "must be at least 1 (got 0)"),
    "metric": (
        ("s.yaml", "--set", "sweep.metric=r2"),
        2,
        "--set sweep.metric: sweep.metric: this task has loss, accuracy, macro_f1 (got 'r2')",
    ),
    "storage without a driver": (
        ("s.yaml", "--set", "sweep.storage=oracel://user:secret@host/name"),
        2,
        "(got oracel://user:***@host/name: Can't load plugin: sqlalchemy.dialects:oracel)",
    ),
    "storage that is down": (
        ("s.yaml", "--set", "sweep.storage=postgresql://u:secret@/name?host=/nowhere"),
        1,
        "postgresql://u:***@/name?host=/nowhere: the sweep's storage cannot be used (",
    ),
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
    """Before, each rank began a sweep of its own."""
    monkeypatch.setenv("PMI_RANK", rank)
    monkeypatch.setenv("PMI_SIZE", "2")
    ran = mlpengine("sweep", "s.yaml", "-q")
    told = "sweep: must begin in one process (mpiexec started 2); give --workers 2, or "
    assert (ran.code, ran.out, told in ran.err) == (2, "", rank == "0")
    assert not Path("runs").exists()
    monkeypatch.delenv("PMI_SIZE")
    assert mlpengine("sweep", "s.yaml", "-q").code == 0
    monkeypatch.setenv("PMI_SIZE", "2")
    assert mlpengine("sweep", "--join", "runs/s", "-q").code == 0


def test_without_optuna(sweep, mlpengine, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "optuna"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("study", "trials"):
        monkeypatch.delitem(sys.modules, f"mlpengine_cli.{name}")
    monkeypatch.setitem(sys.modules, "optuna", None)
    ran = mlpengine("sweep", "s.yaml")
    assert (ran.code, ran.err) == (
        1,
        f"error: mlpengine sweep needs an optional package: {install_line('sweep')}\n",
    )


def test_training_leaves_the_section_out(sweep, mlpengine):
    ran = mlpengine("train", "s.yaml", "-q")
    assert ran.code == 0
    assert "sweep" not in Path("runs/s/config.resolved.yaml").read_text()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_that_the_cores_suffice_for_share_none(workers, tmp_path, monkeypatch):
    usable = usable_cores()

    def work(arguments: list[str]) -> int:
        own = sorted(usable_cores())
        (tmp_path / f"{os.getpid()}.json").write_text(json.dumps(own))
        return 0

    monkeypatch.setattr("mlpengine_cli.main.run", work)
    with stopping.stops(quiet=True) as state:
        assert sweep_module.supervise(tmp_path, workers, state, quiet=True) == 0
    given = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert len(given) == workers
    assert {core for own in given for core in own} == usable
    if workers <= len(usable):
        assert sum(map(len, given)) == len(usable)
    spread = sweep_module.shares({2, 3, 5}, workers)
    assert sum(map(len, spread)) == 3
    assert set().union(*spread) == {2, 3, 5}
