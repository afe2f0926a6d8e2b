"""Texts of others take a time proportional to their length, and are shown cut."""

import ast
import re
import signal
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

import mlpengine
import mlpengine_cli
from mlpengine.core.errors import MlpEngineError, UsageError
from mlpengine.core.fields import Limits
from mlpengine.core.wording import LONGEST_LINE, shortened
from mlpengine.data.tables.reader import read_table

METHODS = "findall|finditer|fullmatch|match|search|split|sub"
CALL = re.compile(rf"\bre\.(?:{METHODS})\(")


@contextmanager
def seconds(limit):
    """Raise TimeoutError after so much time of the processor; `re` looks for signals as it runs."""

    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def patterns():
    """Return how the package applies patterns, by place: as arguments of `re`, and by name."""
    found = {}
    for package in (mlpengine, mlpengine_cli):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "import re\n" not in text:
                continue
            module = ".".join([package.__name__, *path.relative_to(root).with_suffix("").parts])
            for name, value in vars(import_module(module)).items():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                    for method in re.findall(rf"\b{name}\.({METHODS})\b", text):
                        found[f"{module}.{name}.{method}"] = value, method
            for call in ast.walk(ast.parse(text)):
                if (
                    isinstance(call, ast.Call)
                    and call.args
                    and CALL.match(f"{ast.unparse(call.func)}(")
                ):
                    pattern = call.args[0]
                    if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
                        method = call.func.attr
                        found[f"{module}:{call.lineno}"] = re.compile(pattern.value), method
    return {place: use for place, use in found.items() if not any(own in place for own in OWN)}


OWN = ("backends.", "drawing.markup")
"""Rooms with patterns for texts of our own."""

PATTERNS = patterns()
PARTS = (
    *("a", "1", " ", "\n", "/", ":", ".", ",", "'", "-", "<", "/a:", "1,", "1 ", ", 1", "(", "\\"),
    *("http://", "a://b:c@", "password=", "[", "${a", "Directory '"),
)


def slow(pattern, method, parts=PARTS):
    """Yield texts that a pattern reads in more than a time proportional to their length."""
    for part in parts:
        for head, tail in (("", "!"), ("1", "!"), ("a", "x"), ("http://", " ")):
            text = head + part * (8_000 // len(part)) + tail
            try:
                with seconds(0.04):  # under a millisecond, or 0.15 s
                    pattern.sub("", text) if method == "sub" else getattr(pattern, method)(text)
            except TimeoutError:
                yield head, part, tail


def test_no_pattern_takes_more_than_a_time_proportional_to_the_text():
    assert len(PATTERNS) > 25
    assert {place: texts for place, use in PATTERNS.items() if (texts := [*slow(*use)])} == {}


def test_a_quadratic_pattern_is_noticed():
    assert [*slow(re.compile(r"(?<!\w)\w+:/"), "search", ["a"])] == []
    assert next(slow(re.compile(r"\w+:/"), "search", ["a"])) == ("", "a", "!")


@pytest.mark.parametrize(
    "check",
    [
        lambda text: Limits(above=0).check("sgd: lr", text),
        lambda text: mlpengine.Mlp([2, 3, 1], activation=text),
        lambda text: mlpengine.fit({"a": [1, 2], "y": [0, 1]}, text),
        lambda text: mlpengine.load(text),
    ],
)
def test_a_long_value_is_shown_cut(check):
    with pytest.raises(UsageError) as caught:
        check("v" * 1_000_000)
    assert len(str(caught.value)) < 600
    assert "vvvvv..." in str(caught.value)


def test_long_words_and_lines_of_a_message_are_cut():
    text = shortened(f"{'p' * 1_000_000}.csv: there is no such file\n{'word ' * 200_000}")
    assert re.match(r"p+\.\.\.p+\.csv: there is no such file\nword", text)
    assert LONGEST_LINE < len(text) < 2 * LONGEST_LINE
    assert len(shortened("x" + "\n" * 1_000_000)) < 1000


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "a\0.csv"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(MlpEngineError):
        read_table(name)
