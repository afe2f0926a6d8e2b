"""Export of trained models: safetensors, ONNX, C, JavaScript, HTML.

``export(model, "model.onnx")`` writes an ONNX model with the preprocessing.  The ONNX model reads a
table's columns by name and returns labels and probabilities, or numbers in the target's units.
Before the file is written, the ONNX model's predictions are compared with mlpengine's predictions.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import save

from mlpengine.core.errors import UsageError
from mlpengine.core.files import checked_path, is_device, keep_other_kinds
from mlpengine.core.spec import Spec
from mlpengine.core.wording import suggestion
from mlpengine.export._exported import Exported, check_model
from mlpengine.export._form import to_html
from mlpengine.export._js_module import description, to_js
from mlpengine.export._model_c import to_c
from mlpengine.export._onnx_feed import onnx_inputs
from mlpengine.export._package import Package, checked_folder, predicting_library, write_folder
from mlpengine.models.model import Model
from mlpengine.nn import Network

__all__ = [
    "FORMATS",
    "Exported",
    "Package",
    "description",
    "export",
    "format_of",
    "onnx_inputs",
    "to_js",
]


def to_safetensors(model: Model | Network) -> tuple[bytes, Exported]:
    """Return a file that ``safetensors.torch.load_file`` reads into an ``nn.Sequential``."""
    arrays = model.state_dict()  # copies, because safetensors needs C-contiguous arrays
    specs = {name: f"{Spec(array.shape, array.dtype)}" for name, array in arrays.items()}
    return save(arrays, {"format": "pt"}), Exported("safetensors", {}, specs)


def _to_onnx(model: Model | Network) -> tuple[bytes, Exported]:
    from mlpengine.export._onnx import to_onnx

    return to_onnx(model)


FORMATS: dict[str, Callable[..., tuple[bytes, Exported]]] = {
    "safetensors": to_safetensors,
    "onnx": _to_onnx,
    "c": to_c,
    "js": to_js,
    "html": to_html,
}
"""Function for each format, by the suffix of a file; JavaScript files may also end in .mjs."""


def format_of(path: str | Path, format: str | None = None) -> str:
    """Return the format of a file: the given format, or the format for its suffix.

    Raises: UsageError for an unknown format or suffix, or if they contradict each other.
    """
    suffix = checked_path(path, "export").suffix
    named = suffix[1:].lower().replace("mjs", "js")
    *others, last = sorted(FORMATS)
    if format is None and named not in FORMATS:
        known = f"{', '.join(f'.{name}' for name in others)} or .{last}"
        near = suggestion(named, FORMATS)
        raise UsageError(f"{path}: the name must end in {known}, or give the format{near}")
    chosen = named if format is None else format
    if chosen not in FORMATS:
        raise UsageError(
            f"export: format must be one of {', '.join(FORMATS)} (got {chosen!r})"
            f"{suggestion(chosen, FORMATS)}"
        )
    if named in FORMATS and named != chosen:
        raise UsageError(f"{path}: the name must end in .{chosen}, the format (got {suffix})")
    if named != chosen:
        keep_other_kinds(Path(path), f".{chosen}")
    return chosen


def export(
    model: Model | Network,
    path: str | Path,
    format: str | None = None,
    *,
    name: str | None = None,
    package: Package | None = None,
) -> Exported:
    """Write a model to `path`, atomically; return a description of the file.

    Args:
        model: a model with its preprocessing, or only a network; its input is then features.
        path: path of the file; an existing file with the suffix of the format is replaced.
        format: one of `FORMATS`; by default the format for the suffix of `path`.
        name: for C, prefix of functions and macros, so that a program can contain several models.
            Then a header with the declarations is written beside the file.
        package: for C, ``arduino`` or ``platformio``.  Then `path` is the folder of a library with
            source, header and an example sketch.  The library's name is `name`, by default the name
            of the folder.

    Raises: UsageError for an unknown format; MissingExtraError for ONNX without its packages;
        NumericalError if ONNX and mlpengine give different outputs.
    """
    check_model(model)
    chosen, path = format_of(path, format), Path(path)
    if isinstance(model, Network) and isinstance(model.outputs, Mapping):
        raise UsageError(f"export: a network must have one output (got {', '.join(model.outputs)})")
    if name is not None and chosen != "c":
        raise UsageError(f"export: name is for the format c (the format is {chosen})")
    if package is not None:
        if chosen != "c":
            raise UsageError(f"export: package is for the format c (the format is {chosen})")
        checked_folder(path)
        name = name or path.name
    elif chosen == "c" and path.suffix.lower() != ".c" and not is_device(path):
        raise UsageError(f"{path}: the name must end in .c (got {path.suffix!r})")
    data, exported = to_c(model, name) if chosen == "c" else FORMATS[chosen](model)
    files = {path.name: data} | {path.with_suffix(s).name: d for s, d in exported.beside.items()}
    if package is None:
        paths = write_folder(path.parent, files)
    else:
        paths = write_folder(path, predicting_library(package, str(name), model, data, exported))
    return replace(exported, paths=paths)
