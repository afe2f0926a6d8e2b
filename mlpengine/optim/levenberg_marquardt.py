"""Levenberg-Marquardt steps for the mean squared error, with or without regularization."""

from math import inf, isfinite
from typing import Annotated

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Positive
from mlpengine.core.spec import Array
from mlpengine.optim._optimizer import HasParams
from mlpengine.optim.full_batch import FullBatch, NoSchedule, Objective

MAX_PARAMETERS = 5_000
"""Maximum number of trained parameters n; the three float64 matrices (n, n) take 600 MB."""

LARGEST_DAMPING = 1e12
"""Maximum damping.  If no step lowers the loss even then, the parameters stay unchanged."""

LEAST_CURVATURE = 0.1
"""Minimum entry of D (see `LevenbergMarquardt`), as a share of the largest curvature."""

FREE_STEPS = 5
"""Number of initial steps without decay; decay could shrink the initial weights to 0."""

EFFECTIVE_STEPS = 4
"""Number of steps after which the number of effective parameters is computed again.

It takes a third of a step's time.  Computing it at every step did not improve predictions.
"""

FIRST_GROWTH = 2.0
"""Factor of the damping after the first rejected change; each further rejection doubles it."""

DIFFERENCE, MAX_ACCELERATION = 0.1, 0.75
"""Constants of the geodesic acceleration (`a` in `LevenbergMarquardt`).

The acceleration is a finite difference; it needs the outputs at weights + `DIFFERENCE` * `d`.  If
it is longer than `MAX_ACCELERATION` times `d`, it is not used.  A step takes up to 10 % longer.
"""


class LevenbergMarquardt(FullBatch, name="levenberg_marquardt"):
    """Levenberg-Marquardt: solves (H + damping D) d = -gradient, then changes the weights by d.

    H is the Gauss-Newton matrix.  D is diagonal: the curvature of each parameter, but at least a
    tenth of the largest curvature.  The change is d + a / 2 unless `a` is long, where `a` is the
    geodesic acceleration: the outputs then move nearly on a straight line.

    A change that lowers the loss is accepted.  The damping is then multiplied by a factor from 1/3
    to 2: max(1/3, 1 - (2 gain - 1)^3), with gain = decrease of the loss / decrease of the quadratic
    model.  After a rejected change, the step is repeated with more damping.

    The loss must be ``mse``, and each batch must have all rows.  At most 5,000 parameters are
    trained, because memory grows with the square of their number, and time with the cube.
    For results that are precise to the last digits, use a float64 network.

    Source: Levenberg 1944; Marquardt 1963 (D); damping of Nielsen 1999 (IMM-REP-1999-05, eq. 2.21);
    geodesic acceleration of Transtrum and Sethna 2012 (arXiv 1201.5885, sections 3 and 5).
    """

    __slots__ = ("_work", "damping")

    needs_rows = True

    def __init__(
        self,
        model: HasParams,
        *,
        damping: Annotated[Positive, "Initial damping, as a share of the curvature."] = 1e-3,
        schedule: NoSchedule = None,
    ) -> None:
        self.damping: float = self.fit("damping", damping)
        numbers = {"damping": 0.0, "growth": FIRST_GROWTH, "decay": 0.0, "effective": 0.0}
        super().__init__(model, schedule=schedule, numbers=numbers)
        count = self.trained
        if count > MAX_PARAMETERS:
            raise UsageError(
                f"{self._where}: takes up to {MAX_PARAMETERS:,} trained parameters (got {count:,}, "
                f"whose matrix takes {8 * count**2 / 1e9:.1f} GB); use lbfgs"
            )
        self._work: _Work | None = None
        self.numbers_of_state["effective"] = float(count)

    @property
    def decay(self) -> float:
        """The objective is loss + decay * (sum of squared weights); `decay` is 0 by default.

        You may set it between steps.  `state_dict` contains it.
        """
        return self.numbers_of_state["decay"]

    @decay.setter
    def decay(self, value: float) -> None:
        if not 0 <= value < inf:
            raise UsageError(f"{self._where}: decay must be at least 0 and finite (got {value})")
        self.numbers_of_state["decay"] = value

    def minimize(self, problem: Objective) -> tuple[float, float]:
        loss = problem.evaluate()
        work = self._work = self._work or _Work(self.trained)
        self._take(problem.gradient, work.gradient)
        norm = float(np.sqrt(work.gradient @ work.gradient))
        if not isfinite(loss + norm):
            return loss, norm
        problem.curvature(work.curvature)
        self._take(self.params.flat, work.weights)
        state = self.numbers_of_state
        decay = self._decay(loss, problem.count, work)
        squares = float(work.weights @ work.weights)
        np.multiply(work.weights, 2 * decay, work.change)
        work.gradient += work.change
        state["damping"] = state["damping"] or self.damping
        work.scale(2 * decay)
        before = loss + decay * squares
        while state["damping"] <= LARGEST_DAMPING:
            fall = work.solve(2 * decay, state["damping"])
            self._accelerate(problem, work)
            np.add(work.weights, work.change, work.moved)
            self._put(work.moved)
            after = problem.loss() + decay * float(work.moved @ work.moved)
            gain = (before - after) / fall if isfinite(after) and fall > 0 else -inf
            if gain > 0:
                state["damping"] *= max(1 / 3, 1 - (2 * gain - 1) ** 3)
                state["growth"] = FIRST_GROWTH
                return loss, norm
            state["damping"] *= state["growth"]
            state["growth"] *= 2
        self._put(work.weights)
        state["damping"], state["growth"] = LARGEST_DAMPING, FIRST_GROWTH
        return loss, norm

    def _accelerate(self, problem: Objective, work: "_Work") -> None:
        np.multiply(work.change, DIFFERENCE, work.moved)
        work.moved += work.weights
        self._put(work.moved)
        problem.use_outputs_as_targets()
        self._put(work.weights)
        problem.evaluate()
        problem.restore_targets()
        self._take(problem.gradient, work.moved)
        work.accelerate()

    def _decay(self, loss: float, count: int, work: "_Work") -> float:
        """Return the factor of the sum of squared weights in the objective."""
        return self.numbers_of_state["decay"]


class BayesianRegularization(LevenbergMarquardt, name="bayesian"):
    """Levenberg-Marquardt with a weight decay that the data determine at each step.

    The objective is loss + decay * squares, where `squares` is the sum of squared weights.  If
    weights and errors have normal distributions, the most likely decay is
    loss / squares * effective / (count - effective), where `loss` is the mean of the squared
    errors, and `count` is their number.  `effective` is the number of parameters that the data
    determine: the sum of h / (h + 2 decay) over the eigenvalues h of the Gauss-Newton matrix,
    computed at every fourth step.  The first five steps have no decay.  Validation rows are not
    needed.

    Source: MacKay 1992, Neural Computation 4(3), eq. 4.7; Foresee and Hagan 1997.
    """

    __slots__ = ()

    @property
    def effective_parameters(self) -> float:
        """Number of parameters that the data determine, when it was last computed."""
        return self.numbers_of_state["effective"]

    def _decay(self, loss: float, count: int, work: "_Work") -> float:
        state, squares = self.numbers_of_state, float(work.weights @ work.weights)
        if self.steps < FREE_STEPS:
            return 0.0
        if self.steps == FREE_STEPS:
            state["effective"] = min(self.trained, count / 2)
        elif self.steps % EFFECTIVE_STEPS == 0:
            eigenvalues = np.linalg.eigvalsh(work.curvature).clip(0.0)
            # after an exact fit, decay is 0, and eigenvalues may be 0
            shifted = np.maximum(eigenvalues + 2 * state["decay"], 1e-300)
            state["effective"] = float((eigenvalues / shifted).sum())
        free = max(count - state["effective"], 1e-3 * count)
        state["decay"] = loss * state["effective"] / (max(squares, 1e-300) * free)
        return state["decay"]


class _Work:
    """The buffers of a step, in float64."""

    def __init__(self, count: int) -> None:
        self.curvature, self.damped = np.zeros((2, count, count))
        self._diagonal = self.damped.reshape(-1)[:: count + 1]
        self.gradient, self.weights, self.change, self.moved = np.zeros((4, count))
        self.scales, self._shift = np.zeros((2, count))

    def scale(self, decay: float) -> None:
        """Write D, the diagonal that the damping multiplies."""
        np.add(self.curvature.diagonal(), decay, self.scales)
        np.maximum(self.scales, LEAST_CURVATURE * self.scales.max(), out=self.scales)

    def solve(self, decay: float, damping: float) -> float:
        """Write the solution of (curvature + decay I + damping D) change = -gradient.

        Return the decrease of the quadratic model along this change.
        """
        np.multiply(self.scales, damping, self._shift)
        self._shift += decay
        np.copyto(self.damped, self.curvature)
        self._diagonal += self._shift
        try:
            self.change[...] = np.linalg.solve(self.damped, -self.gradient)
        except np.linalg.LinAlgError:  # singular: step along the gradient
            np.divide(self.gradient, self._shift, self.change)
            np.negative(self.change, self.change)
        # decrease of the model: (damping change' D change - gradient' change) / 2
        np.multiply(self.scales, self.change, self._shift)
        self._shift *= damping
        self._shift -= self.gradient
        step: Array = self.change
        return float(step @ self._shift) / 2

    def accelerate(self) -> None:
        """Add half the geodesic acceleration to `change` unless it is long in the norm of D.

        On entry, `moved` is the gradient of the loss at `weights`, with the outputs at weights +
        `DIFFERENCE` * change as targets.
        """
        np.matmul(self.curvature, self.change, self._shift)
        self._shift += np.divide(self.moved, DIFFERENCE, self.moved)
        self._shift /= DIFFERENCE
        try:
            half = np.linalg.solve(self.damped, self._shift)
        except np.linalg.LinAlgError:  # `change` is along the gradient
            return
        length, straight = (float(np.sqrt(self.scales @ part**2)) for part in (half, self.change))
        if 2 * length <= MAX_ACCELERATION * straight:
            self.change += half
