"""How paths and queries of the API are written."""

from collections.abc import Mapping
from typing import Any


def query_of(parts: Mapping[str, Any]) -> str:
    """A query of what is not empty. Only letters, digits and a few signs stand for themselves."""
    said = [f"{name}={_quoted(str(value))}" for name, value in parts.items() if value != ""]
    return f"?{'&'.join(said)}" if said else ""


def part_of(text: object) -> str:
    """One part of a path, whatever is in it."""
    return _quoted(str(text)).replace("/", "%2F")


def _quoted(text: str) -> str:
    plain = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/,")
    return "".join(
        [char if char in plain else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text]
    )
