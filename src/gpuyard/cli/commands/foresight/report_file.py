"""The report as a file: checked before a long run, written whole or not at all after it."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpuyard.errors import BadInput


def check(path: Path) -> None:
    """Refuse a place that cannot be written, before the user waits for the report."""
    if path.is_dir():
        raise BadInput(f"{path}: is a directory", "Name a file in it, such as report.html.")
    if not path.parent.is_dir():
        raise BadInput(f"{path}: there is no directory {path.parent}", "Make it, or choose another place.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"{path}: may not be written", "Choose another place.")


def write(path: Path, page: str) -> None:
    """Write the page. An old file stays until the new one is done."""
    part = path.with_name(f"{path.name}.part")
    try:
        if path.exists() and not path.is_file():
            # A pipe or /dev/stdout has no old content to keep.
            path.write_text(page, encoding="utf-8")
            return
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be written: {error.strerror or error}", "Choose another place."
        ) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def facts(rows: Sequence[tuple[str, str | int]]) -> list[tuple[str, str]]:
    """Facts for the head of the report, numbers with thousands separated."""
    return [(name, f"{value:,}" if isinstance(value, int) else value) for name, value in rows]
