"""What a module of somebody else adds in one place is known everywhere that built-in ones are."""

import json
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import mlpengine as package
from mlpengine.config import json_schema
from mlpengine.estimators import MlpRegressor
from mlpengine.ops import REGISTRY

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from reference_pages import config as reference

ROWS = [(i % 7, i % 5, (i % 7) - 2 * (i % 5)) for i in range(80)]
CONFIG = (
    "data: {source: rows.csv, target: y, task: regression}\n"
    "model: {hidden: [4]}\ntraining: {epochs: 4}\nreport: false\n"
)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return a function that writes and imports a module; what it registers is forgotten."""
    before = dict(REGISTRY)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rows.csv").write_text(
        "\n".join(["a,b,y", *(",".join(map(str, row)) for row in ROWS)])
    )
    (tmp_path / "c.yaml").write_text(CONFIG)

    def write(text):
        (tmp_path / "elsewhere.py").write_text(dedent(text))
        return import_module("elsewhere")

    yield write
    sys.modules.pop("elsewhere", None)
    REGISTRY.clear()
    REGISTRY.update(before)


def trained_twice(mlpengine, *settings):
    """Train without and with an interruption; return the model after comparing the two."""
    arguments = ["train", "c.yaml", "-q", *(f"--set={one}" for one in settings), "--epochs"]
    whole = mlpengine(*arguments, 4, "--out", "whole")
    assert whole.code == 0, whole.err
    assert mlpengine(*arguments, 2, "--out", "part").code == 0
    assert mlpengine("train", "--resume", "part", "--epochs", 4, "-q").code == 0
    whole, part = package.load("whole"), package.load("part")
    np.testing.assert_array_equal(part.mlp.params.flat, whole.mlp.params.flat)
    return whole


def test_an_activation(elsewhere, mlpengine):
    elsewhere("""
        from mlpengine.ops import Activation


        class Squash(Activation, name="squash"):
            \"\"\"Twice the rational sigmoid.\"\"\"

            initializer = "glorot_uniform"
            range = (-2.0, 2.0)

            def formula(self, x):
                return 2 * x / (1 + abs(x))
    """)
    chosen = "model.activation=squash"
    assert "squash" in json.dumps(
        json_schema()["$defs"]["ModelSection"]["properties"]["activation"]
    )
    assert '`"squash"`' in reference()
    wrong = mlpengine("check", "c.yaml", "--set", "model.activation=squish")
    assert "did you mean 'squash'" in wrong.err

    # training by numpy, compiled, and after an interruption; predictions; other formats
    model = trained_twice(mlpengine, chosen)
    x = np.array(ROWS, float)
    assert model.mlp.layers[0].activation.name == "squash"
    compiled = mlpengine(
        *["train", "c.yaml", "-q", "--set", chosen, "--set", "training.backend=compiled"],
        *["--out", "compiled"],
    )
    assert compiled.code == 0, compiled.err
    flat = package.load("compiled").mlp.params.flat
    np.testing.assert_allclose(flat, model.mlp.params.flat, rtol=1e-4, atol=1e-5)
    for kind in ("onnx", "c"):
        assert mlpengine("export", "whole", "-o", f"net.{kind}").code == 0
    h = x[:3, :2].astype(np.float32) @ model.mlp.weights[0].T + model.mlp.biases[0]
    h = 2 * h / (1 + abs(h))
    y = h @ model.mlp.weights[1].T + model.mlp.biases[1]
    np.testing.assert_allclose(model.mlp.predict(x[:3, :2]), y, rtol=1e-5, atol=1e-6)

    # fit in Python and an estimator
    fitted, _ = package.fit("rows.csv", "y", model={"hidden": [4], "activation": "squash"})
    assert fitted.mlp.layers[0].activation.name == "squash"
    estimator = MlpRegressor(4, "squash", epochs=2, random_state=0).fit(x[:, :2], x[:, 2])
    assert estimator.mlp_.layers[0].activation.name == "squash"

    # diagnostics, which know from its range where it saturates: at 32.3, for 0.97 of 2
    known = mlpengine("diagnose", "c.yaml", "--set", chosen, "--json", "--probe-steps", 0)
    assert "saturated" in {check["name"] for check in json.loads(known.out)["checks"]}
    sampled = Path("whole/diagnostics.csv").read_text()
    assert ",0,saturated_share,0.0\n" in sampled
