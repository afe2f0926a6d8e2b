"""What an exported file holds."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Exported:
    """What an exported file holds.

    `inputs` and `outputs` map names to dtypes; for files of weights there are no inputs, and
    outputs are the arrays.  `difference` is the largest difference between the file's outputs and
    mlpengine's on random rows; None if the file was not run.  `header` is the text of a C header.
    """

    format: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    difference: float | None = None
    header: str = ""
