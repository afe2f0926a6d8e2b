"""Each malformed input ends with exit code 1 or 2 and a message that names the place."""

import pytest
from malformed import COMMANDS, CONFIG, CONFIGS, GOOD, TABLES, prepare

from mlpengine import Mlp
from mlpengine_cli.main import run


def refused(found, message):
    assert found.code in (1, 2)
    assert message in found.err
    assert "Traceback" not in found.err
    assert found.out == ""
    assert len(found.err) < 3000


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("name", CONFIGS)
def test_config(name, mlpengine, tmp_path):
    content, message = CONFIGS[name]
    write(tmp_path / "c.yaml", content)
    write(tmp_path / "rows.csv", GOOD)
    refused(mlpengine("train", "c.yaml"), message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", TABLES)
def test_table(name, mlpengine, tmp_path):
    content, message = TABLES[name]
    write(tmp_path / "c.yaml", CONFIG)
    write(tmp_path / "rows.csv", content)
    refused(mlpengine("train", "c.yaml"), message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["check", "train"])
def test_classes_that_are_numbers_are_warned_of(command, mlpengine, tmp_path):
    rows = "".join(f"{i % 7},{i * i}\n" for i in range(40))
    write(tmp_path / "rows.csv", "a,y\n" + rows)
    write(tmp_path / "c.yaml", CONFIG)
    found = mlpengine(command, "c.yaml", "--set", "data.task=classification")
    assert "column 'y': 40 different numbers in 40 rows, read as" in found.out + found.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write(folder / "c.yaml", CONFIG)
    write(folder / "rows.csv", GOOD)
    assert run(["train", str(folder / "c.yaml"), "--out", str(folder / "run"), "-q"]) == 0
    prepare(folder, folder / "run" / "model.safetensors")
    Mlp([2, 1]).save(folder / "net.safetensors")
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name, mlpengine, trained, monkeypatch):
    arguments, message = COMMANDS[name]
    monkeypatch.chdir(trained)
    before = sorted(trained.rglob("*"))
    refused(mlpengine(*arguments), message)
    assert sorted(trained.rglob("*")) == before
