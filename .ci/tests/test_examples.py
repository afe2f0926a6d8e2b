"""The example networks run; their full figures are printed by the commands in their docstrings."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    def main(name: str, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *options])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return main


def accuracy(text: str) -> float:
    return float(re.findall(r"accuracy ([0-9.]+)", text)[-1])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_stored_with_small_outputs_and_without_errors(path):
    """`docs/notebooks.py --check` runs them."""
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(cell["outputs"] for cell in code)
    assert {output["output_type"] for output in outputs} == {"execute_result"}
    assert any("<svg" in "".join(output["data"].get("text/html", "")) for output in outputs)
    assert path.stat().st_size < 120_000


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


def test_soft_actor_critic_runs(run):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed: the example is not run")
    (score,) = re.findall(r"550 steps .* return (-[0-9]+)", run("sac_pendulum", "--smoke"))
    assert float(score) < -200


def test_without_gymnasium_the_example_tells_how_to_install_it(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(SystemExit, match="pip install gymnasium"):
        run("sac_pendulum")
