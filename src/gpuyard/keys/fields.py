"""What the parts of `yard.yaml`'s schema are made of: values read from their text, keys that may be left out."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
)
from pydantic import PlainValidator as Plain
from pydantic import WithJsonSchema as Shown
from pydantic_core import CoreSchema, core_schema

from gpuyard import quantities as q
from gpuyard.errors import quote, suggest
from gpuyard.keys import values
from gpuyard.keys.tree import Nothing
from gpuyard.model.names import NAME_PATTERN
from gpuyard.quantities import DURATION_PATTERN, parse_duration_ms, parse_positive_duration_ms


def text(parse: Callable[[str], Any]) -> Callable[[object], Any]:
    """A validator for a single value, from a function of its text."""

    def check(value: object) -> Any:
        if value is Nothing.NOTHING:
            raise ValueError("has no value; give it one or remove the key")
        if not isinstance(value, str):
            found = "a mapping" if isinstance(value, dict) else "a list"
            raise ValueError(f"must be a single value, not {found}")
        return parse(value)

    return check


def whole(least: int, most: int) -> tuple[Plain, Shown]:
    """A whole number between bounds."""

    def parse(text: str) -> int:
        return q.parse_whole(text, least=least, most=most)

    return Plain(text(parse)), Shown({"type": "integer", "minimum": least, "maximum": most})


def choice(names: list[str], kind: str, plural: str) -> tuple[Plain, Shown]:
    """One of some names."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"names an unknown {kind} {quote(text)}; {suggest(text, names, plural)}")
        return text

    return Plain(text(parse)), Shown({"type": "string", "enum": names})


def positive(most: int) -> Shown:
    """A number above 0, for the JSON Schema."""
    return Shown({"type": "number", "exclusiveMinimum": 0, "maximum": most})


class OrNothing:
    """A mapping that may be left empty: `research:` alone is a tenant with all defaults."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def fill(value: object) -> object:
            return {} if value is Nothing.NOTHING else value

        return core_schema.no_info_before_validator_function(fill, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "null"}]}


class OneOrMore:
    """A list; a single value may be written without brackets."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def fill(value: object) -> object:
            return [value] if isinstance(value, str) else value

        return core_schema.no_info_before_validator_function(fill, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        shown = handler(schema)
        return {"anyOf": [shown, shown["items"]]}


_DURATION = Shown({"type": "string", "pattern": DURATION_PATTERN, "minLength": 2})
Name = Annotated[str, AfterValidator(values.name), Shown({"type": "string", "pattern": NAME_PATTERN})]
Word = Annotated[str, Plain(text(str)), Shown({"type": "string"})]
Boolean = Annotated[bool, Plain(text(values.boolean)), Shown({"type": "boolean"})]
Count = Annotated[int, *whole(1, 1_000_000)]
MemoryMib = Annotated[
    int, Plain(text(q.parse_memory_mib)), Shown({"type": "string", "pattern": q.MEMORY_PATTERN})
]
DurationMs = Annotated[int, Plain(text(parse_duration_ms)), _DURATION]
PositiveMs = Annotated[int, Plain(text(parse_positive_duration_ms)), _DURATION]


def key(description: str, *, default: Any = None, example: Any = None, alias: str | None = None) -> Any:
    """A key that may be left out. `default` is the default in the notation of the file."""
    extra = {} if default is None else {"default": default}
    return Field(
        None, description=description, json_schema_extra=extra, examples=_examples(example), alias=alias
    )


def required(description: str, *, example: Any) -> Any:
    """A key that has to be there."""
    return Field(description=description, examples=_examples(example))


def _examples(example: Any) -> list[Any] | None:
    return None if example is None else [example]


class YamlMapping(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self) -> dict[str, Any]:
        """The values that the file gives, by key."""
        return {key: getattr(self, key) for key in self.model_fields_set}

    def beyond_defaults(self) -> list[str]:
        """The keys that the file gives another value than their default."""
        given = self.given()
        return [
            name
            for name in type(self).model_fields
            if given.get(name) is not None and given[name] != self._default(name)
        ]

    @classmethod
    def _default(cls, name: str) -> Any:
        """The default of a key as a value; None: it has none."""
        field = cls.model_fields[name]
        shown = field.json_schema_extra
        if not isinstance(shown, dict) or "default" not in shown:
            return None
        kind: Any = field.annotation
        return TypeAdapter(kind).validate_python(_text_of(shown["default"]))


def _text_of(default: Any) -> Any:
    """A default in the notation of the file, as it would be read from there."""
    if isinstance(default, list):
        return [_text_of(each) for each in default]
    return str(default).lower() if isinstance(default, bool) else str(default)
