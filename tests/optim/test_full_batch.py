"""Full-batch optimizers in training steps, compared with SciPy and scikit-learn."""

import tracemalloc
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from own_networks import make_network
from threadpoolctl import threadpool_limits

from mlpengine import Mlp, TrainingStep
from mlpengine.core.errors import DataError, NumericalError, UsageError
from mlpengine.nn import Network, Residual
from mlpengine.ops import LOSSES, MeanSquaredError
from mlpengine.optim import Adam, BayesianRegularization, Lbfgs, LevenbergMarquardt
from mlpengine.optim.lbfgs import Point, _between
from mlpengine.step.blas_threads import pinned
from mlpengine.step.full_batch_problem import BatchProblem

optimize = pytest.importorskip("scipy.optimize")

FULL_BATCH = LevenbergMarquardt, BayesianRegularization, Lbfgs


def data(rows=60, inputs=3, outputs=1, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, (rows, inputs))
    y = np.stack([np.sin(x[:, 0] * (k + 1)) + x[:, 1] * x[:, 2] for k in range(outputs)], axis=1)
    return x, y + noise * rng.standard_normal(y.shape)


def full_step(network, kind, rows, loss=None, **options):
    loss = loss or MeanSquaredError()
    return TrainingStep(network, loss, kind(network), batch_size=rows, **options)


class Shared(Network):
    """A network of one's own that embeds numbers, reads one matrix twice, and scales layer norm."""

    def __init__(self, **options):
        shapes = {"a": (4, 4), "into": (4, 1), "scale": np.ones(4), "out": (2, 4), "bias": 2}
        super().__init__(3, shapes, **options)

    def record(self, tape, x):
        p = tape.parameter
        h = x.reshape(-1, 3, 1).linear(p("into")).tanh().sum(axis=1)
        h = h + h.linear(p("a")).tanh()
        h = tape.layer("twice", (h.linear(p("a"))).layer_norm(p("scale")))
        return h.linear(p("out"), p("bias"))


NETWORKS = {
    "one layer": lambda: Mlp([3, 5, 1], activation="tanh", seed=0, dtype="float64"),
    "two outputs": lambda: Mlp([3, 5, 4, 2], activation="tanh", seed=1, dtype="float64"),
    "linear": lambda: Mlp([3, 2], seed=2, dtype="float64"),
    "residual": lambda: Residual(3, 2, blocks=1, width=4, seed=5, dtype="float64"),
    "shared": lambda: Shared(seed=6, dtype="float64"),
}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_curvature_is_that_of_the_numeric_jacobian(make, weighted):
    network = make()
    x, y = data(23, outputs=network.predict(np.zeros((1, 3))).shape[1])
    weights = np.linspace(0.2, 2.0, 23) if weighted else np.ones(23)
    step = full_step(network, LevenbergMarquardt, 23, weighted=weighted)
    bound = step.bound(23)
    bound.write(x, y, weights if weighted else None)
    problem = BatchProblem(network, bound, needs_rows=True)
    loss = problem.evaluate()
    curvature = np.zeros((len(network.params),) * 2)
    problem.curvature(curvature)
    flat = network.params.flat.copy()

    def of(flat):
        network.params.flat[...] = flat
        return ((network.predict(x) - y) * np.sqrt(weights)[:, None]).ravel()

    jacobian = optimize.approx_fprime(flat, of, 1e-7)
    network.params.flat[...] = flat
    assert loss == pytest.approx((of(flat) ** 2).sum() / y.size)
    assert curvature == pytest.approx(2 / y.size * jacobian.T @ jacobian, abs=2e-5)


def test_frozen_layers_stay():
    x, y = data()
    for kind in FULL_BATCH:
        network = Mlp([3, 5, 4, 1], activation="tanh", seed=0, dtype="float64")
        network.freeze([0])
        frozen = network.weights[0].copy()
        step = full_step(network, kind, 60)
        losses = [step(x, y) for _ in range(20)]
        assert losses[-1] < losses[0]
        assert np.array_equal(network.weights[0], frozen)
        assert kind is Lbfgs or step.optimizer.trained == len(network.params) - 20


def errors(network, x, y):
    """Return the errors as a function of parameters, which may be complex."""

    def of(flat):
        h, at = x, 0
        for layer, w in enumerate(network.weights):
            weight, at = flat[at : at + w.size].reshape(w.shape), at + w.size
            h = (np.tanh(h) if layer else h) @ weight.T + flat[at : at + len(w)]
            at += len(w)
        return (h - y).ravel()

    return of


def jacobian(of, flat):
    """By steps along the imaginary axis: no digits are lost."""
    return np.stack([of(flat + 1e-20j * row).imag / 1e-20 for row in np.eye(flat.size)], 1)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sizes", [(2, 3, 1), (2, 4, 2), (3, 4, 2), (3, 3, 3, 2), (4, 5, 3)])
def test_levenberg_marquardt_ends_where_scipy_does(sizes, seed):
    """Near a network that made the targets there is one minimum, and both must find it."""
    rng = np.random.default_rng(seed)
    network = Mlp(sizes, activation="tanh", dtype="float64")
    flat = network.params.flat
    flat[...] = rng.uniform(0.4, 1.4, flat.size) * rng.choice([-1, 1], flat.size)
    x = rng.uniform(-3, 3, (80, sizes[0]))
    y = network.predict(x) + 0.01 * rng.standard_normal((80, sizes[-1]))
    flat += 0.02 * rng.standard_normal(flat.size)
    of = errors(network, x, y)
    limits = dict.fromkeys(("xtol", "ftol", "gtol"), 1e-15)
    best = optimize.least_squares(of, flat.copy(), partial(jacobian, of), method="lm", **limits)
    step = full_step(network, LevenbergMarquardt, 80)
    for _ in range(100):
        step(x, y)
    assert of(flat) == pytest.approx(of(best.x), abs=1e-8)
    assert (of(flat) ** 2).sum() == pytest.approx(2 * best.cost, rel=1e-12)


def model_at(of, flat, damping):
    """Return the damped system, and the change and the decrease of the loss that it predicts."""
    slopes = jacobian(of, flat)
    curvature, gradient = slopes.T @ slopes / 30, slopes.T @ of(flat) / 30
    scales = np.maximum(curvature.diagonal(), 0.1 * curvature.diagonal().max())
    damped = curvature + damping * np.diag(scales)
    change = np.linalg.solve(damped, -gradient)
    return slopes, damped, change, -change @ gradient - change @ curvature @ change / 2


def test_a_step_is_damped_by_a_tenth_of_the_largest_curvature_and_bends():
    x, y = data(noise=0.1)
    network = Mlp([3, 4, 1], activation="tanh", seed=0, dtype="float64")
    network.weights[1][...] = [0.01, 0.5, -1.0, 1.0]
    before, of = network.params.flat.copy(), errors(network, x, y)
    slopes, damped, change, _ = model_at(of, before, 1e3)
    second = (jacobian(of, before + 1e-3 * change) - slopes) @ change / 1e-3
    bend = np.linalg.solve(damped, -slopes.T @ second / 60)
    TrainingStep(network, MeanSquaredError(), LevenbergMarquardt(network, damping=1e3), 60)(x, y)
    assert network.params.flat - before - change == pytest.approx(bend, abs=1e-3 * abs(bend).max())


def test_the_damping_follows_the_gain_of_each_step():
    x, y = data(noise=0.1)
    network = Mlp([3, 4, 1], activation="tanh", seed=0, dtype="float64")
    flat, of, rejections = network.params.flat, errors(network, x, y), set()
    step, damping = full_step(network, LevenbergMarquardt, 60), 1e-3
    for _ in range(40):
        before = flat.copy()
        step(x, y)
        tried = damping * 2.0 ** np.cumsum(range(9))  # by the number of rejected changes
        falls = np.array([model_at(of, before, each)[-1] for each in tried])
        gains = ((of(before) ** 2).mean() - (of(flat) ** 2).mean()) / falls
        expected = tried * np.maximum(1 / 3, 1 - (2 * gains - 1) ** 3)
        damping = step.optimizer.numbers_of_state["damping"]
        rejections.add(count := abs(expected - damping).argmin())
        assert damping == pytest.approx(expected[count], rel=1e-6)
    assert {0, 1, 2} <= rejections


def test_a_change_to_a_loss_that_is_not_finite_is_rejected():
    network = Mlp([1, 1], dtype="float64")
    flat, losses = network.params.flat, iter([np.inf, np.nan, 0.5])
    flat[...] = 0.0
    problem = objective(flat, lambda at: 1.0, np.ones_like)
    problem.count, problem.loss = 2, losses.__next__
    problem.curvature = lambda matrix: np.copyto(matrix, np.eye(2))
    problem.use_outputs_as_targets = problem.restore_targets = lambda: None
    optimizer = LevenbergMarquardt(network, damping=1.0)
    optimizer.minimize(problem)
    assert flat == pytest.approx(-1 / (1 + 1 * 2 * 4), rel=1e-12)
    before, problem.loss = flat.copy(), lambda: np.inf
    optimizer.minimize(problem)
    assert np.array_equal(flat, before)
    assert optimizer.numbers_of_state["damping"] == 1e12


def test_bayesian_regularization_of_a_linear_network_is_bayesian_ridge():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6))
    y = x @ np.array([1.0, -2.0, 0.0, 0.0, 0.5, 0.0]) + 0.5 * rng.standard_normal(40) + 0.3
    network = Mlp([6, 1], seed=0, dtype="float64")
    step, states = full_step(network, BayesianRegularization, 40), []
    for _ in range(200):
        step(x, y[:, None])
        states.append([step.optimizer.numbers_of_state[name] for name in ("decay", "effective")])
    decays, counts = np.transpose(states)
    assert np.flatnonzero(decays).tolist() == [*range(5, 200)]
    assert (np.flatnonzero(np.diff(counts[:24])) + 1).tolist() == [8, 12, 16, 20]
    none = {"alpha_1": 0.0, "alpha_2": 0.0, "lambda_1": 0.0, "lambda_2": 0.0}
    ridge = linear_model.BayesianRidge(max_iter=5000, tol=1e-14, fit_intercept=False, **none)
    ridge.fit(np.column_stack([x, np.ones(40)]), y)
    ours = np.append(network.weights[0].ravel(), network.biases[0])
    assert ours == pytest.approx(ridge.coef_, abs=1e-6)
    optimizer = step.optimizer
    squares = 40 * step.loss_value
    assert (40 - optimizer.effective_parameters) / squares == pytest.approx(ridge.alpha_, rel=1e-4)


def counts(y):
    """Return counts with the means exp(y)."""
    return np.floor(np.exp(y))


TARGETS = {
    "mse": lambda y: y,
    "huber": lambda y: y,
    "log_cosh": lambda y: y,
    "bce_with_logits": lambda y: (y > 0) * 1.0,
    "softmax_cross_entropy": lambda y: (y > 0).sum(axis=1),
    "poisson": counts,
    "gamma": np.exp,
    "tweedie": counts,
    "negative_binomial": counts,
    "gaussian_nll": lambda y: y[:, :1],
}


@pytest.mark.parametrize("name", TARGETS)
def test_lbfgs_ends_where_scipy_does(name):
    """Of a network of one layer each of these losses has one minimum."""
    x, y = data(50, outputs=2, noise=0.5)
    target, loss = TARGETS[name](y), LOSSES[name]()
    network, other = (Mlp([3, 2 + (name[:4] == "soft")], seed=0, dtype="float64") for _ in "ab")
    step = full_step(network, Lbfgs, 50, loss)
    scratch, grads = other.scratch(50), other.gradients(50)

    def value(flat):
        other.params.flat[...] = flat
        number = loss(other.forward(x, scratch), target, grads.d_output)
        other.backward(scratch, grads)
        return number, grads.flat.copy()

    best = optimize.minimize(value, other.params.flat.copy(), jac=True, method="BFGS", tol=1e-10)
    for _ in range(200):
        step(x, target)
    assert step.loss_value == pytest.approx(best.fun, abs=1e-8)


@pytest.mark.parametrize("ends", [(-1.0, 2.0), (2.0, -1.0), (0.1, 0.4), (0.4, 0.1)])
def test_a_line_search_goes_to_the_minimum_of_a_cubic_or_to_the_middle(ends):
    rng, inner = np.random.default_rng(0), 0
    near, middle, far = (ends[0] + part * (ends[1] - ends[0]) for part in (0.1, 0.5, 0.9))
    for cubic in map(np.poly1d, rng.normal(size=(300, 4))):
        at = _between(*(Point(t, cubic(t), cubic.deriv()(t)) for t in ends))
        lowest = [t.real for t in cubic.deriv().roots if not t.imag and cubic.deriv(2)(t) > 0]
        assert at == pytest.approx(np.clip(lowest or middle, min(near, far), max(near, far)))
        inner += at not in (near, middle, far)
    assert inner > 10
    assert _between(Point(ends[0], 1.0, -1.0), Point(ends[1], np.inf, 0.0)) == pytest.approx(near)


def objective(flat, value, slope):
    """Return a function of the vector `flat`, and its gradient, in the form of a loss."""
    problem = SimpleNamespace(gradient=np.zeros_like(flat))

    def evaluate():
        problem.gradient[...] = slope(flat)
        return value(flat)

    problem.evaluate = evaluate
    return problem


def test_lbfgs_steps_meet_the_wolfe_conditions_along_quasi_newton_directions():
    network, pairs, inverse = Mlp([3, 1], seed=0, dtype="float64"), [], np.eye(4)
    flat, optimizer = network.params.flat, Lbfgs(network, memory=3)
    flat[...] = -1.2, 1.0, -1.2, 1.0
    problem = objective(flat, optimize.rosen, optimize.rosen_der)
    for _ in range(60):
        start, before = flat.copy(), optimize.rosen_der(flat)
        for s, y in pairs[-3:]:  # BFGS with a dense matrix
            left = np.eye(4) - np.outer(s, y) / (s @ y)
            inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
        loss, newton = optimizer.minimize(problem)[0], -inverse @ before
        moved, after = flat - start, problem.gradient.copy()
        assert np.array_equal(after, optimize.rosen_der(flat))
        assert optimize.rosen(flat) <= loss + 1e-4 * (moved @ before)
        assert abs(moved @ after) <= -0.9 * (moved @ before)
        assert moved == pytest.approx(newton * np.linalg.norm(moved) / np.linalg.norm(newton))
        pairs.append((moved, after - before))
        inverse = np.eye(4) * (moved @ pairs[-1][1]) / (pairs[-1][1] @ pairs[-1][1])
    assert abs(after).max() < 1e-6
    problem.evaluate = count(1).__next__  # rises in every direction
    flat[...], problem.gradient[...] = 0.0, 1.0
    optimizer.minimize(problem)
    assert not flat.any()
    assert optimizer.numbers_of_state["pairs"] == 0


CURVES = {
    "long": lambda a: -a + a * a / 200,
    "falls too little at 1": lambda a: -a + 1.49985 * a**2 - 0.4999 * a**3,
    "valley": lambda a: -a + 0.06 * np.logaddexp(0, 100 * a - 85),
}


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_a_line_search_ends_where_the_wolfe_conditions_hold(curve):
    network = Mlp([1, 1], dtype="float64")
    flat = network.params.flat
    flat[...] = 0.0

    def slope(at):
        return np.array([(curve(at[0] + 1e-6) - curve(at[0] - 1e-6)) / 2e-6, 0.0])

    problem = objective(flat, lambda at: curve(at[0]), slope)
    Lbfgs(network).minimize(problem)
    assert curve(flat[0]) - curve(0) <= -0.999e-4 * flat[0]
    assert abs(slope(flat)[0]) <= 0.901


def test_a_line_search_without_such_a_point_ends_at_the_best_one():
    network, seen = Mlp([1, 1], dtype="float64"), []
    flat = network.params.flat
    flat[...] = 0.0
    value = lambda at: seen.append(2 * abs(at[0] - 0.3)) or seen[-1]  # noqa: E731
    problem = objective(flat, value, lambda at: np.array([2 * np.sign(at[0] - 0.3), 0]))
    Lbfgs(network).minimize(problem)
    assert 2 * abs(flat[0] - 0.3) == min(seen) < 0.6
    assert seen[1] == pytest.approx(1.4)  # a step of length 1, whatever the gradient
    assert problem.gradient[0] == 2 * np.sign(flat[0] - 0.3)
    assert len(seen) <= 27  # at the start, 25, and at the best one again


def test_lbfgs_goes_down_the_gradient_where_its_memory_points_up():
    x, y = data()
    x, y = x / 2, y / 2
    network = Mlp([3, 1], seed=0, dtype="float64")
    network.params.flat[...] = 0.0
    step = full_step(network, Lbfgs, 60)
    step.optimizer.numbers_of_state["pairs"] = 1.0
    for name, value in (("step_0", 1.0), ("change_0", -1.0)):  # no line search keeps such a pair
        step.optimizer.moments[name].fill(value)
    gradient = -np.append(y.T @ x, y.sum()) / 30
    assert 0.1 < np.linalg.norm(gradient) < 1
    step(x, y)
    assert network.params.flat == pytest.approx(-gradient)  # a whole step, as the first one
    assert step.optimizer.numbers_of_state["pairs"] == 1


@pytest.mark.parametrize("kind", FULL_BATCH)
def test_bits_are_the_same_on_any_number_of_threads(kind):
    x, y = data(4000)
    weights = set()
    for threads in (1, 2, 4):
        network = Mlp([3, 30, 1], activation="tanh", seed=0, dtype="float64")
        step = full_step(network, kind, 4000, threads=threads)
        with threadpool_limits(threads, user_api="blas"):
            for _ in range(5):
                step(x, y)
        weights.add(network.params.flat.tobytes())
    assert len(weights) == 1


@pytest.mark.parametrize("kind", FULL_BATCH)
def test_steps_go_on_from_a_file_with_the_same_bits(kind, tmp_path):
    x, y = data(noise=0.1)
    make = lambda: full_step(  # noqa: E731
        Mlp([3, 6, 1], activation="tanh", seed=0, dtype="float64"), kind, 60
    )
    step = make()
    for _ in range(9):
        step(x, y)
    step.save(tmp_path / "step.safetensors")
    expected = [step(x, y) for _ in range(15)]
    again = make()
    again.load(tmp_path / "step.safetensors")
    assert [again(x, y) for _ in range(15)] == expected


@pytest.mark.parametrize("kind", FULL_BATCH)
def test_steps_keep_no_memory(kind):
    x, y = data(4_000, noise=0.1)
    network = Mlp([3, 10, 1], activation="tanh", seed=0, dtype="float64")
    step = full_step(network, kind, 4_000)
    with pinned(1):  # else a cache of the interpreter is filled
        tracemalloc.start()
        for _ in range(5):
            step(x, y)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(50):
            step(x, y)
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert now - before < 10_000  # less than a vector of parameters for each step
    assert peak - before < 200_000  # NumPy's own buffers, whose size does not depend on the rows


def test_a_step_that_cannot_fall_changes_nothing():
    network = Mlp([3, 1], seed=0, dtype="float64")
    x = np.random.default_rng(0).standard_normal((20, 3)) * [0, 1, 1]  # a weight without effect
    y = network.predict(x)
    for kind in FULL_BATCH:
        step, before = full_step(network, kind, 20), network.params.flat.copy()
        for _ in range(30):
            step(x, y)
        assert network.params.flat == pytest.approx(before, abs=1e-12)
        assert np.isfinite(getattr(step.optimizer, "effective_parameters", 0.0))


@pytest.mark.parametrize("kind", FULL_BATCH)
def test_numbers_that_are_not_finite_are_an_error(kind):
    x, y = data()
    x[7] = np.inf
    network = Mlp([3, 5, 1], activation="tanh", seed=0, dtype="float64")
    before = network.params.flat.copy()
    step = full_step(network, kind, 60)
    y[7] = np.nan
    with pytest.raises(NumericalError, match="row 7"):
        step(x, y)
    assert step.optimizer.steps == 0
    assert np.array_equal(network.params.flat, before)


@pytest.mark.parametrize(
    ("kind", "network", "options", "named"),
    [
        (Lbfgs, {"dropout": 0.1}, {}, "dropout"),
        (Lbfgs, {}, {"clip_norm": 1.0}, "clip_norm"),
        (Lbfgs, {}, {"shards": 2}, "shards"),
        (LevenbergMarquardt, {}, {"loss": LOSSES["mae"]()}, "mse"),
    ],
)
def test_what_a_full_batch_step_cannot_have_is_refused(kind, network, options, named):
    with pytest.raises(UsageError, match=named):
        full_step(Mlp([3, 4, 1], seed=0, **network), kind, 8, **options)


def test_large_networks_and_schedules_are_refused():
    with pytest.raises(UsageError, match=r"5,000 .* GB"):
        LevenbergMarquardt(Mlp([100, 100, 1], seed=0))
    with pytest.raises(UsageError, match="schedule"):
        Lbfgs(Mlp([3, 1], seed=0), schedule=lambda step: 1.0)
    network = Mlp([3, 1], seed=0)
    with pytest.raises(UsageError, match="decay"):
        LevenbergMarquardt(network).decay = -1.0
    with pytest.raises(UsageError, match="TrainingStep"):
        Lbfgs(network).step(network, network.gradients(4))
    assert Adam(network).steps == 0
    step = full_step(network, LevenbergMarquardt, 8, weighted=True)
    with pytest.raises(DataError, match=r"levenberg_marquardt \(got -1\)"):
        step(*(rows[:8] for rows in data()), -np.ones(8))


@pytest.mark.parametrize("name", ["batch norm", "other rows", "a sum of losses"])
def test_other_rows_and_several_losses_are_refused(name):
    class Centered(Network):
        def record(self, tape, x):
            y = x.linear(tape.parameter("w"))
            return {"a": y, "b": -y} if losses else y - x.mean() * (tape.rng is not None)

    losses = dict.fromkeys("ab", MeanSquaredError()) if "losses" in name else None
    others = make_network("batch norm of layers")
    network = others if name == "batch norm" else Centered(3, {"w": (1, 3)})
    with pytest.raises(UsageError, match=name):
        full_step(network, LevenbergMarquardt, 8, losses)
