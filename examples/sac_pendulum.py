"""Soft actor-critic on gymnasium's Pendulum: a policy, two critics and their averages.

The actor's recording contains frozen copies of the critics: one compiled step takes the gradient
through them.  Run ``python examples/sac_pendulum.py`` (needs ``pip install gymnasium``): some
seconds to a mean return above -200.  ``--smoke`` stops after a few steps.
Source: Haarnoja et al. 2018, arXiv 1801.01290, with one temperature.
"""

import argparse
import sys
import time
from math import log, pi
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mlpengine import Adam, MeanSquaredError, TrainingStep
from mlpengine.nn import Network
from mlpengine.ops import MeanOutput
from mlpengine.tape import Node, Tape, cat

try:
    import gymnasium
except ImportError:
    sys.exit("sac_pendulum: gymnasium must be installed; write: pip install gymnasium")

OBSERVED, WIDTH, BATCH = 3, 64, 128
DISCOUNT, AVERAGING, TEMPERATURE, LR, WARM_UP = 0.98, 0.02, 0.2, 3e-3, 500


def shapes(name: str, inputs: int, outputs: int) -> dict[str, int | tuple[int, int]]:
    """Return the shapes of two hidden layers and an output layer."""
    sizes = ((WIDTH, inputs), (WIDTH, WIDTH), (outputs, WIDTH))
    weights = {f"{name}.{i}.weight": size for i, size in enumerate(sizes)}
    return weights | {f"{name}.{i}.bias": size[0] for i, size in enumerate(sizes)}


def layers(tape: Tape, name: str, h: Node) -> Node:
    """Record these layers with ReLU on h."""
    for i in range(3):
        h = h.linear(tape.parameter(f"{name}.{i}.weight"), tape.parameter(f"{name}.{i}.bias"))
        h = h.relu() if i < 2 else h
    return h


class Critics(Network):
    """Two estimates of the return from a state and an action, (rows, 4)."""

    def __init__(self, **options: Any) -> None:
        both = shapes("q0", OBSERVED + 1, 1) | shapes("q1", OBSERVED + 1, 1)
        super().__init__(OBSERVED + 1, both, **options)

    def record(self, tape: Tape, x: Node) -> dict[str, Node]:
        return {name: layers(tape, name, x) for name in ("q0", "q1")}


class Actor(Network):
    """A normal distribution of actions, squashed by tanh, and its objective by frozen critics."""

    def __init__(self, critics: Critics, **options: Any) -> None:
        parameters = shapes("actor", OBSERVED, 2) | dict(critics.params.views)
        super().__init__({"state": OBSERVED, "noise": 1}, parameters, **options)
        self.freeze(["q0", "q1"])

    def record(self, tape: Tape, state: Node, noise: Node) -> dict[str, Node]:
        h = layers(tape, "actor", state)
        log_deviation = h[:, 1:].clamp(-5.0, 1.0)
        z = h[:, :1] + log_deviation.exp() * noise
        action = z.tanh()  # -log(1 - tanh(z)^2) = 2 (z + softplus(-2 z) - log 2)
        squashed = (z + (z * -2.0).softplus() - log(2)) * 2.0
        log_density = squashed - log_deviation - noise * noise * 0.5 - 0.5 * log(2 * pi)
        x = cat([state, action], axis=1)
        objective = log_density * TEMPERATURE - layers(tape, "q0", x).minimum(layers(tape, "q1", x))
        detached = {"action": action.detach(), "log_density": log_density.detach()}
        return {"objective": objective, **detached}  # of the others there is no gradient


class Agent:
    """All networks and their updates."""

    def __init__(self, seed: int) -> None:
        self.critics, self.averaged = Critics(seed=seed), Critics(seed=seed)
        self.actor = Actor(self.critics, seed=seed + 1)
        self.rng = np.random.default_rng(seed)
        losses = dict.fromkeys(("q0", "q1"), MeanSquaredError())
        self.learn_values = TrainingStep(self.critics, losses, Adam(self.critics, lr=LR), BATCH)
        means = {name: MeanOutput() for name in ("objective", "action", "log_density")}
        self.learn_policy = TrainingStep(self.actor, means, Adam(self.actor, lr=LR), BATCH)

    def act(self, state: np.ndarray, noise: float) -> float:
        """Return an action in -1 to 1; without noise it is tanh of the mean."""
        x = {"state": state[None], "noise": np.full((1, 1), noise)}
        return float(self.actor.predict(x)["action"][0, 0])

    def learn(self, rows: np.ndarray) -> None:
        """Update critics, their averages and the actor by a batch of transitions."""
        state, action, reward, following = np.split(rows, [3, 4, 5], axis=1)
        noise = self.rng.standard_normal((2, BATCH, 1), np.float32)
        outputs = self.actor.predict({"state": following, "noise": noise[0]})
        values = self.averaged.predict(np.concatenate([following, outputs["action"]], axis=1))
        best = np.minimum(values["q0"], values["q1"]) - TEMPERATURE * outputs["log_density"]
        target = reward + DISCOUNT * best
        self.learn_values(np.concatenate([state, action], axis=1), {"q0": target, "q1": target})
        averages, newest = self.averaged.params.flat, self.critics.params.flat
        averages += AVERAGING * (newest - averages)
        for name, value in self.critics.params.views.items():
            self.actor.params.views[name][...] = value
        self.learn_policy({"state": state, "noise": noise[1]}, {})


def evaluate(agent: Agent, episodes: int) -> float:
    """Return the mean return of episodes without noise."""
    env, total = gymnasium.make("Pendulum-v1"), 0.0
    for episode in range(episodes):
        state, ended = env.reset(seed=1000 + episode)[0], False
        while not ended:
            state, reward, _, ended, _ = env.step(np.array([2 * agent.act(state, 0.0)]))
            total += float(reward)
    return total / episodes


def main() -> None:
    """Train until the mean return of 20 episodes is -200, and print steps and seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    limit, every, episodes = (WARM_UP + 50, WARM_UP + 50, 1) if args.smoke else (20_000, 500, 20)
    agent, env = Agent(args.seed), gymnasium.make("Pendulum-v1")
    store = np.zeros((limit, 2 * OBSERVED + 2), np.float32)
    state, start = env.reset(seed=args.seed)[0], time.process_time()
    for count in range(1, limit + 1):
        action = agent.act(state, agent.rng.standard_normal())
        following, reward, _, ended, _ = env.step(np.array([2 * action]))
        store[count - 1] = *state, action, reward, *following
        state = env.reset()[0] if ended else following
        if count > WARM_UP:
            agent.learn(store[agent.rng.integers(0, count, BATCH)])
        if count % every == 0:
            seconds, score = time.process_time() - start, evaluate(agent, episodes)
            print(f"{count:6} steps  {seconds:5.1f} s  return {score:.0f}", flush=True)
            if score > -200:
                break


if __name__ == "__main__":
    with threadpool_limits(1):  # products of these sizes are too small to share
        main()
