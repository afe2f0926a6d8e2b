"""The runner of the documentation's examples, and the documentation's own files."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


snippets = load("snippets")

PAGES = {
    "a command that prints what is shown": ("```console\n$ echo one two\none two\n```", 0),
    "another time": (
        "```console\n$ echo in 3.25 s, 0:07, 12 rows/s\nin 9.1 s, 1:30, 7 rows/s\n```",
        0,
    ),
    "a time that is none": ("```console\n$ echo in three s\nin 9.1 s\n```", 1),
    "other last digits": ("```console\n$ echo r2 0.8973 and 1e-3\nr2 0.8971 and 1e-3\n```", 0),
    "the last digit shown": ("```console\n$ echo loss 0.004\nloss 0.003\n```", 0),
    "another decimal": ("```console\n$ echo r2 0.7\nr2 0.8971\n```", 1),
    "another whole number": ("```console\n$ echo 41 rows\n40 rows\n```", 1),
    "statements with other last digits": ("```python\n>>> 0.1 + 0.7\n0.8\n```", 0),
    "dots stand for any text": ("```console\n$ echo one two\none ...\n```", 0),
    "a command that prints something else": ("```console\n$ echo one\ntwo\n```", 1),
    "a command that fails": ("```console\n$ false\n```", 1),
    "a command that fails as shown": ("```console\n$ exit 2\n[exit code: 2]\n```", 0),
    "a command that fails with another code": ("```console\n$ exit 3\n[exit code: 2]\n```", 1),
    "a command on two lines": ("```console\n$ echo one \\\n> two\none two\n```", 0),
    "a command that goes on": ("```console\n$ for i in 1 2\n> do echo $i\n> done\n1\n2\n```", 0),
    "statements": ("```python\n>>> 1 + 1\n2\n```", 0),
    "a statement with another value": ("```python\n>>> 1 + 1\n3\n```", 1),
    "a statement that raises": ("```python\n>>> 1 / 0\n```", 1),
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


def test_the_version_is_cited():
    import mlpengine

    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {mlpengine.__version__}\n" in citation


@pytest.mark.parametrize("lesson", ["csv", "loop"])
def test_a_lesson_pasted_line_by_line_gives_what_it_shows(lesson, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert snippets.failures(DOCS / "lessons" / f"{lesson}.md") == []


def test_a_page_that_needs_a_missing_module_is_named(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- needs: no_such_module -->\n\n```console\n$ false\n```", encoding="utf-8")
    assert snippets.main([page]) == 0
    assert capsys.readouterr().out == f"{page}: NOT RUN, no_such_module is not installed\n"
