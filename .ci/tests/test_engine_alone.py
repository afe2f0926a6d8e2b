"""The engine trains where none of the packages of the tabular product can be imported."""

import json
import subprocess
import sys

ABSENT = (
    *("click", "pyarrow", "pydantic", "pydantic_core", "ruamel"),
    "safetensors",
)

ALONE = """
import json, sys

ABSENT = json.loads(sys.argv[1])

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ImportError(f"{name} must not be imported")

sys.meta_path.insert(0, Absent())

import numpy as np
import mlpengine.nn, mlpengine.ops, mlpengine.optim, mlpengine.step, mlpengine.tape
from mlpengine import Adam, MeanSquaredError, Mlp, SoftmaxCrossEntropy, TrainingStep
from mlpengine.nn import Network

class Gated(Network):
    def __init__(self, in_dim, width, **options):
        shapes = {"value": (width, in_dim), "gate": (width, in_dim), "bias": width}
        shapes |= {"out": (1, width)}
        super().__init__(in_dim, shapes, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.linear(p("gate"), p("bias")).sigmoid() * (x @ p("value").T)
        return h @ p("out").T

x = np.random.default_rng(0).standard_normal((32, 4)).astype("f4")
fell = {}
for backend in ("numpy", "compiled"):
    mlp, own = Mlp([4, 16, 3], seed=0), Gated(4, 16, seed=0)
    for network, loss, y in (
        (mlp, SoftmaxCrossEntropy(), (x[:, 0] > 0) + (x[:, 1] > 0)),
        (own, MeanSquaredError(), x[:, :1] * x[:, 1:2]),
    ):
        y = y.astype(int) if network is mlp else y
        step = TrainingStep(network, loss, Adam(network, lr=0.02), 32, backend=backend)
        losses = [step(x, y) for _ in range(200)]
        fell[f"{type(network).__name__}, {step.backend}"] = losses[-1] / losses[0]
rooms = sorted({name.split(".")[1] for name in sys.modules if name.startswith("mlpengine.")})
print(json.dumps([fell, rooms, sorted(set(ABSENT) & set(sys.modules))]))
"""

ENGINE = ["backends", "core", "formula", "nn", "ops", "optim", "step", "tape"]


def alone(absent: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ALONE, json.dumps(absent)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_engine_trains_without_the_packages_of_the_tabular_product():
    done = alone(ABSENT)
    assert done.returncode == 0, done.stderr
    fell, rooms, imported = json.loads(done.stdout)
    assert len(fell) == 4
    assert max(fell.values()) < 0.5
    assert rooms == ENGINE
    assert imported == []


def test_the_check_can_fail():
    assert "numpy must not be imported" in alone((*ABSENT, "numpy")).stderr
