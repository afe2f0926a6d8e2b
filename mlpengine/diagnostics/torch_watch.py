"""Verdicts on training loops of PyTorch: `TorchWatch`; needs the extra ``torch``."""

from functools import partial
from math import prod, sqrt
from typing import Any

import numpy as np

from mlpengine.core.errors import UsageError, importing
from mlpengine.core.spec import Array
from mlpengine.diagnostics.array_watch import Watch
from mlpengine.diagnostics.derived import stuck
from mlpengine.diagnostics.thresholds import WATCHED_ROWS
from mlpengine.diagnostics.verdict import Verdict
from mlpengine.formula import evaluate, variable
from mlpengine.ops import LOSSES, REGISTRY, Activation, GradOp
from mlpengine.ops.softmax import Softmax

with importing("watching a loop of PyTorch", "torch"):
    import torch
    from torch import Tensor, nn

OPS: dict[str, Any] = {
    op.__name__: op for op in REGISTRY.values() if issubclass(op, Activation | Softmax)
}
"""Activations by the names of their nodes in PyTorch's gradient graph."""
LOSS_NODES = {
    "NllLoss": "softmax_cross_entropy",
    "BinaryCrossEntropyWithLogits": "bce_with_logits",
    "BinaryCrossEntropy": "bce_with_logits",
    "MseLoss": "mse",
    "HuberLoss": "huber",
    "SmoothL1Loss": "huber",
}
PRODUCTS = {"Addmm", "Mm", "Convolution"}
OF_LARGE_STEPS = {"lr_high", "nonfinite", "exploding", "start", "dead", "spikes", "momentum_high"}
"""Verdicts that may result from a loss that is a sum over the batch."""


class TorchWatch(Watch):
    """Watches a PyTorch loop; modules have hooks only in measured steps.

    Call `step` with the loss after each step of the optimizer.  The watch detects settings, loss,
    activations and inputs.  Mistakes in the loop itself have their own verdicts.

    Args:
        model: the network, a `torch.nn.Module`.
        optimizer: its `torch.optim.Optimizer`.
        every: steps between samples (see `Watch`).
    """

    def __init__(self, model: Any, optimizer: Any, *, every: int | None = None) -> None:
        if not (isinstance(model, nn.Module) and isinstance(optimizer, torch.optim.Optimizer)):
            kinds = f"{type(model).__name__}, {type(optimizer).__name__}"
            raise UsageError(f"watch: needs a module and its optimizer of PyTorch (got {kinds})")
        super().__init__(every=every)
        self._schedule.sample_at = 1
        self._optimizer, self._modules = optimizer, dict(model.named_modules())
        weights = {
            name: [p for p in module.parameters(recurse=False) if p.ndim > 1]
            for name, module in self._modules.items()
            if not isinstance(module, nn.Embedding | nn.EmbeddingBag)
        }
        self._parameters = {name: several for name, several in weights.items() if several}
        rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
        self.dropout = tuple(rate for rate in rates if 0 < rate < 1)
        self._ops: dict[str, GradOp | None] = {}
        self._mistake: Verdict | None = None
        self._is_sum = False
        self._hooks: list[Any] = []
        self._inputs: Tensor | None = None
        self._outputs: dict[str, Tensor] = {}
        self._gradients: dict[str, list[Tensor | None]] = {}
        self._before = {name: (0, _array(p).copy()) for name, p in self._parameters.items()}
        optimizer.register_step_post_hook(self._after_update)
        self._listen()

    def step(self, loss: Any, *, inputs: Any = None, targets: Any = None) -> None:
        """End a step (see `Watch.step`); `inputs` is ignored, because hooks record the inputs."""
        if getattr(loss, "grad_fn", None) is None or loss.numel() != 1:
            got = f"a {type(loss).__name__} {getattr(loss, 'shape', '')}".rstrip()
            raise UsageError(
                f"watch: step needs the loss, one number, before item() or detach() (got {got})"
            )
        due = self.due
        if due:
            if not self.steps:
                self._read_graph(loss.grad_fn)
                self._find_mistake()
            group = {k: v for k, v in self._optimizer.param_groups[0].items() if k != "params"}
            vars(self.settings).update(group, lr=float(group["lr"]))
            for name, z in self._outputs.items():
                self._record(name, z)
            inputs = None if self._inputs is None else _array([self._inputs])
            if isinstance(targets, Tensor):
                floats = targets.is_floating_point()
                targets = _array([targets]) if floats else targets.cpu().numpy()
        super().step(loss.detach(), inputs=inputs, targets=targets)
        if due or self.due:
            self._listen()

    def _verdicts(self) -> list[Verdict]:
        """Return the verdicts, or only a mistake in the loop, which may explain all others."""
        if self._mistake:
            return [self._mistake]
        found = super()._verdicts()
        harmed = stuck(self.core) or not OF_LARGE_STEPS.isdisjoint(one.name for one in found)
        if not (self._is_sum and harmed and not hasattr(self.settings, "betas")):
            return found
        rows = self._rows
        evidence = f"The loss adds up over the batch, so that a step is {rows} times as large."
        advice = f"Use reduction='mean', or divide the learning rate by {rows}."
        return [Verdict("loss_summed", None, "Loss is a sum", evidence, rows, 1, advice)]

    def _listen(self) -> None:
        """Remove all hooks of modules; add hooks if the next step is measured."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._outputs.clear()
        for name in self._parameters if self.due else ():
            module = self._modules[name]
            self._hooks.append(module.register_forward_hook(partial(self._keep, name)))

    def _keep(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        """Keep the output of a layer, with the units as last axis."""
        if not (torch.is_grad_enabled() and isinstance(output, Tensor)):
            return
        images = output.ndim > 2 and not isinstance(module, nn.Linear)
        if name == next(iter(self._outputs), name):
            self._inputs = inputs[0].detach()[:WATCHED_ROWS] if inputs else None
            self._rows = len(output)
        self._outputs[name] = output.detach().movedim(1, -1) if images else output.detach()

    def _after_update(self, *_: Any) -> None:
        """Keep the gradients before the loop clears them."""
        if self.is_sample:
            for name, several in self._parameters.items():
                grads = (p.grad for p in several)
                self._gradients[name] = [None if g is None else g.detach().clone() for g in grads]

    def _record(self, name: str, z: Tensor) -> None:
        """Record a layer; compute the activations from its output `z`."""
        op, y = self._ops[name], _array([z])
        y = y.reshape(-1, y.shape[-1])[:WATCHED_ROWS]
        if isinstance(op, Activation) and self.is_sample:  # else only the signs of `y` are read
            y = evaluate(op.formula(variable("x")), {"x": y})
        grads = [g for g in self._gradients.get(name, ()) if g is not None]
        complete = not self.is_sample or len(grads) == len(self._parameters[name])
        self.record(
            name,
            weights=_array(self._parameters[name]) if complete else None,
            gradients=_array(grads) if grads else None,
            activations=y,
            activation=op,
        )

    def _read_graph(self, root: Any) -> None:
        """Find the loss and the activation of each layer in PyTorch's gradient graph."""
        nodes, parents, leaves = [root], dict[Any, list[Any]](), dict[int, Any]()
        for node in nodes:
            for child, _ in node.next_functions:
                if child is not None:
                    if child not in parents:
                        nodes.append(child)
                    parents.setdefault(child, []).append(node)
            if hasattr(node, "variable"):
                leaves[id(node.variable)] = node
        losses = [LOSS_NODES[kind] for node in nodes if (kind := _kind(node)) in LOSS_NODES]
        self.loss = LOSSES[losses[0]]() if len(losses) == 1 else None
        self._is_sum = _kind(root) == "Sum" or getattr(root, "_saved_reduction", 1) == 2
        for name in self._outputs:
            leaf = leaves.get(id(self._parameters[name][0]))
            self._ops[name] = _activation(leaf, parents)
        if any(_kind(node) == "BinaryCrossEntropy" for node in nodes):  # takes probabilities
            self._ops[next(reversed(self._ops))] = None

    def _find_mistake(self) -> None:
        """Find layers that are computed but not trained."""
        groups = self._optimizer.param_groups
        listed = {id(p) for group in groups for p in group["params"]}
        untrained: dict[str, list[str]] = {"frozen": [], "unlisted": [], "detached": []}
        last = next(reversed(self._outputs), "")
        for name in self._outputs:
            weight, grads = self._parameters[name][0], self._gradients.get(name, [])
            if not weight.requires_grad:
                if name == last or _is_initial(weight):
                    untrained["frozen"].append(name)
            elif id(weight) not in listed:
                untrained["unlisted"].append(name)
            elif grads and grads[0] is None:
                untrained["detached"].append(name)
        for reason, names in untrained.items():
            if names:
                kind, headline, evidence, advice = MISTAKES[reason]
                evidence = evidence.format(", ".join(names))
                self._mistake = Verdict(kind, None, headline, evidence, len(names), 0, advice)
                return


MISTAKES = {
    "frozen": (
        "frozen",
        "Layers are frozen",
        "Parameters of {} have requires_grad=False, and no training has changed them.",
        "Set requires_grad to True, or load trained weights first.",
    ),
    "unlisted": (
        "frozen",
        "The optimizer misses layers",
        "The optimizer does not have the parameters of {}.",
        "Make the optimizer with model.parameters(), after all layers exist.",
    ),
    "detached": (
        "detached",
        "A branch is detached",
        "No gradient reaches {}, although its output is computed.",
        "Look for detach(), .data, no_grad() or NumPy between this layer and the loss.",
    ),
}
"""Name, headline, evidence and advice of verdicts on layers that are not trained."""


def _activation(node: Any, parents: dict[Any, list[Any]]) -> GradOp | None:
    """Return the activation that directly follows the product with the weights, or None."""
    multiplied = False
    while len(above := parents.get(node, [])) == 1:
        node = above[0]
        kind = _kind(node)
        if kind in OPS:
            op: GradOp = OPS[kind]()
            return op
        if kind in PRODUCTS:
            if multiplied:
                break
            multiplied = True
        elif kind not in {"T", "View", "UnsafeView"}:
            break
    return None


def _kind(node: Any) -> str:
    """Return the name of a node without its suffix, such as Backward0."""
    return str(node.name()).partition("Backward")[0]


def _is_initial(weight: Tensor) -> bool:
    """Return whether weights look like PyTorch's initial weights: uniform in +-1 / sqrt(fan_in)."""
    scaled = weight.detach() * sqrt(prod(weight.shape[1:]))
    root_mean_square = float(scaled.square().mean().sqrt())
    return float(scaled.abs().max()) <= 1 and abs(root_mean_square * sqrt(3) - 1) < 0.1


def _array(tensors: list[Any]) -> Array:
    """Return one tensor as a float32 array, several tensors as one vector."""
    each = [tensor.detach().float().cpu().numpy() for tensor in tensors]
    return each[0] if len(each) == 1 else np.concatenate([one.ravel() for one in each])
