"""The contents of an exported file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mlpengine.core.errors import UsageError
from mlpengine.core.wording import quoted
from mlpengine.models.model import Model
from mlpengine.nn import Network


@dataclass(frozen=True)
class Exported:
    """The contents of an exported file.

    `inputs` and `outputs` map names to dtypes; the outputs of a file of weights are its arrays.
    `difference` is the largest difference between the outputs of an ONNX model and mlpengine's
    outputs; None for other files.  `beside` has the contents of further files by suffix.  `paths`
    are the paths of all files.  `self_test` is the macro that compiles the self-test of a C file,
    or "" if there is no self-test.
    """

    format: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    difference: float | None = None
    beside: Mapping[str, bytes] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
    self_test: str = ""


def check_model(model: object) -> None:
    """Raise UsageError for what is neither a model nor a network."""
    if not isinstance(model, Model | Network):
        advice = "write model_ of an estimator, or mlpengine.load(run)"
        raise UsageError(f"export: a model or a network is needed (got {quoted(model)}); {advice}")
