"""Count phrases that plain technical English does without; exit with 1 above a limit.

``python .ci/prose.py`` prints the number of each phrase in 1,000 lines of the package, the command
line, their messages and the documentation, and docstrings that begin with "What" or "Of".
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PHRASES = {
    "that of, those of": (re.compile(r"\b(?:that|those) (?:of|for|in|on)\b"), 0.5),
    ", which, of which, whose": (re.compile(r", which\b|\bof which\b|\bwhose\b"), 2.5),
}
"""Phrases, each with the limit in 1,000 lines."""

FENCED = re.compile(r"^(`{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def strings(text: str) -> Iterator[str]:
    """Yield the texts of a module that are not docstrings: messages, helps and descriptions."""
    tree = ast.parse(text)
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documented and " " in node.value:
            yield node.value


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module with their lines."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and (found := ast.get_docstring(node)):
            yield node.body[0].lineno, found


def counts(text: str) -> list[int]:
    """Return the number of each phrase in a text, over ends of lines, too."""
    plain = re.sub(r"\s*\n\s*(?:#\s*)?", " ", text)
    return [len(pattern.findall(plain)) for pattern, _ in PHRASES.values()]


def problems(root: Path) -> list[str]:
    """Print the counts of a tree, and return what is above the limits."""
    found = []
    for place in ("mlpengine", "cli", "messages", "docs"):
        if place == "docs":
            files = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
        else:
            folders = ("mlpengine", "cli") if place == "messages" else (place,)
            files = [file for name in folders for file in (root / name).rglob("*.py")]
        lines, total = 0, [0] * len(PHRASES)
        for file in files:
            text = file.read_text(encoding="utf-8")
            parts = [*strings(text)] if place == "messages" else [FENCED.sub("", text)]
            lines += len(parts) if place == "messages" else text.count("\n")
            total = [sum(pair) for pair in zip(total, counts("\n\n".join(parts)), strict=True)]
            if place in ("mlpengine", "cli"):
                found += [
                    f"{file}:{line}: a docstring begins with {said.split()[0]!r}"
                    for line, said in docstrings(text)
                    if re.match(r"(?:What|Of)\b", said)
                ]
        for (name, (_, limit)), number in zip(PHRASES.items(), total, strict=True):
            share = 1000 * number / max(1, lines)
            print(f"{place:10} {name:26} {share:6.2f} of 1,000 (limit {limit})")
            if share > limit:
                found.append(f"{place}: {name!r} {share:.2f} times in 1,000 (limit {limit})")
    return found


if __name__ == "__main__":
    wrong = problems(Path(__file__).parents[1])
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))
