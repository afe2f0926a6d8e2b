"""Read YAML text as plain data, with the line of each key.

The dialect is YAML 1.2: ``1e-3`` is a number and ``no`` is a string.  Ambiguous or costly features
are refused before any value is read: duplicate keys, aliases, tags, directives, several
documents, deep nesting, large files.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
)
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.parser import Parser

from mlpengine.config.unreadable import explanation
from mlpengine.core.errors import ConfigError
from mlpengine.core.files import pasted, similar_file
from mlpengine.data.tables import DATASETS, FORMATS

MAX_BYTES = 1 << 19
MAX_DEPTH = 12
MAX_VALUES = 20_000
"""Maximum number of values of a config; reading this many takes about a second."""

MAX_PROBLEMS = 20

KeyPath: TypeAlias = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"


class Problem(NamedTuple):
    """One error in a config, and its position."""

    source: str
    line: int
    path: str
    text: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        told = not self.path or place == f"--set {self.path}"
        return f"{place}: {self.text}" if told else f"{place}: {self.path}: {self.text}"


@dataclass
class Document:
    """A config as plain data, with the source and line of each key path, and the problems so far.

    `raw` has the bytes of the file.
    """

    source: str
    raw: bytes = b""
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, tuple[str, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def report(self, path: KeyPath, text: str) -> None:
        """Record a problem at `path`, or at its nearest parent in the file."""
        known = path
        while known and known not in self.places:
            known = known[:-1]
        source, line = self.places.get(known, (self.source, 1))
        self.problems.append(Problem(source, line, dotted(path), text))

    def check(self) -> None:
        """Raise ConfigError with every problem, in the order of the file."""
        if not self.problems:
            return
        lines = [str(problem) for problem in sorted(set(self.problems))]
        head = [] if len(lines) == 1 else [f"{self.source}: {len(lines)} problems"]
        more = len(lines) - MAX_PROBLEMS
        tail = [f"... and {more} more"] if more > 0 else []
        raise ConfigError("\n  ".join(head + lines[:MAX_PROBLEMS] + tail))


def dotted(path: KeyPath) -> str:
    """Return a key path as text: ``model.hidden[0]``."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def read_document(path: Path) -> Document:
    """Read a YAML file with a mapping at its top level."""
    source = str(path)
    if path.suffix.lower() in (".csv", ".tsv", *FORMATS) and path.exists():
        raise _is_table(source)
    if path.exists() and not path.is_file():  # a pipe without a writer would never end
        what = "a directory" if path.is_dir() else "a pipe or a device"
        raise ConfigError(f"{source}: a config must be a file (got {what})")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        near = "" if path.exists() else similar_file(path)
        if source in DATASETS and not path.exists():
            near = f"; the config of this data set is written by: mlpengine init {source}"
        raise ConfigError(f"{source}: cannot read the config ({error.strerror}){near}") from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{source}: a config must have at most {MAX_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{source}:{line}: a config must be UTF-8 text") from error
    document = Document(source, raw)
    data = parse_yaml(text, source, document)
    if isinstance(data, str) and any(mark in text.split("\n")[0] for mark in ",;\t"):
        raise _is_table(source)
    if not isinstance(data, dict):
        document.report((), f"the top level must be a mapping of keys (got {_kind(data)})")
    document.check()
    document.data = data
    return document


def _is_table(source: str) -> ConfigError:
    return ConfigError(
        f"{source}: this is a table, not a config; write one for it with: "
        f"mlpengine init {pasted(source)} --target COLUMN"
    )


def parse_yaml(text: str, source: str, document: Document, at: KeyPath = (), line: int = 1) -> Any:
    """Return the value of a YAML text; record positions and problems in `document`.

    `at` is the key path of the value; `line` is the number of its first line, or 0 outside a file.
    Raises: ConfigError at once if the text is not YAML.
    """
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Parser = partial(_ScreeningParser, source=source, first=line)
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        place, reason = explanation(error, text)
        problem = Problem(source, place + line if line else 0, "", f"not valid YAML: {reason}")
        raise ConfigError(str(problem)) from error
    except YAMLError as error:
        reason = str(error).split("\n")[0]
        raise ConfigError(f"{source}: not readable as YAML ({reason})") from error
    if node is None:
        document.places.setdefault(at, (source, line))
        return {} if not at else None
    return _Plain(document, source, line).value(node, at)


class _ScreeningParser(Parser):
    """Refuses costly and ambiguous documents, event by event, before nodes are built."""

    def __init__(self, loader: Any, *, source: str, first: int) -> None:
        super().__init__(loader)
        self._source, self._first = source, first
        self._count = self._depth = self._documents = 0

    def get_event(self) -> Any:
        """Return the next event.  Raises: ConfigError if the document is refused."""
        event = super().get_event()
        if refused := self._refused(event):
            line = event.start_mark.line + self._first if self._first else 0
            raise ConfigError(str(Problem(self._source, line, "", refused)))
        return event

    def _refused(self, event: Any) -> str:
        self._count += 1
        if self._count > MAX_VALUES + 1:
            return f"a config must have at most {MAX_VALUES:,} values"
        if isinstance(event, AliasEvent):
            return f"aliases are not allowed: write out the value, or quote it (*{event.anchor})"
        if isinstance(event, DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                return "one file holds one config: remove the second '---'"
            if event.version or event.tags:
                return "directives are not allowed: remove the line that starts with '%'"
        self._depth += isinstance(event, CollectionStartEvent)
        self._depth -= isinstance(event, CollectionEndEvent)
        return f"nested deeper than {MAX_DEPTH} levels" if self._depth > MAX_DEPTH else ""


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", type(None): "nothing"}
    return names.get(type(value), "a number")


class _Plain:
    """Builds plain values from YAML nodes and records their places."""

    def __init__(self, document: Document, source: str, first: int) -> None:
        self.document, self.source, self.first = document, source, first

    def value(self, node: Node, path: KeyPath) -> Any:
        self._mark(node, path)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(str(node.tag), str(node.value), path)

    def _mark(self, node: Node, path: KeyPath) -> None:
        line = node.start_mark.line + self.first if self.first else 0
        self.document.places.setdefault(path, (self.source, line))

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                line = key_node.start_mark.line + self.first if self.first else 0
                text = "a key must be one word, not a list or mapping"
                self.document.problems.append(Problem(self.source, line, dotted(path), text))
                continue
            key = key_node.value
            here = (*path, key)
            if key in plain:
                line = key_node.start_mark.line + self.first
                text = f"the key is given twice (first on line {self.document.places[here][1]})"
                self.document.problems.append(Problem(self.source, line, dotted(here), text))
                continue
            self._mark(key_node, here)
            plain[key] = self.value(value_node, here)
        return plain

    def _scalar(self, tag: str, text: str, path: KeyPath) -> Any:
        try:
            match tag.removeprefix(_TAG):
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    prefix = text.lstrip("+-")[:2].lower()
                    number = int(text, 0 if prefix in ("0x", "0o") else 10)
                    str(number)  # raises ValueError for a hexadecimal number of too many digits
                    return number
                case "float":
                    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
                case "str" | "timestamp":
                    return text
        except ValueError:
            self.document.report(path, f"not a number that can be used ({text[:40]})")
            return None
        self.document.report(path, f"tags are not allowed ({tag[:40]})")
        return None
