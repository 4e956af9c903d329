"""Where a yard is reached, and how paths and queries of its API are written."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuyard.control.places import DataDir, likely_data
from gpuyard.errors import BadInput


def address_of(server: str) -> tuple[str, int] | str:
    """`http://127.0.0.1:7447`, `127.0.0.1:7447`, `unix:/path` or `/path`."""
    text = server.strip().rstrip("/")
    if text.startswith(("unix:", "/")):
        path = text.removeprefix("unix:")
        return "/" + path.lstrip("/")
    text = text.removeprefix("http://")
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(
            f"YARD_SERVER is {server!r}, which is no address", "For example: http://127.0.0.1:7447"
        )
    return host.strip("[]"), int(port)


def socket_of(data: Path | None) -> str:
    """The socket of a server on this machine."""
    folders = [data] if data is not None else list(likely_data())
    for folder in folders:
        found = [each.socket for each in DataDir(folder).instances() if each.socket.exists()]
        if found:
            return str(found[0])
    return str(DataDir(folders[0]).root / "yard.sock")


def own_token(data: Path | None) -> str:
    for folder in [data] if data is not None else likely_data():
        with suppress(OSError):
            return DataDir(folder).token_file.read_text(encoding="ascii").strip()
    return ""


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
