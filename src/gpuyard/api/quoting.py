"""Parts of an address, quoted. The standard library's own takes longer to import than a request takes."""

from collections.abc import Mapping
from typing import Any


def query(parts: Mapping[str, Any]) -> str:
    """A query of the values that are not empty. Only letters, digits and a few signs are unquoted."""
    said = [f"{name}={quoted(str(value))}" for name, value in parts.items() if value != ""]
    return f"?{'&'.join(said)}" if said else ""


def part(text: object) -> str:
    """One part of a path, with any content."""
    return quoted(str(text)).replace("/", "%2F")


def quoted(text: str) -> str:
    """Text for a path or a query. Slashes and commas stand."""
    plain = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/,")
    return "".join(
        [char if char in plain else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text]
    )
