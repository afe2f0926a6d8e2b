"""`mlpengine train`: the four configs, the run directory, the JSON, interruption, bad data."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small import SMALL

from mlpengine.config import load_config
from mlpengine.core.files import OWN_FILES, OWN_FOLDERS
from mlpengine.models.model import Model
from mlpengine.training.progress import clock

CONFIGS = Path(__file__).parents[2] / "configs"
RESULTS = {
    "digits": ("test", "accuracy", 0.97),
    "penguins": ("test", "accuracy", 0.95),
    "diabetes": ("test", "r2", 0.33),
    "residual": ("test", "accuracy", 0.95),
    "xor": ("train", "accuracy", 1.0),
}


@pytest.mark.parametrize("name", RESULTS)
def test_shipped_config(name, mlpengine):
    part, metric, least = RESULTS[name]
    settings = ["--json", "--quiet", "--set", "report=false"]
    found = mlpengine("train", CONFIGS / f"{name}.yaml", *settings)
    assert (found.code, found.err) == (0, "")
    result = json.loads(found.out.splitlines()[-1])
    assert result[part][metric] >= least


def test_the_run_directory_holds_everything(mlpengine, config):
    found = mlpengine("train", config, "--json", "--set", "seed=5")
    result = json.loads(found.out)
    assert [*result] == [
        *("run_dir", "parameters", "networks", "linear_models", "epochs", "max_epochs"),
        *("best_epoch", "seconds", "samples_per_second"),
        *("train", "validation", "test", "ending", "ended", "skipped_steps", "peak_bytes"),
        "verdicts",
    ]
    run = Path(result["run_dir"])
    assert run == Path.cwd() / "runs" / "small"
    assert sorted(os.listdir(run)) == [
        *("checkpoints", "config.resolved.yaml", "config.yaml", "diagnostics.csv"),
        *("environment.json", "metrics.csv", "model.safetensors", "result.json", "run.lock"),
        "timings.csv",
    ]
    for name in (*(OWN_FILES & {*os.listdir(run)}), "best.yaml", "checkpoints/step-1.safetensors"):
        assert "is a file of the run" in mlpengine("schema", "-o", run / name).err
    assert "name one, or write /dev/stdout" in mlpengine("schema", "-o", "-").err
    twice = mlpengine("train", "config.yaml", "--epochs", 3, settings=["training.epochs=4"])
    assert (twice.code, "--set training.epochs" in twice.err) == (2, True)
    assert {*os.listdir(run)} <= OWN_FILES | OWN_FOLDERS
    assert mlpengine("schema", "-o", run / "own.json").code == 0
    assert (run / "config.yaml").read_text() == SMALL
    assert load_config(run / "config.resolved.yaml").config.seed == 5
    assert json.loads((run / "result.json").read_text()) == result
    lines = (run / "metrics.csv").read_text().splitlines()
    assert lines[0] == (
        "epoch,steps,lr,gradient_norm,train_loss,"
        "validation_loss,validation_accuracy,validation_macro_f1"
    )
    assert len(lines) == 4
    assert len(Model.load(run / "model.safetensors").mlp.params) == result["parameters"]


def test_the_config_of_a_run_points_to_the_one_with_all_paths(mlpengine):
    Path("config.yaml").write_text("data: {source: t.csv}\n")
    Path("config.resolved.yaml").touch()
    assert "mlpengine train config.resolved.yaml" in mlpengine("check", "config.yaml").err


def test_a_time_limit_ends_training_and_the_run_resumes(mlpengine, config):
    limited = ["--time-limit", "1e-9", "--out", "run", "--set", "training.epochs=2"]
    done = mlpengine("train", config, "-q", *limited)
    assert (done.code, "stopped at the time limit" in done.out) == (0, True), done.err
    known = json.loads(Path("run/result.json").read_text())
    assert (known["ending"], known["epochs"]) == ("time", 1)
    assert known["test"]
    resumed = json.loads(mlpengine("train", "--resume", "run", "-q", "--json").out)
    assert (resumed["ending"], resumed["epochs"]) == ("epochs", 2)
    for wrong in (["--fix", *limited], ["--time-limit", "nan"], ["--time-limit", "0"]):
        refused = mlpengine("train", config, *wrong)
        assert (refused.code, "--time-limit" in refused.err) == (2, True)


def test_durations_are_minutes_and_seconds_or_hours_and_minutes():
    shown = {0.4: "0:00", 59.6: "1:00", 127: "2:07", 3600: "1h00", 11_040: "3h04"}
    assert {seconds: clock(seconds) for seconds in shown} == shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_training_after_the_step(number, code, tmp_path, config):
    command = [sys.executable, "-m", "mlpengine_cli.main", "train", str(config), "--json"]
    command += ["--epochs", "1000000"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if line.lstrip().startswith("2/"):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert "stopping after this step" in err
    assert "Traceback" not in err
    result = json.loads(out)
    assert 2 <= result["epochs"] < 1_000_000
    assert Model.load(Path(result["run_dir"]) / "model.safetensors")


ODD = """\
data:
  {source: rows.csv, target: y, task: regression, validation_source: other.csv, split: {test: 0}}
model: {hidden: [4]}
training: {epochs: 3, batch_size: 16}
report: false
"""


def test_the_cell_that_makes_validation_infinite_is_named(mlpengine, tmp_path, caplog):
    lines = [f"{i % 7 - 3},{i % 5},{i % 7 * 2.25 + 1}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    odd = ["a,b,y", *lines[:20]]
    odd[8] = "1,2,1e25"
    (tmp_path / "other.csv").write_text("\n".join(odd) + "\n")
    (tmp_path / "odd.yaml").write_text(ODD)
    found = mlpengine("train", "odd.yaml", "--out", "run", "-q")
    assert found.code == 1
    assert "other.csv: line 9, column 'y' holds" in found.err
    assert not Path("run", "model.safetensors").exists()
