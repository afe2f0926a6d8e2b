"""Export a training step as one C99 file for a device, with header and self-test.

``export_training(model, "pump.c", optimizer=Sgd)`` writes ``pump.c``, ``pump.h`` and
``pump_test.c``.  The code of forward, loss, backward and update is made from the same formulas and
instructions as the compiled training step.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlpengine.backends.scalar.definitions import identifier
from mlpengine.core.errors import UsageError
from mlpengine.core.files import checked_path
from mlpengine.core.wording import quoted
from mlpengine.export._device import DeviceStep, MakeOptimizer
from mlpengine.export._device_c import header, network_title, scratch, source
from mlpengine.export._device_test import self_test
from mlpengine.export._exported import check_model
from mlpengine.export._model_c import why_double
from mlpengine.export._package import (
    Package,
    checked_folder,
    library_files,
    training_sketch,
    write_folder,
)
from mlpengine.export._table_c import DOUBLE
from mlpengine.export.network_c import Real, real_of
from mlpengine.models.model import Model
from mlpengine.nn import Mlp
from mlpengine.nn.safetensors_file import check_finite
from mlpengine.ops import Loss
from mlpengine.optim import Optimizer, Sgd

__all__ = ["DeviceFiles", "MakeOptimizer", "Package", "Real", "export_training"]

_log = logging.getLogger("mlpengine")


@dataclass(frozen=True)
class DeviceFiles:
    """The files that `export_training` wrote, and the bytes that they need on a device.

    Attributes:
        source, header, test: paths.
        others: paths of a library's further files: its manifest, and a sketch.
        state: bytes of a state, in RAM.
        scratch: bytes of stack for a training step or a prediction; registers need 512 more.
        title: network, loss and optimizer on one line.
    """

    source: Path
    header: Path
    test: Path
    others: tuple[Path, ...]
    state: int
    scratch: int
    title: str


def export_training(
    model: Model | Mlp,
    path: str | Path,
    *,
    optimizer: MakeOptimizer = Sgd,
    loss: Loss | None = None,
    clip_norm: float | None = None,
    freeze: Iterable[int] | None = None,
    real: Real | None = None,
    package: Package | None = None,
) -> DeviceFiles:
    """Write a training step as C: `path`, and beside it its header and self-test.

    Args:
        model: a model with its preprocessing, or only an `Mlp`; dropout is left out.
        path: path of the source; its name, without ``.c``, is the prefix of all names in the
            header.
        optimizer: function from a network to an optimizer, such as ``Sgd`` or
            ``lambda mlp: Adam(mlp, lr=1e-3)``; the optimizer's schedule is left out, because the
            application sets ``lr`` in the state.
        loss: by default the model's loss; an `Mlp` needs a loss.
        clip_norm: maximum norm of the gradients; None does not clip.
        freeze: indices of layers that are not trained, with constant weights; by default the
            network's frozen layers.
        real: type of all numbers, by default the model's.  The compiler option
            ``-DNAME_REAL=TYPE`` replaces the type.
        package: ``arduino`` or ``platformio``.  Then `path` is the folder of a library with an
            example sketch that reads sensors and trains in a loop.

    A warning is logged if float rounds a column too much (see `why_double`).

    Raises: UsageError for a part without a C form, or for options that do not fit the model.
    """
    check_model(model)
    path = checked_path(path, "export")
    if package is not None:
        checked_folder(path)
    elif path.suffix not in ("", ".c"):
        raise UsageError(f"{path}: the name must end in .c (got {path.suffix})")
    if clip_norm is not None and not 0 < clip_norm < np.inf:
        raise UsageError(f"export: clip_norm must be finite and above zero (got {clip_norm})")
    if isinstance(optimizer, Optimizer):
        name = type(optimizer).__name__
        raise UsageError(
            f"export: optimizer must be a class or a function of the network (got one {name}); "
            f"write {name} or lambda mlp: {name}(mlp, lr=...)"
        )
    if not callable(optimizer):
        raise UsageError(f"export: optimizer must be a class such as Sgd (got {quoted(optimizer)})")
    if not isinstance(loss, Loss | None):
        text = "export: loss must be a loss such as MeanSquaredError()"
        raise UsageError(f"{text} (got {quoted(loss)})")
    if path.stem != identifier(path.stem):
        raise UsageError(
            f"export: name must be a C identifier, such as {identifier(path.stem)} "
            f"(got {path.stem!r})"
        )
    whole = model if isinstance(model, Model) else None
    if loss is None:
        if whole is None:
            raise UsageError("export: an Mlp needs a loss; write loss=MeanSquaredError()")
        loss = whole.plain_loss
    mlp = _plain(model, freeze)
    real = real or real_of(mlp)
    step = DeviceStep(mlp, whole, loss, optimizer, clip_norm, real, path.stem)
    text, name, title = source(step), step.name, network_title(step)
    src, extras = ("src/", "extras/") if package else ("", "")
    texts = {
        f"{src}{name}.h": header(step),
        f"{extras}{name}_test.c": self_test(step),
        f"{src}{name}.c": text,
    }
    if package:
        sketch = training_sketch(name, classes=step.has_classes)
        texts |= library_files(package, name, title, sketch, trains=True)
    head, test, file, *others = write_folder(path if package else path.parent, texts)
    if whole is not None and real == "float" and (reason := why_double(whole)):
        _log.warning("warning: %s: %s; %s", file, reason, DOUBLE)
    size = 4 if real == "float" else 8
    reals = (1 + len(step.update.moments)) * step.parameters + 2  # lr and norm
    return DeviceFiles(
        file,
        head,
        test,
        tuple(others),
        reals * size + 8,
        scratch(step) * size,
        title,
    )


def _plain(model: Model | Mlp, freeze: Iterable[int] | None) -> Mlp:
    """Return the network without dropout.  Raises: UsageError if the network cannot train in C."""
    if isinstance(model, Model) and model.populations:
        count = len(model.networks)
        raise UsageError(
            f"export: a model must be one network to train (got {count}); mlpengine distill RUN "
            "trains one that predicts the same"
        )
    mlp = model.mlp if isinstance(model, Model) else model
    if not isinstance(mlp, Mlp):
        raise UsageError(f"export: a network to train must be an Mlp (got {mlp})")
    if mlp.reads:
        raise UsageError(
            f"export: a network to train must read all features (got reads={mlp.reads})"
        )
    plain = mlp.like(dropout=0.0)
    plain.params.flat[...] = mlp.params.flat
    plain.freeze(mlp.frozen if freeze is None else freeze)
    check_finite(plain.params.views, "export", UsageError)
    return plain
