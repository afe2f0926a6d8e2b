"""Why a network does not learn: gradients, updates and activations, measured while it does."""

from mlpengine.diagnostics.baseline import baseline_loss, loss_of_zeros
from mlpengine.diagnostics.examples import example_norms, row_losses
from mlpengine.diagnostics.observer import Diagnostics
from mlpengine.diagnostics.verdicts import Verdict

__all__ = [
    "Diagnostics",
    "Verdict",
    "baseline_loss",
    "example_norms",
    "loss_of_zeros",
    "row_losses",
]
