"""The JSON Schema of a reply, made from its type."""

from collections.abc import Iterable
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from gpuyard.wire.endpoints import Endpoint
from gpuyard.wire.replies import fleet, jobs, people, tenants

REFS = "#/components/schemas/{model}"
_PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}

Schema = dict[str, Any]


def ref(name: str) -> dict[str, str]:
    """A reference to a form by its name."""
    return {"$ref": REFS.format(model=name)}


def find_form(reply: str | Endpoint) -> Any:
    """The type of a reply, of an endpoint or by its name."""
    if isinstance(reply, Endpoint) and reply.form is not None:
        return reply.form
    name = reply.reply if isinstance(reply, Endpoint) else reply
    return next(vars(each)[name] for each in (jobs, fleet, tenants, people) if name in vars(each))


def make_schemas(kinds: Iterable[Any]) -> dict[str, Schema]:
    """The schemas of these forms, and of all that they are made of, by name."""
    found: dict[str, Schema] = {}
    open_ = list(kinds)
    while open_:
        kind = open_.pop()
        if get_origin(kind) is Annotated:
            # One of several forms: a union has no name of its own.
            union, name, text = get_args(kind)
            found[name] = {**_schema(union, open_), "title": name, "description": text}
        elif kind.__name__ not in found:
            found[kind.__name__] = _object(kind, open_)
    return found


def _object(kind: Any, parts: list[Any]) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    found: Schema = {
        "properties": {name: _property(name, hint, parts) for name, hint in hints.items()},
        "title": kind.__name__,
        "type": "object",
    }
    if kind.__doc__:
        found["description"] = cleandoc(kind.__doc__)
    required = [name for name in hints if name in kind.__required_keys__]
    return {**found, "required": required} if required else found


def _property(name: str, hint: Any, parts: list[Any]) -> Schema:
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    text = ""
    if get_origin(hint) is Annotated:
        hint, text = get_args(hint)
    found = _schema(hint, parts)
    if not any("$ref" in each for each in (found, *found.get("anyOf", ()))):
        found["title"] = name.replace("_", " ").title()
    return {**found, "description": text} if text else found


def _schema(hint: Any, parts: list[Any]) -> Schema:
    if hint is Any:
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if is_typeddict(hint):
        parts.append(hint)
        return dict(ref(hint.__name__))
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return {"anyOf": [_schema(each, parts) for each in inner]}
    if origin is tuple:
        found = [_schema(each, parts) for each in inner]
        return {"maxItems": len(found), "minItems": len(found), "prefixItems": found, "type": "array"}
    if origin is list:
        return {"items": _schema(inner[0], parts), "type": "array"}
    if origin is dict and inner[0] is str:
        return {"additionalProperties": _schema(inner[1], parts) or True, "type": "object"}
    raise TypeError(f"a reply cannot have a field of type {hint}")
