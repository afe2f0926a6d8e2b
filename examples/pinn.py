"""Burgers' equation solved by a physics-informed network: Adam, then L-BFGS.

The network u(x, t) learns from the equation u_t + u u_x = nu u_xx at random points, u = -sin(pi x)
at t = 0 and u = 0 at x = -1 and 1, without any value of the solution inside.  Second derivatives
are `tape.gradient` of `tape.gradient`.  The error is against the exact solution by Cole and Hopf.

Run ``python examples/pinn.py``: some seconds.  ``--smoke`` stops after a few steps.
Source: Raissi, Perdikaris, Karniadakis 2019, J. Comput. Phys. 378, section 2, with a viscosity ten
times theirs.
"""

import argparse
import time
from itertools import pairwise

import numpy as np

from mlpengine import Adam, MeanSquaredError, TrainingStep
from mlpengine.core.spec import Array
from mlpengine.nn import Network
from mlpengine.optim import Lbfgs
from mlpengine.tape import Node, Tape

VISCOSITY = 0.1 / np.pi
SIZES = (2, 20, 20, 1)
POINTS, SEED = 500, 0


class Solution(Network):
    """u(x, t) as dense layers with tanh; rows of both inputs are (x, t)."""

    def __init__(self, **options: object) -> None:
        shapes: dict[str, int | tuple[int, int]] = {}
        for i, (before, after) in enumerate(pairwise(SIZES)):
            shapes |= {f"{i}.weight": (after, before), f"{i}.bias": after}
        super().__init__({"inside": 2, "edge": 2}, shapes, **options)

    def u(self, tape: Tape, points: Node) -> Node:
        """Record u (rows, 1) at points (rows, 2)."""
        h, last = points, len(SIZES) - 2
        for i in range(last + 1):
            h = h.linear(tape.parameter(f"{i}.weight"), tape.parameter(f"{i}.bias"))
            h = h.tanh() if i < last else h
        return h

    def record(self, tape: Tape, inside: Node, edge: Node) -> dict[str, Node]:
        u = self.u(tape, inside)
        slope = tape.gradient(u, inside)
        u_x, u_t = slope[:, :1], slope[:, 1:]
        u_xx = tape.gradient(u_x, inside)[:, :1]
        return {"residual": u_t + u * u_x - VISCOSITY * u_xx, "u": self.u(tape, edge)}


def exact(points: Array) -> Array:
    """Return u (rows,) at points (rows, 2) with t > 0, by quadrature of 100 points."""
    nodes, weights = np.polynomial.hermite.hermgauss(100)
    places = points[:, :1] - nodes * np.sqrt(4 * VISCOSITY * points[:, 1:])
    shares = np.exp(-np.cos(np.pi * places) / (2 * np.pi * VISCOSITY)) * weights
    value: Array = -(np.sin(np.pi * places) * shares).sum(axis=1) / shares.sum(axis=1)
    return value


def main() -> None:
    """Train, and print the error relative to the exact solution."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that it runs")
    adam_steps, lbfgs_steps = (20, 20) if parser.parse_args().smoke else (500, 3000)
    rng = np.random.default_rng(SEED)
    inside = rng.uniform([-1, 0], [1, 1], (POINTS, 2))
    edge = rng.uniform([-1, 0], [1, 1], (POINTS, 2))
    edge[::2, 1] = 0
    edge[1::2, 0] = np.sign(edge[1::2, 0])
    u = -np.sin(np.pi * edge[:, :1]) * (edge[:, 1:] == 0)
    rows, targets = {"inside": inside, "edge": edge}, {"residual": np.zeros_like(u), "u": u}

    network = Solution(seed=SEED, dtype="float64")
    losses = {name: MeanSquaredError() for name in targets}
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 101), np.linspace(0.02, 1, 50)), -1)
    grid = grid.reshape(-1, 2)
    truth, start = exact(grid), time.perf_counter()
    optimizers = {"Adam": (Adam(network, lr=5e-3), adam_steps)}
    optimizers["L-BFGS"] = Lbfgs(network), lbfgs_steps
    for name, (optimizer, count) in optimizers.items():
        step = TrainingStep(network, losses, optimizer, POINTS)
        for _ in range(count):
            loss = step(rows, targets)
        found = network.predict({"inside": grid, "edge": grid})["u"][:, 0]
        error = np.linalg.norm(found - truth) / np.linalg.norm(truth)
        seconds = time.perf_counter() - start
        print(f"{count:5} steps of {name:7} loss {loss:.1e}  error {error:.2%}  {seconds:.1f} s")


if __name__ == "__main__":
    main()
