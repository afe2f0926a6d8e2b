"""Configs as YAML: every text is read back as it was."""

import random
from dataclasses import replace
from itertools import cycle, islice

import pytest

from mlpengine.config import json_schema, load_config, writer
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


TEXTS = texts(20)
SCHEMA = json_schema()


def text_fields(node, within=()):
    """Return the text fields of a JSON schema as a tree of "", with None for a free key."""
    tree = "" if node.get("type") == "string" and not node.keys() & {"enum", "const"} else None
    name = node.get("$ref", "").rpartition("/")[2]
    if name and name not in within:
        tree = text_fields(SCHEMA["$defs"][name], (*within, name))
    for member in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        tree = merged(tree, text_fields(member, within))
    fields = [*node.get("properties", {}).items()]
    if isinstance(node.get("additionalProperties"), dict):
        fields.append((None, node["additionalProperties"]))
    below = {key: text_fields(value, within) for key, value in fields}
    tree = merged(tree, {key: part for key, part in below.items() if part is not None} or None)
    entry = text_fields(node["items"], within) if isinstance(node.get("items"), dict) else None
    return tree if entry is None else merged([entry], tree)


def merged(one, other):
    """Return the fields of two trees; a mapping is preferred to a list, and a list to a text."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: merged(one.get(key), other.get(key)) for key in {**one, **other}}
    return max(one, other, key=lambda tree: (type(None), str, list, dict).index(type(tree)))


def filled(tree, texts):
    """Return a tree with the next of `texts` for each text and each free key."""
    if isinstance(tree, str):
        return next(texts)
    if isinstance(tree, list):
        return [filled(value, texts) for value in tree]
    return {next(texts) if k is None else k: filled(value, texts) for k, value in tree.items()}


FIELDS = text_fields(SCHEMA)


def config_of(number):
    """Return a config with a text of its own in every field; as many as texts have all in each."""
    return filled(FIELDS, islice(cycle(TEXTS), number, None))


def unlike(numbers):
    """Return the numbers of the configs that are not read back as they were."""
    found = []
    for number in numbers:
        tree = config_of(number)
        try:
            same = parse_yaml(yaml_text(with_short_lists(tree)), "c", Document("c")) == tree
        except ConfigError:
            same = False
        if not same:
            found.append(number)
    return found


def test_the_text_fields_are_those_of_configs():
    given = iter(map(str, range(100)))
    tree = filled(FIELDS, given)
    assert int(next(given)) > 20
    assert isinstance(tree["data"]["target"], list)


def test_every_text_field_is_read_back():
    assert unlike(range(0, len(TEXTS), 5)) == []


def test_a_thousand_texts_are_read_back():
    many = texts(300)
    tree = {"list": many, "keys": {text: text for text in many if len(text) < 100}}
    assert parse_yaml(yaml_text(with_short_lists(tree)), "c", Document("c")) == tree


def test_a_writer_that_leaves_it_to_the_library_is_noticed(monkeypatch):
    monkeypatch.setattr(writer, "_is_word", lambda text: True)
    assert unlike(range(30))


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
