"""Check the built documentation: its search answers the usual questions, its links lead somewhere.

``python docs/check_built.py [DIRECTORY]``, by default ``docs/_build``.  Searching is what Sphinx's
``searchtools.js`` does with the index of the build and with ``search_scorer.js``; where pages tie,
the one asked for comes last.
"""

import json
import re
import sys
from collections.abc import Callable, Collection
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

BUILT = Path(__file__).parent / "_build"
SHOWN = 3
"""Results that a reader looks at."""

TITLE, TITLE_PART, TEXT, TEXT_PART = 15, 7, 5, 2
"""Scores of `Scorer` in searchtools.js for a word in a title or in a text, or for a part of one."""

WORD = re.compile(r"\w+")

QUESTIONS = {
    "missing values": "missing-values",
    "odd CSV delimiter": "odd-csv",
    "imbalanced classes": "imbalanced-classes",
    "several targets": "several-targets",
    "several labels": "several-targets",
    "sample weights": "sample-weights",
    "split by time": "split",
    "split by group": "split",
    "early stopping": "early-stopping",
    "best epoch": "early-stopping",
    "find a learning rate": "learning-rate",
    "schedule of the learning rate": "schedules",
    "clip gradients": "clipping",
    "dropout weight decay": "overfitting",
    "activation of my own": "own-activation-and-loss",
    "own loss formula": "own-activation-and-loss",
    "an op of my own": "own-op",
    "callbacks": "callbacks",
    "resume after a crash": "resume",
    "the same bits twice": "same-bits",
    "threads on a busy machine": "threads",
    "from and to PyTorch": "pytorch",
    "export ONNX": "onnx",
    "model from C": "c",
    "train on a device": "device",
    "scikit-learn pipelines": "sklearn",
    "sweeps": "sweep",
    "many networks at once": "many-networks",
    "several machines": "several-machines",
    "more data than memory": "large-data",
    "why does my loss not fall": "tasks/loss-does-not-fall",
    "quantiles": "losses",
    "prediction intervals": "folds",
    "which columns matter": "explain",
    "compare runs": "compare",
    "make training faster": "speed",
    "freeze layers": "freeze",
    "distillation": "distill",
    "smaller model": "distill",
    "training loop of my own": "own-loop",
}
"""Words that a reader types, and the page that answers them, by default in `recipes`."""


class Index:
    """The search index of a build, and how its language shortens words.

    Attributes:
        pages: the names of the pages.
    """

    def __init__(self, text: str, stem: Callable[[str], str], stop_words: Collection[str]) -> None:
        self._data: dict[str, Any] = json.loads(text[text.index("(") + 1 : text.rindex(")")])
        self._stem, self._stop_words = stem, stop_words
        self.pages: list[str] = self._data["docnames"]

    def rank(self, query: str, page: str) -> int:
        """Return the place of a page among the results, the last of equals; 0 if it is none."""
        scores = self.scores(query)
        own = scores.get(page, 0)
        return sum(score >= own for score in scores.values()) if own else 0

    def scores(self, query: str) -> dict[str, float]:
        """Return the score of each page that is a result; `search_scorer.js` counts the words."""
        scores = self._titles(query)
        for page, score in self._terms(query).items():
            scores[page] = max(score, scores.get(page, 0))
        words = set(WORD.findall(query.lower()))
        for page in scores:
            scores[page] += len(words & set(WORD.findall(self._data["titles"][page].lower())))
        return {self.pages[page]: score for page, score in scores.items()}

    def _titles(self, query: str) -> dict[int, float]:
        scores: dict[int, float] = {}
        text = query.lower().strip()
        for title, places in self._data["alltitles"].items():
            if text in title.lower() and len(text) >= len(title) / 2:
                for page, _ in places:
                    own = self._data["titles"][page] == title
                    scores[page] = round(TITLE * len(text) / len(title)) + own
        return scores

    def _terms(self, query: str) -> dict[int, float]:
        typed = WORD.findall(query.lower())
        words = {self._stem(word) for word in typed if word not in self._stop_words}
        scores: dict[int, dict[str, float]] = {}
        for word in words:
            for place, whole, part in (
                ("terms", TEXT, TEXT_PART),
                ("titleterms", TITLE, TITLE_PART),
            ):
                terms = self._data[place]
                similar = [t for t in terms if word in t] if len(word) > 2 else []
                for term in [word] if word in terms else similar:
                    pages = terms[term]
                    for page in pages if isinstance(pages, list) else [pages]:
                        scores.setdefault(page, {})[word] = whole if word in terms else part
        needed = len(words), sum(len(word) > 2 for word in words)
        return {page: max(of.values()) for page, of in scores.items() if len(of) in needed}


def unanswered(index: Index) -> list[str]:
    """Return the questions whose recipe is not among the first results."""
    wrong = []
    for query, recipe in QUESTIONS.items():
        recipe = recipe if "/" in recipe else f"recipes/{recipe}"
        rank = index.rank(query, recipe)
        if not 1 <= rank <= SHOWN:
            wrong.append(f"{query!r}: {recipe} must be among the first {SHOWN} ({rank})")
    return wrong


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what can be led to and what leads somewhere."""
        for name, value in attrs:
            if value and name == "id":
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.add(value)


def broken(directory: Path) -> list[str]:
    """Return the links within the documentation that lead to no file or no anchor."""
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8")) for path in directory.rglob("*.html")
    }
    wrong = []
    for path, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {parts.fragment}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                wrong.append(f"{path.relative_to(directory.resolve())}: {link} leads nowhere")
    return wrong


def main(directory: Path) -> int:
    """Print what is wrong, and return 1 if anything is."""
    from sphinx.search.en import SearchEnglish

    language = SearchEnglish({})
    text = (directory / "searchindex.js").read_text(encoding="utf-8")
    index = Index(text, language.stem, language.stopwords)
    wrong = unanswered(index) + broken(directory)
    print("\n".join(wrong), end="\n" if wrong else "")
    print(f"{len(QUESTIONS)} questions, {len(index.pages)} pages: {len(wrong)} problems")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else BUILT))
