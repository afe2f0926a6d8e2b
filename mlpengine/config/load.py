"""Load a config file with overrides; an error lists every problem."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from mlpengine.config.problems import report_all
from mlpengine.config.reader import Document, KeyPath, Problem, parse_yaml, read_document
from mlpengine.config.schema import Config, reader
from mlpengine.config.sections import plain
from mlpengine.config.sweep import KINDS
from mlpengine.config.writer import with_short_lists, yaml_text
from mlpengine.core.errors import ConfigError, UsageError
from mlpengine.core.files import checked_path
from mlpengine.data.tables import DATASETS
from mlpengine.settings.network import options_for


class Override(NamedTuple):
    """A value that is set outside the file; `label` names the override in messages."""

    label: str
    path: tuple[str, ...]
    text: str


@dataclass(frozen=True, eq=False)
class ConfigFile:
    """A checked config, and the document that it was read from."""

    path: Path
    config: Config
    document: Document

    @property
    def name(self) -> str:
        """Name of the run: the config's name, or the file's name without its extension."""
        return self.config.name or self.path.stem

    @property
    def silenced(self) -> tuple[str, ...]:
        """Names of silenced verdicts."""
        return self.config.diagnostics.silence if self.config.diagnostics else ()

    def find(self, source: str) -> Path | None:
        """Return a data file beside the config or in the working directory, or None."""
        for candidate in (self.path.parent / source, Path(source)):
            if os.path.exists(candidate):  # Path.exists raises if a name is too long
                return full if (full := candidate.resolve()).exists() else candidate
        return None

    def resolved(self) -> str:
        """Return the config as YAML with every default and override, and with absolute paths.

        The result has the same meaning in every directory.  The section `sweep` is left out,
        because a run is one trial.
        """
        return yaml_text(with_short_lists(self.plain()))

    def plain(self) -> dict[str, Any]:
        """Return the settings that `resolved` writes."""
        tree: dict[str, Any] = plain(self.config)
        del tree["sweep"]
        data = tree["data"]
        tree["name"] = self.name
        data["split"]["validation"] = self.config.validation_share
        for key in ("source", "validation_source", "test_source"):
            path = data[key] and self.find(data[key])
            if path and data[key] not in DATASETS:
                data[key] = str(path)
        if data["stream"]:
            data["stream"]["directory"] = str(Path(data["stream"]["directory"]).absolute())
        return tree

    @property
    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name."""
        return _flat(plain(self.config))

    def wrong(self, path: KeyPath, text: str) -> ConfigError:
        """Return the error for a value that does not fit, with file and line."""
        self.document.report(path, text)
        return ConfigError(str(self.document.problems[-1]))

    @contextmanager
    def errors_at(self, *path: str | int) -> Iterator[None]:
        """Turn a UsageError of a ``with`` block into a ConfigError at this key path."""
        try:
            yield
        except UsageError as error:
            raise self.wrong(path, str(error)) from error


def differing_settings(files: Sequence[ConfigFile]) -> dict[str, list[Any]]:
    """Return the settings that differ between configs, by dotted name, without names of runs."""
    settings = [file.flat for file in files]
    values = {
        key: [one.get(key) for one in settings]
        for key in sorted({key for one in settings for key in one} - {"name"})
    }
    return {key: row for key, row in values.items() if any(one != row[0] for one in row)}


def parse_override(text: str) -> Override:
    """Parse ``a.b=value``, with the value in YAML.

    Raises: UsageError without a key path or an equals sign.
    """
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if path[:2] == ("sweep", "space"):  # a name in the space is itself a path
        ends = len(path) - (path[-1] in KINDS)
        path = (*path[:2], ".".join(path[2:ends]), *path[ends:]) if ends > 2 else path
    if not equals or not all(path):
        raise UsageError(f"--set: write it as section.key=value (got {text!r})")
    return Override(f"--set {key.strip()}", path, value)


def load_config(path: str | Path, overrides: Iterable[Override] = ()) -> ConfigFile:
    """Read a config file, apply the overrides, and check everything.

    Raises: ConfigError with every problem: its file and line, its key path and, for a misspelled
    name, the nearest valid name.
    """
    path = checked_path(path, "config")
    document = read_document(path)
    _apply_all(overrides, document)
    return check_config(path, document)


def check_config(path: Path, document: Document) -> ConfigFile:
    """Return a document as a checked config."""
    try:
        config = reader().validate_python(document.data)
    except ValidationError as error:
        report_all(error, document)
    document.check()
    return ConfigFile(path, config, document)


def with_overrides(file: ConfigFile, overrides: Iterable[Override]) -> ConfigFile:
    """Return a checked config with other settings.  Raises: ConfigError as `load_config`."""
    document = deepcopy(file.document)
    _apply_all(overrides, document)
    return check_config(file.path, document)


def problems_with(path: Path, overrides: Iterable[Override]) -> list[Problem]:
    """Return the problems that `load_config` would list."""
    document = read_document(path)
    with suppress(ConfigError):
        _apply_all(overrides, document)
        check_config(path, document)
    return sorted(set(document.problems))


def _apply_all(overrides: Iterable[Override], document: Document) -> None:
    """Apply overrides, sections before their options; the last override of a key counts."""
    for override in sorted(overrides, key=lambda o: (len(o.path), o.path[-1] != "network")):
        _apply(override, document)


def _apply(override: Override, document: Document) -> None:
    """Put a value into the document, and create missing sections above it."""
    for path in [p for p in document.places if p[: len(override.path)] == override.path]:
        del document.places[path]  # the value no longer comes from the file
    text = f'"{override.text}"' if override.text in ("-", "?") else override.text  # no list, no key
    value = parse_yaml(text, override.label, document, override.path, line=0)
    section: dict[str, Any] = document.data
    for depth, key in enumerate(override.path[:-1], start=1):
        below = section.get(key)
        if isinstance(below, list):
            document.places[override.path] = (override.label, 0)
            document.report(override.path, f"{key} is a list: set it whole, as {key}=[...]")
            return
        if not isinstance(below, dict):  # the section is missing, switched off, or only a name
            below = {"name": below} if isinstance(below, str) else {}
            section[key] = below
            document.places[override.path[:depth]] = (override.label, 0)
        section = below
    section[override.path[-1]] = value
    if override.path == ("model", "network") and isinstance(value, str):
        for key in section.keys() - options_for(value, section).keys():
            del section[key]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in tree.items():
        settings |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return settings
