"""The project's vocabulary: one word for one thing, the field's own, in code, comments and help."""

import ast
import re
import tokenize
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = ("mlpengine", "cli", "benchmarks")


@dataclass(frozen=True)
class Word:
    """An old word: a pattern for an identifier (with `inside` for parts of it), or for text."""

    old: str
    new: str
    inside: bool = False
    text: bool = False


WORDS = (
    Word("observers?", "callback", inside=True, text=True),
    Word("unseen|on_unseen", "skip budget, on_steps_skipped", inside=True),
    Word("Unseen", "SkipBudget"),
    Word(r"(?:team|alone|job)\.h", "thread_pool.h, single_thread.h, step_loop.h", text=True),
    Word("gather_team|keep_apart|look_again", "start_workers, set_affinity, cpu_relax", text=True),
    Word("[Rr]oom", "workspace", inside=True),
    Word("Part", "Split"),
    Word("passed_on", "layer_outputs"),
    Word("sow", "write_seed"),
    Word("rehearse[ds]?", "dry_run"),
    Word("twins?", "clone"),
    Word("remember", "save_for_backward"),
    Word("larger|smaller|choose", "vmax, vmin, vselect"),
    Word("checkpointing of activations|gradient checkpointing", "rematerialization", text=True),
    Word("dear", "expensive", text=True),
    Word("Spacing", "SamplingSchedule"),
    Word("STEPS_THAT_PAY", "MIN_STEPS_TO_COMPILE"),
    Word("RISING", "HIGHER_IS_BETTER"),
    Word("begin_many|run_into|run_fused", "make_steps, make_fused_steps"),
    Word("found|seen|most|least|rest", "what the thing is"),
)


@cache
def sources() -> dict[str, str]:
    """Return the texts of all files by path."""
    files = [path for place in PLACES for path in sorted((ROOT / place).rglob("*.[ph]*"))]
    pages = sorted((ROOT / "docs").rglob("*.md"))
    files = [*pages, ROOT / "README.md", *(path for path in files if path.suffix in (".py", ".h"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}


@cache
def identifiers(path: str, text: str) -> dict[str, list[int]]:
    """Return the lines of every identifier that a file defines or uses."""
    lines: dict[str, list[int]] = {}
    if path.endswith(".py"):
        for token in tokenize.tokenize(BytesIO(text.encode()).readline):
            if token.type == tokenize.NAME:
                lines.setdefault(token.string, []).append(token.start[0])
    return lines


def uses(word: Word, path: str, text: str) -> list[str]:
    """Return where a file uses an old word."""
    if word.text:
        pattern = re.compile(rf"(?<![\w-])(?:{word.old})(?![\w-])")
        lines = enumerate(text.splitlines(), start=1)
        places = [(number, line) for number, line in lines if pattern.search(line)]
    else:
        places = []
    part = rf"(?:^|.*_)(?:{word.old})(?:_.*|$)" if word.inside else word.old
    if re.search(word.old, text):
        names = {n: lines for n, lines in identifiers(path, text).items() if re.fullmatch(part, n)}
        places += [(number, name) for name, lines in names.items() for number in lines]
    return [f"{path}:{number}: {shown.strip()} -> {word.new}" for number, shown in places]


@pytest.mark.no_cover
@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.old)
def test_old_words_are_gone(word):
    wrong = []
    for path, text in sources().items():
        wrong += uses(word, path, text)
    assert wrong == []


@pytest.mark.parametrize(
    ("old", "text", "count"),
    [
        ("observers?", "def add_observer(self): pass", 1),
        ("observers?", "# observers are told\nx = 1", 1),
        ("Part", "parts: Part = Partition()", 1),
        ("found|seen|most|least|rest", "found = least(rest_of)  # at least", 2),
        ("dear", "# a dear product", 1),
        ("dear", "dearth = 1", 0),
    ],
)
def test_the_search_finds_old_words(old, text, count):
    word = next(word for word in WORDS if word.old == old)
    assert len(uses(word, "x.py", text)) == count


def defined(text: str) -> set[str]:
    """Return the public names of classes that a module defines itself."""
    names = {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    return {name for name in names if not name.startswith("_")}


def twice(texts: dict[str, str]) -> dict[str, list[str]]:
    """Return the public names of classes that several modules define, with these."""
    places: dict[str, list[str]] = {}
    for path, text in texts.items():
        for name in defined(text):
            places.setdefault(name, []).append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_a_name_stands_for_one_class():
    package = ("mlpengine/", "cli/")
    texts = {p: t for p, t in sources().items() if p.startswith(package) and p.endswith(".py")}
    assert twice(texts) == {}


def test_the_search_finds_names_that_stand_for_two_things():
    first = "class Step: pass\nclass _Row: pass\ndef run(): pass"
    second = "class Step: pass\nclass _Row: pass\ndef run(): pass"
    assert twice({"a": first, "b": second}).keys() == {"Step"}
    assert twice({"a": "import x\nfrom y import z", "b": "import x\nfrom y import z"}) == {}
