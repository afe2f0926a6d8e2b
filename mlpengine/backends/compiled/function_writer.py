"""The list of a program's C functions, to which kernels add theirs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from mlpengine.backends.compiled.layout import Layout
from mlpengine.backends.compiled.statements import CFunction, Phase, Statement
from mlpengine.backends.values import MatrixValue, UnsupportedError


@dataclass(eq=False, repr=False)
class Writer:
    """Collects the C functions of a program for `batch` rows and `threads` threads.

    Attributes:
        chunk: number of rows in a chunk.
        by_columns: whether threads divide the columns of wide products.
        functions: functions in the order of their calls within a phase.
        claimable: lengths of the lists from which threads claim work, one unit at a time.
        output: the output that the first loss reads; None without a loss.
        losses: number of losses so far.
        mean_rows: number of rows over which the loss is a mean.
    """

    layout: Layout
    batch: int
    threads: int
    chunk: int
    by_columns: bool
    functions: list[CFunction] = field(default_factory=list)
    claimable: list[int] = field(default_factory=list)
    output: MatrixValue | None = None
    losses: int = 0
    mean_rows: int | None = None

    def slices(self, count: int) -> list[int]:
        """Return the possible sizes of a thread's part of `count` units, for one or all threads."""
        bounds = [count * t // self.threads for t in range(self.threads + 1)]
        return sorted({count, *(b - a for a, b in pairwise(bounds))})

    def row_slices(self) -> list[int]:
        """Return the possible numbers of rows of the batch in one call."""
        last = self.batch % self.chunk
        return sorted({*self.slices(self.chunk), *(self.slices(last) if last else [])})

    def times(self, rows: int) -> int:
        """Return `rows` / rows of the batch.  Raises: UnsupportedError if it is not whole."""
        times, others = divmod(rows, max(self.batch, 1))
        if others or not (times or self.batch == 0):
            raise UnsupportedError(f"{rows} rows in a program for {self.batch} rows")
        return max(times, 1)

    def add(
        self,
        name: str,
        phase: Phase,
        count: int,
        text: str,
        body: Sequence[Statement],
        reads: Sequence[MatrixValue | str],
        writes: Sequence[MatrixValue | str],
        tile: CFunction | None = None,
        *,
        by_columns: bool = False,
        takes_part: bool = False,
        claims: Literal["", "before", "within"] = "",
        number: int = 0,
        times: int = 1,
        trains: bool = False,
    ) -> None:
        """Add a function (see `CFunction`) over `count` rows, or over `count` other units."""
        if phase == "rows" and not by_columns:
            times = self.times(count)
        parameters = ["const struct part part"] if takes_part else []
        parameters += [
            "const int64_t list"
            if claims == "within"
            else "const int64_t first, const int64_t last"
        ]
        parameters += ["const int64_t begin, const int64_t end"] if phase == "reduce" else []
        written = _in_memory(writes)
        self.functions.append(
            CFunction(
                name,
                phase,
                [*_in_memory(reads), *(() if tile else written)],  # a tile declares its own buffers
                body,
                text,
                ", ".join(parameters),
                count=count,
                times=times,
                tile=tile,
                by_columns=by_columns,
                writes=written,
                takes_part=takes_part,
                claims=claims,
                number=number,
                trains=trains or self.output is not None,
            )
        )


def _in_memory(buffers: Sequence[MatrixValue | str]) -> list[str]:
    """Return the names of `buffers`, without values that are only in registers."""
    return [b if isinstance(b, str) else b.name for b in buffers if isinstance(b, str) or b.stored]
