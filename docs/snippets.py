"""Run every example of the documentation as a reader would, page by page.

``python docs/snippets.py [PAGE ...]``.  Each page starts in an empty directory.  In a block marked
``console``, lines after ``$`` are commands of the shell, which must end with 0 (or with the code of
a last line ``[exit code: 2]``); lines after ``>`` continue them, and the lines below are what they
print.  In a block marked ``python``, lines after ``>>>`` are statements, as in doctest.  A block
marked with a file's name, such as ```` ```yaml title="price.yaml" ````, is written to that file.  A
page that begins with ``<!-- needs: torch -->`` runs only where that module is installed.

What is printed must be what the page shows, with three exceptions.  ``...`` stands for any text.  A
time or a speed (4.7 s, 0:11, 38,432 rows/s) stands for any other.  Other decimals may differ by
5 %, because the last digits of a sum depend on the processor.
"""

import doctest
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<fence>`{3,})(?P<kind>[a-z]*)(?: title=\"(?P<title>[^\"]+)\")?\s*$")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TOLERANCE = 0.05
TIME = r"\d[\d,]*(?:\.\d+)? (?:s|ms|us|min|\w+/s)(?!\w)|(?<![\d:])\d+:\d\d(?![\d:])"
DECIMAL = r"[-+]?\d[\d,]*\.\d+(?:e[-+]?\d+)?"
PART = re.compile(rf"(?P<any>\s*\.\.\.\s*)|(?P<time>{TIME})|(?P<decimal>{DECIMAL})|(?P<space>\s+)")
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
EXIT = re.compile(r"\[exit code: (\d+)\]")
SECONDS = 300


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it names, its text, and where that begins."""

    kind: str
    title: str | None
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    result: list[Block] = []
    opened: re.Match[str] | None = None
    start = 0
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if opened is None:
            opened, start, lines = FENCE.match(line), number + 1, []
        elif line.strip() == opened["fence"]:
            text = "".join(f"{line}\n" for line in lines)
            result.append(Block(opened["kind"], opened["title"], text, start))
            opened = None
        else:
            lines.append(line)
    return result


def failures(page: Path) -> list[str]:
    """Run the examples of a page in the current directory; return what went wrong."""
    wrong: list[str] = []
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            wrong += run_console(block, page)
        elif block.kind == "python" and ">>>" in block.text:
            wrong += run_python(block, page, names)
    return wrong


def run_console(block: Block, page: Path) -> list[str]:
    """Run the commands of a block and compare what they print."""
    wrong = []
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        while expected.startswith("> "):
            more, _, expected = expected.partition("\n")
            command += "\n" + more.removeprefix("> ")
        code = EXIT.search(expected)
        environment = dict(os.environ, COLUMNS="100", NO_COLOR="1", PYTHONUNBUFFERED="1")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            env=environment,
            timeout=SECONDS,
            check=False,
        )
        where = f"{page.name}:{block.line}: $ {command}"
        if done.returncode != (int(code[1]) if code else 0):
            wrong.append(f"{where}\nexit code {done.returncode}\n{done.stdout}")
        elif not matches(EXIT.sub("", expected), done.stdout):
            wrong.append(f"{where}\nexpected\n{expected}\nprinted\n{done.stdout}")
    return wrong


class Checker(doctest.OutputChecker):
    """Compares what is printed with what the page shows, times and last digits aside."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Return whether the text is the same."""
        return super().check_output(want, got, optionflags) or agrees(want.strip(), got.strip())


def agrees(expected: str, printed: str) -> bool:
    """Return whether a text is that of the page, except for ``...``, times and last digits."""
    pattern, decimals, end = "", [], 0
    for part in PART.finditer(expected):
        pattern += re.escape(expected[end : part.start()])
        end = part.end()
        if part["decimal"]:
            decimals.append(part["decimal"])
            pattern += f"({DECIMAL})"
        else:
            pattern += ".*?" if part["any"] else rf"(?:{TIME})" if part["time"] else r"\s+"
    pattern += re.escape(expected[end:])
    match = re.fullmatch(pattern, printed, re.DOTALL)
    return match is not None and all(map(close, decimals, match.groups()))


def close(expected: str, printed: str) -> bool:
    """Return whether two decimals agree, but for their last digits."""
    wanted, got = (float(text.replace(",", "")) for text in (expected, printed))
    mantissa, _, exponent = expected.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(got - wanted) <= max(TOLERANCE * abs(wanted), unit * 1.01)


def matches(expected: str, printed: str) -> bool:
    """Return whether a command printed what the page shows; nothing shown allows anything."""
    return not expected.strip() or Checker().check_output(expected, printed, FLAGS)


def run_python(block: Block, page: Path, names: dict[str, object]) -> list[str]:
    """Run the statements of a block, in the names of the page's earlier blocks."""
    parser = doctest.DocTestParser()
    test = parser.get_doctest(block.text, {}, page.name, str(page), block.line - 1)
    test.globs = names
    said: list[str] = []
    doctest.DocTestRunner(Checker(), optionflags=FLAGS).run(
        test, out=said.append, clear_globs=False
    )
    return ["".join(said)] if said else []


def main(pages: list[Path]) -> int:
    """Run pages, by default all; print the failures and return how many pages have some."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    count = 0
    for page in pages or sorted(Path(__file__).parent.rglob("*.md")):
        path = page.resolve()
        needed = NEEDS.match(path.read_text(encoding="utf-8"))
        if needed and importlib.util.find_spec(needed[1]) is None:
            print(f"{shlex.quote(str(page))}: NOT RUN, {needed[1]} is not installed", flush=True)
            continue
        with tempfile.TemporaryDirectory() as directory, chdir(directory):
            wrong = failures(path)
        print(f"{shlex.quote(str(page))}: {'failed' if wrong else 'ok'}", flush=True)
        print("\n".join(wrong), end="\n" if wrong else "", flush=True)
        count += bool(wrong)
    return count


if __name__ == "__main__":
    sys.exit(min(main([Path(name) for name in sys.argv[1:]]), 1))
