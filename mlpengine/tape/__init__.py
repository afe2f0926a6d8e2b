"""Recorded or eager computations, and their gradients.

Nodes and tensors have a method for each op, with the op's registry name.  `cat` is a function
instead, and `where` is both.
"""

from mlpengine.tape.autodiff import (
    EagerGradients,
    GradientAccumulator,
    Tensor,
    backward,
    from_inner,
    no_grad,
)
from mlpengine.tape.flat import Flat
from mlpengine.tape.functions import cat, where
from mlpengine.tape.gradcheck import gradcheck
from mlpengine.tape.operand import apply
from mlpengine.tape.program import Program
from mlpengine.tape.quantized import QuantizedArray, quantize
from mlpengine.tape.tape import Node, Tape

__all__ = [
    "EagerGradients",
    "Flat",
    "GradientAccumulator",
    "Node",
    "Program",
    "QuantizedArray",
    "Tape",
    "Tensor",
    "apply",
    "backward",
    "cat",
    "from_inner",
    "gradcheck",
    "no_grad",
    "quantize",
    "where",
]
