"""Periodic embeddings of numbers, row by row, and the gradients of their parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

from mlpengine.backends.compiled.function_writer import Writer
from mlpengine.backends.compiled.kernel import InstructionLike, Kernel, present
from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.row_loops import lane_loop
from mlpengine.backends.compiled.statements import (
    Assign,
    ForLoop,
    If,
    Memory,
    Scope,
    Statement,
    element,
    load_vector,
    store,
)
from mlpengine.backends.scalar.definitions import ParameterKind
from mlpengine.backends.scalar.layer_functions import dense_function
from mlpengine.backends.scalar.scalar_writer import ScalarWriter
from mlpengine.backends.values import MatrixValue, UnsupportedError, Values, padded_length
from mlpengine.formula import cos
from mlpengine.ops import PeriodicEmbedding


@dataclass(eq=False, repr=False)
class _Waves(Kernel):
    """The operands of a `PeriodicEmbedding` in both directions; `weight` may be None."""

    x: MatrixValue
    frequency: MatrixValue
    phase: MatrixValue
    weight: MatrixValue | None

    @property
    def _outputs(self) -> int:
        """Number of outputs per feature."""
        return self.frequency.columns if self.weight is None else int(self.weight.array.shape[1])

    def _vector_count(self, layout: Layout) -> int:
        return padded_length(self.frequency.columns, layout.lanes) // layout.lanes

    def _angle(self, layout: Layout, x: str) -> str:
        """Return C for the angles of ``n`` waves of feature ``j``, from wave ``k`` on."""
        period = f"splat({x}) * {load_vector(layout.at(self.frequency, 'j', 'k'), 'n')}"
        start = load_vector(layout.at(self.phase, "j", "k"), "n")
        return f"multiply_add({period}, splat((real){2 * pi!r}), {start})"

    def _each_wave(self, layout: Layout, body: Sequence[Statement]) -> Sequence[Statement]:
        """Return a loop over a feature's waves, with vectors of ``n`` waves from wave ``k`` on."""
        return lane_loop(self.frequency.columns, layout.lanes, body, "k")


@dataclass(eq=False, repr=False)
class PeriodicForward(_Waves):
    """The forward rule of `PeriodicEmbedding`."""

    bias: MatrixValue | None
    y: MatrixValue

    def __post_init__(self) -> None:
        self.text = f"{self.y.name} = {self.x.name} embedded"
        self.reads = present(self.x, self.frequency, self.phase, self.weight, self.bias)
        self.writes = [self.y]

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "list[PeriodicForward] | None":
        if not isinstance(instruction.op, PeriodicEmbedding) or instruction.kind == "backward":
            return None
        (out,) = instruction.writes
        x, frequency, phase, weight, bias = values.read_each(instruction.reads)
        return [cls(x, frequency, phase, weight, bias, values.write(out, "embedding_"))]

    def emit(self, writer: Writer, name: str) -> None:
        layout, outputs = writer.layout, self._outputs
        features, angle = self.x.columns, self._angle(layout, "x[j]")
        body: list[Statement] = [f"real *restrict to = y + {features} + j * {outputs};"]
        if self.weight is None or self.bias is None:
            body += self._each_wave(layout, [store("to + k", f"v_cos({angle})", "n")])
        else:
            row = load_vector(layout.at(self.weight, f"(j * {outputs} + q)", "k"), "n")
            mixed = [
                "vec sum = {0};",
                *self._each_wave(layout, [f"sum = multiply_add(wave[k / LANES], {row}, sum);"]),
                f"to[q] = {self.bias.name}[j * {layout.stride(self.bias)} + q] + sum_lanes(sum);",
            ]
            body += [
                f"vec wave[{self._vector_count(layout)}];",
                *self._each_wave(layout, [f"wave[k / LANES] = v_cos({angle});"]),
                ForLoop("q", 0, outputs, mixed),
            ]
        row_body: list[Statement] = [
            f"const real *restrict x = {layout.at(self.x, 'i', '0')};",
            f"real *restrict y = {layout.at(self.y, 'i', '0')};",
            f"memcpy(y, x, {features} * sizeof(real));",
            ForLoop("j", 0, self.frequency.rows, body),
        ]
        rows = [ForLoop("i", "first", "last", row_body)]
        writer.add(name, "rows", self.y.rows, self.text, rows, self.reads, self.writes)

    def emit_scalar(self, writer: ScalarWriter) -> list[Statement]:
        if self.x.rows > 1:
            return super().emit_scalar(writer)
        features, waves, outputs = self.x.columns, self.frequency.columns, self._outputs
        at, mixes = f"j * {waves} + k", self.weight is not None
        x, y = element("x", "j"), element("y", "j")
        angle = x * element("frequency", at) * (2 * pi) + element("phase", at)
        wave = element("wave", "k") if mixes else element("y", f"{features} + {at}")
        body: list[Statement] = [Memory("wave", waves)] if mixes else []
        body.append(ForLoop("k", 0, waves, [Assign(wave, cos(angle))]))
        names = ["frequency", "phase"]
        if mixes:
            names += ["weight", "bias"]
            mix = f"wave, weight + j * {waves * outputs}, bias + j * {outputs}"
            to = f"y + {features} + j * {outputs}"
            function = dense_function(writer.functions, (), ["x"], in_dim=waves)
            body.append(f"{function}({mix}, {to}, {waves}, {outputs});")
        parameters: dict[str, ParameterKind] = {"x": "reads", "y": "writes"}
        function = writer.functions.add(
            "embedding",
            parameters | dict.fromkeys(names, "reads"),
            [
                ForLoop("j", 0, features, [Assign(y, x)]),
                ForLoop("j", 0, self.frequency.rows, body),
            ],
            about="Each number with the waves of its embedding",
        )
        places = writer.places(*present(self.x, self.y, *self.reads[1:]))
        return [f"{function}({places});"]


@dataclass(eq=False, repr=False)
class EmbeddingSums(_Waves):
    """The gradients of the parameters of a `PeriodicEmbedding`, summed over the rows."""

    dy: MatrixValue
    d_frequency: MatrixValue
    d_phase: MatrixValue
    d_weight: MatrixValue | None
    d_bias: MatrixValue | None

    text = "embedding, summed"
    sums_rows = True

    def __post_init__(self) -> None:
        self.reads = present(self.dy, self.x, self.frequency, self.phase, self.weight)
        self.writes = present(self.d_frequency, self.d_phase, self.d_weight, self.d_bias)

    @classmethod
    def lower(cls, instruction: InstructionLike, values: Values) -> "list[EmbeddingSums] | None":
        if not isinstance(instruction.op, PeriodicEmbedding) or instruction.kind != "backward":
            return None
        dy, x, frequency, phase, weight = values.read_each(instruction.reads)
        mixes, writes = weight is not None, instruction.writes
        if [w is not None for w in writes] != [False, True, True, mixes, mixes]:
            raise UnsupportedError("the gradient of embedded numbers")
        made = [values.write(w, "embedding_") for w in writes if w is not None]
        by_weight, by_bias = made[2:] if mixes else (None, None)
        return [cls(x, frequency, phase, weight, dy, made[0], made[1], by_weight, by_bias)]

    def emit(self, writer: Writer, name: str) -> None:
        layout, outputs = writer.layout, self._outputs
        vectors, features = self._vector_count(layout), str(self.x.columns)
        zeros: list[Statement] = [
            f"vec by_frequency[{vectors}] = {{{{0}}}}, by_phase[{vectors}] = {{{{0}}}};"
        ]
        terms: list[Statement] = [f"const vec angle = {self._angle(layout, 'x')};"]
        each_row: list[Statement] = []
        ends: list[Statement] = []
        if self.weight is None or self.d_weight is None or self.d_bias is None:
            terms.append(f"const vec slope = -{load_vector('dy + k', 'n')} * v_sin(angle);")
        else:
            row = f"(j * {outputs} + q)"
            weights = load_vector(layout.at(self.weight, row, "k"), "n")
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
                ForLoop("q", 0, outputs, mixed),
                "const vec slope = -through * v_sin(angle);",
            ]
            each_row.append(ForLoop("q", 0, outputs, ["by_bias[q] += dy[q];"]))
            added = _added(layout.at(self.d_weight, row, "k"), mine)
            bias = f"{self.d_bias.name}[j * {layout.stride(self.d_bias)} + q]"
            more = f"{bias} = by_bias[q] + (begin ? {bias} : 0);"
            ends = [ForLoop("q", 0, outputs, [*self._each_wave(layout, added), more])]
        terms += [
            "by_phase[k / LANES] += slope;",
            "by_frequency[k / LANES] = multiply_add(slope, splat(x), by_frequency[k / LANES]);",
        ]
        rows: list[Statement] = [
            f"const real x = *({layout.at(self.x, 'i', 'j')});",
            f"const real *restrict dy = {layout.at(self.dy, 'i', features)} + j * {outputs};",
            *self._each_wave(layout, terms),
            *each_row,
        ]
        turns = f"by_frequency[k / LANES] * splat((real){2 * pi!r})"
        stores = [
            *_added(layout.at(self.d_phase, "j", "k"), "by_phase[k / LANES]"),
            *_added(layout.at(self.d_frequency, "j", "k"), turns),
        ]
        body = [*zeros, ForLoop("i", "begin", "end", rows), *self._each_wave(layout, stores), *ends]
        loop, count = [ForLoop("j", "first", "last", body)], self.frequency.rows
        writer.add(name, "reduce", count, self.text, loop, self.reads, self.writes)


def _added(place: str, value: str) -> list[Statement]:
    """Return the statements that store a vector; if `begin` is not 0, add to the stored vector."""
    return [
        Scope(
            [
                f"vec total = {value};",
                If("begin", [f"total += {load_vector(place, 'n')};"]),
                store(place, "total", "n"),
            ]
        )
    ]
