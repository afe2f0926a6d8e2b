"""Fit small tanh networks by second-order methods; compare with SciPy, scikit-learn, PyTorch, JAX.

Run ``python benchmarks/smooth.py`` (``--smoke`` takes seconds; ``--rows 200 600 5000``, ``--noise 0
0.01 0.05``, ``--seeds 5``, ``--functions friedman``).  Figures are medians over the seeds: the root
mean squared error on 4,000 new rows without noise, divided by the standard deviation of the target,
and the processor time of the fit.  The methods run in turn on one thread; libraries that are not
installed, such as jaxopt, are left out.  All methods except scikit-learn and `fit` train one layer
of 30 tanh units in float64, with at most 300 steps of Levenberg-Marquardt; SciPy gets the exact
Jacobian.  The last methods have the default settings of their libraries.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from machine import describe, restart_clean, table
from scipy.optimize import least_squares
from threadpoolctl import threadpool_limits

import mlpengine
from mlpengine import MeanSquaredError, Mlp, TrainingStep
from mlpengine.optim import BayesianRegularization, FullBatch, Lbfgs, LevenbergMarquardt

UNITS, NEW_ROWS = 30, 4_000
STEPS = {LevenbergMarquardt: 300, BayesianRegularization: 300, Lbfgs: 2_000}
Array = np.ndarray
Predict = Callable[[Array], Array]


def robot_arm(x: Array) -> Array:
    """Return the end position of a two-link robot arm; x has two angles and two lengths."""
    first, both = np.pi * x[:, 0], np.pi * (x[:, 0] + x[:, 1])
    return x[:, 2] * np.cos(first) + x[:, 3] * np.cos(both)


def friedman(x: Array) -> Array:
    """Return the first function of Friedman (1991)."""
    waves = 10 * np.sin(np.pi * x[:, 0] * x[:, 1])
    return waves + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]


def pendulum(x: Array) -> Array:
    """Return the angle of a damped pendulum after 0.5 s; x has angle, speed and torque."""
    angle, speed, torque = 2 * x[:, 0] - 1, 4 * x[:, 1] - 2, 6 * x[:, 2] - 3
    for _ in range(500):
        speed = speed + 0.001 * (torque - 0.4 * speed - 9.81 * np.sin(angle))
        angle = angle + 0.001 * speed
    return angle


FUNCTIONS = {"robot arm": (robot_arm, 4), "friedman": (friedman, 5), "pendulum": (pendulum, 3)}


def ours(kind: type[FullBatch], smoke: bool) -> Callable[..., Predict]:
    def fit(x: Array, y: Array, seed: int) -> Predict:
        mlp = Mlp([x.shape[1], UNITS, 1], activation="tanh", seed=seed, dtype="float64")
        step = TrainingStep(mlp, MeanSquaredError(), kind(mlp), batch_size=len(x))
        for _ in range(5 if smoke else STEPS[kind]):
            step(x, y[:, None])
        return lambda new: mlp.predict(new)[:, 0]

    return fit


def scipy(smoke: bool) -> Callable[..., Predict]:
    def fit(x: Array, y: Array, seed: int) -> Predict:
        mlp = Mlp([x.shape[1], UNITS, 1], activation="tanh", seed=seed, dtype="float64")
        (weight, last), (bias, shift) = mlp.weights, mlp.biases
        flat = mlp.params.flat

        def error(values: Array) -> Array:
            flat[...] = values
            return np.tanh(x @ weight.T + bias) @ last[0] + shift[0] - y

        def jacobian(values: Array) -> Array:
            flat[...] = values
            h = np.tanh(x @ weight.T + bias)
            slope = (1 - h * h) * last[0]
            first = (slope[:, :, None] * x[:, None, :]).reshape(len(x), -1)
            return np.hstack(
                [first, slope, h, np.ones((len(x), 1))]
            )  # in the order of the parameters in `flat`

        method = (
            "lm" if len(x) >= flat.size else "trf"
        )  # "lm" needs at least as many rows as parameters
        least_squares(error, flat.copy(), jacobian, method=method, max_nfev=5 if smoke else 300)
        return lambda new: mlp.predict(new)[:, 0]

    return fit


def scikit(smoke: bool) -> Callable[..., Predict]:
    from sklearn.neural_network import MLPRegressor

    def fit(x: Array, y: Array, seed: int) -> Predict:
        steps = 5 if smoke else 2_000
        limits = {"max_iter": steps, "max_fun": 10 * steps, "tol": 1e-9, "alpha": 1e-6}
        network = MLPRegressor(
            hidden_layer_sizes=(64, 64),
            activation="tanh",
            solver="lbfgs",
            random_state=seed,
            **limits,
        )
        return network.fit(x, y).predict

    return fit


def torch_lbfgs(smoke: bool) -> Callable[..., Predict] | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)

    def fit(x: Array, y: Array, seed: int) -> Predict:
        torch.manual_seed(seed)
        layers = torch.nn.Linear(x.shape[1], UNITS), torch.nn.Tanh(), torch.nn.Linear(UNITS, 1)
        network = torch.nn.Sequential(*layers).double()
        steps = 5 if smoke else 2_000
        optimizer = torch.optim.LBFGS(
            network.parameters(), max_iter=steps, history_size=20, tolerance_change=1e-12,
            tolerance_grad=1e-10, line_search_fn="strong_wolfe",
        )  # fmt: skip
        rows, target = torch.from_numpy(x), torch.from_numpy(y)[:, None]

        def loss() -> "torch.Tensor":
            optimizer.zero_grad()
            value = torch.nn.functional.mse_loss(network(rows), target)
            value.backward()
            return value

        optimizer.step(loss)
        return lambda new: network(torch.from_numpy(new)).detach().numpy()[:, 0]

    return fit


def jax_lm(smoke: bool) -> Callable[..., Predict] | None:
    """Return jaxopt's Levenberg-Marquardt; it compiles once for each number of rows."""
    try:
        import jax
        import jaxopt
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)

    def outputs(flat: Array, x: Array) -> Array:
        w, b, v, c = jax.numpy.split(flat, np.cumsum([UNITS * x.shape[1], UNITS, UNITS]))
        return jax.numpy.tanh(x @ w.reshape(UNITS, -1).T + b) @ v + c

    def error(flat: Array, data: tuple[Array, Array]) -> Array:
        return outputs(flat, data[0]) - data[1]

    options = {"maxiter": 5 if smoke else 300, "tol": 1e-15, "materialize_jac": True}
    solve = jax.jit(jaxopt.LevenbergMarquardt(error, solver="cholesky", **options).run)

    def fit(x: Array, y: Array, seed: int) -> Predict:
        mlp = Mlp([x.shape[1], UNITS, 1], activation="tanh", seed=seed, dtype="float64")
        flat = np.concatenate([mlp.params.views[name].ravel() for name in mlp.params.views])
        found = jax.block_until_ready(solve(flat, (x, y)).params)
        return lambda new: np.asarray(outputs(found, new))

    return fit


def library_defaults() -> dict[str, Callable[..., Predict]]:
    """Return regressors with default settings by name."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.neural_network import MLPRegressor

    kinds = [MLPRegressor, HistGradientBoostingRegressor, GaussianProcessRegressor]
    with suppress(ImportError):
        from lightgbm import LGBMRegressor

        kinds.append(partial(LGBMRegressor, verbose=-1))

    def fit(kind: Callable[..., Any], x: Array, y: Array, seed: int) -> Predict:
        return kind(random_state=seed).fit(x, y).predict

    names = [getattr(kind, "__name__", "LGBMRegressor") for kind in kinds]
    return {name: partial(fit, kind) for name, kind in zip(names, kinds, strict=True)}


def default_fit(x: Array, y: Array, seed: int) -> Predict:
    """Train the default model of `fit` on all rows."""
    columns = [f"x{k}" for k in range(x.shape[1])]
    frame = dict(zip(columns, x.T, strict=True)) | {"y": y}
    model, _ = mlpengine.fit(frame, "y", seed=seed, data={"split": {"test": 0}})
    return lambda new: model.predict(dict(zip(columns, new.T, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few steps of one function")
    parser.add_argument("--rows", type=int, nargs="+", default=[600], help="at least 250")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.01, 0.05])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=[*FUNCTIONS])
    parser.add_argument("--only", default="", help="contestants with this text in their names")
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.noise, args.seeds, args.functions = [250], [0.0], 1, ["robot arm"]
    contestants = {kind.name: ours(kind, args.smoke) for kind in STEPS}
    contestants |= {"SciPy lm": scipy(args.smoke), "scikit-learn lbfgs": scikit(args.smoke)}
    others = {"PyTorch LBFGS": torch_lbfgs(args.smoke), "jaxopt lm": jax_lm(args.smoke)}
    contestants |= {name: one for name, one in others.items() if one}
    if not args.smoke:
        contestants |= library_defaults() | {"fit, defaults": default_fit}
    contestants = {name: one for name, one in contestants.items() if args.only in name}
    describe()
    rows = []
    for name in args.functions:
        function, inputs = FUNCTIONS[name]
        for count in args.rows:
            for noise in args.noise:
                errors: dict[str, list[float]] = {who: [] for who in contestants}
                seconds: dict[str, list[float]] = {who: [] for who in contestants}
                for seed in range(args.seeds):
                    rng = np.random.default_rng(seed)
                    x, new = (rng.uniform(0, 1, (n, inputs)) for n in (count, NEW_ROWS))
                    y, wanted = function(x), function(new)
                    mean, deviation = y.mean(), y.std()
                    y = (y - mean) / deviation + noise * rng.standard_normal(count)
                    scaled, new = ((values - 0.5) * np.sqrt(12) for values in (x, new))
                    for who, fit in contestants.items():
                        start = time.process_time()
                        predict = fit(scaled, y, seed)
                        seconds[who].append(time.process_time() - start)
                        off = predict(new) - (wanted - mean) / deviation
                        errors[who].append(float(np.sqrt(np.mean(off**2))))
                title = f"{name}, {count} rows, {noise:.0%} noise"
                cells = [
                    f"{statistics.median(errors[who]):.2g} "
                    f"({statistics.median(seconds[who]):.2f} s)"
                    for who in contestants
                ]
                rows.append([title, *cells])
                named = map(" ".join, zip(contestants, cells, strict=True))
                print(title, *named, sep="; ", flush=True)
    print(f"\n{table(['error (seconds)', *contestants], rows)}")


if __name__ == "__main__":
    restart_clean()
    if hasattr(os, "sched_setaffinity"):  # the only way to limit JAX's threads
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    with threadpool_limits(1):
        main()
