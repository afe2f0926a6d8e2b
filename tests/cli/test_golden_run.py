"""Files of format 1, kept from when it was new: they load for ever."""

import shutil
from pathlib import Path

import numpy as np

from mlpengine.data import read_table
from mlpengine.train.checkpoint import Checkpoints
from mlpengine.train.model import Model

GOLDEN = Path(__file__).parents[1] / "golden" / "run-1"


def test_a_model_of_format_1_predicts(mlpengine):
    found = mlpengine("evaluate", GOLDEN / "model.safetensors", "--data", GOLDEN / "rows.csv")
    assert found.code == 0
    assert Model.load(GOLDEN / "model.safetensors").preprocessor.classes == ["n", "y"]


def test_a_model_of_format_1_is_not_clipped():
    """Features of the first format are (x - center) * factor, to the last bit."""
    preprocessor = Model.load(GOLDEN / "model.safetensors").preprocessor
    table, numbers = read_table(GOLDEN / "rows.csv"), preprocessor.numbers
    raw = np.column_stack([table[source.column].values for source in numbers.sources])
    filled = np.where(np.isnan(raw), numbers.fill, raw)
    expected = ((filled - numbers.center) * numbers.factor).astype(np.float32)
    features = preprocessor.transform(table).features
    np.testing.assert_array_equal(features[:, : raw.shape[1]], expected)


def test_a_checkpoint_of_format_1_goes_on(mlpengine, tmp_path):
    for name in ("golden.yaml", "rows.csv"):
        shutil.copy(GOLDEN / name, tmp_path)
    assert mlpengine("train", "golden.yaml", "--out", "run", "-q").code == 0
    folder = tmp_path / "run" / "checkpoints"
    for path in Checkpoints(folder).paths():
        path.unlink()
    shutil.copy(GOLDEN / "checkpoint.safetensors", folder / "step-000000012.safetensors")
    found = mlpengine("train", "--resume", "run")
    assert found.code == 0
    assert "after 3 whole epochs" in found.err
    rows = [np.genfromtxt(p / "metrics.csv", delimiter=",") for p in (tmp_path / "run", GOLDEN)]
    np.testing.assert_allclose(*rows, rtol=1e-4)  # another machine has other last bits
