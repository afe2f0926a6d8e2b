"""Every op, grouped as its file groups it."""

from mlpengine.ops._loss import BoundLoss, Loss
from mlpengine.ops._op import REGISTRY, GradOp
from mlpengine.ops.activations import LeakyRelu, Relu, Sigmoid, Silu, Tanh
from mlpengine.ops.convolution import Conv2d, MaxPool2d
from mlpengine.ops.cross_entropy import SoftmaxCrossEntropy
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
from mlpengine.ops.sequence import SsmScan
from mlpengine.ops.shape import Cat, Chunk, Reshape, Slice

__all__ = [
    "REGISTRY",
    "BatchMatMul",
    "BatchNorm",
    "BinaryCrossEntropyWithLogits",
    "BoundLoss",
    "Cat",
    "Chunk",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Gather",
    "GradOp",
    "Huber",
    "IndexSelect",
    "LayerNorm",
    "LeakyRelu",
    "Linear",
    "Loss",
    "MapLookup",
    "MatMul",
    "MaxPool2d",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Relu",
    "Reshape",
    "RunningStatistics",
    "Sigmoid",
    "Silu",
    "Slice",
    "SoftmaxCrossEntropy",
    "SsmScan",
    "StructField",
    "Tanh",
    "Transpose",
]
