"""Running the command line inside the test process, signals put back afterwards."""

import signal
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from small import SMALL

from mlpengine.core.system import EXIT_CODES
from mlpengine_cli.main import run


@pytest.fixture(autouse=True)
def _signals():
    """Let a hangup end a test's command also where the tests run under nohup."""
    handlers = {number: signal.getsignal(number) for number in EXIT_CODES}
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def mlpengine(capsys, tmp_path, monkeypatch) -> Callable[..., SimpleNamespace]:
    """Call as ``mlpengine("train", ...)`` in an empty directory; gives code, out, err.

    Texts of ``settings`` are given as ``--set``.
    """
    monkeypatch.chdir(tmp_path)

    def call(*args, settings=()):
        capsys.readouterr()
        code = run([*map(str, args), *(f"--set={one}" for one in settings)])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return call


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path
