"""The contents of an exported file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Exported:
    """The contents of an exported file.

    `inputs` and `outputs` map names to dtypes; for files of weights there are no inputs, and
    outputs are the arrays.  `difference` is the largest difference between the outputs of an ONNX
    model and mlpengine's; other files are not run.  `beside` are further files, by the suffix of
    their names; `paths` says where all of them are.
    """

    format: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    difference: float | None = None
    beside: Mapping[str, bytes] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
