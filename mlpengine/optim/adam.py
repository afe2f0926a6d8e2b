"""Adam, and AdamW as Adam with weight decay by default."""

from math import sqrt

import numpy as np

from mlpengine.optim._checks import number, pair
from mlpengine.optim._optimizer import HasParams, Optimizer, ScheduleLike
from mlpengine.spec import Array, Calls, call


class Adam(Optimizer):
    """Adaptive moments: params -= lr * m_hat / (sqrt(v_hat) + eps).

    m = beta1 * m + (1 - beta1) * grads and v = beta2 * v + (1 - beta2) * grads**2 are corrected for
    their start at zero: m_hat = m / (1 - beta1**t), v_hat = v / (1 - beta2**t).

    Weight decay is decoupled, so Adam with `weight_decay` is AdamW.

    Moments: ``first`` = m / (1 - beta1) and ``second`` = v / (1 - beta2), to which gradients are
    added unscaled, so that a step takes ten calls.
    Constants: `rate` and `scaled_eps`, which combine all other factors:
    params -= rate * first / (sqrt(second) + scaled_eps).
    Source: Kingma and Ba 2015, arXiv 1412.6980, algorithm 1 and the end of section 2.
    """

    def __init__(
        self,
        model: HasParams,
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decay_biases: bool = False,
        schedule: ScheduleLike | None = None,
    ) -> None:
        where = type(self).__name__
        first, second = pair(where, "betas", betas)
        self.betas = (
            number(where, "betas[0]", first, minimum=0.0, below=1.0),
            number(where, "betas[1]", second, minimum=0.0, below=1.0),
        )
        self.eps = number(where, "eps", eps, minimum=0.0)
        super().__init__(
            model,
            lr=lr,
            weight_decay=weight_decay,
            decay_biases=decay_biases,
            schedule=schedule,
            signed=["first"],
            squares=["second"],
        )
        self.rate, self.scaled_eps = self._constant(0.0), self._constant(0.0)

    def _described(self) -> tuple[str, tuple[float, ...]]:
        return "adam", (*self.betas, self.eps)

    def _betas(self) -> list[float]:
        return [*self.betas]

    def _prepare(self, lr: float) -> None:
        # With second = s**2 v_hat, where s is `root`:
        # lr m_hat / (sqrt(v_hat) + eps) = (lr s (1 - beta1) / (1 - beta1**t)) first
        #                                  / (sqrt(second) + s eps)
        beta1, beta2 = self.betas
        root = sqrt((1.0 - beta2**self.steps) / (1.0 - beta2))
        self.scaled_eps[()] = root * self.eps
        self.rate[()] = lr * root * (1.0 - beta1) / (1.0 - beta1**self.steps)

    def _update(self, params: Array, grads: Array, work: Array, **moments: Array) -> Calls:
        first, second = moments["first"], moments["second"]
        beta1, beta2 = (self._constant(beta) for beta in self.betas)
        yield call(np.multiply, first, beta1, first)
        yield call(np.add, first, grads, first)
        yield call(np.multiply, grads, grads, work)
        yield call(np.multiply, second, beta2, second)
        yield call(np.add, second, work, second)
        yield call(np.sqrt, second, work)
        yield call(np.add, work, self.scaled_eps, work)
        yield call(np.divide, first, work, work)
        yield call(np.multiply, work, self.rate, work)
        yield call(np.subtract, params, work, params)


class AdamW(Adam):
    """`Adam` with a weight decay of 0.01 by default.

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2.
    """

    def __init__(
        self,
        model: HasParams,
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        decay_biases: bool = False,
        schedule: ScheduleLike | None = None,
    ) -> None:
        super().__init__(
            model,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            decay_biases=decay_biases,
            schedule=schedule,
        )
