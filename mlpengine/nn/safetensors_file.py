"""Safetensors files of named arrays, written atomically and verified when they are read.

The header has a single metadata key with sorted JSON, so that equal states give equal files:
safetensors writes several keys in random order.  A SHA-256 over names, dtypes, shapes and bytes
detects damage, because safetensors has no checksum.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlpengine.core.errors import CheckpointError, MlpEngineError, UsageError
from mlpengine.core.files import (
    checked_path,
    first_line,
    is_device,
    similar_file,
    write_atomically,
)
from mlpengine.core.spec import Array

METADATA_KEY = "mlpengine"


def digest(arrays: Mapping[str, Array], header: Mapping[str, Any]) -> str:
    """Return the SHA-256 over the header and over names, dtypes, shapes and bytes, as hex."""
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return total.hexdigest()


def write_tensors(path: str | Path, arrays: Mapping[str, Array], header: Mapping[str, Any]) -> None:
    """Write `arrays` and the JSON-able `header` to `path`, atomically."""
    from safetensors.numpy import save

    path = checked_path(path, "save")
    if path.suffix.lower() in (".onnx", ".js", ".html", ".c"):
        raise UsageError(f"{path}: write a {path.suffix} file by mlpengine.export.export")
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    scattered = [name for name, array in contiguous.items() if not array.flags.c_contiguous]
    if scattered:  # safetensors would store them wrongly
        raise CheckpointError(f"{path}: arrays must be C-contiguous ({', '.join(scattered)})")
    metadata = json.dumps(
        {"header": header, "sha256": digest(contiguous, header)}, sort_keys=True, allow_nan=False
    )
    write_atomically(path, save(contiguous, {METADATA_KEY: metadata}))


def read_tensors(path: str | Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the header of a file that `write_tensors` wrote."""
    from safetensors import SafetensorError, safe_open

    path = checked_path(path, "load")
    if path.is_dir():
        text = f"if it is a run, mlpengine.load({str(path)!r}) returns its model"
        raise CheckpointError(f"{path}: is a directory; {text}")
    if is_device(path):
        raise CheckpointError(f"{path}: must be a file (it is a pipe or a device)")
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file{similar_file(path)}")
    try:
        with safe_open(str(path), "numpy") as file:
            text = (file.metadata() or {}).get(METADATA_KEY, "null")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = json.loads(text, parse_constant=_refuse_constant)
        same_text = json.dumps(metadata, sort_keys=True) == text  # finds 1e-5 changed to 1E-5
    except (
        *(SafetensorError, OSError, ValueError, MemoryError, TypeError, RecursionError),
        *(AttributeError, KeyError),  # safetensors, for dtypes that NumPy lacks
    ) as error:
        cause = first_line(path) or error
        raise CheckpointError(f"{path}: must be a readable safetensors file ({cause})") from error
    header: Any = metadata.get("header") if isinstance(metadata, dict) else None
    if not isinstance(header, dict) or metadata.keys() != {"header", "sha256"}:
        raise CheckpointError(f"{path}: must be written by mlpengine (metadata without our header)")
    if not same_text or digest(arrays, header) != metadata["sha256"]:
        raise CheckpointError(f"{path}: is damaged (its SHA-256 does not match its contents)")
    return arrays, header


def check_finite(
    arrays: Mapping[str, Array],
    where: str | Path,
    error: type[MlpEngineError] = CheckpointError,
) -> None:
    """Raise `error` for the first NaN or infinity in `arrays`; `where` begins the message."""
    for name, array in arrays.items():
        wrong = ~np.isfinite(array)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise error(f"{where}: {name} must be finite ({array[place]} at {list(place)})")


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
