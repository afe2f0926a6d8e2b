"""Flip single bits of a checkpoint: each must be detected, and the checkpoint before it loaded.

python benchmarks/flip.py                 # 10,000 bits
python benchmarks/flip.py --times 100     # a short form
"""

import argparse
import logging
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from mlpengine.errors import CheckpointError
from mlpengine.train.checkpoint import Checkpoints, read_checkpoint

CONFIG = """\
data: {source: penguins}
model: {hidden: [8]}
training: {epochs: 4, checkpoint: {every_epochs: 1}}
report: false
"""
HEADER_SHARE = 0.5
"""Share of the flips that hit the header, where a format is easiest to deceive."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--times", type=int, default=10_000, help="bits to flip")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "flip.yaml"
        config.write_text(CONFIG)
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "mlpengine_cli.main", "train", config, "--out", run, "-q"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        store = Checkpoints(run / "checkpoints")
        older, newer = store.paths()[-2:]
        whole = newer.read_bytes()
        header = 8 + int.from_bytes(whole[:8], "little")
        missed = 0
        for _ in range(options.times):
            end = header if chosen.random() < HEADER_SHARE else len(whole)
            bit = chosen.randrange(end * 8)
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            newer.write_bytes(data)
            try:
                read_checkpoint(newer)
                read = newer
            except CheckpointError:
                read = store.newest().path
            if read != older:
                missed += 1
                print(f"bit {bit} was not noticed")
    print(f"{options.times} bits flipped in {len(whole):,} bytes, {missed} not noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
