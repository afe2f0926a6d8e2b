"""`mlpengine export`: a run's model in another format."""

import json
import os

import pytest

from mlpengine import Mlp
from mlpengine.core.errors import RunError
from mlpengine.data.features import Preprocessor
from mlpengine.data.tables import read_table
from mlpengine.models.model import MODEL_FILE, Model


@pytest.fixture
def run(tmp_path):
    """Return a run directory with the model of an untrained network."""
    directory = tmp_path / "runs" / "penguins"
    directory.mkdir(parents=True)
    preprocessor = Preprocessor("species").fit(read_table("penguins"))
    mlp = Mlp([preprocessor.n_features, 4, 3], seed=1)
    Model(mlp, preprocessor, "softmax_cross_entropy").save(directory / MODEL_FILE)
    return directory


def test_c_with_a_name_has_a_header(mlpengine, run, tmp_path):
    done = mlpengine("export", run, "--format", "c", "--name", "pump", "-o", "pump.c")
    assert (done.code, done.err) == (0, "")
    assert "wrote pump.c (" in done.out
    assert "wrote pump.h (" in done.out
    assert "int pump_predict(const float *x, float *out);" in (tmp_path / "pump.h").read_text()
    for form in ("c-train", "safetensors"):
        done = mlpengine("export", run, "--format", form, "--name", "pump")
        assert (done.code, "--name is for --format c " in done.err) == (2, True)
    done = mlpengine("export", run, "--format", "c", "-o", os.devnull)
    assert (done.out, done.err.splitlines()[0]) == ("", f"wrote {os.devnull}")


def test_training_for_a_device(mlpengine, run, tmp_path):
    done = mlpengine("export", run, "--format", "c-train", "-o", "p.c",
        settings=["optimizer.lr=0.5", "training.freeze=[0]"])  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert "Sgd, learning rate 0.5" in done.out
    assert "layers 0 frozen" in done.out
    written = [path.name for path in tmp_path.iterdir() if path.is_file()]
    assert sorted(written) == ["p.c", "p.h", "p_test.c"]
    done = mlpengine("export", run, "--format", "c-train", "--json",
        settings=["optimizer={name: sgd, momentum: 0.9}"])  # fmt: skip
    result = json.loads(done.out)
    parameters = (Model.load(run / MODEL_FILE).mlp.params.flat).size
    assert result["state"] == 4 * (2 * parameters + 2) + 8
    assert result["source"] == str(run / "training.c")


def test_training_for_a_device_takes_the_settings_of_the_run(mlpengine, config):
    settings = ["optimizer={name: adam, lr: 0.02}", "training.clip_norm=2.5"]
    assert mlpengine("train", config, "--out", "r", "-q", settings=settings).code == 0
    done = mlpengine("export", "r", "--format", "c-train", "-o", "p.c")
    assert "Adam, learning rate 0.02, gradients clipped to the norm 2.5" in done.out
    done = mlpengine("export", "r", "--format", "c-train", "-o", "p.c",
        settings=["training.clip_norm=null"])  # fmt: skip
    assert "clipped" not in done.out


def test_onnx_is_the_default(mlpengine, run):
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    done = mlpengine("export", run, "--json")
    assert done.code == 0
    result = json.loads(done.out)
    assert result["path"] == str(run / "model.onnx")
    assert (run / "model.onnx").is_file()
    assert result["inputs"]["island"] == "string"
    assert result["outputs"] == {"probabilities": "float32", "label": "string"}
    assert 0 < result["difference"] < 1e-5
    shown = mlpengine("export", run / MODEL_FILE).out
    assert "bill_length_mm (float64)" in shown
    assert "largest difference from mlpengine" in shown


def test_an_export_that_fails_names_the_file(mlpengine, run, monkeypatch):
    def failed(*_, **__):
        raise RunError("export: the predictions must agree")

    monkeypatch.setattr("mlpengine_cli.export.export", failed)
    done = mlpengine("export", run, "-o", "x.onnx")
    assert (done.code, done.err) == (1, "error: x.onnx: export: the predictions must agree\n")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["{run}", "-o", "x.onnx", "--set", "seed=1"], 2, "--set is for --format c-train"),
        (["{run}", "--format", "c-train", "--set", "training.epochs=3"], 2, "training.epochs"),
        (["{run}", "--format", "c", "--name", "p", "-o", "p.h"], 2, "p.h: the name must end in .c"),
        (["{run}", "--format", "c-train", "--set", "training.freeze=a"], 2, "number (got 'a')"),
        (
            ["{run}", "--package", "arduino", "--format", "c", "-o", "p.c"],
            2,
            "p.c: a library is a folder; give --out a folder name without suffix",
        ),
        (["{run}", "-o", "no/such/folder/x.onnx"], 1, "No such file or directory"),
        (["{broken}", "--format", "safetensors"], 1, "must be a readable safetensors file"),
    ],
)
def test_errors_are_one_line(mlpengine, run, tmp_path, args, code, message):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\0not a model")
    done = mlpengine("export", *(arg.format(run=run, broken=broken) for arg in args))
    assert done.code == code
    assert message in done.err
    assert "Traceback" not in done.err
