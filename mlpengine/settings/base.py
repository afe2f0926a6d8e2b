"""Tools to declare settings: pydantic configuration, short forms of values, error texts."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING
from functools import cache
from typing import Annotated, Any, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, PydanticUndefined
from pydantic_core.core_schema import no_info_after_validator_function

import mlpengine.core.fields as engine
from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Limits, Option

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
"""pydantic configuration: unknown keys and infinities are errors; validators are built when used.

`Flag` and `mlpengine.core.fields.Limits` also refuse values of another type, such as the text "1".
"""

Flag: TypeAlias = Annotated[bool, Strict()]
WholeNumber: TypeAlias = Annotated[int, Limits(whole=True)]


def rule(text: str, *at: str) -> PydanticCustomError:
    """Return the error for fields that do not fit together; the message names the key `at`."""
    return PydanticCustomError("rule", "{text}", {"text": text, "at": at})


def _in_a_list(value: Any) -> Any:
    if value is None:
        return ()
    return value if isinstance(value, list | tuple | dict) else (value,)


def one_or_more(item: Any) -> BeforeValidator:
    """Return the annotation for a tuple; a file may have a list, one item, or null (empty)."""
    return BeforeValidator(_in_a_list, json_schema_input_type=item | list[item] | None)


Texts: TypeAlias = Annotated[tuple[str, ...], one_or_more(str)]


class Names:
    """Annotation for a text: one of `names`, or a text that `others` accepts without UsageError.

    If `names` is empty, every text is accepted: a registry is empty until its module is imported.
    """

    def __init__(
        self, names: Collection[str], others: Callable[[str], object] | None = None
    ) -> None:
        self.names, self.others = names, others

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check the type, then the text."""
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Let editors complete the names."""
        names = {"enum": list(self.names)}
        return {"anyOf": [names, {"type": "string"}]} if self.others else names

    def _check(self, text: str) -> str:
        if text in self.names or not self.names:
            return text
        if self.others is None or text.replace("-", "_").isidentifier():
            listed = ", ".join(map(repr, self.names))
            raise PydanticCustomError("unknown_name", "one of {expected}", {"expected": listed})
        try:
            self.others(text)
        except UsageError as error:
            raise rule(str(error)) from None
        return text


def _switched(value: Any) -> Any:
    return ({} if value else None) if isinstance(value, bool) else value


def switch(kind: Any) -> BeforeValidator:
    """Return the annotation for optional settings: false means None, true the default settings."""
    return BeforeValidator(_switched, json_schema_input_type=kind | bool | None)


def defaults(kind: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that creates default settings, for use as a default factory.

    pydantic inspects the signature of every factory; for a class, this takes 1 ms.
    """
    return lambda: kind()


EXPECTED: Mapping[str, str] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "bool_type": "true or false",
    "string_type": "text",
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(
        ("model_type", "dataclass_type", "dict_type", "mapping_type"), "a mapping of keys"
    ),
    "finite_number": "a finite number",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "literal_error": "one of {expected}",
    "unknown_name": "one of {expected}",
    "unexpected_positional_argument": "left out",
    "multiple_argument_values": "given once",
    "json_invalid": "JSON of valid text",
    "string_pattern_mismatch": "letters, digits, dots and dashes only, 100 at most",
}
"""Descriptions of valid values, by type of pydantic error."""

UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
"""Types of pydantic errors for an unknown key."""


def expected(issue: ErrorDetails) -> str:
    """Return the description of valid values for one pydantic error."""
    kind, context = issue["type"], issue.get("ctx", {})
    if kind == "missing":  # a missing item of a list
        kind, context = "too_short", {"min_length": int(issue["loc"][-1]) + 1}
    return EXPECTED.get(kind, issue["msg"]).format(**context)


def options_of(kind: Any) -> Mapping[str, Option]:
    """Return the options of a class of settings or of the engine, by name."""
    return _options_of(kind)


@cache
def _options_of(kind: Any) -> Mapping[str, Option]:
    declared = getattr(kind, "__pydantic_fields__", None)
    if declared is None:
        return engine.options_of(kind)
    options = {}
    for name, one in declared.items():
        default = one.get_default(call_default_factory=True)
        of: Any = Annotated[one.rebuild_annotation(), one.description or ""]
        options[name] = Option(name, of, MISSING if default is PydanticUndefined else default)
    return options
