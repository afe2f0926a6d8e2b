"""`mlpengine summary`: layers, shapes, parameters, memory and arithmetic of a config."""

import json
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from mlpengine.config import load_config, parse_override
from mlpengine.config.build import load_data, trainer_of
from mlpengine.core.errors import UsageError
from mlpengine.core.wording import plural, printable
from mlpengine.models.card import card
from mlpengine.nn import TabularNetwork
from mlpengine.training.loading import load
from mlpengine.training.run_directory import resolved_config
from mlpengine.training.trainer import Trainer

from .options import AS_JSON, overrides_like
from .outcome import SHOWN_PARTS, part_title
from .streams import say

SHOWN_LEVELS = 12
"""Number of levels of a column, and of classes, that are listed."""

EPILOG = """\b
Examples:
  mlpengine summary configs/digits.yaml
  mlpengine summary configs/digits.yaml --set 'model.hidden=[512, 512]' --json
  mlpengine summary runs/digits
  mlpengine summary runs/digits/model.safetensors
"""


@click.command("summary", epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@overrides_like("optimizer.lr=0.1")
@AS_JSON
def command(config: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Show the network that CONFIG, a config or a run directory, describes, without training it.

    Shapes are (rows, units).  FLOPs count a multiplication and an addition as two; a training
    step is forward, backward and the update.  For a model file, it shows columns, their types and
    levels, the target, and the score.
    """
    if config.suffix == ".safetensors":
        if settings:
            raise UsageError("summary: --set changes a config, not a model file")
        known = card(load(config))
        known["written"] = f"{datetime.fromtimestamp(config.stat().st_mtime):%Y-%m-%d %H:%M}"
        say(json.dumps(known) if as_json else "\n".join(card_lines(known)))
        return
    path = resolved_config(config) if config.is_dir() else config
    overrides = [parse_override(text) for text in settings]
    facts = network_summary(trainer_of(load_data(load_config(path, overrides))))
    say(json.dumps(facts) if as_json else summary_text(facts))


def card_lines(known: dict[str, Any]) -> list[str]:
    """Return the facts of a model file as text."""
    record = known["record"]
    classes = f": {', '.join(map(printable, known['classes'][:SHOWN_LEVELS]))}"
    classes += ", ..." if len(known["classes"]) > SHOWN_LEVELS else ""
    networks = f"{known['networks']} of " if known["networks"] > 1 else ""
    kinds = [f"{networks}{known['architecture']}"] * (known["networks"] > 0)
    kinds += [plural(known["linear_models"], "linear model")] * (known["linear_models"] > 0)
    target = ", ".join(map(printable, known["target"]))
    lines = [
        f"predicts  {target} ({known['task']}{classes if known['classes'] else ''})",
        f"network   {' and '.join(kinds)}, "
        f"{plural(known['parameters'], 'parameter')}, loss {known['loss']}",
    ]
    if record:
        counts = record["rows"]
        rows = ", ".join(f"{counts[part]:,} {part}" for part in SHOWN_PARTS if part in counts)
        scores = ", ".join(f"{name} {value:.4g}" for name, value in record["metrics"].items())
        lines += [
            f"trained   on {printable(record['source'])} ({rows}), seed {record['seed']}",
            f"score     {part_title(record['part'])}: {scores}",
        ]
    lines.append(f"written   {known['written']}, by the date of the file")
    width = max(8, *(len(printable(one["name"])) + 2 for one in known["columns"]))
    lines += ["", f"{'column':<{width}}{'type':<10}levels"]
    for one in known["columns"]:
        levels = [printable(level) for level in one["levels"][:SHOWN_LEVELS]]
        more = ["..."] * (len(one["levels"]) > SHOWN_LEVELS)
        text = f"{printable(one['name']):<{width}}{one['type']:<10}{', '.join([*levels, *more])}"
        lines.append(text.rstrip())
    return lines


def network_summary(trainer: Trainer) -> dict[str, Any]:
    """Return the facts of a network before training."""
    mlp, step, batch = trainer.networks[0], trainer.step, trainer.batch_size
    layers = layer_facts(mlp, batch)
    weights = [mlp.params.views[name] for name in mlp.groups["weights"]]
    forward = sum(2 * weight.size + len(weight) for weight in weights)
    moments = sum(moment.nbytes for moment in step.optimizer.moments.values())
    return {
        "features": mlp.sizes[0],
        "outputs": mlp.sizes[-1],
        "loss": trainer.loss.name,
        "batch_size": batch,
        "dropout": mlp.options["dropout"],
        "dtype": mlp.dtype.name,
        "backend": step.backend,
        "threads": trainer.threads,
        **({"input_layer": input_layer_facts(mlp)} if mlp.input_layer else {}),
        "layers": layers,
        "members": len(trainer.members),
        "parameters": len(mlp.params),
        "bytes": {
            "parameters": mlp.params.flat.nbytes,
            "optimizer": moments,
            "activations": step.scratch.planned_bytes,
            "gradients": step.grads.planned_bytes,
        },
        "flops_per_step": sum(layer["flops_per_step"] for layer in layers),
        "flops_per_prediction": forward,
        "steps_per_epoch": -(-trainer.row_count(0) // batch),
    }


def input_layer_facts(mlp: TabularNetwork) -> dict[str, Any]:
    """Return the facts of the part that computes the first layer's input."""
    assert mlp.input_layer is not None
    size = sum(v.size for name, v in mlp.params.views.items() if name.startswith("input_layer."))
    return {**asdict(mlp.input_layer), "output": mlp.n_inputs, "parameters": size}


def layer_facts(mlp: TabularNetwork, batch: int) -> list[dict[str, Any]]:
    """Return shapes and arithmetic of each dense layer; the input needs no gradient.

    A block of a residual network is one layer with two of them.
    """
    views = mlp.params.views
    facts: list[dict[str, Any]] = []
    for number, names in enumerate(mlp.layer_names):
        starts = [k for k, name in enumerate(names) if views[name].ndim > 1]
        for first, last in pairwise([*starts, len(names)]):
            name, own = names[first], names[first:last]
            out_dim, in_dim = views[name].shape
            products = 2 * batch * views[name].size
            is_inner = bool(facts) or mlp.input_layer is not None
            learned = any(one.endswith(".alpha") for one in own)
            facts.append(
                {
                    "layer": number,
                    "weight": [out_dim, in_dim],
                    "activation": mlp.activations.get(name),
                    **({"learned": True} if learned else {}),
                    "output": [batch, out_dim],
                    "parameters": sum(views[one].size for one in own),
                    "flops_per_step": products * (3 if is_inner else 2) + 2 * batch * out_dim,
                }
            )
    return facts


def summary_text(facts: dict[str, Any]) -> str:
    """Return a summary for a person."""
    lines = [
        f"{plural(facts['features'], 'feature')}, {plural(facts['outputs'], 'output')}, "
        f"loss {facts['loss']}, {facts['dtype']}, dropout {_rates(facts['dropout'])}",
        *_input_layer_lines(facts.get("input_layer")),
        "",
        f"{'layer':>5}  {'weight':<14}{'activation':<17}{'output':<14}{'parameters':>12}"
        f"{'FLOPs a step':>16}",
    ]
    for layer in facts["layers"]:
        weight, output = (" x ".join(map(str, layer[key])) for key in ("weight", "output"))
        name = (layer["activation"] or "-") + " (learned)" * layer.get("learned", False)
        lines.append(
            f"{layer['layer']:>5}  {weight:<13} {name:<16} {output:<13} "
            f"{layer['parameters']:>12,} {layer['flops_per_step']:>15,}"
        )
    sizes = ", ".join(f"{name} {count:,}" for name, count in facts["bytes"].items())
    if facts["members"] > 1:
        lines += ["", f"{facts['members']} such networks; the numbers below are for one"]
    lines += [
        "",
        f"parameters  {facts['parameters']:,}",
        f"FLOPs       {facts['flops_per_step']:,} a step of {plural(facts['batch_size'], 'row')}, "
        f"{facts['flops_per_prediction']:,} a prediction",
        f"bytes       {sizes}",
        f"steps       {facts['steps_per_epoch']:,} an epoch, by {facts['backend']}, "
        f"{plural(facts['threads'], 'thread')}",
    ]
    return "\n".join(lines)


def _rates(dropout: float | list[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in (dropout if isinstance(dropout, list) else [dropout]))


def _input_layer_lines(input_layer: dict[str, Any] | None) -> list[str]:
    if input_layer is None:
        return []
    waves = plural(input_layer["frequencies"], "frequency", "frequencies")
    embedding = f"{input_layer['embedding']}, {waves} a feature"
    parts = ["mask"] * input_layer["masked"] + ["scaling"] * input_layer["scaling"]
    parts += [embedding] * (input_layer["embedding"] != "none")
    return [
        f"input layer: {'; '.join(parts[::-1])}; {plural(input_layer['output'], 'number')}, "
        f"{plural(input_layer['parameters'], 'parameter')}"
    ]
