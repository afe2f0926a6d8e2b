"""Philox4x32-10 word by word, as the paper's algorithm states it, and its order of bytes here."""

import numpy as np


def philox_block(counter, key):
    """Return the four words of one counter (Salmon et al. 2011, section 3.3)."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def philox_bytes(seed, step, stream, count):
    """Return the first bytes of a stream: of 8 blocks the first halves, then the second ones."""
    words = []
    for group in range(-(-count // 128)):
        blocks = [
            philox_block(
                (8 * group + i, stream, step % 2**32, step // 2**32), (seed % 2**32, seed // 2**32)
            )
            for i in range(8)
        ]
        words += [w for half in (slice(0, 2), slice(2, 4)) for block in blocks for w in block[half]]
    return np.array(words, "<u4").view(np.uint8)[:count]
