"""The runner of the documentation's examples, its search and its pages made from the code."""

import importlib.util
import json
import sys
from pathlib import Path

import jsonschema
import pytest

from mlpengine.config import json_schema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


snippets = load("snippets")
check_built = load("check_built")

PAGES = {
    "a command that prints what is shown": ("```console\n$ echo one two\none two\n```", 0),
    "another time": (
        "```console\n$ echo in 3.25 s, 0:07, 12 rows/s\nin 9.1 s, 1:30, 7 rows/s\n```",
        0,
    ),
    "a time that is none": ("```console\n$ echo in three s\nin 9.1 s\n```", 1),
    "other last digits": ("```console\n$ echo r2 0.8973 and 1e-3\nr2 0.8971 and 1e-3\n```", 0),
    "another decimal": ("```console\n$ echo r2 0.7\nr2 0.8971\n```", 1),
    "another whole number": ("```console\n$ echo 41 rows\n40 rows\n```", 1),
    "dots stand for any text": ("```console\n$ echo one two\none ...\n```", 0),
    "a command that prints something else": ("```console\n$ echo one\ntwo\n```", 1),
    "a command that fails": ("```console\n$ false\n```", 1),
    "a command that fails with another code": ("```console\n$ exit 3\n[exit code: 2]\n```", 1),
    "a command on two lines": ("```console\n$ echo one \\\n> two\none two\n```", 0),
    "a command that goes on": ("```console\n$ for i in 1 2\n> do echo $i\n> done\n1\n2\n```", 0),
    "dots do not stand for what follows": ("```console\n$ echo one\n...\ntwo\n```", 1),
    "statements": ("```python\n>>> 1 + 1\n2\n```", 0),
    "a statement with another value": ("```python\n>>> 1 + 1\n3\n```", 1),
    "names of earlier blocks": ("```python\n>>> x = 1\n```\n\n```python\n>>> x\n1\n```", 0),
    "a file": ('```yaml title="a.yaml"\na: 1\n```\n\n```console\n$ cat a.yaml\na: 1\n```', 0),
}


@pytest.mark.parametrize(("text", "count"), PAGES.values(), ids=PAGES)
def test_examples_are_run_and_compared(text, count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert len(snippets.failures(page)) == count
    assert snippets.main([page]) == count


def test_a_page_that_needs_a_missing_module_is_named(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- needs: no_such_module -->\n\n```console\n$ false\n```", encoding="utf-8")
    assert snippets.main([page]) == 0
    assert capsys.readouterr().out == f"{page}: NOT RUN, no_such_module is not installed\n"


def violations(config):
    """Return what the schema that editors use says about a config."""
    validator = jsonschema.Draft202012Validator(json_schema())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(config)]


@pytest.mark.parametrize(
    "config",
    [{}, {"data": {"source": "a.csv"}, "epochs": 3}, {"data": {"source": "a"}, "seed": -1}],
)
def test_the_schema_refuses_what_training_refuses(config):
    assert violations(config)


INDEX = {
    "docnames": ["recipes/split", "recipes/folds", "reference/config"],
    "titles": ["How do I split by time?", "Folds", "The config"],
    "alltitles": {"Folds": [[1, None]], "The config": [[2, None]]},
    "terms": {"time": [0, 2], "split": [0, 1, 2], "group": 2},
    "titleterms": {"time": 0, "split": [0, 2]},
}


@pytest.mark.parametrize(
    ("query", "page", "rank"),
    [
        ("split by time", "recipes/split", 1),
        ("the split times", "reference/config", 2),
        ("folds", "recipes/folds", 1),
        ("groups", "reference/config", 1),
        ("groups", "recipes/split", 0),
        ("split groups and times", "recipes/split", 0),
    ],
)
def test_searching_ranks_pages_as_sphinx_does(query, page, rank):
    text = f"Search.setIndex({json.dumps(INDEX)})"
    index = check_built.Index(text, lambda word: word.removesuffix("s"), {"by", "the", "and"})
    assert index.rank(query, page) == rank


def test_links_that_lead_nowhere_are_named(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(
        '<a href="sub/b.html#here">1</a> <a href="#gone">2</a> <a href="https://x.org/c">3</a>'
    )
    (tmp_path / "sub" / "b.html").write_text('<p id="here"><img src="../no.png"></p>')
    assert check_built.broken(tmp_path) == [
        "a.html: #gone leads nowhere",
        "sub/b.html: ../no.png leads nowhere",
    ]
