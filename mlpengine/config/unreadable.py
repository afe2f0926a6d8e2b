"""Explain YAML errors in plain words."""

import re

from ruamel.yaml.error import MarkedYAMLError

from mlpengine.core.wording import quoted

_NO_SPACE = re.compile(r"\s*(?:- )?\w+:\S")
_QUOTE = "'"


def explanation(error: MarkedYAMLError, text: str) -> tuple[int, str]:
    """Return the index of a line of the text, from 0, and what to change there."""
    mark = error.problem_mark or error.context_mark
    here = mark.line if mark else 0
    begun = error.context_mark.line if error.context_mark else here
    problem, context = error.problem or "", error.context or ""
    before = text[: mark.index] if mark else text
    lines = text.split("\n")

    def line(number: int) -> str:
        return lines[number] if 0 <= number < len(lines) else ""

    if bad := re.search(r"found character '(.+)' that cannot start", problem):
        if bad[1] == r"\t":
            return here, "a tab stands where spaces are needed; replace it by spaces"
        return here, f"a text that begins with {bad[1]} must be in quotes"
    if "scanning a directive" in context:
        return here, "a text that begins with % must be in quotes"
    if "could not find expected ':'" in problem:
        return begun, _lacks_colon(line(begun))
    if problem.startswith("mapping values are not allowed"):
        return _second_colon(here, [line(k) for k in range(here + 1)])
    if "expected <block end>" in problem:
        return here, _end_of_block(problem)
    if "expected '<document start>'" in problem:
        return here, "this line must be indented as the first line is"
    if "quoted scalar" in context and "unexpected end" in problem:
        return begun, "the quote that opens in this line is never closed"
    if "unknown escape" in problem:
        return here, "a backslash in double quotes begins a code; use single quotes: 'C:\\a.csv'"
    if context.startswith("while parsing a flow"):
        opening, closing = max(["[", "]"], ["{", "}"], key=lambda pair: before.rfind(pair[0]))
        return begun, f"{opening} needs commas between its values, and {closing} at the end"
    parts = [part for part in (context, problem) if part]
    return here, ", ".join(parts).replace("\n", " ")


def _lacks_colon(line: str) -> str:
    if _NO_SPACE.match(line):
        return f"a space is needed after the colon (got {quoted(line.strip())})"
    return f"a key needs a colon, a space and a value (got {quoted(line.strip())})"


def _second_colon(here: int, lines: list[str]) -> tuple[int, str]:
    """Explain a second key in the line of a key."""
    if len(re.findall(r":(?:\s|$)", lines[here])) > 1:
        return here, "a text with a colon and a space in it must be in quotes"
    above = max((k for k, line in enumerate(lines[:here]) if line.strip()), default=here)
    if not re.search(r":(?:\s|$)", lines[above]):
        return above, _lacks_colon(lines[above])
    return here, "this line must be indented as the line above; the key above has a value already"


def _end_of_block(problem: str) -> str:
    token = problem.rpartition("but found ")[2]
    if token in ("'-'", "'<block sequence start>'"):
        return "a line of a list, with -, must be indented at least as far as the key above it"
    if token in ("'?'", "'<block mapping start>'"):
        return "this line must be indented as other keys of its section are"
    if token in ("']'", "'}'", "','"):
        return f"{token.strip(_QUOTE)} is outside of any brackets"
    return "after a closing quote no text may follow; ' within '...' is written twice"
