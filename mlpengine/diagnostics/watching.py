"""Verdicts on a training loop of PyTorch: `watch`."""

from typing import Any

from mlpengine.diagnostics.array_watch import Watch


def watch(model: Any, optimizer: Any, *, every: int | None = None) -> Watch:
    """Watch a PyTorch training loop; see `Watch` for the methods.

    After each step of the optimizer, call `step(loss)`.  If you have a validation loss, call
    `epoch(loss)` after each epoch.

    Args:
        model: a `torch.nn.Module`.
        optimizer: its `torch.optim.Optimizer`.
        every: steps between samples (see `Watch`).

    Raises: MissingExtraError without PyTorch.
    """
    from mlpengine.diagnostics.torch_watch import TorchWatch

    return TorchWatch(model, optimizer, every=every)
