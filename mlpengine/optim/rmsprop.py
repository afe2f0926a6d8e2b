"""RMSprop."""

from math import sqrt

import numpy as np

from mlpengine.optim._checks import number
from mlpengine.optim._optimizer import HasParams, Optimizer, ScheduleLike
from mlpengine.spec import Array, Calls, call


class RmsProp(Optimizer):
    """Gradients over their running root mean square: params -= lr * grads / (sqrt(v) + eps).

    v = alpha * v + (1 - alpha) * grads**2, from zero and not corrected for it.  With momentum:
    velocity = momentum * velocity + grads / (sqrt(v) + eps), params -= lr * velocity.  As in
    PyTorch, `eps` stands outside the root.

    Moments: ``square`` = v / (1 - alpha) and, if there is momentum, ``velocity`` times
    sqrt(1 - alpha).
    Constants: `rate` = lr / sqrt(1 - alpha), which undoes both scales.
    Source: Tieleman and Hinton 2012, Coursera lecture 6.5.
    """

    def __init__(
        self,
        model: HasParams,
        *,
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        decay_biases: bool = False,
        schedule: ScheduleLike | None = None,
    ) -> None:
        self.alpha = number("RmsProp", "alpha", alpha, minimum=0.0, below=1.0)
        self.eps = number("RmsProp", "eps", eps, minimum=0.0)
        self.momentum = number("RmsProp", "momentum", momentum, minimum=0.0, below=1.0)
        super().__init__(
            model,
            lr=lr,
            weight_decay=weight_decay,
            decay_biases=decay_biases,
            schedule=schedule,
            signed=["velocity"] if momentum else [],
            squares=["square"],
        )
        self.rate = self._constant(0.0)

    def _described(self) -> tuple[str, tuple[float, ...]]:
        if not self.momentum:
            return "rms_prop", (self.alpha, self.eps)
        return "rms_prop_momentum", (self.alpha, self.eps, self.momentum)

    def _betas(self) -> list[float]:
        return [self.alpha, self.momentum]

    def _prepare(self, lr: float) -> None:
        self.rate[()] = lr / sqrt(1.0 - self.alpha)

    def _update(self, params: Array, grads: Array, work: Array, **moments: Array) -> Calls:
        square = moments["square"]
        alpha, eps = self._constant(self.alpha), self._constant(self.eps / sqrt(1.0 - self.alpha))
        yield call(np.multiply, grads, grads, work)
        yield call(np.multiply, square, alpha, square)
        yield call(np.add, square, work, square)
        yield call(np.sqrt, square, work)
        yield call(np.add, work, eps, work)
        yield call(np.divide, grads, work, work)
        if self.momentum:
            velocity, momentum = moments["velocity"], self._constant(self.momentum)
            yield call(np.multiply, velocity, momentum, velocity)
            yield call(np.add, velocity, work, velocity)
            yield call(np.multiply, velocity, self.rate, work)
        else:
            yield call(np.multiply, work, self.rate, work)
        yield call(np.subtract, params, work, params)
