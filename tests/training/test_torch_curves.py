"""The same start, data and order as PyTorch give the same loss curves."""

import sys
from pathlib import Path

import numpy as np
import pytest

from mlpengine import Adam, AdamW, MeanSquaredError, Mlp, Sgd, SoftmaxCrossEntropy
from mlpengine.optim import RmsProp
from mlpengine.step.step import TrainingStep

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
import torch_curves as golden

KINDS = {"sgd": Sgd, "adam": Adam, "adamw": AdamW, "rmsprop": RmsProp}
LOSSES = {"cross_entropy": SoftmaxCrossEntropy, "mse": MeanSquaredError}
every_case = pytest.mark.parametrize("case", golden.CASES, ids="-".join)


def our_curve(optimizer: str, loss: str, activation: str, **changed: float) -> np.ndarray:
    mlp = Mlp(golden.SIZES, activation=activation, dtype="float64")
    mlp.load_state_dict(golden.start())
    stepper = KINDS[optimizer](mlp, **{**golden.OPTIMIZERS[optimizer], **changed})
    step = TrainingStep(mlp, LOSSES[loss](), stepper, golden.BATCH, backend="numpy")
    return np.array([step(x, y) for x, y in golden.batches(loss)])


@every_case
def test_curves_equal_the_stored_ones(case):
    stored = np.load(golden.FILE)["-".join(case)]
    np.testing.assert_allclose(our_curve(*case), stored, rtol=1e-9, atol=1e-9)


@pytest.mark.torch
@every_case
def test_the_stored_curves_are_those_of_the_installed_torch(case):
    pytest.importorskip("torch", reason="PyTorch is not installed: stored curves are not renewed")
    stored = np.load(golden.FILE)["-".join(case)]
    np.testing.assert_allclose(golden.torch_curve(*case), stored, rtol=1e-9, atol=1e-9)
