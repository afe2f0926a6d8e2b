"""Write configs as YAML that reads back as the same values."""

import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter

from mlpengine.core.wording import printable

LONGEST_LINE = 10_000
"""Line width after which a list continues in the next line."""


def quoted_yaml(text: str) -> str:
    """Return text as YAML, in quotes unless it is a plain word."""
    return text if _is_word(text) else printable(json.dumps(text, ensure_ascii=False))


def _is_word(text: str) -> bool:
    plain = text.replace("_", "").replace("-", "").replace(".", "").replace("/", "")
    reserved = text.lower() in ("null", "true", "false", "yes", "no", "on", "off")
    return plain.isascii() and plain.isalnum() and text[:1].isalpha() and not reserved


class _Representer(RoundTripRepresenter):
    """Quotes every text that is not a word: ruamel.yaml cannot read back some unquoted texts."""

    def represent_text(self, text: str) -> ScalarNode:
        style = None if _is_word(text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Representer.add_representer(str, _Representer.represent_text)


def yaml_text(tree: Mapping[str, Any]) -> str:
    """Return a mapping as YAML, with the comments of a `CommentedMap`."""
    yaml, text = YAML(), StringIO()
    yaml.Representer, yaml.width = _Representer, LONGEST_LINE
    yaml.dump(tree, text)
    return text.getvalue()


def with_short_lists(value: Any) -> Any:
    """Return a tree with mappings that can have comments, and with lists in one line."""
    if isinstance(value, Mapping):
        return CommentedMap({key: with_short_lists(one) for key, one in value.items()})
    if isinstance(value, list) and not any(isinstance(one, Mapping) for one in value):
        line = CommentedSeq(value)
        line.fa.set_flow_style()
        return line
    return value
