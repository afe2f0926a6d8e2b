"""Watching a network learn: `Diagnostics`."""

from collections import deque
from collections.abc import Callable, Mapping
from math import isfinite, log10, nan
from typing import Any

import numpy as np

from mlpengine.buffers import replay
from mlpengine.diagnostics.activations import RECTIFIERS
from mlpengine.diagnostics.buffers import Room
from mlpengine.diagnostics.probes import BoundProbes
from mlpengine.diagnostics.quantities import NET_PLACE, Columns
from mlpengine.diagnostics.rows import NoiseScale
from mlpengine.diagnostics.series import Series
from mlpengine.diagnostics.spacing import Spacing
from mlpengine.diagnostics.spikes import Spike, Spikes
from mlpengine.diagnostics.units import UnitWindow
from mlpengine.diagnostics.updates import UpdateProbe
from mlpengine.nn import Gradients, Mlp, Scratch
from mlpengine.spec import Array
from mlpengine.tape.norm import GlobalNorm

NAMES = ("loss", "lr", "gradient_norm", "clipped_norm", "clipped_share", "spikes", "depth_slope")
LOSS, LR, NORM, CLIPPED, CLIPPED_SHARE, SPIKES, SLOPE = (NET_PLACE[name] for name in NAMES)


class Diagnostics:
    """Measures the gradients, updates and activations of an `Mlp` while it learns.

    Call `observe` after each step of the optimizer.  Most calls only look at the norm, and some
    note which units fire; every `every` steps, and at the first, all quantities (see
    `mlpengine.diagnostics.quantities`) are measured on the buffers that training holds anyway.
    Nothing is allocated that grows with the data, except for two numbers an epoch.

    Args:
        every: steps between samples; by default 50 and, where a step takes so little that a
            sample costs several of them, 500 after the first 2,000 steps.
        steps_per_epoch: units that never fire are looked for over at least so many steps.
        baseline: loss of the best constant prediction, see `baseline_loss`; None if unknown.
        validation_baseline: that of the same prediction on the validation rows.
        target_rms: root mean square of the targets of a regression.
        feature_sizes: (in_dim,), the size of each feature, see `feature_sizes`.
        name_row: returns the name of a row by its number, as in "line 17".

    Attributes:
        first_loss: of step 1.
        failure: the message of the error that ended the run, if one did.
        skipped: steps left out because a number was not finite.
        values: the last sample, in the order of `columns`.
        sampled: the step of the last sample, 0 before the first.
        batch_size: rows of the largest batch.
        series: samples of the whole run.
        noise: the gradient noise scale.
        spikes: steps with an unusual norm.
        due: the next step that needs `look`.
        pending: norms since then; `observe` appends to it.
        clipped: steps since the last sample that were clipped.
        windows: by layer, which rectifier units fire.
        epochs: (train loss, validation loss) of each epoch.

    Raises: UsageError for `every` below 1, or buffers that do not keep their activations.
    """

    def __init__(
        self,
        mlp: Mlp,
        *,
        every: int | None = None,
        steps_per_epoch: int = 1,
        baseline: float | None = None,
        validation_baseline: float | None = None,
        target_rms: float | None = None,
        feature_sizes: Array | None = None,
        name_row: Callable[[int], str] = "training row {}".format,
    ) -> None:
        self.mlp = mlp
        self.baseline, self.validation_baseline = _known(baseline), _known(validation_baseline)
        self.target_rms, self.first_loss = _known(target_rms), nan
        self.feature_sizes: Array = np.zeros(0) if feature_sizes is None else feature_sizes
        self.failure, self.skipped, self.name_row = "", 0, name_row
        self.columns = Columns(len(mlp.layers))
        self.values = [nan] * len(self.columns)
        self.sampled = self.batch_size = 0
        self.series = Series(self.columns)
        self.noise, self.spikes = NoiseScale(), Spikes()
        self.pending = self.spikes.pending
        self.windows = {
            number: UnitWindow(layer.out_dim, mlp.dtype, steps_per_epoch)
            for number, layer in enumerate(mlp.layers)
            if layer.activation is not None and layer.activation.name in RECTIFIERS
        }
        self._spacing = Spacing(every, looks=bool(self.windows))
        self.epochs: list[tuple[float, float]] = []
        self.noted: deque[Spike] = deque(maxlen=20)
        self._updates = UpdateProbe(mlp)
        self._room: Room | None = None
        self._bound: dict[int, BoundProbes] = {}
        self._keep_places()
        self.clipped = 0
        self.begin(0)

    def _keep_places(self) -> None:
        """Look up once where a sample's numbers belong."""
        self._unknown = tuple(self.values)
        places = self.columns.places
        self._about_updates = [*places("update_ratio"), *places("update_cosine")]
        self._gradients, dead = places("gradient_rms"), places("dead_share")
        self._window_places = [(dead[n], window) for n, window in self.windows.items()]

    def begin(self, steps: int) -> None:
        """Take the parameters as they are for those after `steps` steps; for a resumed run."""
        self._updates.before_step()
        self._copied_at = steps
        self._spacing.plan(steps)
        self.due = self._spacing.due

    def observe(
        self,
        scratch: Scratch,
        grads: Gradients,
        step: int,
        *,
        loss: float | None = None,
        norm: float | None = None,
        clipped_norm: float | None = None,
        lr: float | None = None,
        rows: Array | None = None,
    ) -> bool:
        """Take in step number `step`, counted from 1, after its update.

        Args:
            scratch: what the step's forward pass left behind.
            grads: what its backward pass left behind.
            step: its number; every step should be shown.
            loss: mean loss of the batch.
            norm: global norm of the gradients before clipping; left out, that of `grads`.
            clipped_norm: the norm after clipping; layers' gradients are divided by their ratio.
            lr: learning rate of the step.
            rows: numbers of the batch's rows, to name them by; left out, places in the batch.

        Returns: whether `values` is a new sample.
        """
        if norm is None:
            norm = clipped_norm = GlobalNorm(grads.flat)() if step >= self.due else nan
        elif clipped_norm is None:
            clipped_norm = norm
        self.pending.append(norm)
        if clipped_norm < norm:
            self.clipped += 1
        if step < self.due and norm <= self.spikes.limit:
            return False
        return self.look(scratch, grads, step, _known(loss), norm, clipped_norm, _known(lr), rows)

    def look(
        self,
        scratch: Scratch,
        grads: Gradients,
        step: int,
        loss: float,
        norm: float,
        clipped_norm: float,
        lr: float,
        rows: Array | None,
    ) -> bool:
        """Do what `observe` does for a step that is `due` or whose norm exceeds the limit."""
        probes = self._probes(scratch, grads)
        if norm > self.spikes.limit:
            self._note_spike(probes, step, norm, rows)
        if step < self.due:
            return False
        self.spikes.settle()
        spacing = self._spacing
        if step >= spacing.look_at:
            for number, window in self.windows.items():
                window.look(probes.rectified[number], step)
        is_sample = step >= spacing.sample_at
        if is_sample:
            with np.errstate(all="ignore"):
                self._sample(probes, step, norm, clipped_norm, rows)
            self.values[LOSS], self.values[LR] = loss, lr
            if step == 1:
                self.first_loss = loss
            self.series.append(step, self.values)
        spacing.plan(step)
        self.due = spacing.due
        if spacing.sample_at == step + 1:
            self._updates.before_step()
            self._copied_at = step
        return is_sample

    def dead_share(self, layer: int) -> float:
        """Return the share of a layer's units that never fired in the last whole window."""
        window = self.windows.get(layer)
        known = window is not None and window.dead is not None
        return window.dead_share if window and known else self.get("dead_share", layer)

    def get(self, quantity: str, layer: int | None = None) -> float:
        """Return a quantity of the last sample; NaN if it is unknown."""
        return self.values[self.columns.place(quantity, layer)]

    def close_epoch(self, train_loss: float, validation_loss: float | None = None) -> None:
        """Add the losses of an epoch; without epochs, verdicts use the losses of `observe`."""
        self.epochs.append((train_loss, _known(validation_loss)))

    def _sample(
        self,
        probes: BoundProbes,
        step: int,
        norm: float,
        clipped_norm: float,
        rows: Array | None,
    ) -> None:
        values, batch = self.values, probes.scratch.batch_size
        values[:] = self._unknown
        probes.measure(clipped_norm / norm if norm else 1.0, values)
        self.noise.add(probes.rows.summarize(values, rows), norm, batch, values)
        if self._copied_at != step - 1:
            for place in self._about_updates:
                values[place] = nan
        values[NORM], values[CLIPPED], values[SPIKES] = norm, clipped_norm, float(self.spikes.count)
        values[CLIPPED_SHARE] = self.clipped / max(1, step - self.sampled)
        first, last = (values[self._gradients[n]] for n in (0, -1))
        if first > 0 and last > 0 and isfinite(first):
            values[SLOPE] = log10(first / last)
        for place, window in self._window_places:
            values[place] = window.dead_share
        self.sampled, self.clipped = step, 0

    def _note_spike(self, probes: BoundProbes, step: int, norm: float, rows: Array | None) -> None:
        """Find the row that a spike came from."""
        self.spikes.count += 1
        with np.errstate(all="ignore"):
            replay(probes.rows.norm_calls)
            norms = probes.rows.norms
            place = int(norms.argmax())
            share = float(norms[place] / norms.sum())
        row = int(rows[place]) if rows is not None else place
        self.noted.append(Spike(step, norm, norm / self.spikes.usual, row, share))

    def _probes(self, scratch: Scratch, grads: Gradients) -> BoundProbes:
        found = self._bound.get(id(scratch))
        if found is not None and found.grads is grads:
            return found
        if self._room is None or self._room.batch_size < scratch.batch_size:
            self._room = Room(self.mlp, scratch.batch_size)
            self.batch_size = scratch.batch_size
            self._spacing.settle(len(self.mlp.params), scratch.batch_size)
        self._bound[id(scratch)] = BoundProbes(
            scratch, grads, self._room, self._updates, self.columns
        )
        return self._bound[id(scratch)]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of what later samples depend on: arrays, and JSON-able numbers."""
        state: dict[str, Any] = {
            "sampled": self.sampled,
            "stretch": self._spacing.stretch,
            "clipped": self.clipped,
            "first_loss": np.array(self.first_loss),
            "noise": self.noise.state(),
            "spikes": self.spikes.state(),
            "noted": np.array(self.noted, np.float64).reshape(-1, len(Spike._fields)),
            "values": np.array(self.values),
            "epochs": np.array(self.epochs, np.float64).reshape(-1, 2),
            **{f"series.{key}": value for key, value in self.series.state_dict().items()},
        }
        for number, window in self.windows.items():
            state |= {f"window.{number}.{k}": v for k, v in window.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned.  Then load the parameters and call `begin`."""
        self.sampled, self.clipped = state["sampled"], state["clipped"]
        self._spacing.stretch = state["stretch"]
        self.first_loss = float(state["first_loss"])
        self.noise.load(state["noise"])
        self.spikes.load(state["spikes"])
        self.noted.clear()
        for step, norm, times, row, share in state["noted"].tolist():
            self.noted.append(Spike(int(step), norm, times, int(row), share))
        self.values[:] = state["values"].tolist()
        self.epochs = [(train, validation) for train, validation in state["epochs"].tolist()]
        self.series.load_state_dict(_under("series.", state))
        for number, window in self.windows.items():
            window.load_state_dict(_under(f"window.{number}.", state))


def _known(value: float | None) -> float:
    return nan if value is None else value


def _under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
