"""Every op, grouped as its file groups it."""

from mlpengine.ops._elementwise import Activation, Elementwise
from mlpengine.ops._loss import BoundLoss, Loss
from mlpengine.ops._op import REGISTRY, GradOp
from mlpengine.ops.activations import (
    Elu,
    Gelu,
    Hardswish,
    LeakyRelu,
    Mish,
    Relu,
    Selu,
    Sigmoid,
    Silu,
    Softplus,
    Softsign,
    Tanh,
)
from mlpengine.ops.convolution import Conv2d, MaxPool2d
from mlpengine.ops.cross_entropy import SoftmaxCrossEntropy
from mlpengine.ops.elementwise import (
    Abs,
    Add,
    Clamp,
    Cos,
    Div,
    Exp,
    Log,
    Log2,
    LogEps,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Pow,
    Rsqrt,
    ScalarAdd,
    ScalarMul,
    Sin,
    Sqrt,
    Sub,
)
from mlpengine.ops.formula_loss import FormulaLoss
from mlpengine.ops.indexing import Embedding, Gather, IndexSelect, MapLookup, StructField
from mlpengine.ops.linalg import BatchMatMul, Linear, MatMul, Transpose
from mlpengine.ops.losses import (
    BinaryCrossEntropyWithLogits,
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
)
from mlpengine.ops.normalization import BatchNorm, LayerNorm, RunningStatistics
from mlpengine.ops.random import Dropout
from mlpengine.ops.reductions import LogSumExp, Max, Mean, Min, Sum
from mlpengine.ops.selection import Where
from mlpengine.ops.sequence import SsmScan
from mlpengine.ops.shape import Cat, Chunk, Reshape, Slice
from mlpengine.ops.softmax import LogSoftmax, Softmax

__all__ = [
    "REGISTRY",
    "Abs",
    "Activation",
    "Add",
    "BatchMatMul",
    "BatchNorm",
    "BinaryCrossEntropyWithLogits",
    "BoundLoss",
    "Cat",
    "Chunk",
    "Clamp",
    "Conv2d",
    "Cos",
    "Div",
    "Dropout",
    "Elementwise",
    "Elu",
    "Embedding",
    "Exp",
    "FormulaLoss",
    "Gather",
    "Gelu",
    "GradOp",
    "Hardswish",
    "Huber",
    "IndexSelect",
    "LayerNorm",
    "LeakyRelu",
    "Linear",
    "Log",
    "Log2",
    "LogEps",
    "LogSoftmax",
    "LogSumExp",
    "Loss",
    "MapLookup",
    "MatMul",
    "Max",
    "MaxPool2d",
    "Maximum",
    "Mean",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Min",
    "Minimum",
    "Mish",
    "Mul",
    "Neg",
    "Pow",
    "Relu",
    "Reshape",
    "Rsqrt",
    "RunningStatistics",
    "ScalarAdd",
    "ScalarMul",
    "Selu",
    "Sigmoid",
    "Silu",
    "Sin",
    "Slice",
    "Softmax",
    "SoftmaxCrossEntropy",
    "Softplus",
    "Softsign",
    "Sqrt",
    "SsmScan",
    "StructField",
    "Sub",
    "Sum",
    "Tanh",
    "Transpose",
    "Where",
]
