"""The counter-based generator against the published words, and bytes against their places."""

import numpy as np
import pytest
from philox_bytes import philox_block, philox_bytes

from mlpengine.ops import Philox, philox

ALL = 0xFFFFFFFF
PUBLISHED = [
    ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((ALL,) * 4, (ALL, ALL), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]
"""Counters, keys and words of the file kat_vectors of Random123."""


@pytest.mark.parametrize(("counter", "key", "words"), PUBLISHED)
def test_the_reference_draws_the_published_words(counter, key, words):
    assert " ".join(f"{word:08x}" for word in philox_block(counter, key)) == words


def drawn(rng, stream, shape):
    out = np.zeros(shape, np.uint8)
    for call in rng.draw(stream, out):
        call()
    return out


@pytest.mark.parametrize(
    ("seed", "step", "stream", "rows"),
    [(0, 0, 0, 1), (2**64 - 1, 3, 1, 20), (12345678901234567890, 2**40 + 5, 7, 9)],
)
def test_bytes_are_those_of_their_places(seed, step, stream, rows):
    expected = philox_bytes(seed, step, stream, rows * 32).reshape(rows, 32)
    np.testing.assert_array_equal(drawn(Philox(seed, step), stream, (rows, 32)), expected)
    np.testing.assert_array_equal(drawn(Philox(seed, step), stream, (rows, 19)), expected[:, :19])


def test_bytes_depend_on_seed_step_and_stream_and_not_on_the_number_of_rows():
    rng = Philox(1, 2)
    whole = drawn(rng, 0, (40, 16))
    np.testing.assert_array_equal(drawn(rng, 0, (7, 16)), whole[:7])  # from the bytes at hand
    np.testing.assert_array_equal(drawn(Philox(1, 2), 0, (7, 16)), whole[:7])
    for other in (Philox(1, 3), Philox(2, 2)):
        assert np.any(drawn(other, 0, (40, 16)) != whole)
    assert np.any(drawn(rng, 1, (40, 16)) != whole)
    rng.seed = 2
    assert np.any(drawn(rng, 0, (40, 16)) != whole)


def test_passes_over_parts_of_a_step_change_no_byte(monkeypatch):
    whole = drawn(Philox(5), 0, (100, 16))
    monkeypatch.setattr(philox, "BLOCKS_AT_ONCE", 24)
    np.testing.assert_array_equal(drawn(Philox(5), 0, (100, 16)), whole)
