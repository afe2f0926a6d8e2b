"""The share of random one-line mutants of the package that the tests of their room kill.

Run ``python benchmarks/mutants.py`` (``--smoke`` for two mutants, ``--count``, ``--seed``,
``--rooms``, ``--tree`` for another checkout).  A mutant changes a sign, a bound or a constant, or
removes a statement, in a copy of the tree.  The tests of the mutated file's room are run until one
fails.  A mutant that survives may change nothing that matters, so compare shares, not single ones.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

ENGINE = ("core", "formula", "ops", "tape", "backends", "nn", "optim", "step")
COPIED = (
    "mlpengine",
    "cli",
    "tests",
    "configs",
    "docs",
    "examples",
    "benchmarks",
    "pyproject.toml",
)
SECONDS = 600
"""Tests that take longer count as failed: a mutant may loop for ever."""

BOUNDS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}


class Mutant(NamedTuple):
    """A file, a place in it (line from 1, columns from 0), the text there and another text."""

    path: Path
    line: int
    start: int
    stop: int
    old: str
    new: str

    def text(self, source: str) -> str:
        """Return the mutated source."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.new + line[self.stop :]
        return "".join(lines)


def mutants(path: Path) -> list[Mutant]:
    """Return the one-line mutants of the functions in a file; messages stay as they are."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    result = []

    def visit(node: ast.AST, inside: bool) -> None:
        new = replacement(node) if inside else None
        if new is not None and node.lineno == node.end_lineno:
            start, stop = node.col_offset, node.end_col_offset
            old = lines[node.lineno - 1][start:stop]
            result.append(Mutant(path, node.lineno, start, stop, old, new))
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.Raise | ast.JoinedStr | ast.arguments):
                visit(child, inside or isinstance(node, ast.FunctionDef))

    if source.isascii():  # else columns of `ast` are not columns of the text
        visit(ast.parse(source), False)
    return result


def replacement(node: ast.AST) -> str | None:
    """Return another source text for a node, or None."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            sign = "-" if isinstance(node.op, ast.Add) else "+"
            return f"({ast.unparse(left)}) {sign} ({ast.unparse(right)})"
        case ast.UnaryOp(ast.USub(), operand):
            return f"({ast.unparse(operand)})"
        case ast.Compare(left, [operator], [right]) if type(operator) in BOUNDS:
            return f"({ast.unparse(left)}) {BOUNDS[type(operator)]} ({ast.unparse(right)})"
        case ast.Constant(value) if type(value) in (int, float):
            return repr(value + 1)
        case ast.Expr(ast.Constant()):
            return None
        case ast.Assign() | ast.AugAssign() | ast.Expr():
            return "pass"
    return None


def room_tests(tree: Path, path: Path) -> Path:
    """Return the directory of the tests of a file's room."""
    parts = path.relative_to(tree / "mlpengine").parts[:-1]
    for stop in range(len(parts), 0, -1):
        if (tests := tree.joinpath("tests", *parts[:stop])).is_dir():
            return tests
    raise SystemExit(f"{path}: its room has no directory of tests")


def killed(tree: Path, mutant: Mutant) -> bool:
    """Write the mutant, run the tests of its room, restore the file; return whether one failed."""
    source = mutant.path.read_text(encoding="utf-8")
    mutant.path.write_text(mutant.text(source), encoding="utf-8")
    try:
        return fails(tree, room_tests(tree, mutant.path))
    finally:
        mutant.path.write_text(source, encoding="utf-8")


@cache
def check_whole(tree: Path, tests: Path) -> None:
    """End the program where tests fail without any mutant: all mutants would seem killed."""
    if fails(tree, tests):
        raise SystemExit(f"{tests.relative_to(tree)}: fails without a mutant")


def fails(tree: Path, tests: Path) -> bool:
    """Return whether a test fails or takes too long."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(tests)]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="two mutants of one room")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", default=[*ENGINE, "data"])
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[1])
    args = parser.parse_args()
    count, rooms = (2, ["formula"]) if args.smoke else (args.count, args.rooms)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            source = args.tree / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, tree / name)
        files = sorted(f for room in rooms for f in (tree / "mlpengine" / room).rglob("*.py"))
        every = [mutant for path in files for mutant in mutants(path)]
        chosen = random.Random(args.seed).sample(every, count)
        dead = 0
        for k, mutant in enumerate(chosen, start=1):
            check_whole(tree, room_tests(tree, mutant.path))
            outcome = killed(tree, mutant)
            dead += outcome
            where = f"{mutant.path.relative_to(tree)}:{mutant.line}"
            word = "killed" if outcome else "SURVIVED"
            print(f"{k}/{count} {word:8} {where}  {mutant.old}  ->  {mutant.new}", flush=True)
        print(f"{dead} of {count} mutants killed by the tests of their rooms, of {len(every)}")


if __name__ == "__main__":
    main()
