"""Every answer of the API held to its own description: its status, its kind, and each of its fields.

The description leaves room for fields that a later release adds. Here there is none: a field that is sent and not
described is a flaw.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import jsonschema_rs

from gpuyard.api.client import Client
from gpuyard.api.connecting.calling import Head
from gpuyard.wire import reply_schemas
from gpuyard.wire.endpoints import API

_PROPERTIES = "additionalProperties"


def closed(description: dict[str, Any]) -> dict[str, Any]:
    """The same description, in which answers have the fields that it names and no others."""
    found: dict[str, Any] = json.loads(json.dumps(description))
    parts = found["components"]["schemas"]
    answers = [
        each
        for operations in found["paths"].values()
        for operation in operations.values()
        for each in operation["responses"].values()
    ]
    open_, seen = [answers], set()
    while open_:
        for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(open_.pop())):
            if name not in seen:
                seen.add(name)
                open_.append(parts[name])
    for name in seen:
        if "properties" in parts[name]:
            parts[name].setdefault(_PROPERTIES, False)
    return found


def held_to(form: str, value: Any) -> Any:
    """The value, which has the form of that reply and no field besides."""
    parts = reply_schemas.make_schemas([reply_schemas.find_form(form)])
    for each in parts.values():
        if "properties" in each:
            each[_PROPERTIES] = False
    schema = {**reply_schemas.ref(form), "components": {"schemas": parts}}
    flaws = [error.message for error in jsonschema_rs.Draft202012Validator(schema).iter_errors(value)]
    assert not flaws, flaws
    return value


class Description:
    """What the API says that it answers."""

    def __init__(self, description: dict[str, Any]) -> None:
        self._closed = closed(description)
        self._paths = [
            (re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path)), operations)
            for path, operations in self._closed["paths"].items()
        ]
        self._validators: dict[str, Any] = {}

    def check(self, method: str, path: str, status: int, kind: str, body: bytes) -> None:
        """Fail for an answer that is not described."""
        flaws = self.flaws(method, path, status, kind, body)
        assert not flaws, (
            f"{method} {path} answers {status} {kind} beyond its description: {'; '.join(flaws)}"
        )

    def flaws(self, method: str, path: str, status: int, kind: str, body: bytes) -> list[str]:
        """What is wrong with an answer; nothing for what is not there."""
        route = path.partition("?")[0]
        if route.endswith("/openapi.json"):
            return []
        exact = [operations for pattern, operations in self._paths if pattern.pattern == route]
        found = exact or [operations for pattern, operations in self._paths if pattern.fullmatch(route)]
        operation = next((each[method.lower()] for each in found if method.lower() in each), None)
        if operation is None:
            return [] if status in (401, 403, 404, 405, 429) else ["there is no such operation"]
        said = operation["responses"].get(str(status))
        if said is None:
            return [f"no answer {status}"]
        media = kind.partition(";")[0].strip()
        schema = said.get("content", {}).get(media)
        if schema is None:
            return [f"no answer of kind {media!r}"] if body else []
        if "json" not in media:
            return []
        return [
            f"{'/'.join(map(str, error.instance_path)) or 'the answer'}: {error.message[:300]}"
            for error in self._validator(json.dumps(schema["schema"])).iter_errors(json.loads(body))
        ]

    def _validator(self, schema: str) -> Any:
        if schema not in self._validators:
            whole = {**json.loads(schema), "components": self._closed["components"]}
            self._validators[schema] = jsonschema_rs.Draft202012Validator(whole)
        return self._validators[schema]


class DescribedClient(Client):
    """The Python client, holding every answer that is no stream to the description."""

    _description: ClassVar[list[Description]] = []
    """Read once: all servers of a checkout give the same."""

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[Head, bytes]:
        if not self._description:
            _, text = super()._exchange("GET", f"{API}/openapi.json", None, {})
            self._description.append(Description(json.loads(text)))
        head, content = super()._exchange(method, path, body, headers)
        kind = head.headers.get("content-type", "")
        self._description[0].check(method, path, head.status, kind, content)
        return head, content
