"""What runs steps: the choice of `auto`; kept in checkpoints, and the same after a resume."""

import logging
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest
from dying import saving_until
from threadpoolctl import threadpool_info, threadpool_limits
from uncompiled import uncompiled

from mlpengine import MeanSquaredError, Mlp, Population, Sgd
from mlpengine.config import load_config
from mlpengine.config.build import load_data, trainer_of
from mlpengine.optim import LevenbergMarquardt
from mlpengine.step import step_builder
from mlpengine.step.step import TrainingStep
from mlpengine.training.checkpoint import Checkpoints
from mlpengine_cli.main import run

NO_COMPILER = "/no/such/compiler"
CONFIG = """\
data: {source: digits, standardize: minmax}
model: {hidden: [8]}
training: {epochs: 3, batch_size: 32, backend: compiled, checkpoint: {every_steps: 25}}
diagnostics: {every: 10}
report: false
"""
DIED = 50
"""The last step that a run saves that dies."""


@pytest.fixture
def numpy_steps():
    """Steps take the backend that a user gets, unlike in other tests (see conftest.py)."""


def own_steps(**options):
    """Return steps of one's own: of a network, and of one member of a population."""
    mlp, members = Mlp([3, 5, 2], seed=1), Population(Mlp([3, 5, 2]), 2, seeds=[1, 2])
    yield TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), 6, **options)
    yield TrainingStep(members[0], MeanSquaredError(), Sgd(members[0], lr=0.1), 6, **options)


def losses_of(step):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((6, n)).astype("f4") for n in (3, 2))
    return [step(x, y) for _ in range(3)]


def test_steps_of_ones_own_are_compiled(caplog):
    with caplog.at_level(logging.INFO, "mlpengine"):
        made = [*own_steps()]
        assert [(step.backend, step.not_compiled) for step in made] == [("compiled", "")] * 2
    assert all(step.fused for step in [*made, pickle.loads(pickle.dumps(made[0]))])
    (asked, _), (plain, _) = own_steps(backend="compiled"), own_steps(backend="numpy")
    bits = losses_of(asked)
    assert [losses_of(step) for step in made] == [bits] * 2
    assert losses_of(plain) == pytest.approx(bits, rel=1e-5)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("options", "level"), [({}, logging.INFO), ({"backend": "compiled"}, logging.WARNING)]
)
def test_steps_without_a_compiler_run_on_numpy_and_say_why(options, level, caplog, monkeypatch):
    monkeypatch.setenv("CC", NO_COMPILER)
    with caplog.at_level(logging.INFO, "mlpengine"):
        made = [*own_steps(**options)]
    reason = f"compiler: $CC must be the command of a C compiler (CC={NO_COMPILER!r})"
    assert {(step.backend, step.not_compiled) for step in made} == {("numpy", reason)}
    said = [(record.levelno, record.getMessage()) for record in caplog.records]
    message = f"backend: NumPy runs instead of compiled code ({reason})"
    assert said == [(level, message)] * 2  # one for each of the two calls
    plain, _ = own_steps(backend="numpy")
    assert plain.not_compiled == ""
    mlp = Mlp([3, 2, 1])
    TrainingStep(mlp, MeanSquaredError(), LevenbergMarquardt(mlp), 4, **options)  # NumPy alone
    assert caplog.records[-1].levelno == level
    assert len(caplog.records) == 3
    bits = losses_of(plain)
    assert [losses_of(step) for step in made] == [bits] * 2


@pytest.mark.parametrize(("epochs", "backend"), [(1, "numpy"), (10_000, "compiled")])
def test_auto_of_a_run_compiles_what_is_worth_it(epochs, backend, tmp_path):
    path = tmp_path / "auto.yaml"
    text = CONFIG.replace("backend: compiled", "backend: auto")
    path.write_text(text.replace("epochs: 3", f"epochs: {epochs}"))
    trainer = trainer_of(load_data(load_config(path)))
    assert (trainer.backend, trainer.step.backend) == (backend, backend)
    assert trainer.step.not_compiled == ""


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Call as ``train("c.yaml", ...)`` in a directory that holds it; gives the exit code."""
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(CONFIG)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield lambda *args: run(["train", *args, "-q"])
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def steps(monkeypatch):
    """The training steps that are made."""
    made, real = [], TrainingStep.__init__

    def init(step, *args, **options):
        real(step, *args, **options)
        made.append(step)

    monkeypatch.setattr(TrainingStep, "__init__", init)
    return made


def newest(folder):
    return Checkpoints(Path(folder, "checkpoints")).newest()


def test_another_backend_goes_on_with_a_warning(train, steps, caplog, monkeypatch):
    with saving_until(lambda step, _: step > DIED):  # as if it had died
        assert train("c.yaml", "--out", "died") == 130
    assert newest("died").state["members"][0]["optimizer"]["steps"] == DIED
    monkeypatch.setenv("CC", NO_COMPILER)
    with caplog.at_level(logging.WARNING, "mlpengine"):
        assert train("--resume", "died") == 0
    why, warning = (record.getMessage() for record in caplog.records)
    assert why.startswith("backend: NumPy runs instead of compiled code (compiler: ")
    assert "backend" in warning
    assert "(compiled, now numpy)" in warning
    assert steps[-1].backend == newest("died").header["environment"]["backend"] == "numpy"


@pytest.mark.parametrize(("threads", "expected"), [("auto", 1), ("3", 3)])
def test_blas_has_one_thread(threads, expected, tmp_path):
    text = CONFIG.replace("backend: compiled", f"backend: numpy, threads: {threads}")
    path = tmp_path / "auto.yaml"
    path.write_text(text.replace("hidden: [8]", "hidden: [1024, 1024]"))
    trainer = trainer_of(load_data(load_config(path)))
    assert trainer.step.mlp.sizes[1] == 1024
    assert trainer.threads == expected
    with threadpool_limits(5, user_api="blas"), trainer.pinned():
        pools = threadpool_info()
    assert {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"} == {1}


@pytest.mark.parametrize(("hidden", "shared"), [("[8]", 1), ("[300, 300]", 3), ("[1024, 1024]", 4)])
def test_a_compiled_step_may_use_the_cores_that_its_shapes_pay_for(
    hidden, shared, tmp_path, monkeypatch
):
    monkeypatch.setattr("mlpengine.training.trainer.cores", lambda: 4)
    path = tmp_path / "auto.yaml"
    path.write_text(CONFIG.replace("hidden: [8]", f"hidden: {hidden}"))
    with uncompiled():
        trainer = trainer_of(load_data(load_config(path)))
        assert trainer.step.backend == "compiled"
    assert f"#define THREADS {shared}\n" in trainer.step.emit_c()
    assert trainer.threads == shared
    with threadpool_limits(5, user_api="blas"), trainer.pinned():
        pools = threadpool_info()
    assert {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"} == {1}


@pytest.fixture
def apart(monkeypatch):
    """Short batches take programs of their own, as where their arrays lie elsewhere."""
    monkeypatch.setattr(step_builder, "begins", lambda *_: False)


@pytest.mark.usefixtures("apart")
def test_a_short_batch_that_cannot_be_compiled_ends_compiling(caplog, monkeypatch):
    """In a loop of one's own nothing tells the step before that it will come."""
    mlps = [Mlp([3, 5, 2], seed=1) for _ in range(2)]
    step, plain = (
        TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=0.1), 6, backend=backend)
        for mlp, backend in zip(mlps, ("compiled", "numpy"), strict=True)
    )
    assert step.backend == "compiled"
    full = step.bound(6)
    monkeypatch.setenv("CC", NO_COMPILER)
    rng = np.random.default_rng(0)
    for rows in (4, 6, 4, 6):
        x, y = (rng.standard_normal((rows, n)).astype("f4") for n in (3, 2))
        assert step(x, y) == plain(x, y)
        assert step.backend == "numpy"
    assert mlps[0].params.flat.tobytes() == mlps[1].params.flat.tobytes()
    assert step.bound(6).scratch is full.scratch
    assert len(caplog.records) == 1
