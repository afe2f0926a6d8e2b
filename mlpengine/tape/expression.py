"""The operators and methods by which nodes and eager tensors combine."""

from typing import Any

from mlpengine.ops import GradOp


class Expression:
    """Something that ops apply to: a `Node` records them, a `Tensor` computes them at once."""

    def _apply(self, op: GradOp, *operands: Any) -> Any:
        raise NotImplementedError
