"""`data.stream` for CSV and Parquet: the same bits as in memory, reuse, resuming."""

import json
import shutil
from pathlib import Path

import pytest
from dying import saving_until

from mlpengine.config import load_config, parse_override
from mlpengine.config.build import load_data, trainer_of
from mlpengine.data.features import prepared as prepared_module

ROWS = 400
CONFIG = """\
data: {source: t.csv, target: y, drop: [id]}
model: {hidden: [5]}
training: {epochs: 3, batch_size: 32, checkpoint: {every_steps: 4}}
report: false
"""
FILES = ("model.safetensors", "metrics.csv", "diagnostics.csv")


def lines():
    for i in range(ROWS):
        gap = "" if i % 11 == 0 else f"{i % 17}.5"
        word, day = ["north", "south", "east"][i * i % 3], f"2024-0{i % 9 + 1}-1{i % 7}"
        target = i * 0.21 % 5 + (word == "east")
        yield f"row{i},{i * 0.37 % 7:.4f},{gap},{word},{day},{i % 5 + 1},{i % 40},{target:.3f}"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,a,gaps,word,day,w,g,y\n" + "\n".join(lines()) + "\n")
    (tmp_path / "c.yaml").write_text(CONFIG)
    return path


def train(mlpengine, out, *settings):
    ran = mlpengine("train", "c.yaml", "-o", out, "-q", "--json", settings=settings)
    assert (ran.code, ran.err) == (0, "")
    return [Path(out, name).read_bytes() for name in FILES], json.loads(ran.out)["test"]


SETTINGS = {
    "texts, dates and gaps": ["data.missing=indicator", "data.min_count=1"],
    "bins, and a filter": ["data.encoding=piecewise", "data.where=a > 1"],
    "computed": ["data.features={both: a * w, more: both + 1}", "data.standardize=robust"],
    "weights and groups": ["data.weight=w", "data.split={group: g}"],
    "classes": ["data.target=word", "data.class_weights=balanced"],
    "parquet": ["data.source=t.parquet"],
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_bits_as_in_memory(name, mlpengine, table, tmp_path):
    import pandas

    frame = pandas.read_csv(table)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    in_memory = train(mlpengine, "memory", *SETTINGS[name])
    assert train(mlpengine, "stream", *SETTINGS[name], "data.stream=true") == in_memory
    descriptions = [path.read_text() for path in Path("runs/prepared").glob("*.json")]
    assert not any("row7" in text for text in descriptions)  # id is dropped, and not read
    rows = [mlpengine("predict", run, table).out for run in ("memory", "stream")]
    assert rows[0] == rows[1]


def test_a_second_run_reads_what_the_first_prepared(mlpengine, table):
    for refused in ("training.folds=3", "training.dtype=float64"):
        assert mlpengine("check", "c.yaml", settings=["data.stream=true", refused]).code == 2
    assert not Path("runs").exists()
    checked = mlpengine("check", "c.yaml", settings=["data.stream=true"]).out
    assert ("not read" in checked, "all values are missing" in checked) == (True, False)
    first = train(mlpengine, "first", "data.stream=true")
    evaluated = json.loads(mlpengine("evaluate", "first", "--json").out)
    assert evaluated["test"]["rmse"] == pytest.approx(first[1]["rmse"])
    prepared = {path: path.stat().st_mtime_ns for path in Path("runs/prepared").iterdir()}
    assert train(mlpengine, "again", "data.stream=true") == first
    assert prepared == {p: p.stat().st_mtime_ns for p in Path("runs/prepared").iterdir()}


def test_many_windows_give_the_bits_of_the_same_order_in_memory(
    mlpengine, table, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prepared_module, "BLOCK_BYTES", 512)
    settings = [parse_override("data.stream={window: 2}")]
    streamed = load_data(load_config("c.yaml", settings))
    in_memory = load_data(load_config("c.yaml"))
    windows = streamed.parts["train"].windows
    assert windows.block * windows.count * 5 < len(streamed.parts["train"])
    object.__setattr__(in_memory.parts["train"], "windows", windows)
    fits = [trainer_of(data).fit() for data in (streamed, in_memory)]
    one, two = (fitted.mean.networks[0].params.flat for fitted in fits)
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("number", [3, 17])
def test_a_run_that_died_goes_on_with_the_same_bits(number, mlpengine, table, monkeypatch):
    monkeypatch.setattr(prepared_module, "BLOCK_BYTES", 512)
    whole, _ = train(mlpengine, "whole", "data.stream={window: 2}")
    given = ("--set", "data.stream={window: 2}")
    with saving_until(lambda step, _: step >= number):
        assert mlpengine("train", "c.yaml", "-o", "part", "-q", *given).code == 130
    shutil.rmtree("runs/prepared")  # they are prepared again
    assert mlpengine("train", "--resume", "part", "-q").code == 0
    assert [Path("part", name).read_bytes() for name in FILES] == whole
