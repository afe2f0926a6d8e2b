"""Progress: one rewritten line where a person looks, else a line for each epoch, or nothing."""

import sys
from math import inf
from types import SimpleNamespace

import pytest

import mlpengine
from mlpengine.training.progress import is_live

FEW = {"model": {"hidden": [4]}, "training": {"epochs": 3, "folds": None}}


class Terminal:
    def __init__(self, module="io", tty=True):
        self.texts, self.tty = [], tty
        self.__class__ = type("Terminal", (Terminal,), {"__module__": module})

    def isatty(self):
        return self.tty

    def write(self, text):
        self.texts.append(text)

    def flush(self):
        pass


def test_a_terminal_and_a_notebook_are_live():
    assert is_live(Terminal())
    assert is_live(Terminal("ipykernel.iostream", tty=False))
    assert not is_live(Terminal(tty=False))
    assert not is_live(None)


def test_fit_shows_its_work_in_one_line_and_clears_it(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    mlpengine.fit("penguins", **FEW)
    text = "".join(shown.texts)
    assert "\n" not in text
    stages = [text.find(one) for one in ("reading", "epoch 1/3", "evaluating")]
    assert stages == sorted(stages)
    assert min(stages) >= 0
    assert text.endswith(" \r")


def test_a_notebook_shows_its_work_in_one_output_and_empties_it(monkeypatch):
    def update(content, raw):
        shown.append(content["text/plain"])

    def display(content, raw, display_id):
        update(content, raw)
        return SimpleNamespace(update=update)

    shown: list[str] = []
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr("sys.stderr", notebook := Terminal("ipykernel.iostream", tty=False))
    mlpengine.fit("penguins", **FEW)
    assert any("epoch 1/3" in text for text in shown)
    assert (shown[-1], notebook.texts) == ("", [])


def test_fit_prints_lines_where_asked_and_else_nothing(capsys):
    mlpengine.fit("penguins", **FEW)
    assert capsys.readouterr().err == ""
    mlpengine.fit("penguins", progress=True, **FEW)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines if "/3" in line] == ["1/3", "2/3", "3/3"]


def test_an_error_clears_the_line(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    with pytest.raises(mlpengine.ConfigError):
        mlpengine.fit("penguins", "nothing")
    assert "".join(shown.texts).endswith("\r")


def test_training_ends_at_its_time_limit_with_the_best_epoch():
    config = {"model": {"hidden": [4]}, "training": {"epochs": 100, "early_stopping": None}}
    _, result = mlpengine.fit("penguins", **config)
    _, cut = mlpengine.fit("penguins", time_limit=1e-9, **config)
    assert (cut.ending, cut.epochs, cut.best_epoch) == ("time", 1, 1)
    assert "time limit" in repr(cut)
    assert cut.metrics["test"]["accuracy"] <= result.metrics["test"]["accuracy"]
    _, again = mlpengine.fit("penguins", time_limit=1e9, **config)
    assert (again.ending, again.metrics) == ("epochs", result.metrics)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), inf])
def test_a_time_limit_is_a_number_above_0(limit):
    with pytest.raises(mlpengine.UsageError, match="time_limit"):
        mlpengine.fit("penguins", time_limit=limit)
    with pytest.raises(mlpengine.UsageError, match=r"time_limt: .* 'time_limit'"):
        mlpengine.fit("penguins", time_limt=limit)
