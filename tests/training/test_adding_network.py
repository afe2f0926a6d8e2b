"""A network that is written elsewhere is used wherever an `Mlp` is, by its recording alone."""

import numpy as np

from mlpengine import (
    Adam,
    EarlyStopping,
    Loop,
    MeanSquaredError,
    TrainingStep,
)
from mlpengine.diagnostics import table
from mlpengine.models import LossOnly, Split
from mlpengine.nn import Network
from mlpengine.training.diagnose import LoopDiagnostics


class Elsewhere(Network):
    """Products of two dense layers, whose sum goes on."""

    def __init__(self, width=8, **options):
        shapes = {"left": (width, 3), "right": (width, 3), "bias": width, "out": (1, width)}
        super().__init__(3, shapes, groups={"body": ["left", "right", "bias"]}, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = tape.layer("products", x.linear(p("left")).tanh() * x.linear(p("right"), p("bias")))
        return tape.dropout(h, 0.1).linear(p("out"))


def data(count=96, seed=0):
    x = np.random.default_rng(seed).uniform(-1, 1, (count, 3)).astype("float32")
    return Split(x, x[:, :1] * x[:, 1:2], truth=x[:, :1] * x[:, 1:2])


def loop_of(network, epochs, **options):
    step = TrainingStep(network, MeanSquaredError(), Adam(network, lr=1e-2), 32, clip_norm=1.0)
    return Loop(step, LossOnly(), data(), data(32, 1), epochs=epochs, seed=1, **options)


def test_a_network_is_trained_watched_continued_and_kept(tmp_path):
    watch, network = LoopDiagnostics(every=1), Elsewhere(seed=0)
    whole = loop_of(network, 30, callbacks=[watch], early_stopping=EarlyStopping(patience=30))
    result = whole.run()
    assert whole.step.backend == "numpy" or whole.step.fused
    assert result.history.rows[-1].validation["loss"] < 0.3 * np.square(data().y).mean()
    assert {"products", "output"} <= {line.split()[0] for line in table(watch.core).splitlines()}
    parts = [loop_of(Elsewhere(seed=0), epochs) for epochs in (12, 30)]
    parts[0].run()
    parts[1].load_state_dict(parts[0].state_dict())
    alone = loop_of(Elsewhere(seed=0), 30)
    assert [part.run().epochs for part in (parts[1], alone)] == [30, 30]
    same = [part.step.mlp.params.flat.tobytes() for part in (parts[1], alone)]
    assert same[0] == same[1]
    network.save(tmp_path / "network.safetensors")
    kept = Elsewhere.load(tmp_path / "network.safetensors")
    np.testing.assert_array_equal(kept.predict(data().x), network.predict(data().x))
