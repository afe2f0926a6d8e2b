"""Every op, grouped as its file groups it."""

from mlpengine.ops._op import REGISTRY, GradOp
from mlpengine.ops.linalg import Linear
from mlpengine.ops.random import Dropout

__all__ = ["REGISTRY", "Dropout", "GradOp", "Linear"]
