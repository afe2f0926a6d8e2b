"""All ops, grouped by module."""

from mlpengine.common.misuse import answer_misfits
from mlpengine.ops._elementwise import Activation, Elementwise
from mlpengine.ops._entry_loss import EntryLoss
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
from mlpengine.ops.embeddings import PeriodicEmbedding
from mlpengine.ops.formulas import FormulaActivation, FormulaLoss, LearnedActivation
from mlpengine.ops.indexing import Embedding, Gather, IndexSelect, MapLookup, StructField
from mlpengine.ops.linalg import BatchMatMul, Linear, MatMul, Transpose
from mlpengine.ops.loss import LOSSES, BoundLoss, Loss, losses_of
from mlpengine.ops.losses import (
    BinaryCrossEntropyWithLogits,
    BinaryFocal,
    Gamma,
    GaussianNll,
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanOutput,
    MeanSquaredError,
    Poisson,
    Quantile,
)
from mlpengine.ops.normalization import BatchNorm, LayerNorm, RunningStatistics
from mlpengine.ops.op import REGISTRY, GradOp
from mlpengine.ops.philox import Philox
from mlpengine.ops.random import Dropout, Normal
from mlpengine.ops.reductions import LogSumExp, Max, Mean, Min, Sum
from mlpengine.ops.selection import Where
from mlpengine.ops.sequence import SsmScan
from mlpengine.ops.shape import Cast, Cat, Chunk, Reshape, Slice
from mlpengine.ops.softmax import LogSoftmax, Softmax

__all__ = [
    "LOSSES",
    "REGISTRY",
    "Abs",
    "Activation",
    "Add",
    "BatchMatMul",
    "BatchNorm",
    "BinaryCrossEntropyWithLogits",
    "BinaryFocal",
    "BoundLoss",
    "Cast",
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
    "EntryLoss",
    "Exp",
    "FormulaActivation",
    "FormulaLoss",
    "Gamma",
    "Gather",
    "GaussianNll",
    "Gelu",
    "GradOp",
    "Hardswish",
    "Huber",
    "IndexSelect",
    "LayerNorm",
    "LeakyRelu",
    "LearnedActivation",
    "Linear",
    "Log",
    "Log2",
    "LogCosh",
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
    "MeanOutput",
    "MeanSquaredError",
    "Min",
    "Minimum",
    "Mish",
    "Mul",
    "Neg",
    "Normal",
    "PeriodicEmbedding",
    "Philox",
    "Poisson",
    "Pow",
    "Quantile",
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
    "losses_of",
]

answer_misfits(LOSSES.values(), text="abs(y - t)")
