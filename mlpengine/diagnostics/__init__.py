"""Why a network does not learn: gradients, updates and activations, measured during training.

In your own loop, after each step of the optimizer:

    >>> import numpy as np
    >>> from mlpengine import MeanSquaredError, Mlp, Sgd, TrainingStep
    >>> from mlpengine.diagnostics import Diagnostics, verdicts
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((32, 4)).astype("float32")
    >>> mlp = Mlp([4, 16, 1], seed=0)
    >>> step = TrainingStep(mlp, MeanSquaredError(), Sgd(mlp, lr=1e-6), batch_size=32)
    >>> diagnostics = Diagnostics(mlp, every=10, baseline=1.0)

    >>> for number in range(1, 101):
    ...     loss = step(x, x[:, :1])
    ...     _ = diagnostics.after_step(
    ...         step.scratch, step.grads, number, loss=loss, norm=step.grad_norm
    ...     )
    >>> [verdict.name for verdict in verdicts(diagnostics)]
    ['lr_low']
"""

from mlpengine.diagnostics.array_watch import Watch
from mlpengine.diagnostics.constant_loss import baseline_loss
from mlpengine.diagnostics.layer_table import table
from mlpengine.diagnostics.monitor import Diagnostics
from mlpengine.diagnostics.rules import add_rule, verdicts
from mlpengine.diagnostics.verdict import Verdict, combined_fix
from mlpengine.diagnostics.watching import watch

__all__ = [
    "Diagnostics",
    "Verdict",
    "Watch",
    "add_rule",
    "baseline_loss",
    "combined_fix",
    "table",
    "verdicts",
    "watch",
]
