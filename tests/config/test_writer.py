"""Configs as YAML: every text is read back as it was."""

import random
from dataclasses import replace

import pytest

from mlpengine.config import load_config, writer
from mlpengine.config.reader import Document, parse_yaml
from mlpengine.config.writer import quoted_yaml, with_short_lists, yaml_text
from mlpengine.core.errors import ConfigError

PUNCTUATION = [": a", "??", "?x", "- a", "#x", "a #b", "a: b", "&x", "*x", "!x", "%x", "@", "`"]
BRACKETS = ["|", ">", "{", "[", "]", "}", ",", "'", '"', "\\", "=", "<<", "\\x41"]
MARKS = ["-", "- ", "--", "---", "--- a", "...", "%YAML", "% a", "?", "? a", ": ", ":", "#", "*"]
WORDS = ["&", "!", "~", "null", "Null", "true", "yes", "YES", "off", "1", "1e3", "0x1F", "1:30"]
SPACES = ["2020-01-01", ".inf", "", " a", "a ", "a\nb", "\ta", "a\r", "a\t", "a   ", "\r\n", "\x85"]
LINES = ["a\x85b", "\u2028", "\u2029a", "\xa0", "\ufeff", "\ufeffa", "\x00", "\x07", "\x7f", "\x9b"]
LETTERS = ["\x1b[31m", "Łódź", "é", "\u200b", "\ue000", "\ufffe", "\U0001f600", "\U0010ffff"]
LONG = ["a" * 10_500, "a b" * 4_000]


NAMED = [*PUNCTUATION, *BRACKETS, *MARKS, *WORDS, *SPACES, *LINES, *LETTERS, *LONG]


def texts(count):
    rng = random.Random(0)
    planes = [(32, 127), (0, 0x250), (0x2000, 0x2100), (0xE000, 0x10FFFF)]
    drawn = [
        "".join(chr(rng.randrange(*rng.choice(planes))) for _ in range(rng.randrange(1, 9)))
        for _ in range(count)
    ]
    return [*NAMED, *drawn]


def same_after_writing(many):
    """Return whether a list and the keys of a mapping are read back as they were."""
    tree = {"list": many, "keys": {text: text for text in many if len(text) < 100}}
    try:
        return parse_yaml(yaml_text(with_short_lists(tree)), "c", Document("c")) == tree
    except ConfigError:
        return False


def test_texts_are_read_back():
    assert same_after_writing(texts(300))


def test_a_writer_that_leaves_it_to_the_library_is_noticed(monkeypatch):
    monkeypatch.setattr(writer, "_is_word", lambda text: True)
    assert not same_after_writing(texts(30))


def test_a_quoted_text_is_read_back():
    for text in texts(100):
        assert parse_yaml(f"a: {quoted_yaml(text)}\n", "c", Document("c")) == {"a": text}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("data: {source: a.csv, target: y}\n")
    return load_config(path)


def test_a_resolved_config_loads_as_it_was(config, tmp_path):
    for text in [t for t in texts(20)[::12] if t and len(t) < 100]:
        names = {"target": (text,), "categorical": (text,), "na_values": (text,)}
        data = replace(config.config.data, **names)
        file = replace(config, config=replace(config.config, data=data))
        (tmp_path / "again.yaml").write_text(file.resolved(), encoding="utf-8")
        again = load_config(tmp_path / "again.yaml").config.data
        assert (again.target, again.categorical, again.na_values) == ((text,), (text,), (text,))
