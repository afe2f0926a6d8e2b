"""Options for engine objects: the loss, the optimizer, the schedule.

A config has a name (``optimizer: adam``) or a mapping (``optimizer: {name: adam, lr: 1e-3}``).
A mapping without a name sets options of the default class.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, is_dataclass
from functools import cache
from inspect import getdoc
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    create_model,
)
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import definitions_schema, no_info_plain_validator_function

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Limits, Option, options_of
from mlpengine.ops import LOSSES, Loss
from mlpengine.optim import (
    OPTIMIZERS,
    SCHEDULES,
    OptimizerSettings,
    Schedule,
    settings_class,
)
from mlpengine.optim.schedules import ScheduleLike
from mlpengine.settings.base import STRICT, Flag, one_or_more, rule


def keys_of(kind: Any) -> list[tuple[str, Option]]:
    """Return the options of an engine class that a config may set, as (name, option) pairs."""
    return [(name, one) for name, one in options_of(kind).items() if not one.given]


@cache
def model_of(kind: Any, name: str = "") -> type[BaseModel]:
    """Return the pydantic model for the options of a class.

    With `name`, the model also has a key ``name`` that accepts only this name.
    """
    title = kind.__name__.removesuffix("Settings")
    about = (getdoc(kind) or "").partition("\n\n")[0]
    named: Any = (Literal[name], Field(default=name, description=about))
    fields: Any = {"name": named} if name else {}
    for _, option in keys_of(kind):
        default = ... if option.default is MISSING else option.default
        described = Field(default=default, description=option.description)
        fields[option.key] = (_type_of(option), described)
    return create_model(title, __config__=STRICT, __doc__=about, **fields)


def _type_of(option: Option) -> Any:
    """Return the type of an option in a config; dataclasses are written as mappings."""
    if isinstance(option.default, bool):
        return Flag
    base = option.plain_type
    if base in (float, int):  # refuse true, and numbers in quotes
        return Annotated[option.type, Limits(whole=base is int)]
    if get_origin(base) is tuple and get_args(base)[1:] == (Ellipsis,):
        return Annotated[base, one_or_more(get_args(base)[0])]
    for one in get_args(base):
        inner: Any = get_args(one)[-1] if get_origin(one) is Mapping else None
        if isinstance(inner, type) and is_dataclass(inner):
            read: Any = Annotated[Any, EngineObject(inner)]
            return Union[Mapping[str, read], None]  # noqa: UP007 - the type is computed
    return option.type


def build(kind: Any, mapping: Mapping[str, Any], name: str = "") -> Any:
    """Create an object of a class from a mapping of its options.

    Raises: ValidationError for a wrong value; PydanticCustomError for an error of the constructor.
    """
    values = model_of(kind, name).model_validate(mapping)
    try:
        return kind(**{name: getattr(values, one.key) for name, one in keys_of(kind)})
    except (TypeError, UsageError) as error:
        keys = [one.key for _, one in keys_of(kind)]
        raise _at_its_key(str(error), keys) from None


def _at_its_key(text: str, keys: Collection[str]) -> PydanticCustomError:
    """Return an error at ``lr`` for ``lr must be ...`` and for ``Adam: lr must be ...``."""
    for told in (text, text.partition(": ")[2]):
        key, _, reason = told.partition(" ")
        if key.removesuffix(":") in keys:
            return rule(reason, key.removesuffix(":"))
    return rule(text)


class EngineObject:
    """Annotation for an option that takes an object of one engine class."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def complete(self, value: Any) -> Any:
        """Return a short form, such as a name, as a mapping; return other values unchanged."""
        return value

    def member(self, mapping: Mapping[str, Any]) -> type[BaseModel]:
        """Return the pydantic model that validates this mapping."""
        return model_of(self.kind)

    def read(self, value: Any) -> Any:
        """Return the engine object for a value in a config."""
        if isinstance(value, self.kind):
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError("model_type", "a mapping of keys")
        return build(self.kind, value)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Validate with `read`, so that pydantic builds only the model of the named class."""
        return no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema of the mapping."""
        return handler(_named_schema(model_of(self.kind)))


class Family(EngineObject):
    """Annotation for an option that takes an object of any class in `registry`, by name.

    A mapping without a name gets the name ``formula`` if it has this key, else `default`.  `none`
    is the name that stands for None, such as ``auto`` for losses.  `of` maps a registered class to
    the class that declares its options.  `takes` tells whether a value that is possible only in
    Python, such as a function, is accepted.
    """

    def __init__(
        self,
        kind: type,
        registry: Mapping[str, Any],
        default: str,
        *,
        none: str = "",
        of: Callable[[Any], Any] = lambda kind: kind,
        takes: Callable[[Any], bool] = lambda value: False,
    ) -> None:
        super().__init__(kind)
        self.registry, self.default, self.none = registry, default, none
        self.of, self.takes = of, takes

    @property
    def names(self) -> list[str]:
        """Names that a config may use."""
        return [self.none, *self.registry] if self.none else [*self.registry]

    @property
    def members(self) -> list[type[BaseModel]]:
        """The pydantic models, one for each name."""
        return [self.member({"name": name}) for name in self.names if name != self.none]

    def complete(self, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and "name" not in value:
            return {"name": "formula" if "formula" in value else self.default, **value}
        return value

    def member(self, mapping: Mapping[str, Any]) -> type[BaseModel]:
        name = mapping.get("name")
        if not isinstance(name, str) or name not in self.registry:
            name = next(iter(self.registry))
        return model_of(self.of(self.registry[name]), name)

    def read(self, value: Any) -> Any:
        if isinstance(value, self.kind) or self.takes(value) or (value is None and self.none):
            return value
        whole = self.complete(value)
        if isinstance(value, list):
            raise PydanticCustomError("model_type", "a mapping of keys")
        name = whole["name"] if isinstance(whole, dict) else None
        if name == self.none and len(whole) == 1:
            return None
        if not isinstance(name, str) or name not in self.names or name == self.none:
            expected = ", ".join(map(repr, self.names))
            raise PydanticCustomError("unknown_name", "one of {expected}", {"expected": expected})
        return build(self.of(self.registry[name]), whole, name)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema: a mapping, or only a name if its class has no required option."""
        short = [
            one.model_fields["name"].default
            for one in self.members
            if not any(field.is_required() for field in one.model_fields.values())
        ]
        names = sorted([*short, *[self.none] * bool(self.none)], key=self.default.__ne__)
        mappings = [handler(_named_schema(one)) for one in self.members]
        return {"anyOf": [*mappings, {"enum": names}]}


def _named_schema(model: type[BaseModel]) -> Any:
    """Return the schema of a model with a name, so that the JSON Schema defines it once."""
    named: Any = {**TypeAdapter(model).core_schema, "ref": f"{model.__name__}:section"}
    return definitions_schema(named, [])


LOSS = Family(Loss, LOSSES, "auto", none="auto")
OPTIMIZER = Family(OptimizerSettings, OPTIMIZERS, "adam", of=settings_class)
SCHEDULE = Family(Schedule, SCHEDULES, "constant", takes=callable)

LossOption: TypeAlias = Annotated[
    Loss | None,
    LOSS,
    Field(
        description="Loss to minimize; by default cross-entropy for classes, binary cross-entropy "
        "for several labels, mean squared error for numbers."
    ),
]
OptimizerOption: TypeAlias = Annotated[
    OptimizerSettings, OPTIMIZER, Field(description="How a step changes the weights.")
]
ScheduleOption: TypeAlias = Annotated[
    Schedule | ScheduleLike, SCHEDULE, Field(description="How lr changes over the steps.")
]

FAMILIES = (Loss, OptimizerSettings, Schedule)
"""Base classes of the objects that configs refer to by name."""
