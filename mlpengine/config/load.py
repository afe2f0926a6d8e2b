"""From a file and overrides to a checked config, or to every problem at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mlpengine.config.problems import report_all
from mlpengine.config.reader import Document, KeyPath, parse, read_document
from mlpengine.config.schema import Config
from mlpengine.errors import ConfigError, UsageError


@dataclass(frozen=True)
class Override:
    """One value set from outside the file; `label` is what messages call its place."""

    label: str
    path: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class ConfigFile:
    """A checked config, and the document that it came from."""

    path: Path
    config: Config
    document: Document

    @property
    def name(self) -> str:
        """Name of the run: the config's, or the file's without its extension."""
        return self.config.name or self.path.stem

    def find(self, source: str) -> Path:
        """Return the path of a data file: beside the config first, then from where one works.

        Raises: ConfigError naming both places if it is in neither.
        """
        beside = self.path.parent / source
        for candidate in (beside, Path(source)):
            if candidate.exists():
                return candidate.resolve()
        raise UsageError(f"there is no such file (looked for {beside} and {Path(source)})")

    def wrong(self, path: KeyPath, text: str) -> ConfigError:
        """Return the error of a value that turned out not to fit, with its file and line."""
        self.document.report(path, text)
        return ConfigError(str(self.document.problems[-1]))


def parse_override(text: str) -> Override:
    """Read ``a.b=value``, where the value is written as in YAML.

    Raises: UsageError without a key path or an equals sign.
    """
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise UsageError(f"--set: write it as section.key=value (got {text!r})")
    return Override(f"--set {key.strip()}", path, value)


def load_config(path: str | Path, overrides: Iterable[Override] = ()) -> ConfigFile:
    """Read a config file, apply the overrides in order, and check everything.

    Raises: ConfigError listing every problem with its file and line, key path and, where a name
    was misspelled, the nearest valid one.
    """
    path = Path(path)
    document = read_document(path)
    for override in overrides:
        _apply(override, document)
    try:
        config = Config.model_validate(document.data)
    except ValidationError as error:
        report_all(error, document, Config)
    document.check()
    return ConfigFile(path, config, document)


def _apply(override: Override, document: Document) -> None:
    """Put a value into the document, making the sections above it where they are missing."""
    value = parse(override.text, override.label, document, override.path, line=0)
    section: dict[str, Any] = document.data
    for depth, key in enumerate(override.path[:-1], start=1):
        below = section.get(key)
        if isinstance(below, list):
            document.places[override.path] = (override.label, 0)
            document.report(override.path, f"{key} is a list: set it whole, as {key}=[...]")
            return
        if not isinstance(below, dict):  # missing, switched off, or a bare name
            below = {"name": below} if isinstance(below, str) else {}
            section[key] = below
            document.places[override.path[:depth]] = (override.label, 0)
        section = below
    section[override.path[-1]] = value
