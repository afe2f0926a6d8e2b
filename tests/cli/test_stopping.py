"""Signals, before and while something can be stopped."""

import signal
from contextlib import suppress

import pytest

from mlpengine.core.system import EXIT_CODES
from mlpengine_cli.stopping import stops


@pytest.mark.parametrize("number", EXIT_CODES)
def test_the_first_signal_stops_and_the_second_leaves(number, monkeypatch, capfd):
    left, stopped = [], []
    monkeypatch.setattr("os._exit", left.append)
    before = signal.getsignal(number)
    with stops() as state:
        state.attach(lambda: stopped.append(number))
        signal.raise_signal(number)
        assert (state.code, stopped, left) == (EXIT_CODES[number], [number], [])
        assert "stopping after this step" in capfd.readouterr().err
        signal.raise_signal(number)
        assert left == [EXIT_CODES[number]]
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", EXIT_CODES)
def test_a_signal_before_training_ends_the_command(number, capfd):
    with pytest.raises(SystemExit) as ending, stops():
        signal.raise_signal(number)
    assert ending.value.code == EXIT_CODES[number]
    assert capfd.readouterr().err == "interrupted\n"


def test_a_signal_that_a_callback_swallowed_still_stops():
    stopped = []
    with stops() as state:
        with suppress(SystemExit):  # as ctypes does
            signal.raise_signal(signal.SIGINT)
        state.attach(lambda: stopped.append(True))
    assert stopped
