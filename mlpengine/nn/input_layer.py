"""The part of a network before its dense layers: embeddings of numbers, and a scaling."""

from dataclasses import dataclass, fields
from math import pi, sqrt
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Count, Given, Limits, Positive, check_options, one_of
from mlpengine.core.spec import Array, Spec
from mlpengine.core.structure import check_keys, of_type
from mlpengine.ops import Cat, Mul, PeriodicEmbedding
from mlpengine.tape.tape import Node, Tape

EmbeddingName = Literal["pbld", "periodic", "none"]

EMBEDDING, SCALE = "input_layer.embedding", "input_layer.scale"
"""Prefix of the embedding's parameters, and the name of the factors."""


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
    ranges: Annotated[
        tuple[tuple[int, int], ...],
        Given,
        "First and last + 1 of the features and embeddings that layer 0 reads; empty for all.",
    ] = ()

    def __post_init__(self) -> None:
        check_options(self, "input_layer")
        one_of("input_layer: embedding", self.embedding, get_args(EmbeddingName))
        ends = [end for pair in self.ranges for end in pair]
        if [-1, *ends] != sorted({-1, *ends}) or any(len(pair) != 2 for pair in self.ranges):
            raise UsageError(
                f"input_layer: ranges must be increasing pairs of numbers (got {self.ranges})"
            )

    @classmethod
    def from_dict(cls, description: Any) -> Self:
        """Return an input layer from its description.  Raises: CheckpointError or UsageError."""
        check_keys(description, "input_layer", (), [one.name for one in fields(cls)])
        where, given = "input_layer.ranges", description.get("ranges", [])
        ranges = tuple(
            tuple(of_type(end, int, where) for end in of_type(pair, list, where))
            for pair in of_type(given, list, where)
        )
        return cls(**description | {"ranges": ranges})

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

    def made(self, in_dim: int) -> int:
        """Return the number of features and embeddings."""
        added = self.outputs - 1 if self.embedding == "pbld" else self.frequencies
        return in_dim + self.count(in_dim) * added

    def read(self, in_dim: int) -> Array:
        """Return the indices of the features and embeddings that layer 0 reads.

        Raises: UsageError if `ranges` has others.
        """
        made = self.made(in_dim)
        if self.ranges and self.ranges[-1][1] > made:
            raise UsageError(f"input_layer: ranges must end by {made} (got {self.ranges})")
        return np.concatenate([np.arange(*pair) for pair in self.ranges or [(0, made)]])

    def out_dim(self, in_dim: int) -> int:
        """Return the number of inputs of the first layer."""
        return len(self.read(in_dim))

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
                case "input_layer.scale":
                    view[...] = 1

    def record(self, tape: Tape, x: Node) -> Node:
        """Record the input layer on `tape`, and return the input of layer 0."""
        nodes = {name: tape.parameter(name) for name in self.specs(x.spec.shape[1], x.spec.dtype)}
        scale = nodes.pop(SCALE, None)
        if nodes:
            x = tape.apply(PeriodicEmbedding(), x, *nodes.values())
        if self.ranges:
            parts = [x[:, slice(*pair)] for pair in self.ranges]
            x = parts[0] if len(parts) == 1 else tape.apply(Cat(axis=1), *parts)
        return x if scale is None else tape.apply(Mul(), x, scale)
