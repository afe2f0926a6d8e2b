"""Stochastic gradient descent."""

from typing import Annotated, Any, Unpack

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Fraction
from mlpengine.optim._optimizer import DecayOptions, HasParams, LearningRate, Optimizer


class Sgd(Optimizer, name="sgd"):
    """Gradient descent, with optional momentum.

    Without momentum: params -= lr * grads.  Momentum: velocity = momentum * velocity + grads and
    params -= lr * velocity.  Nesterov: params -= lr * (grads + momentum * velocity).

    Moments: ``velocity``, or, with Nesterov, ``velocity`` times `momentum`.
    Numbers: `rate`, the learning rate.

    Source: Sutskever et al. 2013, sections 2 and 3.
    """

    __slots__ = ("momentum", "nesterov")

    def __init__(
        self,
        model: HasParams,
        *,
        lr: LearningRate = 0.01,
        momentum: Annotated[Fraction, "Factor of the previous velocity."] = 0.0,
        nesterov: Annotated[bool, "Whether to use Nesterov momentum."] = False,
        **shared: Unpack[DecayOptions],
    ) -> None:
        self.momentum: float = self.fit("momentum", momentum)
        self.nesterov: bool = self.fit("nesterov", nesterov)
        if nesterov and not momentum:
            raise UsageError(f"Sgd: nesterov needs a momentum above zero (got {momentum!r})")
        super().__init__(
            model,
            lr=lr,
            hyper={"momentum": self.momentum},
            signed={"velocity": self.momentum} if momentum else {},
            **shared,
        )

    def numbers(self, lr: Any, t: Any, momentum: Any) -> dict[str, Any]:
        return {"rate": lr}

    def update(
        self, p: Any, g: Any, rate: Any, momentum: Any, velocity: Any = None
    ) -> dict[str, Any]:
        if not self.momentum:
            return {"p": p - g * rate}
        if self.nesterov:
            velocity = (velocity + g) * momentum
            return {"velocity": velocity, "p": p - (velocity + g) * rate}
        velocity = velocity * momentum + g
        return {"velocity": velocity, "p": p - velocity * rate}
