"""Every command on names that an encoding lacks, in several encodings and a narrow terminal."""

import json
import os
import subprocess
import sys

import pytest

from mlpengine_cli.main import COMMANDS

CITIES = ("Łódź", "東京", "naïve")
CLASSES = ("mały", "duży")
DATA, COLUMN, TARGET = "dane_ł.csv", "miasto ☃", "wielkość"

CALLS = {
    "init": ("init", DATA, "--target", TARGET, "-o", "t.yaml"),
    "init on stdout": ("init", DATA, "--target", TARGET, "-o", "-"),
    "check": ("check", "t.yaml"),
    "train": ("train", "t.yaml", "--set", "training={epochs: 1, backend: numpy}", "-o", "żródło"),
    "train again": ("train", "t.yaml", "--set", "training={epochs: 1, backend: numpy}", "-o", "b"),
    "sweep": ("sweep", "sweep.yaml", "-o", "s"),
    "distill": ("distill", "żródło", "-o", "d", "--set=model.hidden=[1]", "--made", "9"),
    "summary": ("summary", "żródło"),
    "evaluate": ("evaluate", "żródło", DATA),
    "predict": ("predict", "żródło", DATA),
    "predict a file": ("predict", "żródło", DATA, "-o", "p.csv"),
    "serve no run": ("serve", "żaden"),
    "explain": ("explain", "żródło"),
    "report": ("report", "żródło"),
    "diagnose": ("diagnose", "żródło"),
    "compare": ("compare", "żródło", "b"),
    "export": ("export", "żródło", "--format", "safetensors", "-o", "ł.safetensors"),
    "ls": ("ls", "."),
    "schema": ("schema",),
    "no such column": ("init", DATA, "--target", "wielkosc"),
}
FAILS = {"no such column": 2, "serve no run": 2}
LOOKED_AT = ("init", "init on stdout", "check", "train", "predict", "predict a file")
"""Calls whose outputs tests look at; the others are made in the encoding that lacks most."""

FILES = {"init on stdout", "predict", "schema"}
"""What is written to stdout as it would be to a file, in UTF-8."""

SWEEP = """\
data: {source: "dane_ł.csv", target: wielkość}
model: {hidden: [4]}
training: {epochs: 2, backend: numpy}
sweep: {trials: 2, sampler: random, pruner: none, space: {optimizer.lr: {log: [1e-3, 1e-1]}}}
"""

SCRIPT = """\
import json, os, sys
from mlpengine_cli.main import run
from mlpengine_cli.streams import keep_streams
os.write(1, sys.stdout.encoding.encode() + b"\\0")
keep_streams()
for arguments in json.loads(sys.argv[1]):
    code = run(arguments)
    sys.stdout.flush()
    os.write(1, b"\\0%d\\0" % code)
"""

ENCODINGS = {
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
}
"""Variables by the encoding that they ask for."""


@pytest.fixture(scope="module", params=ENCODINGS)
def outputs(request, tmp_path_factory):
    """Run calls in one process; give the encoding, stdout and code by call, and stderr."""
    calls = {k: v for k, v in CALLS.items() if request.param == "ascii" or k in LOOKED_AT}
    folder = tmp_path_factory.mktemp("encodings")
    rows = [f"{CITIES[i % 3]},{i % 7},{CLASSES[i % 7 > 3]}" for i in range(90)]
    text = "\n".join([f"{COLUMN},n,{TARGET}", *rows]) + "\n"
    (folder / DATA).write_text(text, encoding="utf-8")
    (folder / "sweep.yaml").write_text(SWEEP, encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(list(calls.values()))],
        env=kept | {"COLUMNS": "40"} | ENCODINGS[request.param],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    encoding, *parts = done.stdout.split(b"\0")
    results = dict(zip(calls, zip(parts[::2], map(int, parts[1::2]), strict=False), strict=True))
    encoding = encoding.decode()
    assert encoding == request.param
    return folder, encoding, results, done.stderr.decode(encoding)


def test_every_command_is_called():
    assert {arguments[0] for arguments in CALLS.values()} == set(COMMANDS)


def test_every_command_in_an_encoding(outputs):
    """Commands end as they should; what the encoding lacks is escaped; files are UTF-8."""
    folder, encoding, results, stderr = outputs
    assert "Traceback" not in stderr
    assert {name: code for name, (_, code) in results.items() if code} == {
        name: code for name, code in FAILS.items() if name in results
    }
    for name, (content, _) in results.items():
        content.decode("utf-8" if name in FILES else encoding)
    escaped = [name.encode(encoding, "backslashreplace") for name in (COLUMN, CITIES[0])]
    assert all(name in results["check"][0] for name in escaped)
    assert TARGET.encode(encoding, "backslashreplace").decode(encoding) in stderr
    assert "żródło".encode(encoding, "backslashreplace") in results["train"][0]
    assert results["predict"][0] == (folder / "p.csv").read_bytes()
    assert CLASSES[0].encode() in results["predict"][0]
    assert results["init on stdout"][0] == (folder / "t.yaml").read_bytes()
