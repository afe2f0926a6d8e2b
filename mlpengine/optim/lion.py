"""Lion, an optimizer that moves each parameter by the learning rate, up or down."""

from typing import Annotated, Any, Unpack

from mlpengine import formula
from mlpengine.core.fields import Fraction
from mlpengine.optim._optimizer import DecayOptions, HasParams, LearningRate, Optimizer


class Lion(Optimizer, name="lion"):
    """Lion, the sign of a momentum: params -= lr * sign(beta1 * m + (1 - beta1) * grads).

    Then m = beta2 * m + (1 - beta2) * grads.  Every parameter moves by `lr`.  Use an `lr` that is 3
    to 10 times smaller than Adam's, and a weight decay that is larger by the same factor.

    Moments: ``first`` = m / (1 - beta2).  Without gradients, a parameter stops moving when
    its moment falls below 1e-25 (in float32), because such a moment is set to zero.
    Numbers: `rate` is the learning rate; `share` is beta1 * (1 - beta2) / (1 - beta1), so that
    sign(first * share + grads) is the sign of a step.

    Source: Chen et al. 2023, arXiv 2302.06675, algorithm 2.
    """

    __slots__ = ("betas",)

    def __init__(
        self,
        model: HasParams,
        *,
        lr: LearningRate = 1e-4,
        betas: Annotated[
            tuple[Fraction, Fraction], "Share of the moment in a step, and decay of the moment."
        ] = (0.9, 0.99),
        **shared: Unpack[DecayOptions],
    ) -> None:
        self.betas: tuple[float, float] = self.fit("betas", betas)
        beta1, beta2 = self.betas
        super().__init__(
            model,
            lr=lr,
            hyper={"beta1": beta1, "beta2": beta2},
            signed={"first": beta2},
            **shared,
        )

    def numbers(self, lr: Any, t: Any, beta1: Any, beta2: Any) -> dict[str, Any]:
        return {"rate": lr, "share": beta1 * (1.0 - beta2) / (1.0 - beta1)}

    def update(
        self, p: Any, g: Any, first: Any, beta2: Any, rate: Any, share: Any
    ) -> dict[str, Any]:
        p = p - formula.sign(first * share + g) * rate
        return {"p": p, "first": first * beta2 + g}
