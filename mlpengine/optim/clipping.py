"""Gradient clipping: rules that scale a flat gradient vector in place.

A rule is made from its settings, bound once to parameters and gradients, and applied at each step::

    clip = NormClip(1.0)
    apply = clip.bind(model.params, grads)
    before, after = apply()

`apply` returns the global norm before and after.  If the norm is not finite the gradients are not
changed, and the caller decides what to do with the step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import isfinite, sqrt
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np

from mlpengine.backends.update_rules import Clipping
from mlpengine.core.buffers import Uncopyable
from mlpengine.core.errors import CheckpointError, ShapeError
from mlpengine.core.fields import POSITIVE, Given, Limits, Positive, check_options
from mlpengine.core.spec import Array, Call, call
from mlpengine.core.wording import plural
from mlpengine.optim._state import State, matching_state
from mlpengine.tape.flat import Flat
from mlpengine.tape.norm import GlobalNorm, clip_coefficient

Apply: TypeAlias = Callable[[], tuple[float, float]]
"""A function that clips and returns the norms before and after."""

CLIPS: dict[str, type["Clip"]] = {}
"""The clipping rules by the names that configs give them."""


class FlatViews(Protocol):
    """Gradients: a flat vector and its views by the parameters' names."""

    @property
    def flat(self) -> Array: ...

    @property
    def views(self) -> Mapping[str, Array]: ...


class Clip(ABC):
    """Base class of the clipping rules, dataclasses of their settings."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls, *, name: str = "", **kwargs: object) -> None:
        """Register the class under the name that configs give it, if it has one."""
        super().__init_subclass__(**kwargs)
        if name:
            cls.name, CLIPS[name] = name, cls

    def __post_init__(self) -> None:
        check_options(self)

    def fresh(self) -> Self:
        """Return the same rule without what it remembers, for another network."""
        return replace(self)  # type: ignore[type-var]

    @abstractmethod
    def bind(self, params: Flat, grads: FlatViews) -> Apply:
        """Return a function that clips `grads` in place and allocates no memory that grows."""

    def describe(self, params: Flat) -> Clipping | None:
        """Return the rule for gradients laid out as `params`, for backends other than NumPy.

        None stands for a rule that only NumPy has; then no step is compiled as a whole.
        """
        return None

    def state_dict(self) -> State:
        """Return copies of the values that the next step depends on; most rules have no state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the state that `state_dict` returned; raise CheckpointError if it does not fit."""
        matching_state(type(self).__name__, self.state_dict(), state)


def clip_rule(clip_norm: float | Clip | None, where: str = "clip_norm") -> Clip | None:
    """Return the rule for a largest global norm; a rule is returned as it is, None for none.

    Raises: UsageError, led by `where`, for a norm that is no number above zero.
    """
    if clip_norm is None or isinstance(clip_norm, Clip):
        return clip_norm
    return NormClip(POSITIVE.check(where, clip_norm))


def bind_clip(clip: Clip | None, params: Flat, grads: FlatViews) -> Apply:
    """Return a function that clips the gradients and returns their norm before and after."""
    if clip is not None:
        return clip.bind(params, grads)
    norm = GlobalNorm(grads.flat)

    def measure() -> tuple[float, float]:
        value = norm()
        return value, value

    return measure


class _ScaledByNorm(Clip):
    """Scale the whole vector by a coefficient that depends on its norm alone."""

    def bind(self, params: Flat, grads: FlatViews) -> Apply:
        """Return a function that clips `grads` in place; `params` are not read."""
        norm, factor = GlobalNorm(grads.flat), np.array(1.0, grads.flat.dtype)
        scale = call(np.multiply, grads.flat, factor, grads.flat)

        def apply() -> tuple[float, float]:
            before = norm()
            if not isfinite(before):
                return before, before
            coefficient = self._coefficient(before)
            if coefficient >= 1.0:
                return before, before
            factor[()] = coefficient
            scale()
            return before, before * coefficient

        return apply

    @abstractmethod
    def _coefficient(self, norm: float) -> float:
        """Return the factor for gradients of this norm."""


@dataclass(frozen=True)
class NormClip(_ScaledByNorm, name="norm"):
    """Clip by global norm: grads *= min(1, max_norm / (norm + 1e-6)).

    Source: Pascanu et al. 2013, arXiv 1211.5063, algorithm 1; the 1e-6 is PyTorch's.
    """

    max_norm: Annotated[Positive, "Largest global norm."]

    def describe(self, params: Flat) -> Clipping:
        return Clipping("norm", (self.max_norm,))

    def _coefficient(self, norm: float) -> float:
        return clip_coefficient(norm, self.max_norm)


@dataclass(frozen=True)
class PercentileClip(_ScaledByNorm, name="percentile"):
    """Clip by global norm, to a percentile of the norms so far (AutoClip).

    It is the percentile of the last `history` norms before clipping, including the norm of this
    step, with linear interpolation as in `numpy.percentile`.

    State: ``norms``, oldest first.

    Source: Seetharaman et al. 2020, arXiv 2007.14469, section 3, which uses all norms.
    """

    percentile: Annotated[
        float, Limits(at_least=0, at_most=100), "Largest norm, as a percentile of recent norms."
    ] = 90.0
    history: Annotated[
        int,
        Limits(at_least=1, at_most=1_000_000, whole=True),
        "Norms that are remembered, 16 bytes each.",
    ] = 1000
    _norms: Array = field(init=False, repr=False, compare=False)  # a ring
    _sorted: Array = field(init=False, repr=False, compare=False)
    _counts: Array = field(init=False, repr=False, compare=False)  # of norms; place of the oldest

    def __post_init__(self) -> None:
        super().__post_init__()
        memory = {"_norms": np.zeros(self.history), "_sorted": np.zeros(self.history)}
        vars(self).update(memory, _counts=np.zeros(2, np.int64))

    def describe(self, params: Flat) -> Clipping:
        """Return the rule for backends other than NumPy; they continue its history."""
        arrays = {"norms": self._norms, "sorted": self._sorted, "counts": self._counts}
        memory = {f"clip_{name}": array for name, array in arrays.items()}
        return Clipping("percentile", (self.percentile,), memory)

    def state_dict(self) -> State:
        """Return the last `history` norms, oldest first."""
        n, oldest = self._counts.tolist()
        return {"norms": np.roll(self._norms, -oldest)[:n]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        norms = state.get("norms")
        kept = np.zeros(len(norms) if isinstance(norms, np.ndarray) and norms.ndim else 0)
        matching_state("PercentileClip", {"norms": kept}, state)
        values = state["norms"]
        n = len(values)
        if n > self.history or not all(isfinite(v) and v >= 0.0 for v in values.tolist()):
            raise CheckpointError(
                "PercentileClip: saved 'norms' must be at most "
                f"{plural(self.history, 'finite number')} of at least 0 (got {plural(n, 'number')})"
            )
        self._counts[:] = n, 0
        self._norms[:n] = values
        self._sorted[:n] = np.sort(values)

    def __getstate__(self) -> dict[str, Any]:
        memory = ("_norms", "_sorted", "_counts")
        return {**vars(self), **{name: getattr(self, name).copy() for name in memory}}

    def _coefficient(self, norm: float) -> float:
        n, oldest = self._counts.tolist()
        place = (oldest + n) % self.history
        if n == self.history:
            n -= 1
            i = int(self._sorted.searchsorted(self._norms[place]))
            self._sorted[i:n] = self._sorted[i + 1 :]
            self._counts[1] = (place + 1) % self.history
        i = int(self._sorted[:n].searchsorted(norm, "right"))
        self._sorted[i + 1 : n + 1] = self._sorted[i:n]
        self._sorted[i] = self._norms[place] = norm
        self._counts[0] = n + 1
        limit = self._limit(n + 1)
        return limit / norm if norm > limit else 1.0

    def _limit(self, n: int) -> float:
        """Return the percentile of the last `n` norms."""
        place = (n - 1) * self.percentile / 100.0
        low = int(place)
        below, above = (self._sorted.item(i) for i in (low, min(low + 1, n - 1)))
        return float(below + (place - low) * (above - below))


@dataclass(frozen=True)
class AdaptiveClip(Clip, name="adaptive"):
    """Clip each unit's gradient by the ratio to the unit's weights (adaptive gradient clipping).

    For each unit, with weights w and gradient g: g *= min(1, ratio * max(norm(w), eps) / norm(g)).
    A unit is a row of a weight (one output, its fan-in); a bias, or anything of one dimension, is
    one unit, as in the authors' code.

    Source: Brock et al. 2021, arXiv 2102.06171, equation 3.
    """

    ratio: Annotated[
        Positive, "Largest norm of a unit's gradient, as a share of the norm of its weights."
    ] = 0.01
    eps: Annotated[Positive, Given, "Smallest norm of a unit's weights that counts."] = 1e-3

    def describe(self, params: Flat) -> Clipping:
        shapes = [_units(view).shape for view in params.views.values()]
        starts = accumulate((count * length for count, length in shapes), initial=0)
        units = [(start, *shape) for start, shape in zip(starts, shapes, strict=False)]
        return Clipping("unit", (self.ratio, self.eps), {"clip_units": np.array(units).reshape(-1)})

    def bind(self, params: Flat, grads: FlatViews) -> Apply:
        """Return a function that clips each unit of `grads` by the weights in `params`.

        Raises: ShapeError unless the views have the same names and shapes.
        """
        shapes = [{name: v.shape for name, v in flat.views.items()} for flat in (params, grads)]
        if shapes[0] != shapes[1]:
            raise ShapeError(
                f"AdaptiveClip: gradients must have the parameters' views "
                f"(parameters {shapes[0]}, gradients {shapes[1]})"
            )
        return _BoundAdaptiveClip(self, params, grads)


class _BoundAdaptiveClip(Uncopyable):
    """The calls of `AdaptiveClip`; the norms of all units are one vector."""

    def __init__(self, clip: AdaptiveClip, params: Flat, grads: FlatViews) -> None:
        self._clip = clip
        self._norm = GlobalNorm(grads.flat)
        self._pairs = [(_units(v), _units(grads.views[name])) for name, v in params.views.items()]
        dtype, ends = grads.flat.dtype, [0, *accumulate(len(units) for units, _ in self._pairs)]
        allowed, factors = np.zeros(ends[-1], dtype), np.zeros(ends[-1], dtype)
        self._factors = factors
        self._measure: list[Call] = []
        self._apply: list[Call] = []
        parts = [slice(start, stop) for start, stop in pairwise(ends)]
        for (weights, gradients), units in zip(self._pairs, parts, strict=True):
            self._measure.append(call(np.vecdot, weights, weights, allowed[units]))
            self._measure.append(call(np.vecdot, gradients, gradients, factors[units]))
            column = factors[units, np.newaxis]
            self._apply.append(call(np.multiply, gradients, column, gradients))
        info = np.finfo(dtype)
        # Squares of gradients overflow above the first number and underflow below the second.
        self._largest, smallest = sqrt(float(info.max)), np.array(sqrt(float(info.tiny)), dtype)
        ratio, eps, one = (np.array(value, dtype) for value in (clip.ratio, clip.eps, 1.0))
        self._measure += [
            call(np.sqrt, allowed, allowed),
            call(np.maximum, allowed, eps, out=allowed),
            call(np.multiply, allowed, ratio, allowed),
            call(np.sqrt, factors, factors),
            call(np.maximum, factors, smallest, out=factors),
            call(np.divide, allowed, factors, factors),
            call(np.minimum, factors, one, out=factors),
        ]

    def __call__(self) -> tuple[float, float]:
        """Clip, and return the norms before and after."""
        before = self._norm()
        if not isfinite(before):
            return before, before
        if before < self._largest / 2.0:
            for run in self._measure:
                run()
        else:
            self._measure_carefully()
        if np.min(self._factors, initial=1.0) >= 1.0:
            return before, before
        for run in self._apply:
            run()
        return before, self._norm()

    def _measure_carefully(self) -> None:
        """Set the factors unit by unit, slowly, for gradients with squares that overflow."""
        rows = (row for pair in self._pairs for row in zip(*pair, strict=True))
        for unit, (weights, gradient) in enumerate(rows):
            allowed = self._clip.ratio * max(self._clip.eps, GlobalNorm(weights)())
            self._factors[unit] = allowed / max(allowed, GlobalNorm(gradient)())


def _units(view: Array) -> Array:
    """Return a parameter or its gradient as (units, entries of a unit)."""
    return view.reshape(len(view) if view.ndim >= 2 else 1, -1)
