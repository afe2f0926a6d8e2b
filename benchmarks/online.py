"""An app that learns while it runs: a controller that follows a plant which keeps changing.

``python benchmarks/online.py`` (``--steps 1000000`` for the soak, ``--smoke`` for a short run that
fails if memory grows or the errors are large).  Each step the app predicts the plant's next value
under a grid of actions, and again under a finer grid around the best of them.  It takes the action
with the prediction nearest to the set point, measures the plant's response, and learns from it and
from seven samples of the recent past.  Two threads answer requests meanwhile, each with a Scratch
of its own, from a copy of the weights that is renewed every thousand steps, between requests.  At
the end the network is saved, loaded and compared.

With the first grid alone the control error would be that of rounding the action, 0.1 / sqrt(12)
times the plant's gain, and grow and shrink with the gain.
"""

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from math import sin
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from mlpengine import Adam, MeanSquaredError, Mlp, TrainingStep

BATCH, MEMORY = 8, 256
ACTIONS = np.linspace(-1, 1, 21, dtype="f4")
FINE = np.linspace(-0.1, 0.1, 21, dtype="f4")
"""Offsets from the best action; they span the gaps to its neighbors."""
REQUESTS = np.linspace(-1, 1, 8).tolist()
RENEW_EVERY = 1_000
SMOKE_STEPS, SMOKE_GROWTH, SMOKE_ERROR = 20_000, 2 << 20, 0.01


class Plant:
    """A process with a drifting response: a network that is trained only once would not do."""

    def __init__(self) -> None:
        self.value, self.time = 0.0, 0

    def act(self, action: float) -> float:
        """Return the next value."""
        self.time += 1
        gain = 0.4 + 0.2 * sin(self.time / 50_000)
        self.value = 0.8 * self.value + gain * action + 0.05 * sin(3 * self.value)
        return self.value


class Learner:
    """Predicts the next value from value, action and set point, and learns from each sample.

    Everything is allocated here; `best_action` and `learn` allocate nothing that stays.
    """

    def __init__(self) -> None:
        self.mlp = Mlp([2, 24, 24, 1], activation="tanh", seed=0)
        self.step = TrainingStep(
            self.mlp, MeanSquaredError(), Adam(self.mlp, lr=1e-3), BATCH, clip_norm=1.0
        )
        self.trial = self.mlp.scratch(len(ACTIONS), training=False)
        self.past_x = np.zeros((MEMORY, 2), "f4")
        self.past_y = np.zeros((MEMORY, 1), "f4")
        self.rows = np.zeros(BATCH, np.int64)
        self.rng = np.random.default_rng(0)
        self.learned = 0

    def best_action(self, value: float, goal: float) -> tuple[float, float]:
        """Return the action with the predicted outcome nearest to the goal, and that outcome."""
        values, actions = self.trial.input.T
        values[:], actions[:] = value, ACTIONS
        best, _ = self._nearest(goal)
        np.add(FINE, best, out=actions)
        np.clip(actions, -1, 1, out=actions)
        return self._nearest(goal)

    def _nearest(self, goal: float) -> tuple[float, float]:
        outcomes = self.mlp.forward(self.trial.input, self.trial)[:, 0]
        best = int(np.abs(outcomes - goal).argmin())
        return float(self.trial.input[best, 1]), float(outcomes[best])

    def learn(self, value: float, action: float, outcome: float) -> float:
        """Learn from what happened, and from older samples; return the loss before."""
        place = self.learned % MEMORY
        self.past_x[place] = value, action
        self.past_y[place] = outcome
        self.learned += 1
        self.rows[:] = self.rng.integers(0, min(self.learned, MEMORY), BATCH)
        self.rows[0] = place
        bound = self.step.bound(BATCH)
        self.past_x.take(self.rows, 0, bound.scratch.input, "clip")
        self.past_y.take(self.rows, 0, bound.loss.target, "clip")
        return self.step.run(bound)


class Server:
    """Two threads that answer requests from a copy of the weights, while the learner goes on."""

    def __init__(self, learner: Learner) -> None:
        self.mlp = Mlp(learner.mlp.sizes, activation="tanh")
        self.requests: SimpleQueue[float | None] = SimpleQueue()
        self.answers: SimpleQueue[tuple[float, float]] = SimpleQueue()
        self.waiting = 0
        self.threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(2)]

    def ask(self, values: list[float]) -> None:
        """Ask for predictions; `finish` waits for them."""
        self.waiting += len(values)
        for value in values:
            self.requests.put(value)

    def finish(self) -> None:
        """Wait until all is answered; stop the app if an answer is not the network's output."""
        for _ in range(self.waiting):
            value, answer = self.answers.get(timeout=60)
            expected = self.mlp.predict(np.array([[value, 0.0]], "f4"))[0, 0]
            if abs(answer - expected) > 1e-6:
                raise SystemExit(f"a thread answered {answer}, the network says {expected}")
        self.waiting = 0

    def renew(self, learner: Learner) -> None:
        """Take over what has been learned, when no thread reads."""
        self.finish()
        self.mlp.params.flat[...] = learner.mlp.params.flat

    def _serve(self) -> None:
        scratch = self.mlp.scratch(1, training=False)  # one for each thread
        while (value := self.requests.get()) is not None:
            scratch.input[0] = value, 0.0
            self.answers.put((value, float(self.mlp.forward(scratch.input, scratch)[0, 0])))

    def __enter__(self) -> "Server":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for _ in self.threads:
            self.requests.put(None)
        for thread in self.threads:
            thread.join()


def run(steps: int, server: Server, learner: Learner) -> Iterator[tuple[int, float, float]]:
    """Control the plant; yield (step, root mean square of prediction error, of control error)."""
    plant, surprise, miss = Plant(), 0.0, 0.0
    interval = max(steps // 10, RENEW_EVERY)
    for step in range(1, steps + 1):
        goal = sin(step / 300)
        value = plant.value
        action, predicted = learner.best_action(value, goal)
        outcome = plant.act(action)
        learner.learn(value, action, outcome)
        surprise += (outcome - predicted) ** 2
        miss += (outcome - goal) ** 2
        if step % RENEW_EVERY == 0:
            server.renew(learner)
            server.ask(REQUESTS)
        if step % interval == 0:
            yield step, (surprise / interval) ** 0.5, (miss / interval) ** 0.5
            surprise = miss = 0.0
    server.finish()


def save_and_load(learner: Learner) -> None:
    """Stop the app if the loaded model does not predict the same."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "plant.safetensors"
        learner.mlp.save(path)
        loaded = Mlp.load(path)
    if (loaded.predict(learner.past_x) != learner.mlp.predict(learner.past_x)).any():
        raise SystemExit("the loaded network predicts something else")


def resident_bytes() -> int:
    """Return the memory that the process holds; the peak where the system tells no more."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    steps = SMOKE_STEPS if args.smoke else args.steps
    learner = Learner()
    print(f"{'step':>10} {'prediction rms':>15} {'control rms':>12} {'memory':>10} {'steps/s':>9}")
    began, memory = perf_counter(), []
    with Server(learner) as server:
        for step, surprise, miss in run(steps, server, learner):
            memory.append(resident_bytes())
            rate = step / (perf_counter() - began)
            held = f"{memory[-1] / 2**20:.1f} MiB"
            print(f"{step:>10,} {surprise:>15.4f} {miss:>12.4f} {held:>10} {rate:>9,.0f}")
    save_and_load(learner)
    growth = memory[-1] - memory[min(1, len(memory) - 1)]
    print(f"memory grew by {growth / 2**10:.0f} KiB after the second line; saved, loaded, the same")
    if args.smoke and growth > SMOKE_GROWTH:
        raise SystemExit(f"memory grew by {growth} bytes, more than {SMOKE_GROWTH}")
    if args.smoke and max(surprise, miss) > SMOKE_ERROR:
        raise SystemExit(f"errors of {surprise} and {miss} are more than {SMOKE_ERROR}")


if __name__ == "__main__":
    main()
