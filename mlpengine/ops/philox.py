"""The counter-based generator Philox4x32-10: random bytes as a function of their position."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mlpengine.core.buffers import replay
from mlpengine.core.spec import Array, Call, Calls, call

BYTE_VALUES = 256

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
LOW, WORD_BITS = 0xFFFFFFFF, 32

COUNTER_BYTES = 16
"""Bytes of a block, the output for one counter: four 32-bit words."""

GROUP = 8
"""Number of blocks in a group: the words 0 and 1 of all its blocks precede their words 2 and 3."""

BLOCKS_AT_ONCE = 8192
"""Maximum number of blocks for one set of NumPy calls; their work memory fits into cache.

If a step needs fewer blocks, the calls compute the blocks of several steps."""


class Philox:
    """Random bytes as a function of seed, step, stream and position, equal on every backend.

    The counter of a block is (number of the block, stream, low half of step, high half of step).
    The key is the seed.  Rows of a matrix are padded to whole blocks.  A copy has its own state.

    Attributes:
        seed, step: whole numbers of 64 bits.
        row: index of the batch row at which a drawn matrix begins.
        rows: number of rows of a full batch if batches are drawn in parts; 0 if they are not.
        state: seed, step and row, as (3,) of uint64, for compiled code.

    Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3, section 3.3.
    """

    def __init__(self, seed: int, step: int = 0) -> None:
        self.state: Array = np.array([seed, step, 0], np.uint64)
        self.rows = 0
        self._streams: list[_Stream] = []

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "Philox":
        """Return a generator with a seed drawn from `rng`."""
        return cls(int.from_bytes(rng.bytes(8), "little"))

    @property
    def seed(self) -> int:
        """The key of the generator."""
        return int(self.state[0])

    @seed.setter
    def seed(self, seed: int) -> None:
        self.state[0] = seed
        for stream in self._streams:
            stream.forget()

    @property
    def step(self) -> int:
        """The number of the step; each step draws different bytes."""
        return int(self.state[1])

    @step.setter
    def step(self, step: int) -> None:
        self.state[1] = step

    @property
    def row(self) -> int:
        """The index of the batch row at which a drawn matrix begins."""
        return int(self.state[2])

    @row.setter
    def row(self, row: int) -> None:
        self.state[2] = row

    def advance(self) -> None:
        """Move to the next step."""
        self.state[1] += np.uint64(1)

    def draw(self, stream: int, out: Array, lines: int = 1) -> Calls:
        """Yield the calls that write bytes of stream number `stream` into `out` (..., columns).

        `out` is filled as a matrix (rows, columns), with `lines` rows for each row of the batch.
        """
        columns = out.shape[-1] if out.ndim else 1
        rows = out.size // max(columns, 1)
        width = padded_columns(columns)
        nbytes = (self.rows * lines + rows if self.rows else rows) * width
        fitting = [s for s in self._streams if s.number == stream and s.nbytes >= nbytes]
        if not fitting:
            fitting = [_Stream(self, stream, nbytes)]
            self._streams += fitting
        smallest = min(fitting, key=lambda s: s.nbytes)
        yield call(smallest.write, out.reshape(rows, columns), width, lines * width)

    def __getstate__(self) -> dict[str, Any]:
        return {"state": self.state.copy(), "rows": self.rows, "_streams": []}

    def __repr__(self) -> str:
        return f"Philox(seed={self.seed}, step={self.step})"


def lines_per_row(shape: Sequence[int]) -> int:
    """Return the product of all axes except the first and the last (see `Philox.draw`)."""
    return prod(shape[1:-1])


def padded_columns(columns: int) -> int:
    """Return the number of bytes of a row, padded to whole blocks."""
    return -(-columns // COUNTER_BYTES) * COUNTER_BYTES


class _Stream:
    """A cache of the bytes of one stream for several consecutive steps."""

    def __init__(self, rng: Philox, number: int, nbytes: int) -> None:
        self._rng, self.number, self.nbytes = rng, number, nbytes
        self._blocks = max(-(-nbytes // (GROUP * COUNTER_BYTES)), 1) * GROUP
        self._steps = max(1, BLOCKS_AT_ONCE // self._blocks)
        self._first: int | None = None
        self._bytes: Array | None = None
        self._calls: list[Call] = []

    def forget(self) -> None:
        self._first, self._bytes = None, None

    def write(self, out: Array, width: int, pitch: int) -> None:
        """Write the step's bytes; a row takes `width` bytes, and a row of the batch `pitch`."""
        step = self._rng.step
        first = step - step % self._steps
        if self._bytes is None:
            self._bytes = self._bind()
        if first != self._first:
            self._first = first
            self._start[...] = first
            replay(self._calls)
        start = self._rng.row * pitch
        part = self._bytes[step - first, start : start + len(out) * width]
        np.copyto(out, part.reshape(len(out), width)[:, : out.shape[1]])

    def _bind(self) -> Array:
        """Bind the calls that compute the bytes; return the buffer, with one row for each step."""
        total = self._steps * self._blocks
        n = total if self._steps > 1 else min(total, BLOCKS_AT_ONCE)
        words = np.zeros((-(-total // n) * n // GROUP, 2, GROUP), np.uint64)
        steps, numbers = np.divmod(np.arange(len(words) * GROUP, dtype=np.uint64), self._blocks)
        even, odd, spare = (np.empty((2, n), np.uint64) for _ in range(3))
        self._start, self._calls = np.zeros((), np.uint64), []
        low, shift = np.array(LOW, np.uint64), np.array(WORD_BITS, np.uint64)
        rounds = [*_rounds(even, odd, spare, self._rng.seed)]
        for start in range(0, len(steps), n):
            part = slice(start, start + n)
            self._calls += [
                call(np.copyto, even[0], numbers[part]),
                call(odd[0].fill, self.number),
                call(np.add, steps[part], self._start, odd[1]),
                call(np.bitwise_and, odd[1], low, even[1]),
                call(np.right_shift, odd[1], shift, odd[1]),
                *rounds,
                call(np.left_shift, odd, shift, odd),
                call(np.bitwise_or, even, odd, even),
                call(
                    np.copyto,
                    words[start // GROUP : (start + n) // GROUP],
                    even.reshape(2, -1, GROUP).transpose(1, 0, 2),
                ),
            ]
        return words.reshape(-1)[: 2 * total].view(np.uint8).reshape(self._steps, -1)


def _rounds(even: Array, odd: Array, spare: Array, seed: int) -> Calls:
    """Yield the calls of all rounds; `even` has the words 0 and 2, `odd` the words 1 and 3."""
    factors = np.array(MULTIPLIERS, np.uint64)[:, None]
    low, shift = np.array(LOW, np.uint64), np.array(WORD_BITS, np.uint64)
    for number in range(ROUNDS):
        halves = seed & LOW, seed >> WORD_BITS
        key = [(h + number * s) & LOW for h, s in zip(halves, KEY_STEPS, strict=True)]
        yield call(np.multiply, even, factors, spare)
        yield call(np.right_shift, spare[::-1], shift, even)
        yield call(np.bitwise_xor, even, odd, even)
        yield call(np.bitwise_xor, even, np.array(key, np.uint64)[:, None], even)
        yield call(np.bitwise_and, spare[::-1], low, odd)
