"""Reading YAML: the dialect, the places, and everything that is refused."""

import math
import os

import pytest

from mlpengine.config import reader
from mlpengine.config.reader import Document, parse_yaml, read_document
from mlpengine.core.errors import ConfigError

SCALARS = {
    "1e-3": 1e-3,
    "-1E+3": -1000.0,
    "1.": 1.0,
    ".5": 0.5,
    "012": 12,
    "1_000": 1000,
    "0x1f": 31,
    "0o17": 15,
    "-.inf": -math.inf,
    "no": "no",
    "yes": "yes",
    "on": "on",
    "true": True,
    "False": False,
    "~": None,
    "null": None,
    "2020-01-01": "2020-01-01",
    "1:30": "1:30",
    "'1'": "1",
    "[1, {a: b}]": [1, {"a": "b"}],
}


@pytest.mark.parametrize("text", SCALARS)
def test_scalar(text):
    assert parse_yaml(text, "file", Document("file"), ("key",)) == SCALARS[text]


def test_not_a_number_is_a_number():
    assert math.isnan(parse_yaml(".nan", "file", Document("file"), ("key",)))


def read(tmp_path, content):
    path = tmp_path / "c.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_document(path)


def test_places_are_the_lines_of_the_keys(tmp_path):
    document = read(tmp_path, "\ufeff# comment\na: 1\nb:\n  c: [1,\n      2]\n")
    lines = {path: line for path, (_, line) in document.places.items()}
    assert lines == {(): 2, ("a",): 2, ("b",): 3, ("b", "c"): 4, ("b", "c", 0): 4, ("b", "c", 1): 5}
    assert document.data == {"a": 1, "b": {"c": [1, 2]}}


REFUSED = {
    "duplicate key": ("a: 1\nb: 2\na: 3", ":3: a: the key is given twice (first on line 1)"),
    "alias": ("a: &x 1\nb: *x", ":2: aliases are not allowed"),
    "directive": ("%YAML 1.1\n---\na: no", ":2: directives are not allowed"),
    "two documents": ("a: 1\n---\nb: 2", ":2: one file holds one config"),
    "python tag": ("a: !!python/object:os.system x", ":1: a: tags are not allowed"),
    "a list as a key": ("? [a]\n: 1", ":1: a key must be one word"),
    "deep flow": ("a: " + "[" * 50, ":1: nested deeper than 12 levels"),
    "deep blocks": ("".join(" " * i + "a:\n" for i in range(300)), "nested deeper"),
    "many values": ("a: [" + "1," * 70 + "]", ":1: a config must have at most 60 values"),
    "large": ("a: " + "x" * 1_100_000, "a config must have at most 524,288 bytes"),
    "unclosed": ("a: [1, 2\nb: 3", ":1: not valid YAML: [ needs commas between its values, and ]"),
    "one bracket more": ("a:\n  b: [1, 2]]", ":2: not valid YAML: ] is outside of any brackets"),
    "tab": ("a:\n\tb: 1", ":2: not valid YAML: a tab stands where spaces are needed"),
    "no space": ("a:\n  b: 1\n  c:2\n  d: 3", ":3: not valid YAML: a space is needed"),
    "no colon": ("a:\n  b 1\n  c: 2", ":2: not valid YAML: a key needs a colon"),
    "list below its key": ("a:\n  b:\n - c", ":3: not valid YAML: a line of a list"),
    "key too far right": ("a:\n  b: 1\n    c: 2", ":3: not valid YAML: this line must be indented"),
    "first line too far right": ("  a: 1\nb: 2", ":2: not valid YAML: this line must be indented"),
    "unclosed quote": ("a:\n  b: 'c\n  d: 1", ":2: not valid YAML: the quote that opens in this"),
    "quote in quotes": ("a: 'it's'", ":1: not valid YAML: after a closing quote"),
    "backslash": ('a: "C:\\data"', ":1: not valid YAML: a backslash"),
    "colon in a text": ("a: b: c", ":1: not valid YAML: a text with a colon"),
    "a mark in front": ("a: @b", ":1: not valid YAML: a text that begins with @ must be in quotes"),
    "control character": ("a: \x07", "not readable as YAML"),
    "not UTF-8": (b"a: 1\nb: \xff", ":2: a config must be UTF-8 text"),
    "a list": ("- 1\n- 2", ":1: the top level must be a mapping of keys (got a list)"),
    "a word": ("hello", ":1: the top level must be a mapping of keys (got text)"),
    "an endless number": ("a: " + "9" * 5000, ":1: a: not a number that can be used"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MAX_VALUES", 60)
    content, message = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, content)
    assert message in str(caught.value)


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot read the config"):
        read_document(tmp_path / "none.yaml")


def test_what_is_no_file_is_refused(tmp_path):
    """Before, a pipe without a writer was waited for."""
    os.mkfifo(tmp_path / "pipe.yaml")
    for path, what in ((tmp_path / "pipe.yaml", "a pipe"), (tmp_path, "a directory")):
        with pytest.raises(ConfigError, match=rf"{path}: .*got {what}"):
            read_document(path)


def test_an_empty_file_is_an_empty_mapping(tmp_path):
    assert read(tmp_path, "# nothing\n").data == {}


def test_all_problems_are_listed_in_order_up_to_a_limit(tmp_path):
    keys = reader.MAX_PROBLEMS + 5
    content = "".join(f"k{i}: 1\nk{i}: 2\n" for i in range(keys))
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, content)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith(f"{keys} problems")
    assert ":2: k0:" in lines[1]
    assert lines[-1].strip() == "... and 5 more"
