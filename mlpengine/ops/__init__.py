"""Every op, grouped as its file groups it."""

from mlpengine.ops._loss import BoundLoss, Loss
from mlpengine.ops._op import REGISTRY, GradOp
from mlpengine.ops.activations import Elu, LeakyRelu, Relu, Selu, Sigmoid, Silu, Softplus, Tanh
from mlpengine.ops.arithmetic import Add, Div, Mul, Neg, Pow, ScalarAdd, ScalarMul, Sub
from mlpengine.ops.convolution import Conv2d, MaxPool2d
from mlpengine.ops.cross_entropy import SoftmaxCrossEntropy
from mlpengine.ops.elementwise import Abs, Clamp, Cos, Exp, Log, Log2, LogEps, Rsqrt, Sin, Sqrt
from mlpengine.ops.formula_loss import FormulaLoss
from mlpengine.ops.gelu import Gelu
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
from mlpengine.ops.selection import Maximum, Minimum, Where
from mlpengine.ops.sequence import SsmScan
from mlpengine.ops.shape import Cat, Chunk, Reshape, Slice
from mlpengine.ops.softmax import LogSoftmax, Softmax

__all__ = [
    "REGISTRY",
    "Abs",
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
    "Elu",
    "Embedding",
    "Exp",
    "FormulaLoss",
    "Gather",
    "Gelu",
    "GradOp",
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
    "Sqrt",
    "SsmScan",
    "StructField",
    "Sub",
    "Sum",
    "Tanh",
    "Transpose",
    "Where",
]
