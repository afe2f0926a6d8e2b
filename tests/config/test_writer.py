"""Configs as YAML: every text is read back as it was."""

import json
import random
from dataclasses import replace

import pytest

from mlpengine.config import load_config, writer
from mlpengine.config.reader import Document, parse
from mlpengine.config.writer import quoted, with_short_lists, yaml_text

PUNCTUATION = [
    ": a",
    "??",
    "?x",
    "- a",
    "#x",
    "a #b",
    "a: b",
    "&x",
    "*x",
    "!x",
    "%x",
    "@",
    "`",
    "|",
]
BRACKETS = [">", "{", "[", "]", "}", ",", "'", '"', "\\", "---", "...", "=", "<<", "\\x41", "%YAML"]
WORDS = [
    "~",
    "null",
    "Null",
    "true",
    "YES",
    "off",
    "1",
    "1e3",
    "0x1f",
    "1:30",
    "2020-01-01",
    ".inf",
]
SPACES = [
    "",
    " a",
    "a ",
    "a\nb",
    "\ta",
    "a\r",
    "\x85",
    "\u2028",
    "\xa0",
    "\ufeff",
    "\x00",
    "\x1b[31m",
]
LETTERS = ["Łódź", "é", "\u200b", "\ue000", "\ufffe", "\U0001f600", "\U0010ffff", "a" * 20_000]


def texts(count):
    rng = random.Random(0)
    planes = [(32, 127), (0, 0x250), (0x2000, 0x2100), (0xE000, 0x10FFFF)]
    drawn = [
        "".join(chr(rng.randrange(*rng.choice(planes))) for _ in range(rng.randrange(1, 9)))
        for _ in range(count)
    ]
    return [*PUNCTUATION, *BRACKETS, *WORDS, *SPACES, *LETTERS, *drawn]


def filled(tree, text):
    """Return a tree with `text` in place of every text."""
    match tree:
        case str():
            return text
        case dict():
            return {key: filled(value, text) for key, value in tree.items()}
        case list():
            return [filled(value, text) for value in tree]
    return tree


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "data: {source: a.csv, target: [y, z], drop: [a], na_values: [b], features: {c: d * 2},"
        " where: c > 0, date_format: {e: dd/mm/yyyy}, missing: median, split: {group: g}}\n"
        "model: {activation: relu}\n"
    )
    return load_config(path)


def unlike(config, count):
    tree, found = config.plain(), []
    for text in texts(count):
        given = filled(tree, text)
        try:
            same = parse(yaml_text(with_short_lists(given)), "c", Document("c")) == given
        except Exception:
            same = False
        if not same:
            found.append(text)
    return found


def test_every_text_field_is_read_back(config):
    assert json.dumps(filled(config.plain(), "\0?")).count('\\u0000?"') > 25  # fields with texts
    assert unlike(config, 40) == []


def test_a_thousand_texts_are_read_back():
    many = texts(1000)
    tree = {"list": many, "keys": {text: text for text in many if len(text) < 100}}
    assert parse(yaml_text(with_short_lists(tree)), "c", Document("c")) == tree


def test_a_writer_that_leaves_it_to_the_library_is_noticed(config, monkeypatch):
    monkeypatch.setattr(writer, "_is_word", lambda text: True)
    assert unlike(config, 0)


def test_a_quoted_text_is_read_back():
    for text in texts(100):
        assert parse(f"a: {quoted(text)}\n", "c", Document("c")) == {"a": text}


def test_a_resolved_config_loads_as_it_was(config, tmp_path):
    for text in [t for t in texts(20) if t and len(t) < 100]:
        data = config.config.data.model_copy(
            update={"target": [text], "categorical": [text], "na_values": [text]}
        )
        file = replace(config, config=config.config.model_copy(update={"data": data}))
        (tmp_path / "again.yaml").write_text(file.resolved(), encoding="utf-8")
        again = load_config(tmp_path / "again.yaml").config.data
        assert (again.target, again.categorical, again.na_values) == ([text], [text], [text])
