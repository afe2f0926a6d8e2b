"""The base class of all optimizers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, TypedDict, cast

import numpy as np

from mlpengine.backends.update_rules import Update
from mlpengine.core.buffers import aligned, quiet_runner, replay, zeros
from mlpengine.core.errors import CheckpointError, DtypeError, ShapeError, UsageError
from mlpengine.core.fields import Fraction, Given, Limits, NonNegative, options_of
from mlpengine.core.spec import Array, Call, Spec, call
from mlpengine.core.wording import plural, quoted
from mlpengine.optim._denormals import (
    flush_interval,
    smallest_square,
    threshold,
)
from mlpengine.optim._state import State, matching_state
from mlpengine.optim.numpy_update import NumpyUpdate
from mlpengine.optim.parameter_groups import Group, find_ranges
from mlpengine.optim.schedules import PlateauSchedule, ScheduleLike, factor_of, factors_of
from mlpengine.optim.update_formulas import update_formulas
from mlpengine.tape.flat import Flat

OPTIMIZERS: dict[str, type["Optimizer"]] = {}
"""The optimizers by their names in configs and estimators."""

BOUND_AT_ONCE = 8
"""Maximum number of `Gradients` with cached calls; the oldest are dropped first."""


_BOUND = ("_bound", "_formulas", "_numpy", "moments")
"""Attributes that are not copied; a copy makes its own."""


LearningRate: TypeAlias = Annotated[NonNegative, "Learning rate."]
WeightDecay: TypeAlias = Annotated[
    NonNegative, "Weight decay: each step multiplies the weights by 1 - lr * weight_decay."
]
Betas: TypeAlias = Annotated[tuple[Fraction, Fraction], "Decay of the first and second moment."]
"""`LearningRate`, `WeightDecay` and `Betas` are types of options of several optimizers."""

STEP_LIMITS = Limits(at_least=0, whole=True)


class HasParams(Protocol):
    """A model: an object with parameters in one flat vector."""

    @property
    def params(self) -> Flat: ...


class HasFlat(Protocol):
    """Gradients: an object with one vector, in the order of the parameters."""

    @property
    def flat(self) -> Array: ...


class SharedOptions(TypedDict, total=False):
    """Types of the options that all optimizers have."""

    average: float | None
    decay_biases: bool
    schedule: ScheduleLike | None
    groups: Mapping[str, Group] | None


class DecayOptions(SharedOptions, total=False):
    """Types of the options that all optimizers with weight decay have."""

    weight_decay: float


class Optimizer(ABC):
    """Base class: updates a flat parameter vector from a flat gradient vector.

    A subclass defines its hyper-parameters, its moments, and two formulas::

        class Momentum(Optimizer):
            def __init__(self, model, *, lr: NonNegative = 0.01, momentum: Fraction = 0.9):
                momentum = self.fit("momentum", momentum)
                super().__init__(
                    model, lr=lr, hyper={"momentum": momentum}, signed={"velocity": momentum}
                )

            def numbers(self, lr, t, momentum):
                return {"rate": lr}

            def update(self, p, g, velocity, momentum, rate):
                velocity = velocity * momentum + g
                return {"velocity": velocity, "p": p - velocity * rate}

    The NumPy calls and the compiled step are made from these formulas.  For all optimizers:

    * The first `step` with a `Gradients` object binds its calls, and later steps replay them.  They
      allocate nothing.  No step writes to the gradients.
    * The learning rate of a step is `lr` times ``schedule(steps)``, with ``schedule(0)`` at the
      first step.
    * Weight decay is decoupled from the gradient, as in PyTorch's AdamW.  Before the update, a
      weight is multiplied by ``1 - lr * weight_decay``, with the scheduled learning rate.  Weights
      are the views with two or more dimensions; biases and scales decay only with
      ``decay_biases=True`` or by `groups`.
      Source: Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2.
    * With `average`, ``moments["average"]`` is an exponential moving average of the parameters,
      from their initial values: average * moment + (1 - average) * parameters at each step.
      Averaged parameters often predict better.  They are also used as target networks.
      Source: Polyak and Juditsky 1992; Morales-Brotons et al. 2024, arXiv 2411.18704.
    * Frozen parameters (`Flat.frozen`) are neither updated nor decayed.
    * Moments are kept above the denormal numbers (see `mlpengine.optim._denormals`).

    Hyper-parameters are attributes.  Only `lr` may be set after construction.

    For backends: `moments` holds vectors in the order of the parameters; each class documents their
    scale.  `advance` counts a step and sets the 0-d arrays of constants that the calls read.

    Args:
        schedule: a function from the number of completed steps to a factor of `lr`.
        average: the decay of the moving average, such as 0.999; None for no average.
        hyper: hyper-parameters that the formulas read, by name.
        signed: decay per step of each moment that averages gradients, by name.
        squares: decay per step of each moment that averages squares, by name.

    Raises: UsageError for a hyper-parameter out of range or another model's parameters; ShapeError
        or DtypeError for gradients in another layout than the parameters.
    """

    __slots__ = (  # so that ``optimizer.learning_rate = 0.1`` is an error
        *("_bound", "_formulas", "_frozen", "_hyper", "_hyper_values", "_largest_lr"),
        *("_lr", "_numpy", "_signed", "_squares", "_steps", "_where"),
        *(
            "average",
            "current_lr",
            "decay_biases",
            "flush_every",
            "groups",
            "moments",
            "params",
        ),
        *("ranges", "schedule", "weight_decay"),
    )

    name: ClassVar[str] = ""

    moments: dict[str, Array]
    """Vectors (parameters,) by name.  You may read and write them between steps."""

    current_lr: float
    """Learning rate of the last update; before any update, the rate of the first update."""

    def __init_subclass__(cls, *, name: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name:
            cls.name, OPTIMIZERS[name] = name, cls

    def __init__(
        self,
        model: HasParams,
        *,
        lr: LearningRate,
        weight_decay: WeightDecay = 0.0,
        decay_biases: Annotated[bool, Given, "Whether weight decay acts on biases, too."] = False,
        schedule: Annotated[ScheduleLike | None, Given] = None,
        average: Annotated[
            Fraction | None, Given, "Decay of the average of the parameters."
        ] = None,
        groups: Annotated[
            Mapping[str, Group] | None,
            "Factors for groups of parameters, such as weights or biases, by name of the group.",
        ] = None,
        hyper: Annotated[Mapping[str, float] | None, Given] = None,
        signed: Annotated[Mapping[str, float] | None, Given] = None,
        squares: Annotated[Mapping[str, float] | None, Given] = None,
    ) -> None:
        self._where = type(self).__name__
        if not isinstance(getattr(model, "params", None), Flat):
            raise UsageError(
                f"{self._where}: model must be a network such as an Mlp (got {quoted(model)}); "
                f"write {self._where}(mlp, lr=0.001)"
            )
        self.params = model.params
        flat = self.params.flat
        largest = float(np.finfo(flat.dtype).max)
        limits = Limits(at_least=0, at_most=largest)
        self.weight_decay: float = limits.check(f"{self._where}: weight_decay", weight_decay)
        if not isinstance(groups, Mapping | None):
            text = f"{self._where}: groups must be by name, such as {{'weights': Group(lr=0.1)}}"
            raise UsageError(f"{text} (got {quoted(groups)})")
        self.groups = dict(groups or {})
        self.decay_biases: bool = self.fit("decay_biases", decay_biases)
        self.ranges = find_ranges(
            self._where,
            self.params,
            self.groups,
            getattr(model, "groups", {}),
            decays=bool(self.weight_decay),
            decay_biases=decay_biases,
        )
        fastest = max((run.lr * max(1.0, run.weight_decay) for run in self.ranges), default=1.0)
        self._largest_lr = largest / max(1.0, self.weight_decay) / max(1.0, fastest)
        self.lr = lr
        self.schedule = schedule
        self._steps, self.current_lr = 0, self.scheduled_lr(0)
        self.moments = {name: zeros(Spec.of(flat)) for name in (*(signed or {}), *(squares or {}))}
        for name in squares or {}:
            self.moments[name].fill(smallest_square(flat.dtype))
        self.average: float | None = self.fit("average", average)
        if average is not None:
            self.moments["average"] = aligned(flat)
        self._squares = tuple(squares or {})
        self._hyper = dict(hyper or {})
        self._frozen = self.params.frozen
        self.flush_every = flush_interval([*(signed or {}).values(), *(squares or {}).values()])
        self._bind_buffers()

    def fit(self, name: str, value: Any) -> Any:
        """Return the value of a constructor's option, converted to the option's type.

        Raises: UsageError for a value of another type or out of range.
        """
        option = next(of[name] for kind in type(self).__mro__ if name in (of := options_of(kind)))
        return option.check(f"{type(self).__name__}: {name}", value)

    def _bind_buffers(self) -> None:
        """Make the formulas and the NumPy calls."""
        self._formulas = update_formulas(self, self._hyper, self.moments, self.average)
        self._hyper_values = tuple(self._hyper.values())
        self._numpy = NumpyUpdate(self.describe_update())
        self._bound: dict[int, tuple[HasFlat, Callable[[], None]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes except bound calls; even a shallow copy has its own moments."""
        own, slots = cast("tuple[dict[str, Any] | None, dict[str, Any]]", super().__getstate__())
        state = {k: v for k, v in {**slots, **(own or {})}.items() if k not in _BOUND}
        copied = {k: v.copy() for k, v in state.items() if isinstance(v, np.ndarray)}
        moments = {name: moment.copy() for name, moment in self.moments.items()}
        return {**state, **copied, "moments": moments}

    def __setstate__(self, state: dict[str, Any]) -> None:
        moments = state.pop("moments")
        for name, value in state.items():
            setattr(self, name, value)
        self.moments = {name: aligned(moment) for name, moment in moments.items()}
        self._bind_buffers()

    @property
    def steps(self) -> int:
        """Number of updates so far."""
        return self._steps

    @steps.setter
    def steps(self, value: int) -> None:
        self._steps = STEP_LIMITS.check(f"{self._where}: steps", value)

    @property
    def lr(self) -> float:
        """Learning rate, at least 0, before multiplication by the schedule's factor."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        if type(value) is not float or not 0.0 <= value <= self._largest_lr:
            if callable(value):
                raise UsageError(
                    f"{self._where}: lr must be a number (got {quoted(value)}); write "
                    f"{self._where}(mlp, lr=0.001, schedule={quoted(value)})"
                )
            limits = Limits(at_least=0, at_most=self._largest_lr)
            value = limits.check(f"{self._where}: lr", value)
        self._lr: float = value

    def scheduled_lr(self, step: int) -> float:
        """Return the learning rate after `step` steps.

        Raises: UsageError if the rate is negative, or too large for the parameters' dtype.
        """
        if self.schedule is None:
            return self._lr
        if not callable(self.schedule):
            raise UsageError(
                f"{self._where}: schedule must be callable (got {self.schedule!r}), such as "
                f"CosineSchedule(1000) for the factors of 1000 steps"
            )
        factor = factor_of(self.schedule, step)
        lr = self._lr * factor
        if not 0.0 <= lr <= self._largest_lr:
            raise UsageError(
                f"{self._where}: lr times schedule must lie in 0 to {self._largest_lr:g} "
                f"(lr {self._lr:g}, factor {factor:g} after {plural(step, 'step')})"
            )
        return lr

    def next_rates(self, count: int) -> Array | float:
        """Return the learning rates of the next `count` steps, (count,) of float64.

        Without a schedule, return a number: the rate of every step.
        Raises: UsageError as in `scheduled_lr`.
        """
        if self.schedule is None:
            return self._lr
        steps = range(self.steps, self.steps + count)
        rates: Array = np.array([*factors_of(self.schedule, steps)], np.float64) * self._lr
        if not (rates.min() >= 0.0 and rates.max() <= self._largest_lr):
            wrong = map(self.scheduled_lr, steps)  # raises for the first invalid rate
            rates = np.array([*wrong], np.float64)
        return rates

    def step(self, model: HasParams, grads: HasFlat) -> None:
        """Update the parameters of `model` with the gradients ``grads.flat``."""
        try:
            own = model.params is self.params
        except AttributeError:
            own = False
        if not own:
            raise UsageError(
                f"{self._where}: step needs the model it was made for (got {quoted(model)}); "
                "write optimizer.step(mlp, grads)"
            )
        (self._bound.get(id(grads)) or self._bind(grads))[1]()

    def calls(self, grads_flat: Array) -> list[Call]:
        """Return the calls that make one step with the gradients `grads_flat`, in order."""
        flat = self.params.flat
        if grads_flat.shape != flat.shape:
            raise ShapeError(
                f"{self._where}: gradients must have the parameters' shape "
                f"(gradients {grads_flat.shape}, parameters {flat.shape})"
            )
        if grads_flat.dtype != flat.dtype:
            raise DtypeError(
                f"{self._where}: gradients must have the parameters' dtype "
                f"(gradients {grads_flat.dtype}, parameters {flat.dtype})"
            )
        if self.params.frozen != self._frozen:
            raise UsageError(f"{self._where}: must be made after layers are frozen")
        return [self.advance, *self._numpy.calls(grads_flat)]

    def advance(self) -> None:
        """Flush the moments if it is time, count a step, and set the constants of this step."""
        steps, numpy = self._steps, self._numpy
        if steps and steps % self.flush_every == 0:
            for run in numpy.flushes:
                run()
        lr = self._lr if self.schedule is None else self.scheduled_lr(steps)
        number = steps + 1
        self._steps, self.current_lr = number, lr
        for (factor, share), keep in numpy.keeps.items():
            keep[()] = 1.0 - lr * factor * (self.weight_decay * share)
        for factor, cells in numpy.cells:
            numbers = self.numbers(lr * factor, number, *self._hyper_values)
            for name, cell in cells:
                cell[()] = numbers[name]

    def count(self, lr: float, steps: int = 1) -> None:
        """Add `steps`, which another backend made, to the count; the last one had the rate `lr`."""
        self.current_lr = lr
        self._steps += steps

    @abstractmethod
    def numbers(self, *lr_and_t: Any, **named: Any) -> dict[str, Any]:
        """Return the scalars that `update` reads, such as a scaled learning rate, by name.

        A subclass's method has these parameters, in this order: ``lr``, the step's learning rate;
        ``t``, the step's number from 1; the names in `hyper`.  The method may use arithmetic, and
        `sqrt` and `power` of `mlpengine.optim.scalar_functions`.  It is called with floats at each
        step, and once with variables (`mlpengine.formula.Expr`) to generate C.
        """

    @abstractmethod
    def update(self, *vectors: Any, **named: Any) -> dict[str, Any]:
        """Return formulas for the new moments and the new parameters ``p``, by name.

        The arguments of a subclass's method are the names that its formulas read: ``p``, the
        gradient ``g``, old moments, hyper-parameters, and names from `numbers`.  An argument with a
        default may be missing, such as a moment that only some settings need.
        """

    def state_dict(self) -> State:
        """Return copies of steps, learning rates and moments, and a plateau schedule's state."""
        state: State = {"steps": self.steps, "lr": self.lr, "current_lr": self.current_lr}
        state |= {f"moments.{name}": moment.copy() for name, moment in self.moments.items()}
        if isinstance(self.schedule, PlateauSchedule):
            state |= {f"schedule.{k}": v for k, v in self.schedule.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a `state_dict`; after an error, nothing is changed.

        Raises: CheckpointError for a missing or unknown name, or a wrong shape, dtype or number.
        """
        state = matching_state(self._where, self.state_dict(), state)
        if not 0.0 <= state["lr"] <= self._largest_lr:
            raise CheckpointError(
                f"{self._where}: saved 'lr' must lie in 0 to {self._largest_lr:g} "
                f"(got {state['lr']})"
            )
        self.lr = float(state["lr"])
        self.steps = int(state["steps"])
        self.current_lr = float(state["current_lr"])
        for name, moment in self.moments.items():
            moment[...] = state[f"moments.{name}"]
        if isinstance(self.schedule, PlateauSchedule):
            names = self.schedule.state_dict()
            self.schedule.load_state_dict({name: state[f"schedule.{name}"] for name in names})

    def __repr__(self) -> str:
        size = plural(len(self.params), "parameter")
        return f"{self._where}(lr={self.lr:g}, steps={self.steps}, {size})"

    def describe_update(self) -> Update:
        """Return formulas, vectors and settings of the update, for the backends."""
        dtype = self.params.flat.dtype
        return Update(
            *self._formulas,
            self.params.flat,
            self.moments,
            self._hyper,
            self.weight_decay,
            self.ranges,
            self.flush_every,
            floors={name: smallest_square(dtype) for name in self._squares},
            threshold=threshold(dtype),
        )

    def _bind(self, grads: HasFlat) -> tuple[HasFlat, Callable[[], None]]:
        """Bind the step for `grads`.  The cache holds `grads`, so that no object reuses its id."""
        if not isinstance(getattr(grads, "flat", None), np.ndarray):
            raise UsageError(
                f"{self._where}: step needs gradients such as mlp.gradients(batch_size=32) "
                f"(got {quoted(grads)}); write optimizer.step(mlp, grads)"
            )
        if len(self._bound) == BOUND_AT_ONCE:
            del self._bound[next(iter(self._bound))]
        self._bound[id(grads)] = grads, call(quiet_runner(), replay, self.calls(grads.flat))
        return self._bound[id(grads)]
