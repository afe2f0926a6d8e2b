"""The contents of an exported file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Exported:
    """The contents of an exported file, and how it was compared.

    `inputs` and `outputs` map names to dtypes; for files of weights there are no inputs, and
    outputs are the arrays.  `difference` is the largest difference between the file's outputs and
    mlpengine's; None if the file was not run.  `compared` are the rows and the program with which
    it was, or why it was not.  `beside` are further files, by the suffix of their names;
    `paths` says where all of them are.
    """

    format: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    difference: float | None = None
    compared: str = ""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
