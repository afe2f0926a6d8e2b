"""Damaged journals and run files: one message, never a traceback."""

import shutil
from pathlib import Path

import hostile_runs
from small import SMALL

SWEEP = """\
sweep: {trials: 3, sampler: random, pruner: median,
  space: {optimizer.lr: {log: [0.001, 0.1]}, model.hidden: {choice: [[4], [3]]}}}
"""


def told(ran):
    """Check that a command ended well, or in one message."""
    assert ran.code in (0, 1, 2)
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == (ran.code != 0), ran.err
    return ran.code


def test_hostile_journals(mlpengine):
    Path("s.yaml").write_text(SMALL + SWEEP)
    assert mlpengine("sweep", "s.yaml", "-o", "whole", "-q", "--workers", "1").code == 0
    codes = []
    for journal in hostile_runs.journals(Path("whole/journal.log").read_bytes(), 10):
        shutil.rmtree("s", ignore_errors=True)
        shutil.copytree("whole", "s")
        Path("s/journal.log").write_bytes(journal)
        codes.append(told(mlpengine("report", "s", "--json")))
        codes.append(told(mlpengine("sweep", "--join", "s", "-q", "--workers", "1")))
    assert {0, 1} <= set(codes)


READ = ("report run -o a.html", "evaluate run", "compare run other", "report run other -o b.html")
COMPUTE = ("diagnose run", "explain run", "diagnose run --fix fixed.yaml")


def test_hostile_run_files(mlpengine):
    Path("r.yaml").write_text(SMALL)
    for name in ("run", "other"):
        assert mlpengine("train", "r.yaml", "-o", name, "-q").code == 0
    codes = []
    for number, _ in enumerate(hostile_runs.changes(Path("run"), 8)):
        Path("fixed.yaml").unlink(missing_ok=True)
        one = COMPUTE[max(number - 2, 0) % 3]  # in turn: each takes as long as all that only read
        codes.append([told(mlpengine(*command.split())) for command in (one, *READ)])
    assert all(codes[k][0] for k in range(3))  # networks of other sizes
    assert {0, 1, 2} <= {code for row in codes for code in row}
