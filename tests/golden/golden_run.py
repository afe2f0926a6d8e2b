"""A run of version 0.2.0, which every later version reads.

``python tests/golden/golden_run.py`` wrote it.  Once 0.2.0 is published
its files stay as they are.
"""

import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from mlpengine.nn.safetensors_file import read_tensors, write_tensors

RUN = Path(__file__).with_name("run")
CHECKPOINT = "step-000000012.safetensors"


def write() -> None:
    """Train `RUN`'s config, and keep the model, a checkpoint and what they must give."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for kept in ("config.yaml", "rows.csv"):
            shutil.copy(RUN / kept, folder)
        for command in (
            ["train", "config.yaml", "--out", "run", "-q"],
            ["predict", "run", "rows.csv", "--out", str(RUN / "predictions.csv")],
        ):
            subprocess.run(
                [sys.executable, "-m", "mlpengine_cli.main", *command], cwd=folder, check=True
            )
        for kept in ("model.safetensors", "metrics.csv"):
            shutil.copy(folder / "run" / kept, RUN)
        text = (folder / "run" / "config.resolved.yaml").read_text()
        text = re.sub("  source: .*", "  source: rows.csv", text, count=1)  # not of this machine
        (RUN / "config.resolved.yaml").write_text(text)
        arrays, header = read_tensors(folder / "run" / "checkpoints" / CHECKPOINT)
        header["config_sha256"] = sha256(text.encode()).hexdigest()
        write_tensors(RUN / CHECKPOINT, arrays, header)


if __name__ == "__main__":
    write()
