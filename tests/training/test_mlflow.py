"""Runs in MLflow, read back from its local store."""

from pathlib import Path

import pytest
from runs import make_loop

from mlpengine.core.errors import RunError
from mlpengine_cli.main import run

pytest.importorskip("mlflow", reason="needs the extra mlflow")

from mlflow.tracking import MlflowClient

from mlpengine.training.mlflow import MlflowLog

CONFIG = """\
data: {source: penguins}
model: {hidden: [4]}
training: {epochs: 3, checkpoint: {every_epochs: 1}}
report: false
"""


@pytest.fixture(autouse=True)
def _store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database takes seconds to make
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())


def logged(number=1):
    """Return the only run of the experiment, and the client."""
    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("mlpengine").experiment_id])
    assert len(runs) == number
    return runs[0], client


def test_a_run_reads_back(tmp_path):
    Path("c.yaml").write_text(CONFIG)
    assert run(["train", "c.yaml", "-q", "--log", "mlflow"]) == 0
    one, client = logged()
    assert (one.info.status, one.info.run_name, one.data.tags["ending"]) == (
        "FINISHED",
        "c",
        "epochs",
    )
    assert one.data.params["model.hidden"] == "[4]"
    table = [line.split(",") for line in Path("runs/c/metrics.csv").read_text().splitlines()]
    column = [float(row[table[0].index("validation_loss")]) for row in table[1:]]
    points = client.get_metric_history(one.info.run_id, "validation/loss")
    assert [(p.step, p.value) for p in points] == [*enumerate(column, start=1)]
    assert [f.path for f in client.list_artifacts(one.info.run_id)] == ["model.safetensors"]
    assert run(["train", "--resume", "runs/c", "--epochs", "5", "-q"]) == 0
    one, client = logged()  # the same run goes on
    assert len(client.get_metric_history(one.info.run_id, "train/loss")) == 5


def test_a_failed_run_and_a_store_that_fails(caplog, monkeypatch):
    log = MlflowLog("own")
    make_loop(epochs=1, callbacks=[log]).run()
    monkeypatch.setattr(log, "run_id", "missing")
    log.add_result({"test": {"accuracy": 0.5, "loss": float("nan")}, "epochs": 1})
    assert len([r for r in caplog.records if "not logged further" in r.message]) == 1
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://x")
    with pytest.raises(RunError, match="mlflow: the run cannot be logged"):
        make_loop(epochs=1, callbacks=[MlflowLog()]).run()
