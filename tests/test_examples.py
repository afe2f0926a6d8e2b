"""The example networks run; their full figures are printed by the commands in their docstrings."""

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    def main(name: str, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *options])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return main


def accuracy(text: str) -> float:
    return float(re.findall(r"accuracy ([0-9.]+)", text)[-1])


def test_the_convolutional_network_learns_digits(run):
    assert accuracy(run("tape/conv_digits", "--smoke")) > 0.4


def test_the_sequence_model_runs(run):
    text = run("tape/sequence_scan", "--smoke")
    assert 0 <= accuracy(text) <= 1
    assert "parameters: 2,920" in text


def test_the_physics_informed_network_learns(run):
    errors = re.findall(r"error ([0-9.]+)%", run("pinn", "--smoke"))
    assert float(errors[1]) < float(errors[0]) < 100


def test_the_network_stands_for_the_simulator(run):
    error = re.findall(r"error ([0-9.]+) of the deviation", run("surrogate", "--smoke"))[0]
    assert float(error) < 0.2


def test_many_networks_learn(run):
    before, after = re.findall(r"median error ([0-9.]+) -> ([0-9.]+)", run("many_nets", "--smoke"))[
        0
    ]
    assert float(after) < 0.05 * float(before)
