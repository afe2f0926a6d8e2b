"""RMSprop."""

from typing import Annotated, Any, Unpack

from mlpengine import formula
from mlpengine.core.fields import Fraction, NonNegative
from mlpengine.optim._optimizer import DecayOptions, HasParams, LearningRate, Optimizer
from mlpengine.optim.scalar_functions import sqrt


class RmsProp(Optimizer, name="rmsprop"):
    """RMSprop: gradients divided by their running root mean square.

    params -= lr * grads / (sqrt(v) + eps), where v = alpha * v + (1 - alpha) * grads**2 starts at
    zero, without bias correction.  With momentum: velocity = momentum * velocity + grads / (sqrt(v)
    + eps), params -= lr * velocity.  As in PyTorch, `eps` is outside the root.

    Moments: ``square`` = v / (1 - alpha) and, with momentum, ``velocity`` times sqrt(1 - alpha).
    Numbers: `rate` = lr / sqrt(1 - alpha) and `scaled_eps` = eps / sqrt(1 - alpha).

    Source: Tieleman and Hinton 2012, Coursera lecture 6.5.
    """

    __slots__ = ("alpha", "eps", "momentum")

    def __init__(
        self,
        model: HasParams,
        *,
        lr: LearningRate = 1e-3,
        alpha: Annotated[Fraction, "Decay of the mean square."] = 0.99,
        eps: Annotated[NonNegative, "Added to the square root of the mean square."] = 1e-8,
        momentum: Annotated[Fraction, "Factor of the previous velocity."] = 0.0,
        **shared: Unpack[DecayOptions],
    ) -> None:
        self.alpha: float = self.fit("alpha", alpha)
        self.eps: float = self.fit("eps", eps)
        self.momentum: float = self.fit("momentum", momentum)
        super().__init__(
            model,
            lr=lr,
            hyper={"alpha": self.alpha, "eps": self.eps, "momentum": self.momentum},
            signed={"velocity": self.momentum} if momentum else {},
            squares={"square": self.alpha},
            **shared,
        )

    def numbers(self, lr: Any, t: Any, alpha: Any, eps: Any, momentum: Any) -> dict[str, Any]:
        scale = sqrt(1.0 - alpha)
        return {"rate": lr / scale, "scaled_eps": eps / scale}

    def update(
        self,
        p: Any,
        g: Any,
        square: Any,
        alpha: Any,
        momentum: Any,
        rate: Any,
        scaled_eps: Any,
        velocity: Any = None,
    ) -> dict[str, Any]:
        square = square * alpha + g * g
        direction = g / (formula.sqrt(square) + scaled_eps)
        if not self.momentum:
            return {"square": square, "p": p - direction * rate}
        velocity = velocity * momentum + direction
        return {"square": square, "velocity": velocity, "p": p - velocity * rate}
