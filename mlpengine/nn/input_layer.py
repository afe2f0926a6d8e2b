"""The part of a network before its dense layers: embeddings of numbers, and a scaling."""

from dataclasses import dataclass, fields
from math import pi, sqrt
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Count, Given, Limits, Positive, check_options, one_of
from mlpengine.core.spec import Array, Spec
from mlpengine.core.structure import check_keys
from mlpengine.ops import Mul, PeriodicEmbedding
from mlpengine.tape.tape import Node, Tape

EmbeddingName = Literal["pbld", "periodic", "none"]

EMBEDDING, SCALE, MASK = "input_layer.embedding", "input_layer.scale", "input_layer.mask"
"""Prefix of the embedding's parameters, and the names of the factors and of the mask."""


@dataclass(frozen=True)
class InputLayer:
    """Learned functions of the features; the first dense layer reads these functions.

    Source: Holzmueller et al. 2024, arXiv 2407.04491, section 3 and appendix A.
    """

    embedding: Annotated[
        EmbeddingName,
        "pbld: adds to each number mixtures of cosines, outputs - 1 linear functions; "
        "periodic: adds the cosines themselves; or none.",
    ] = "none"
    embedded: Annotated[
        Annotated[int, Limits(at_least=0, whole=True)] | None,
        Given,
        "Number of features, the first ones, that are embedded; None for all.",
    ] = None
    frequencies: Annotated[Count, "Cosines of each number."] = 16
    outputs: Annotated[
        int, Limits(at_least=2, whole=True), "Outputs for each number, itself included (pbld)."
    ] = 4
    sigma: Annotated[
        Positive, "Standard deviation of initial frequencies, in periods per unit."
    ] = 0.1
    scaling: Annotated[
        bool, "Whether each of its outputs has a learned factor; it starts at 1."
    ] = False
    masked: Annotated[
        bool,
        Given,
        "Whether all outputs are then multiplied by 0 or 1; `Mlp.mask_inputs` sets them and "
        "training does not change them.",
    ] = False

    def __post_init__(self) -> None:
        check_options(self, "input_layer")
        one_of("input_layer: embedding", self.embedding, get_args(EmbeddingName))

    @classmethod
    def from_dict(cls, description: Any) -> Self:
        """Return an input layer from its description.  Raises: CheckpointError or UsageError."""
        check_keys(description, "input_layer", (), [one.name for one in fields(cls)])
        return cls(**description)

    def count(self, in_dim: int) -> int:
        """Return how many of `in_dim` features are embedded.

        Raises: UsageError if `embedded` is larger.
        """
        if self.embedding == "none":
            return 0
        if self.embedded is None:
            return in_dim
        if self.embedded > in_dim:
            raise UsageError(
                f"input_layer: embedded must not exceed the number of features "
                f"({self.embedded} of {in_dim})"
            )
        return self.embedded

    def out_dim(self, in_dim: int) -> int:
        """Return the number of inputs of the first layer."""
        added = self.outputs - 1 if self.embedding == "pbld" else self.frequencies
        return in_dim + self.count(in_dim) * added

    def specs(self, in_dim: int, dtype: np.dtype[Any]) -> dict[str, Spec]:
        """Return the specs of the parameters by name."""
        embedded, waves, mixed = self.count(in_dim), self.frequencies, self.outputs - 1
        shapes: dict[str, tuple[int, ...]] = {}
        if embedded:
            shapes[f"{EMBEDDING}.frequency"] = shapes[f"{EMBEDDING}.phase"] = embedded, waves
            if self.embedding == "pbld":
                shapes[f"{EMBEDDING}.weight"] = embedded, mixed, waves
                shapes[f"{EMBEDDING}.bias"] = embedded, mixed
        if self.scaling:
            shapes[SCALE] = (self.out_dim(in_dim),)
        if self.masked:
            shapes[MASK] = (self.out_dim(in_dim),)
        return {name: Spec(shape, dtype) for name, shape in shapes.items()}

    def initialize(self, views: dict[str, Array], rng: np.random.Generator) -> None:
        """Fill the input layer's parameters in `views` with float64 draws from `rng`.

        Frequencies are normal, phases uniform in -pi to pi; weight and bias are uniform in
        -b to b with b = 1 / sqrt(frequencies).
        """
        bound = 1 / sqrt(self.frequencies)
        for name, view in views.items():
            match name:
                case "input_layer.embedding.frequency":
                    view[...] = rng.normal(0, self.sigma, view.shape)
                case "input_layer.embedding.phase":
                    view[...] = rng.uniform(-pi, pi, view.shape)
                case "input_layer.embedding.weight" | "input_layer.embedding.bias":
                    view[...] = rng.uniform(-bound, bound, view.shape)
                case "input_layer.scale" | "input_layer.mask":
                    view[...] = 1

    def record(self, tape: Tape, x: Node) -> Node:
        """Record the input layer on `tape`, and return the input of layer 0."""
        nodes = {name: tape.parameter(name) for name in self.specs(x.spec.shape[1], x.spec.dtype)}
        factors = [nodes.pop(name) for name in (SCALE, MASK) if name in nodes]
        if nodes:
            x = tape.apply(PeriodicEmbedding(), x, *nodes.values())
        for factor in factors:
            x = tape.apply(Mul(), x, factor)
        return x
