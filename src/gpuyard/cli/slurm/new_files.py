"""Files that a command writes into a folder that the user named: all of them, and over none that is there already."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuyard.errors import BadInput


def write_new(folder: Path, texts: Mapping[str, str], force: bool, more: Iterable[str] = ()) -> None:
    """Write them. `more`: names that the caller writes there afterwards."""
    there = [folder / name for name in (*texts, *more) if (folder / name).exists()]
    if there and not force:
        raise BadInput(
            f"{there[0]} is there already; nothing was written", "Name another --dir, or add --force."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{error.filename or folder}: {error.strerror}", "Choose another --dir.") from None
