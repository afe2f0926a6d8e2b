"""Computations that are recorded, planned and replayed, or eager, and their gradients.

Every op is a function of this module, by its registry name, and a method of nodes and tensors.
"""

from collections.abc import Callable
from typing import Any

from mlpengine.tape import elementwise
from mlpengine.tape.autodiff import (
    EagerGradients,
    GradientAccumulator,
    Tensor,
    backward,
    from_inner,
    no_grad,
)
from mlpengine.tape.derivatives import (
    gradient_difference,
    hessian_diagonal,
    hessian_vector_product,
    jacobian,
)
from mlpengine.tape.elementwise import log_softmax, softmax, where
from mlpengine.tape.flat import Flat
from mlpengine.tape.functions import (
    batch_matmul,
    batch_norm,
    cast,
    cat,
    chunk,
    conv2d,
    detach,
    dropout,
    embedding,
    gather,
    index_select,
    layer_norm,
    linear,
    logsumexp,
    map_lookup,
    matmul,
    max,
    max_pool2d,
    mean,
    min,
    reshape,
    slice,
    softmax_cross_entropy,
    ssm_scan,
    struct_field,
    sum,
    transpose,
    var,
)
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
    "batch_matmul",
    "batch_norm",
    "cast",
    "cat",
    "chunk",
    "conv2d",
    "detach",
    "dropout",
    "embedding",
    "from_inner",
    "gather",
    "gradcheck",
    "gradient_difference",
    "hessian_diagonal",
    "hessian_vector_product",
    "index_select",
    "jacobian",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsumexp",
    "map_lookup",
    "matmul",
    "max",
    "max_pool2d",
    "mean",
    "min",
    "no_grad",
    "quantize",
    "reshape",
    "slice",
    "softmax",
    "softmax_cross_entropy",
    "ssm_scan",
    "struct_field",
    "sum",
    "transpose",
    "var",
    "where",
]
__all__ += elementwise.names()


def __getattr__(name: str) -> Callable[..., Any]:
    return getattr(elementwise, name)  # type: ignore[no-any-return]
