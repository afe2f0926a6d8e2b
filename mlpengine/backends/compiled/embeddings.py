"""Periodic embeddings of numbers, row by row, and the sums that are their gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

from mlpengine.backends.compiled.kernel import InstructionLike, Kernel, present
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.rows import columns
from mlpengine.backends.compiled.statements import Block, If, Loop, Statement, load, store
from mlpengine.backends.compiled.writer import Writer
from mlpengine.backends.values import UnsupportedError, Value, Values, padded_length
from mlpengine.ops import PeriodicEmbedding


@dataclass(eq=False)
class Embedding(Kernel):
    """The forward rule of `PeriodicEmbedding`; `weight` and `bias` may be None."""

    x: Value
    frequency: Value
    phase: Value
    weight: Value | None
    bias: Value | None
    y: Value
    text: str

    def __post_init__(self) -> None:
        self.reads, self.writes = (
            present(self.x, self.frequency, self.phase, self.weight, self.bias),
            [self.y],
        )

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "list[Embedding] | None":
        if not isinstance(instruction.op, PeriodicEmbedding) or instruction.kind == "backward":
            return None
        reads: list[Any] = [None if r is None else values.read(r) for r in instruction.reads]
        x, frequency, phase, weight, bias = reads
        (out,) = instruction.writes
        assert out is not None
        y = values.write(out, "embedding_")
        return [cls(x, frequency, phase, weight, bias, y, f"{y.name} = {x.name} embedded")]

    def emit(self, writer: Writer, name: str) -> None:
        body = _rows(self, writer.layout)
        writer.add(name, "rows", self.y.rows, self.text, body, self.reads, self.writes)


@dataclass(eq=False)
class EmbeddingSums(Kernel):
    """The gradients of the parameters of a `PeriodicEmbedding`, summed over the rows."""

    dy: Value
    x: Value
    frequency: Value
    phase: Value
    weight: Value | None
    d_frequency: Value
    d_phase: Value
    d_weight: Value | None
    d_bias: Value | None

    text = "embedding, summed"
    sums_rows = True

    def __post_init__(self) -> None:
        self.reads, self.writes = (
            present(self.dy, self.x, self.frequency, self.phase, self.weight),
            present(self.d_frequency, self.d_phase, self.d_weight, self.d_bias),
        )

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "list[EmbeddingSums] | None":
        if not isinstance(instruction.op, PeriodicEmbedding) or instruction.kind != "backward":
            return None
        given: list[Any] = [None if r is None else values.read(r) for r in instruction.reads]
        mixes, writes = given[-1] is not None, instruction.writes
        if [w is not None for w in writes] != [False, True, True, mixes, mixes]:
            raise UnsupportedError("the gradient of embedded numbers")
        made: list[Any] = [None if w is None else values.write(w, "embedding_") for w in writes]
        return [cls(*given, *made[1:])]

    def emit(self, writer: Writer, name: str) -> None:
        body, count = _sums(self, writer.layout), self.frequency.rows
        writer.add(name, "reduce", count, self.text, body, self.reads, self.writes)


def _rows(kernel: Embedding, layout: Layout) -> Sequence[Statement]:
    """Return the loop over rows `first` to `last`: the features, then the embedded numbers."""
    features, waves = kernel.x.columns, kernel.frequency.columns
    outputs = _outputs(kernel.weight, kernel.frequency)
    vectors = padded_length(waves, layout.lanes) // layout.lanes
    body: list[Statement] = [f"real *restrict to = y + {features} + j * {outputs};"]
    angle = _angle(kernel.frequency, kernel.phase, "x[j]")
    if kernel.weight is None or kernel.bias is None:
        body += _vectors(waves, layout, [store("to + k", f"v_cos({angle})", "n")])
    else:
        weight, bias = kernel.weight.name, kernel.bias.name
        row = f"{weight} + (j * {outputs} + q) * {waves} + k"
        body += [
            f"vec wave[{vectors}];",
            *_vectors(waves, layout, [f"wave[k / LANES] = v_cos({angle});"]),
            Loop(
                "q",
                0,
                outputs,
                [
                    "vec sum = {0};",
                    *_vectors(
                        waves,
                        layout,
                        [f"sum = multiply_add(wave[k / LANES], {load(row, 'n')}, sum);"],
                    ),
                    f"to[q] = {bias}[j * {outputs} + q] + sum_lanes(sum);",
                ],
            ),
        ]
    copy = f"memcpy(y, x, {features} * sizeof(real));"
    rows: list[Statement] = [
        f"const real *restrict x = {layout.at(kernel.x, 'i', '0')};",
        f"real *restrict y = {layout.at(kernel.y, 'i', '0')};",
        copy,
        Loop("j", 0, kernel.frequency.rows, body),
    ]
    return [Loop("i", "first", "last", rows)]


def _sums(kernel: EmbeddingSums, layout: Layout) -> Sequence[Statement]:
    """Return the loop over features `first` to `last`; rows `begin` to `end` are added."""
    features, waves = kernel.x.columns, kernel.frequency.columns
    outputs = _outputs(kernel.weight, kernel.frequency)
    vectors = padded_length(waves, layout.lanes) // layout.lanes
    zeros: list[Statement] = [
        f"vec by_frequency[{vectors}] = {{{{0}}}}, by_phase[{vectors}] = {{{{0}}}};"
    ]
    terms: list[Statement] = [
        f"const vec angle = {_angle(kernel.frequency, kernel.phase, 'x')};",
    ]
    each_row: list[Statement] = []
    ends: list[Statement] = []
    if kernel.weight is None or kernel.d_weight is None or kernel.d_bias is None:
        terms.append(f"const vec slope = -{load('dy + k', 'n')} * v_sin(angle);")
    else:
        row = f"(j * {outputs} + q) * {waves} + k"
        weights = load(f"{kernel.weight.name} + {row}", "n")
        mine = f"by_weight[q * {vectors} + k / LANES]"
        zeros.append(
            f"vec by_weight[{outputs * vectors}] = {{{{0}}}}; real by_bias[{outputs}] = {{0}};"
        )
        mixed: list[Statement] = [
            f"{mine} = multiply_add(splat(dy[q]), wave, {mine});",
            f"through = multiply_add(splat(dy[q]), {weights}, through);",
        ]
        terms += [
            "const vec wave = v_cos(angle);",
            "vec through = {0};",
            Loop("q", 0, outputs, mixed),
            "const vec slope = -through * v_sin(angle);",
        ]
        each_row.append(Loop("q", 0, outputs, ["by_bias[q] += dy[q];"]))
        added = _added(f"{kernel.d_weight.name} + {row}", mine)
        bias = f"{kernel.d_bias.name}[j * {outputs} + q]"
        ends = [
            Loop(
                "q",
                0,
                outputs,
                [*_vectors(waves, layout, added), f"{bias} = by_bias[q] + (begin ? {bias} : 0);"],
            )
        ]
    terms += [
        "by_phase[k / LANES] += slope;",
        "by_frequency[k / LANES] = multiply_add(slope, splat(x), by_frequency[k / LANES]);",
    ]
    rows: list[Statement] = [
        f"const real x = *({layout.at(kernel.x, 'i', 'j')});",
        f"const real *restrict dy = {layout.at(kernel.dy, 'i', str(features))} + j * {outputs};",
        *_vectors(waves, layout, terms),
        *each_row,
    ]
    place = f"j * {waves} + k"
    turns = f"by_frequency[k / LANES] * splat((real){2 * pi!r})"
    stores = [
        *_added(f"{kernel.d_phase.name} + {place}", "by_phase[k / LANES]"),
        *_added(f"{kernel.d_frequency.name} + {place}", turns),
    ]
    body = [*zeros, Loop("i", "begin", "end", rows), *_vectors(waves, layout, stores), *ends]
    return [Loop("j", "first", "last", body)]


def _outputs(weight: Value | None, frequency: Value) -> int:
    return frequency.columns if weight is None else int(weight.array.shape[1])


def _angle(frequency: Value, phase: Value, x: str) -> str:
    """Return the angles of the vector `k` of feature `j` at `x`."""
    place = f"j * {frequency.columns} + k"
    period = f"splat({x}) * {load(f'{frequency.name} + {place}', 'n')}"
    start = load(f"{phase.name} + {place}", "n")
    return f"multiply_add({period}, splat((real){2 * pi!r}), {start})"


def _added(place: str, value: str) -> list[Statement]:
    """Return the statements that store a vector, added to what is there unless `begin` is 0."""
    return [
        Block(
            [
                f"vec total = {value};",
                If("begin", [f"total += {load(place, 'n')};"]),
                store(place, "total", "n"),
            ]
        )
    ]


def _vectors(count: int, layout: Layout, body: Sequence[Statement]) -> Sequence[Statement]:
    """Return a loop over the vectors from ``k`` of `count` numbers, of ``n`` lanes each."""
    return columns(count, layout.lanes, body, "k")
