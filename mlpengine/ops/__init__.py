"""Every op, grouped as its file groups it."""

from mlpengine.ops._op import REGISTRY, GradOp
from mlpengine.ops.convolution import Conv2d, MaxPool2d
from mlpengine.ops.indexing import Embedding, Gather, IndexSelect, MapLookup, StructField
from mlpengine.ops.linalg import BatchMatMul, Linear, MatMul, Transpose
from mlpengine.ops.normalization import BatchNorm, LayerNorm, RunningStatistics
from mlpengine.ops.random import Dropout
from mlpengine.ops.sequence import SsmScan
from mlpengine.ops.shape import Cat, Chunk, Reshape, Slice

__all__ = [
    "REGISTRY",
    "BatchMatMul",
    "BatchNorm",
    "Cat",
    "Chunk",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Gather",
    "GradOp",
    "IndexSelect",
    "LayerNorm",
    "Linear",
    "MapLookup",
    "MatMul",
    "MaxPool2d",
    "Reshape",
    "RunningStatistics",
    "Slice",
    "SsmScan",
    "StructField",
    "Transpose",
]
