"""Sections of a config, made from the classes that declare their options.

An option whose values are named, such as an optimizer, is a name alone (``optimizer: adam``), or a
mapping with the name (``{name: adam, lr: 1e-3}``), or one without it, which takes the default's.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from annotated_types import Len
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import (
    no_info_after_validator_function,
    no_info_before_validator_function,
    no_info_plain_validator_function,
)

from mlpengine.core.errors import UsageError
from mlpengine.core.fields import Checked, OneOf, Option, options_of, summary
from mlpengine.ops import LOSSES, GradOp, Loss
from mlpengine.optim import (
    CLIPS,
    OPTIMIZERS,
    SCHEDULES,
    Clip,
    OptimizerSettings,
    Schedule,
    settings_class,
)


class Section(BaseModel):
    """A mapping of a config: no unknown keys, no silent conversions, no infinities."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,  # of `Config` only, with those below it, when it reads a config
    )

    declared_by: ClassVar[Any] = None
    """The class whose options are keys of the section."""

    def options(self) -> dict[str, Any]:
        """Return the values by key; `model_dump` would build a serializer of this section."""
        return dict(self)

    @property
    def settings(self) -> Any:
        """An object of the class that declares the section's options, with its values."""
        return self.declared_by and self.declared_by(
            **{
                name: _value(getattr(self, one.key))
                for name, one in keys_of(self.declared_by)
                if one.key in type(self).model_fields
            }
        )

    @model_validator(mode="after")
    def _fits_together(self) -> "Section":
        if isinstance(self.declared_by, type) and issubclass(self.declared_by, Checked):
            for key, text in self.declared_by.problems(self):  # type: ignore[arg-type]
                raise rule(text, key)
        return self


def _value(value: Any) -> Any:
    """Return the value of an option for that of a section."""
    if isinstance(value, Section):
        return value.settings
    return {key: _value(one) for key, one in value.items()} if isinstance(value, dict) else value


def rule(text: str, *at: str) -> PydanticCustomError:
    """Return the error of a rule between fields, to be shown at the key path `at`."""
    return PydanticCustomError("rule", "{text}", {"text": text, "at": at})


def section_field(kind: Callable[[], Section], description: str) -> Any:
    """Return a field whose default is an empty mapping, which stands for all defaults of `kind`.

    With an instance as default, the validators of `kind` would be built twice.
    """

    def add_default(schema: dict[str, Any]) -> None:
        schema["default"] = kind().model_dump(mode="json")

    return Field(default_factory=dict, description=description, json_schema_extra=add_default)


class Short:
    """Annotation of a field that accepts a short form and completes it before validation."""

    def __init__(self, complete: Callable[[Any], Any], schema: dict[str, Any]) -> None:
        self.complete, self.schema = complete, schema

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Complete the value, then validate it as usual."""
        return no_info_before_validator_function(self.complete, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Let editors accept the short form, too."""
        return {"anyOf": [handler(schema), self.schema]}


OFF_OR_DEFAULTS = Short(
    lambda value: ({} if value else None) if isinstance(value, bool) else value, {"type": "boolean"}
)


EMPTY = Short(lambda value: [] if value is None else value, {"type": "null"})


class Named:
    """One of the sections of a family, by its name alone or as a mapping, which may leave it out.

    Without a name it is that of `default`, or ``formula`` if the mapping has such a key; `none` is
    the name of None.
    """

    def __init__(self, family: type, default: str, none: str = "") -> None:
        self.family, self.default, self.none = family, default, none

    @property
    def names(self) -> list[str]:
        """The names of the sections."""
        return [*([self.none] if self.none else []), *FAMILIES[self.family][0]]

    def section(self, name: str) -> type[Section]:
        """Return the section of one of `names`."""
        registry, of = FAMILIES[self.family]
        made: type[Section] = (
            section_of(of(registry[name]), name=name) if name in registry else _nothing(name)
        )
        return made

    @property
    def sections(self) -> dict[str, type[Section]]:
        """The sections by name."""
        return {name: self.section(name) for name in self.names}

    def complete(self, value: Any) -> Any:
        """Return the mapping that a value stands for."""
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and "name" not in value:
            return {"name": "formula" if "formula" in value else self.default, **value}
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check a value as the section of its name, the only one that is built."""
        return no_info_plain_validator_function(self._checked)

    def _checked(self, value: Any) -> Section:
        whole = self.complete(value)
        if not isinstance(whole, dict):
            raise PydanticCustomError("model_type", "a mapping of keys")
        if whole["name"] not in self.names:
            expected = ", ".join(map(repr, self.names))
            raise PydanticCustomError("unknown_name", "one of {expected}", {"expected": expected})
        return self.section(whole["name"]).model_validate(whole)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Let editors accept the names, except those of sections that need settings."""
        sections = self.sections
        short = [
            name
            for name, one in sections.items()
            if not any(field.is_required() for field in one.model_fields.values())
        ]
        union: Any = Annotated[_of(Union, *sections.values()), Field(discriminator="name")]
        named = {"enum": sorted(short, key=self.default.__ne__)}
        return {"anyOf": [handler(TypeAdapter(union).core_schema), named]}


FAMILIES: dict[type, tuple[Mapping[str, Any], Callable[[Any], Any]]] = {
    Clip: (CLIPS, lambda kind: kind),
    Loss: (LOSSES, lambda kind: kind),
    OptimizerSettings: (OPTIMIZERS, settings_class),
    Schedule: (SCHEDULES, lambda kind: kind),
}
"""The registry of each family of named options, and the class that declares those of a member."""

NAMED_OPTIONS = {
    Clip: Named(Clip, "norm"),
    Loss: Named(Loss, "auto", none="auto"),
    OptimizerSettings: Named(OptimizerSettings, "adam"),
    Schedule: Named(Schedule, "constant"),
}


def keys_of(kind: Any) -> list[tuple[str, Option]]:
    """Return the options of a class that a config has, by their names in the class."""
    return [(name, one) for name, one in options_of(kind).items() if not one.given]


@cache
def section_of(
    kind: Any,
    base: type[Section] = Section,
    title: str = "",
    *,
    name: str = "",
    without: tuple[str, ...] = (),
) -> Any:
    """Return a section with the options of a class after those of `base`.

    With a `name` it is one of a family.
    """
    made: Any = {}
    if name:
        about = summary(kind)
        made["name"] = (Literal[name], Field(default=name, description=about))
    for option in (one for key, one in keys_of(kind) if key not in without):
        kind_of = annotation_of(option.type)
        if option.default == ():
            kind_of = Annotated[kind_of, EMPTY]
        made[option.key] = (kind_of, option_field(option))
    own = kind.__name__.removesuffix("Settings")
    title = title or (own if name else f"{own}Section")
    result = create_model(title, __base__=base, __doc__=summary(kind), **made)
    result.declared_by = kind
    return result


@cache
def _nothing(name: str) -> type[Section]:
    """Return the section of the name that stands for None."""
    fields: Any = {"name": (Literal[name], Field(default=name, description="Chosen by the task."))}
    result: type[Section] = create_model("AutoSection", __base__=Section, **fields)
    return result


def option_field(option: Option) -> Any:
    """Return the field of a section for an option."""
    if option.default is MISSING:
        return Field(description=option.description)
    default = plain_options(option.default) if option.default is not None else _none_of(option.type)
    if not isinstance(default, dict):
        return Field(default=default, description=option.description)
    return Field(
        default_factory=dict,
        description=option.description,
        json_schema_extra=lambda schema: schema.update(default=default),
    )


def plain_options(value: Any) -> Any:
    """Return settings, or the value of an option, as a config has them."""
    if isinstance(value, tuple):
        return [plain_options(one) for one in value]
    if isinstance(value, Mapping):
        return {key: plain_options(one) for key, one in value.items()}
    family = isinstance(value, tuple(FAMILIES))
    if not family and not is_dataclass(value):
        return value
    kind: Any = type(value)
    values: dict[str, Any] = {"name": kind.name} if family else {}
    for name, one in keys_of(kind):
        given = getattr(value, name)
        values[one.key] = _none_of(one.type) if given is None else plain_options(given)
    return values


SHOWN_DEFAULTS = {
    *("hidden", "activation", "embedding", "frequencies", "outputs", "sigma", "lr", "weight_decay"),
    *("cycles", "epochs", "batch_size", "patience"),
}
"""Options that recipes show where they have their defaults, too."""


def written_options(settings: Any) -> dict[str, Any]:
    """Return settings as a person writes them in a config: without what has its default."""
    family = isinstance(settings, tuple(FAMILIES))
    values: dict[str, Any] = {"name": settings.name} if family else {}
    for name, one in keys_of(type(settings)):
        value: Any = getattr(settings, name)
        if value == one.default and name not in SHOWN_DEFAULTS:
            continue
        if isinstance(value, tuple) and len(value) == 1 == len(one.default):
            value = value[0]
        parts = isinstance(value, tuple(FAMILIES)) or is_dataclass(value)
        if isinstance(value, Mapping):
            values[one.key] = {key: written_options(part) for key, part in value.items()}
        else:
            values[one.key] = written_options(value) if parts else plain_options(value)
    return values


def _none_of(kind: Any) -> Any:
    """Return what a config has for None: the name of it, in a family that has one."""
    names = [
        NAMED_OPTIONS[one].none
        for one in get_args(kind)
        if one in FAMILIES and NAMED_OPTIONS[one].none
    ]
    return {"name": names[0]} if names else None


def annotation_of(kind: Any) -> Any:
    """Return the type of an option as a section has it."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in FAMILIES:
        return Annotated[Section, NAMED_OPTIONS[kind]]
    if origin is Annotated:
        return Annotated[annotation_of(args[0]), *map(_limit, args[1:])]
    if origin in (Union, UnionType):
        return _union(args)
    if origin is tuple:
        item, exact = annotation_of(args[0]), args[-1] is not Ellipsis
        form = Len(len(args), len(args)) if exact else _one_or_more(item)
        return Annotated[_of(list, item), form]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of(dict, args[0], annotation_of(args[1]))
    if origin is Literal and "none" in args:
        return Annotated[kind, _switch(args[0])]
    described: Any = kind
    return section_of(described) if is_dataclass(kind) else kind


def _union(args: tuple[Any, ...]) -> Any:
    """Return the union of the types that a file can have."""
    if NoneType in args and any(one in FAMILIES and NAMED_OPTIONS[one].none for one in args):
        args = tuple(one for one in args if one is not NoneType)
    names = [name for one in args if get_origin(one) is Literal for name in get_args(one)]
    members = [_of(Literal, *names)] if names else []
    others = [one for one in args if get_origin(one) is not Literal and not _is_code(one)]
    members += map(annotation_of, others)
    union = _of(Union, *members)
    optional = NoneType in args and any(is_dataclass(one) for one in args)
    return Annotated[union, OFF_OR_DEFAULTS] if optional else union


def _of(form: Any, *args: Any) -> Any:
    """Return a type of computed parts, such as ``Union[float, None]``."""
    return form[args if len(args) > 1 else args[0]]


def _is_code(kind: Any) -> bool:
    """Return whether values of a type are functions or ops, which no file has."""
    op = isinstance(kind, type) and issubclass(kind, GradOp) and kind not in FAMILIES
    return op or get_origin(kind) is Callable


def _limit(limit: Any) -> Any:
    """Return a limit as pydantic takes it."""
    if isinstance(limit, OneOf):
        return _one_of(limit)
    return AfterValidator(partial(_checked, limit)) if callable(limit) else limit


def _checked(limit: Callable[[Any], object], value: Any) -> Any:
    try:
        limit(value)
    except UsageError as error:
        raise rule(str(error)) from None
    return value


class _one_of:  # noqa: N801
    """Annotation of a text that is one of some names, or what else is allowed."""

    def __init__(self, limit: OneOf) -> None:
        self.limit = limit

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check the text after its type."""
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Let editors complete the names."""
        names = {"enum": list(self.limit.names)}
        return {"anyOf": [names, {"type": "string"}]} if self.limit.others else names

    def _check(self, text: str) -> Any:
        names = self.limit.names
        if text not in names and (self.limit.others is None or text.isidentifier()):
            listed = " or ".join(repr(name) for name in names)
            raise PydanticCustomError("literal_error", "one of {expected}", {"expected": listed})
        return _checked(self.limit, text)


def _one_or_more(item: Any) -> Short:
    """Return the short form of a list: an item alone."""
    while get_origin(item) in (Annotated, Union, UnionType):
        item = get_args(item)[0]
    number = item in (int, float)
    accepted: Any = (int, float) if number else str
    schema = {"type": {int: "integer", float: "number"}.get(item, "string")}

    def complete(value: Any) -> Any:
        return [value] if isinstance(value, accepted) and not isinstance(value, bool) else value

    return Short(complete, schema)


def _switch(first: str) -> Short:
    """Return the short form of an option that may be ``none``: false, or true for the first."""
    return Short(
        lambda value: (first if value else "none") if isinstance(value, bool) else value,
        {"type": "boolean"},
    )
