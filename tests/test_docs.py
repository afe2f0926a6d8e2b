"""The runner of the documentation's examples, and the documentation's own files."""

import ast
import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

import mlpengine
from mlpengine.config import json_schema

ROOT = Path(__file__).parents[1]
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
    "dots stand for no text": ("```console\n$ echo one\none\n...\n```", 0),
    "dots do not stand for what follows": ("```console\n$ echo one\n...\ntwo\n```", 1),
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


PASTED = ["tasks/controller", "recipes/own-loop", "recipes/watch-gradients",
          "recipes/beyond-mlp", "recipes/many-networks", "recipes/python"]  # fmt: skip
"""Pages that are cheap to run; `.ci/run` runs all of them."""


@pytest.mark.parametrize("page", PASTED)
def test_a_page_pasted_line_by_line_gives_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert snippets.failures(DOCS / f"{page}.md") == []


def test_a_page_that_needs_a_missing_module_is_named(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- needs: no_such_module -->\n\n```console\n$ false\n```", encoding="utf-8")
    assert snippets.main([page]) == 0
    assert capsys.readouterr().out == f"{page}: NOT RUN, no_such_module is not installed\n"


def configs():
    """Yield the configs of the documentation, and of the directories of examples, by place."""
    parser = YAML(typ="safe", pure=True)
    for page in sorted(DOCS.rglob("*.md")):
        for block in snippets.blocks(page):
            if block.kind == "yaml":
                yield f"{page.relative_to(ROOT)}:{block.line}", parser.load(block.text)
    for folder in ("configs", "examples"):
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            yield str(path.relative_to(ROOT)), parser.load(path)


def violations(config):
    """Return what the schema that editors use says about a config."""
    validator = jsonschema.Draft202012Validator(json_schema())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(config)]


@pytest.mark.no_cover
def test_every_config_fits_the_schema():
    wrong = {place: violations(config) for place, config in configs()}
    assert len(wrong) > 30
    assert {place: errors for place, errors in wrong.items() if errors} == {}


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


FENCED = re.compile(r"^(`{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def prose(page):
    """Return the text of a page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text(encoding="utf-8")))


def dead_links(page):
    """Return the links of a page that lead to no file or no heading in a clone."""
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (
            target.exists() and (not heading or has_heading(target, heading))
        ):
            dead.append(f"{page.name}: {link}")
    return dead


def has_heading(page, anchor):
    """Return whether a heading of a page has an anchor."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def test_every_link_leads_somewhere_in_a_clone():
    """The built pages are checked by `check_built`; a reader of the repository has only these."""
    folders = (ROOT / name for name in ("docs", "examples", "mlpengine"))
    pages = [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    assert sum(len(re.findall(r"\]\(", prose(page))) for page in pages) > 200
    assert [link for page in sorted(pages) for link in dead_links(page)] == []


def test_links_that_are_dead_in_a_clone_are_found(tmp_path):
    page = tmp_path / "a.md"
    text = "# A title: `x`\n[1](b.md#two-words) ![2](no.png) [3](#a-title-x) [4\n](b.md#gone) "
    page.write_text(f"{text} [5](https://x.org/c) `[6](no)`\n```\n[7](no)\n```\n", "utf-8")
    (tmp_path / "b.md").write_text("## Two words\n```\n# gone\n```\n", encoding="utf-8")
    assert dead_links(page) == ["a.md: no.png", "a.md: b.md#gone"]


def test_every_question_is_answered_by_a_page_that_exists():
    named = set(check_built.QUESTIONS.values())
    assert len(check_built.QUESTIONS) >= 30
    assert {name for name in named if not (DOCS / "recipes" / f"{name}.md").exists()} == set()


def test_every_page_is_in_the_contents_and_ends_with_where_to_go():
    listed = (DOCS / "index.md").read_text(encoding="utf-8").split()
    pages = [path for path in DOCS.glob("*/*.md") if path.parent.name != "reference"]
    names = {str(path.relative_to(DOCS).with_suffix("")) for path in pages}
    assert names <= set(listed)
    without = [p.name for p in pages if "## Where to go next" not in p.read_text(encoding="utf-8")]
    assert without == []


reference = load("reference_pages")


def test_the_reference_lists_every_public_module():
    files = [*(ROOT / "mlpengine").rglob("*.py")]
    public = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in files
        if "\n__all__ = " in path.read_text(encoding="utf-8") and not path.name.startswith("_c")
    }
    public = {name for name in public if not re.search(r"\._|\.backends", name)}
    assert set(reference.MODULES) == public


def test_every_public_name_is_on_the_page_of_names():
    sections = re.split(r"(?m)^## ", reference.names())[1:]
    shown = {}
    for section in sections:
        module, *_ = section.split("\n")
        shown[module] = re.findall(r"(?m)^\| `(\w+)` \| \S", section)
    listed = [name for names in shown.values() for name in names]
    for module in reference.MODULES:
        assert set(importlib.import_module(module).__all__) <= set(listed)
    assert shown["mlpengine"] == mlpengine.__all__
    assert len(mlpengine.__all__) <= 40
    assert "Lion" in shown["mlpengine.optim"]
    assert "Adam" not in shown["mlpengine.optim"]


def test_pages_from_the_code_replace_what_readers_of_the_repository_are_told():
    pages = {page: (DOCS / f"{page}.md").read_text(encoding="utf-8") for page in reference.PAGES}
    assert len(pages) == 4
    for page, text in pages.items():
        said, told = text.split(reference.MARK)
        assert "install.md#this-documentation-as-pages" in told
        assert reference.complete(page, text) == said + reference.PAGES[page]()
    assert reference.complete("start", "text") == "text"


def test_the_reference_has_every_command_and_every_key():
    from mlpengine_cli.main import COMMANDS

    commands, config = reference.commands(), reference.config()
    assert [name for name in COMMANDS if f"\n## mlpengine {name}\n" not in commands] == []
    schema = json_schema()
    sections = {"the file": schema} | schema["$defs"]
    keys = {key for section in sections.values() for key in section.get("properties", {})}
    assert len(keys) > 100
    assert [key for key in sorted(keys) if f"\n| `{key}` | " not in config] == []
    assert "| list of number, at least 0, below 1 |" in config
    assert "By default (0.9, 0.999) (adam, adamw, nadam), (0.9, 0.99) (lion)." in config
    assert "| `delta` | Where it turns linear, in standardized units (huber). |" in config


def test_every_exit_code_is_documented():
    from mlpengine.core.system import EXIT_CODES
    from mlpengine_cli.main import CLOSED_PIPE

    page = (DOCS / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    codes = {0, 1, 2, CLOSED_PIPE, *EXIT_CODES.values()}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} >= codes


def test_every_environment_variable_is_documented():
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    files = [*(ROOT / "mlpengine").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    used = {
        node.value
        for text in texts
        if "os.environ" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and re.fullmatch("[A-Z]{2,}_[A-Z_]+|CC", str(node.value))
    }
    assert {"CC", "MLPENGINE_CACHE", "PMI_RANK"} <= used
    assert {name for name in used if f"`{name}`" not in page} == set()
