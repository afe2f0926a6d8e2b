"""Adam, and AdamW (Adam with weight decay by default)."""

from typing import Annotated, Any, TypeAlias, Unpack

from mlpengine import formula
from mlpengine.core.fields import NonNegative
from mlpengine.optim._optimizer import (
    Betas,
    DecayOptions,
    HasParams,
    LearningRate,
    Optimizer,
    SharedOptions,
    WeightDecay,
)
from mlpengine.optim.scalar_functions import power, sqrt

Epsilon: TypeAlias = Annotated[NonNegative, "Added to the square root of the second moment."]


class Adam(Optimizer, name="adam"):
    """Adam, adaptive moments: params -= lr * m_hat / (sqrt(v_hat) + eps).

    m = beta1 * m + (1 - beta1) * grads and v = beta2 * v + (1 - beta2) * grads**2 start at zero.
    m_hat = m / (1 - beta1**t) and v_hat = v / (1 - beta2**t) correct the bias of this start.

    Weight decay is decoupled, so Adam with `weight_decay` is AdamW.

    Moments: ``first`` = m / (1 - beta1) and ``second`` = v / (1 - beta2).  They save two
    multiplications: first = beta1 * first + grads.
    Numbers: `rate` and `scaled_eps` contain the missing factors:
    params -= rate * first / (sqrt(second) + scaled_eps).

    Source: Kingma and Ba 2015, arXiv 1412.6980, algorithm 1 and the end of section 2.
    """

    __slots__ = ("betas", "eps")

    def __init__(
        self,
        model: HasParams,
        *,
        lr: LearningRate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: Epsilon = 1e-8,
        **shared: Unpack[DecayOptions],
    ) -> None:
        self.betas: tuple[float, float] = self.fit("betas", betas)
        self.eps: float = self.fit("eps", eps)
        beta1, beta2 = self.betas
        super().__init__(
            model,
            lr=lr,
            hyper={"beta1": beta1, "beta2": beta2, "eps": self.eps},
            signed={"first": beta1},
            squares={"second": beta2},
            **shared,
        )

    def numbers(self, lr: Any, t: Any, beta1: Any, beta2: Any, eps: Any) -> dict[str, Any]:
        # With second = s**2 v_hat, where s is `root`:
        # lr m_hat / (sqrt(v_hat) + eps) = (lr s (1 - beta1) / (1 - beta1**t)) first
        #                                  / (sqrt(second) + s eps)
        root = sqrt((1.0 - power(beta2, t)) / (1.0 - beta2))
        rate = lr * root * (1.0 - beta1) / (1.0 - power(beta1, t))
        return {"rate": rate, "scaled_eps": root * eps}

    def update(
        self,
        p: Any,
        g: Any,
        first: Any,
        second: Any,
        beta1: Any,
        beta2: Any,
        rate: Any,
        scaled_eps: Any,
    ) -> dict[str, Any]:
        first = first * beta1 + g
        second = second * beta2 + g * g
        p = p - first / (formula.sqrt(second) + scaled_eps) * rate
        return {"first": first, "second": second, "p": p}


class AdamW(Adam, name="adamw"):
    """Adam with decoupled weight decay, 0.01 by default.

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2.
    """

    __slots__ = ()

    def __init__(
        self,
        model: HasParams,
        *,
        lr: LearningRate = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: Epsilon = 1e-8,
        weight_decay: WeightDecay = 0.01,
        **shared: Unpack[SharedOptions],
    ) -> None:
        super().__init__(model, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **shared)
