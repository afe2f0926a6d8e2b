"""The base class of optimizers that use all rows at each step, such as L-BFGS."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Given
from mlpengine.core.spec import Array
from mlpengine.optim._optimizer import HasParams, Optimizer
from mlpengine.optim._state import State
from mlpengine.optim.schedules import ConstantSchedule, ScheduleLike

NoSchedule: TypeAlias = Annotated[ScheduleLike | None, Given]


class Objective(Protocol):
    """The loss of all rows as a function of the parameters; `TrainingStep` provides it.

    Attributes:
        gradient: (parameters,), written by `evaluate`; 0 for frozen parameters.
        count: number of rows * number of outputs.
    """

    gradient: Array
    count: int

    def evaluate(self) -> float:
        """Return the loss of the current parameters, and write its gradient."""
        ...

    def loss(self) -> float:
        """Return the loss of the current parameters."""
        ...

    def curvature(self, matrix: Array) -> None:
        """Write the Gauss-Newton matrix at the parameters of the last `evaluate`.

        `gradient` may be overwritten.
        Shapes: matrix (n, n), for n trained parameters, in their order.
        """
        ...

    def use_outputs_as_targets(self) -> None:
        """Replace the targets by the current outputs of the network."""
        ...

    def restore_targets(self) -> None:
        """Write the original targets back."""
        ...


class FullBatch(Optimizer):
    """Base class of optimizers that use all rows at each step; `TrainingStep` calls `minimize`.

    The step's batch size must be the number of rows.  There is no learning rate and no weight
    decay.  `step` and `calls` raise UsageError, because `minimize` computes gradients itself.

    Attributes:
        numbers_of_state: floats that are saved in `state_dict` like `moments`, by name.
    """

    __slots__ = ("_trained", "numbers_of_state")

    needs_rows: ClassVar[bool] = False
    """Whether `minimize` calls `Objective.curvature`; this needs the loss ``mse``."""

    def __init__(
        self,
        model: HasParams,
        *,
        schedule: NoSchedule = None,
        numbers: Annotated[Mapping[str, float] | None, Given] = None,
        moments: Annotated[tuple[str, ...], Given] = (),
    ) -> None:
        if not isinstance(schedule, ConstantSchedule | None):
            raise UsageError(
                f"{type(self).__name__}: schedule must be constant, because there is no learning "
                f"rate (got {schedule!r})"
            )
        super().__init__(model, lr=1.0, signed=dict.fromkeys(moments, 0.0))
        self.numbers_of_state = dict(numbers or {})
        places = self.params.places
        self._trained = [places[name] for name in places if name not in self.params.frozen]

    @abstractmethod
    def minimize(self, problem: Objective) -> tuple[float, float]:
        """Change the parameters to lower the loss; return the old loss and the old gradient norm.

        If the loss is not finite, or if no step lowers the loss, the parameters stay unchanged.
        """

    @property
    def trained(self) -> int:
        """Number of trained parameters."""
        return sum(place.stop - place.start for place in self._trained)

    def numbers(self, lr: Any, t: Any) -> dict[str, Any]:
        return {}

    def update(self, p: Any) -> dict[str, Any]:
        return {"p": p}

    def calls(self, grads_flat: Array) -> list[Any]:
        raise UsageError(
            f"{self._where}: needs the loss of all rows; set the batch_size of TrainingStep to "
            "the number of training rows"
        )

    def state_dict(self) -> State:
        numbers = self.numbers_of_state.items()
        return super().state_dict() | {f"numbers.{name}": value for name, value in numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name in self.numbers_of_state:
            self.numbers_of_state[name] = float(state[f"numbers.{name}"])

    def _take(self, vector: Array, out: Array) -> None:
        """Copy the entries of `vector` for trained parameters into `out` (trained,)."""
        at = 0
        for place in self._trained:
            size = place.stop - place.start
            out[at : at + size] = vector[place]
            at += size

    def _put(self, values: Array) -> None:
        """Set the trained parameters to `values` (trained,)."""
        at = 0
        for place in self._trained:
            size = place.stop - place.start
            self.params.flat[place] = values[at : at + size]
            at += size
