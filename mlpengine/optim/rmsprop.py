"""RMSprop."""

from typing import Any, Unpack

from mlpengine import formula
from mlpengine.optim._checks import number
from mlpengine.optim._optimizer import HasParams, Optimizer, SharedOptions
from mlpengine.optim.numbers import sqrt


class RmsProp(Optimizer):
    """Gradients over their running root mean square: params -= lr * grads / (sqrt(v) + eps).

    v = alpha * v + (1 - alpha) * grads**2 starts at zero, without bias correction.  With momentum:
    velocity = momentum * velocity + grads / (sqrt(v) + eps), params -= lr * velocity.  As in
    PyTorch, `eps` is outside the root.

    Moments: ``square`` = v / (1 - alpha) and, if there is momentum, ``velocity`` times
    sqrt(1 - alpha).
    Numbers: `rate` = lr / sqrt(1 - alpha), which undoes both scales, and `scaled_eps`.
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
        **shared: Unpack[SharedOptions],
    ) -> None:
        self.alpha = number("RmsProp", "alpha", alpha, minimum=0.0, below=1.0)
        self.eps = number("RmsProp", "eps", eps, minimum=0.0)
        self.momentum = number("RmsProp", "momentum", momentum, minimum=0.0, below=1.0)
        super().__init__(
            model,
            lr=lr,
            weight_decay=weight_decay,
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
