"""Mutated CSV files: whatever comes in, the reader returns a table or raises DataError.

Run as a script with a number of tries: python tests/data/tables/csv_fuzz.py 10000
"""

import io
import sys

import numpy as np

from mlpengine.core.errors import DataError
from mlpengine.data.features import Preprocessor, profile
from mlpengine.data.tables import Table, read_table

SEEDS = [
    b"a,b,c\n1,2,x\n3,4,y\n5,,z\n",
    b'name;value\n"O""Hara; Jr";1,5\n"two\nlines";2,25\n',
    b"t\tu\n2020-01-02\ttrue\n2020-02-03 04:05:06\tfalse\n",
    b"\xef\xbb\xbfx,y\r\n1e-3,nan\r\n-inf,9007199254740993\r\n",
    b"0,1,2\n" + b"1.5,2.5,3.5\n" * 30,
    b"id,when,deck,y\n" + b"".join(b"%d,2024-01-%02d,C,%d\n" % (i, i, i % 3) for i in range(1, 29)),
]
PIECES = [b",", b";", b"\t", b'"', b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\xc3", b"\xe2\x80\xa8"]
PIECES += [
    b"nan",
    b"inf",
    b"1e999",
    b"-",
    b".",
    b"1_0",
    b"?",
    b"NA",
    b" ",
    b"=1+1",
    b"99999999999999999999",
]
PIECES += [
    b"\xef\xbb\xbf",
    b"0001-01-01",
    b"9999-12-31T23:59:59Z",
    b"2020-13-45",
    b"1,234",
    b"\x1a",
]


def mutated(generator: np.random.Generator) -> bytes:
    """Return a seed file with a few cuts, repeats, swapped bytes and foreign pieces."""
    content = bytearray(SEEDS[generator.integers(len(SEEDS))])
    for _ in range(generator.integers(1, 6)):
        place = int(generator.integers(len(content) + 1))
        length = int(generator.integers(1, 12))
        choice = generator.integers(5)
        if choice == 0:
            content[place:place] = PIECES[generator.integers(len(PIECES))]
        elif choice == 1:
            del content[place : place + length]
        elif choice == 2:
            content[place:place] = content[place : place + length] * int(generator.integers(1, 40))
        elif choice == 3 and place < len(content):
            content[place] = int(generator.integers(256))
        else:
            content = content[:place] if generator.random() < 0.2 else content
    return bytes(content)


def fuzz(tries: int, seed: int = 0) -> dict[str, int]:
    """Read that many mutated files, use those that can be read, and count the outcomes.

    Any exception but DataError passes through.
    """
    generator = np.random.default_rng(seed)
    outcomes = {"read": 0, "used": 0, "refused": 0}
    for number in range(tries):
        content = mutated(generator)
        try:
            table = read_table(io.BytesIO(content))
            outcomes["read"] += 1
            use(table, table.names[number % len(table.names)])
            outcomes["used"] += 1
        except DataError:
            outcomes["refused"] += 1
        except BaseException:
            sys.stderr.write(f"try {number}: {content!r}\n")
            raise
    return outcomes


def use(table: Table, target: str) -> None:
    """Profile a table, fit on it and transform it."""
    profile(table, target).lines()
    fitted = Preprocessor(target, missing="indicator", standardize="robust").fit(table)
    assert np.isfinite(fitted.transform(table).features).all()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(fuzz(count, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
