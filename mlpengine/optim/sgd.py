"""Stochastic gradient descent."""

import numpy as np

from mlpengine.errors import UsageError
from mlpengine.optim._checks import number
from mlpengine.optim._optimizer import HasParams, Optimizer, ScheduleLike
from mlpengine.spec import Array, Calls, call


class Sgd(Optimizer):
    """Gradient descent: params -= lr * grads, with momentum params -= lr * velocity.

    Momentum: velocity = momentum * velocity + grads.  Nesterov: params -= lr * (grads + momentum *
    velocity).  Both as in PyTorch, where a new learning rate does not scale the old velocity.

    Moments: ``velocity``, if there is momentum; with Nesterov it is stored times `momentum`.
    Constants: `rate`, the learning rate.
    Source: Sutskever et al. 2013, sections 2 and 3.
    """

    def __init__(
        self,
        model: HasParams,
        *,
        lr: float = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        decay_biases: bool = False,
        schedule: ScheduleLike | None = None,
    ) -> None:
        self.momentum = number("Sgd", "momentum", momentum, minimum=0.0, below=1.0)
        self.nesterov = nesterov
        if nesterov and not momentum:
            raise UsageError(f"Sgd: nesterov needs a momentum above zero (got {momentum!r})")
        super().__init__(
            model,
            lr=lr,
            weight_decay=weight_decay,
            decay_biases=decay_biases,
            schedule=schedule,
            signed=["velocity"] if momentum else [],
        )
        self.rate = self._constant(0.0)

    def _described(self) -> tuple[str, tuple[float, ...]]:
        if not self.momentum:
            return "sgd", ()
        return "sgd_nesterov" if self.nesterov else "sgd_momentum", (self.momentum,)

    def _betas(self) -> list[float]:
        return [self.momentum]

    def _prepare(self, lr: float) -> None:
        self.rate[()] = lr

    def _update(self, params: Array, grads: Array, work: Array, **moments: Array) -> Calls:
        direction = grads
        if self.momentum:
            velocity = direction = moments["velocity"]
            momentum = self._constant(self.momentum)
            if self.nesterov:
                yield call(np.add, velocity, grads, velocity)
                yield call(np.multiply, velocity, momentum, velocity)
                yield call(np.add, velocity, grads, work)
                direction = work
            else:
                yield call(np.multiply, velocity, momentum, velocity)
                yield call(np.add, velocity, grads, velocity)
        yield call(np.multiply, direction, self.rate, work)
        yield call(np.subtract, params, work, params)
