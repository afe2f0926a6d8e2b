"""What an exported file holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Int8Report:
    """What 8-bit weights err and need.

    Attributes:
        mean: of absolute differences from the model's predictions, by output in its units; or of
            probabilities.
        largest: of them.
        rows: on how many.
        same_labels: the share of labels that are the same; None for numbers.
        constants: bytes of flash for weights, tables and what the preprocessing learned.
        flash: estimated bytes of flash on an ATmega328P, with code and libraries.
        stack: bytes of arrays on the stack, the RAM of a prediction beside 96 for registers.
    """

    mean: Mapping[str, float]
    largest: Mapping[str, float]
    rows: int
    same_labels: float | None
    constants: int
    flash: int
    stack: int


@dataclass(frozen=True)
class Exported:
    """What an exported file holds.

    `inputs` and `outputs` map names to dtypes; for files of weights there are no inputs, and
    outputs are the arrays.  `difference` is the largest difference between the file's outputs and
    mlpengine's; None if the file was not run.  `compared` are the rows and the program with which
    it was, or why it was not.  `beside` are further files, by the suffix of their names;
    `paths` says where all of them are.  `int8` is there with 8-bit weights.
    """

    format: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    difference: float | None = None
    compared: str = ""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
    int8: Int8Report | None = None
