"""The parts of a C file that trains a network on a device (microcontroller)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from mlpengine.backends.compiled.kernel import InstructionLike, LossInstruction
from mlpengine.backends.compiled.statements import Statement
from mlpengine.backends.scalar.definitions import Functions
from mlpengine.backends.scalar.scalar_step import write_step
from mlpengine.backends.scalar.update_code import UpdateCode
from mlpengine.backends.values import UnsupportedError
from mlpengine.core.buffers import address_of
from mlpengine.core.errors import UsageError
from mlpengine.core.fork_locks import cached_property
from mlpengine.core.spec import Array, Spec
from mlpengine.core.wording import plural
from mlpengine.export._table_c import TableCode, table_code
from mlpengine.export.network_c import PredictionCode, Real, forward_of
from mlpengine.models.model import Model
from mlpengine.models.task import Regression
from mlpengine.nn import Mlp
from mlpengine.ops import Loss
from mlpengine.optim import FullBatch, Optimizer

MakeOptimizer = Callable[[Mlp], Optimizer]
"""``Sgd``, or a function that returns an optimizer for a network."""


@dataclass(frozen=True)
class StepCode:
    """The statements of a step, and `size`, the length of its scratch array.

    `factors` has the C names of the vectors dy and x of each layer; their outer product is the
    gradient of the layer's weights.  `given` has the C names of the arrays that the preprocessing
    fills: the features and, if they are scaled, the targets.  It is empty without preprocessing.
    """

    statements: list[Statement]
    size: int
    factors: dict[int, tuple[str, str]]
    given: list[str]


@dataclass(frozen=True)
class DeviceStep:
    """Everything that is needed to write the C files of a training step.

    Attributes:
        mlp: the network, without dropout.  Training in C begins with its weights; the weights of
            frozen layers are constants.
        model: the model with the preprocessing; None for a network without preprocessing.
        loss: the loss that training minimizes.
        make_optimizer: function from a network to its optimizer.
        clip_norm: maximum norm of the gradients, or None.
        real: ``float`` or ``double``.
        name: prefix of the names in the header.
    """

    mlp: Mlp
    model: Model | None
    loss: Loss
    make_optimizer: MakeOptimizer
    clip_norm: float | None
    real: Real
    name: str

    @property
    def upper(self) -> str:
        """Prefix of macros."""
        return self.name.upper()

    @cached_property
    def frozen(self) -> list[int]:
        """Indices of the frozen layers."""
        return self.mlp.frozen

    @property
    def trained(self) -> list[int]:
        """Indices of the trained layers."""
        return [i for i in range(len(self.mlp.layers)) if i not in self.frozen]

    @cached_property
    def places(self) -> dict[str, str]:
        """The C expression of each parameter, by name."""
        places = {}
        for i, layer in enumerate(self.mlp.layers):
            weight, start = self.mlp.weights[i].size, self.offsets.get(i, 0)
            at = "state->params" if i in self.offsets else f"frozen_{i}"
            places[layer.weight_name] = f"{at} + {start}"
            places[layer.bias_name] = f"{at} + {start + weight}"
        return places

    @cached_property
    def offsets(self) -> dict[int, int]:
        """The start of the parameters of each trained layer in the state."""
        offsets, place = {}, 0
        for i in self.trained:
            offsets[i] = place
            place += self.mlp.weights[i].size + self.mlp.biases[i].size
        return offsets

    @property
    def trained_entries(self) -> Array:
        """Positions of the trained parameters among all parameters, in the order of the state."""
        names = [name for i in self.trained for name in self.mlp.layers[i].names]
        places = [self.mlp.params.places[name] for name in names]
        return np.concatenate([np.arange(place.start, place.stop) for place in places])

    @property
    def parameters(self) -> int:
        """Number of trained parameters."""
        return sum(self.mlp.weights[i].size + self.mlp.biases[i].size for i in self.trained)

    def layer_values(self, layers: Collection[int]) -> Array:
        """Return weights and biases of some layers as one vector."""
        pairs = [(self.mlp.weights[i], self.mlp.biases[i]) for i in layers]
        return np.concatenate([np.empty(0), *(a.ravel() for pair in pairs for a in pair)])

    @cached_property
    def optimizer(self) -> Optimizer:
        """The optimizer, before its first step."""
        optimizer = self.make_optimizer(self.mlp)
        if isinstance(optimizer, FullBatch):
            raise UsageError(
                "export: an optimizer must make steps on single rows to train in C "
                f"(got {type(optimizer).__name__})"
            )
        return optimizer

    @cached_property
    def update(self) -> UpdateCode:
        """The C code of the optimizer."""
        update = self.optimizer.describe_update()
        if self.optimizer.average is not None:
            raise UsageError("export: training in C needs an optimizer without average")
        if not update.is_plain:
            raise UsageError(
                "export: training in C needs an optimizer without groups "
                f"(got {plural(len(self.optimizer.groups), 'group')})"
            )
        return UpdateCode(update, f"{self.name}_state")

    @cached_property
    def table(self) -> TableCode | None:
        """The C code of the preprocessing, if the model has one."""
        if self.model is None:
            return None
        return table_code(self.model, self.name, self.functions, real=self.real, trains=True)

    @property
    def has_classes(self) -> bool:
        """Whether a target is a class index, or 0 or 1."""
        if self.model is None:
            return self.target_spec.dtype.kind == "i"
        return not isinstance(self.model.task, Regression)

    @property
    def inputs(self) -> int:
        """Number of values in a row."""
        return self.table.inputs if self.table else self.mlp.sizes[0]

    @property
    def targets(self) -> int:
        """Number of values in a row's target; a class index is one value."""
        if self.table:
            return self.table.targets
        return 1 if self.target_spec.dtype.kind == "i" else self.target_spec.shape[1]

    @property
    def outputs(self) -> int:
        """Number of values in a prediction."""
        return self.table.outputs if self.table else self.mlp.sizes[-1]

    @cached_property
    def target_spec(self) -> Spec:
        """Spec of the loss's target."""
        return self.loss.target_spec(Spec((1, self.mlp.sizes[-1]), self.mlp.dtype), None)

    @cached_property
    def functions(self) -> Functions:
        """The C functions that the code of the network calls."""
        return Functions()

    @cached_property
    def forward(self) -> PredictionCode:
        """The C code of the prediction of a row."""
        source, output = ("", "") if self.table else ("x", "out")
        return forward_of(self.functions, self.mlp, self.places, source, output)

    @cached_property
    def step(self) -> "StepCode":
        """The C code of forward pass, loss and backward pass."""
        mlp, scratch = self.mlp, self.mlp.scratch(1)
        grads, spec = mlp.gradients(1), self.target_spec
        target: Array = np.zeros(spec.shape, spec.dtype)
        backward, views = grads.bind(scratch), grads.views
        ends = (scratch.output, target, None), (grads.d_output, np.zeros(()))
        fixed = {address_of(mlp.params.views[n]): place for n, place in self.places.items()}
        ends_of_row = [scratch.input, target]
        given = []
        for array, name, placed in (
            (scratch.input, "x", self.table is not None),
            (target, "y", self.table is not None and self.table.scales_target),
        ):
            if placed:
                given.append(array)
            else:
                fixed[address_of(array)] = name
        instructions: list[InstructionLike] = [*scratch.program.instructions]
        instructions.append(LossInstruction(self.loss, *ends))
        instructions += backward.instructions
        try:
            program = write_step(instructions, self.functions, fixed, ends_of_row)
        except UnsupportedError as error:
            raise UsageError(
                f"export: each part of the step needs a C form (got {error})"
            ) from error
        weights = {address_of(views[mlp.layers[i].weight_name]): i for i in self.trained}
        factors = {weights[address]: pair for address, pair in program.factors.items()}
        places = [program.place_of(array) for array in given]
        return StepCode(program.statements, program.size, factors, places)

    def decayed(self) -> dict[int, tuple[bool, bool]]:
        """Return whether the weight and the bias of each trained layer decay."""
        ranges, place = self.update.update.decayed, 0
        kept = {}
        for i, (weight, bias) in enumerate(zip(self.mlp.weights, self.mlp.biases, strict=True)):
            starts = place, place + weight.size
            kept[i] = tuple(any(a <= start < b for a, b in ranges) for start in starts)
            place += weight.size + bias.size
        return {i: (kept[i][0], kept[i][1]) for i in self.trained}
