"""Why a network does not learn: gradients, updates and activations, measured while it does."""

from mlpengine.diagnostics.observer import Diagnostics

__all__ = ["Diagnostics"]
