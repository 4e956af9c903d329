"""TypeScript types of the API, made from its OpenAPI document, for the pages of the console.

The document is the record of it in `tests/golden/api.json`, which `tests/unit/api/test_rights_matrix.py` holds to the
server: no server is needed, and nothing is installed. `scripts/console.py` has the types made before a build, and
`tests/architecture/test_console_types.py` holds the pages to them.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tests" / "golden" / "api.json"
MADE = ROOT / "console" / "src" / "wire.ts"
_API = "/api/v1"
_REFS = "#/components/schemas/"
_JSON = "application/json"
_PLAIN = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}
_HEAD = """\
// What the API takes and answers. scripts/console_types.py makes it from the description of the API: it is not edited.
"""


def read_document() -> dict[str, Any]:
    """The OpenAPI document, as it is on record."""
    record = json.loads(RECORD.read_text())

    def part(kind: str) -> dict[str, Any]:
        return {
            name.removeprefix(f"{kind} "): each
            for name, each in record.items()
            if name.startswith(f"{kind} ")
        }

    return {"paths": part("path"), "components": {"schemas": part("schema")}}


def make_types(document: Mapping[str, Any]) -> str:
    """The whole file: every form, and for each endpoint with JSON what it takes and answers."""
    calls: dict[str, tuple[str, str]] = {}
    problems: set[str] = set()
    for path, operations in sorted(document["paths"].items()):
        for method, operation in sorted(operations.items()):
            if path.startswith(f"{_API}/") and (reply := _reply(operation)):
                calls[f"{method.upper()} {path.removeprefix(_API)}"] = _body(operation), reply
                problems.update(_named(operation["responses"]))
    schemas = document["components"]["schemas"]
    used = _reached(schemas, [*problems, *[name for both in calls.values() for name in both]])
    return "\n".join(
        [
            _HEAD,
            *[f"export type {name} = {_type(schemas[name])};\n" for name in sorted(used)],
            "/** What an endpoint answers, by method and path. */",
            "export type Replies = {",
            *[f"  {json.dumps(call)}: {reply};" for call, (_body, reply) in calls.items()],
            "};\n",
            "/** What it takes; one that is not here takes nothing. */",
            "export type Bodies = {",
            *[f"  {json.dumps(call)}: {body};" for call, (body, _reply) in calls.items() if body],
            "};\n",
        ]
    )


def _reply(operation: Mapping[str, Any]) -> str:
    """The form of the answer where all goes well; empty: it is none of JSON."""
    for status, each in sorted(operation["responses"].items()):
        if status.startswith("2") and _JSON in each.get("content", {}):
            return _type(each["content"][_JSON]["schema"])
    return ""


def _body(operation: Mapping[str, Any]) -> str:
    """The form of the body; empty: there is none."""
    content = operation.get("requestBody", {}).get("content", {})
    return _type(content[_JSON]["schema"]) if _JSON in content else ""


def _reached(schemas: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """These forms, and all that they are made of."""
    found: set[str] = set()
    open_ = [name for name in names if name]
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += _named(schemas[name])
    return found


def _named(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for each in schema for name in _named(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].removeprefix(_REFS)] if isinstance(schema.get("$ref"), str) else []
    return own + [name for each in schema.values() for name in _named(each)]


def _type(schema: Mapping[str, Any]) -> str:
    """One schema as a type."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFS)
    if "const" in schema or "enum" in schema:
        return " | ".join(map(json.dumps, schema.get("enum", [schema.get("const")])))
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    match schema.get("type"):
        case None:
            return "any"
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(map(_type, schema['prefixItems']))}]"
        case "array":
            inner = _type(schema.get("items", {}))
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        case "object" if "properties" in schema:
            return _object(schema)
        case "object":
            values = schema.get("additionalProperties", True)
            return f"Record<string, {'any' if values is True else _type(values)}>"
        case kind:
            return _PLAIN[kind]


def _object(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    fields = [
        f"  {name}{'' if name in required else '?'}: {_type(each)};"
        for name, each in schema["properties"].items()
    ]
    return "\n".join(["{", *fields, "}"])


def main() -> None:
    """Write the types where the console has them, or into the file that is named."""
    made, place = make_types(read_document()), Path(sys.argv[1]) if sys.argv[1:] else MADE
    # What is unchanged is left alone: an editor that has it open need not read it again.
    if not place.exists() or place.read_text() != made:
        place.write_text(made)


if __name__ == "__main__":
    main()
