"""Files of former formats, kept from when they were new: they load for ever."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from mlpengine.data import read_table
from mlpengine.train.checkpoint import Checkpoints
from mlpengine.train.model import Model

GOLDEN = Path(__file__).parents[1] / "golden" / "run-1"
MODELS = [GOLDEN / "model.safetensors", GOLDEN.parent / "model-2.safetensors"]


@pytest.mark.parametrize("path", MODELS, ids=["1", "2"])
def test_a_model_of_a_former_format_predicts(path, mlpengine):
    found = mlpengine("evaluate", path, GOLDEN / "rows.csv")
    assert found.code == 0
    assert Model.load(path).preprocessor.classes == ["n", "y"]


@pytest.mark.parametrize("path", MODELS, ids=["1", "2"])
def test_features_of_a_former_format_keep_their_bits(path):
    """In format 1 they are z = (x - center) * factor, in format 2 z / sqrt(1 + (z/3)^2)."""
    preprocessor = Model.load(path).preprocessor
    table, numbers = read_table(GOLDEN / "rows.csv"), preprocessor.numbers
    raw = np.column_stack([table[source.column].values for source in numbers.sources])
    filled = np.where(np.isnan(raw), numbers.fill, raw)
    expected = (filled - numbers.center) * numbers.factor
    if path == MODELS[1]:
        expected = expected / np.sqrt(1 + np.square(expected / 3))
    expected = np.column_stack([expected, np.isnan(raw)[:, numbers.flagged]]).astype(np.float32)
    np.testing.assert_array_equal(preprocessor.transform(table).features, expected)


def test_a_checkpoint_of_format_1_goes_on(mlpengine, tmp_path, caplog):
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
    assert "dropout: masks come from another generator than before" in caplog.text
    now, then = (
        np.genfromtxt(folder / "metrics.csv", delimiter=",", skip_header=1)
        for folder in (tmp_path / "run", GOLDEN)
    )
    np.testing.assert_allclose(now[:3], then[:3], rtol=1e-4)  # of the checkpoint
    assert now.shape == then.shape
    assert np.isfinite(now).all()
