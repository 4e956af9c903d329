"""What is to run: a command, a script as it stands, or a file that says itself what it needs."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from gpuyard.errors import BadInput

SCRIPT_BYTES_MAX = 1024 * 1024
PIPED_BYTES_MAX = 8 * 1024 * 1024
"""YAML may hold many jobs."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEY = re.compile(rb"^[A-Za-z_]+:", re.MULTILINE)
_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".batch", ".job")
"""Whoever names one of these means a file that is there."""


def here() -> str:
    """The folder someone is in."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the folder you are in is gone, and a job starts in the one it is submitted from",
            "Change to one that is there: cd ~",
        ) from None


def piped(words: list[str] | None, dashes: bool) -> bytes | None:
    """What comes through standard input, where `-` is the first word; else None."""
    if dashes or not words or words[0] != "-":
        return None
    return sys.stdin.buffer.read(PIPED_BYTES_MAX + 1)


def is_file_to_read(words: list[str] | None, dashes: bool, through: bytes | None = None) -> bool:
    """Whether the first word is a file that says itself what it needs: #SBATCH lines, or YAML."""
    if through is not None:
        return b"\n#SBATCH" in through or not (through.startswith(b"#!") or _KEY.search(through) is None)
    if not words or dashes:
        return False
    path = Path(words[0])
    if path.suffix in (".yaml", ".yml"):
        return True
    content = _script(path)
    return content is not None and (b"\n#SBATCH" in content or content.startswith(_BYTE_ORDER_MARK))


def command_of(words: list[str] | None, dashes: bool, through: bytes | None = None) -> dict[str, Any]:
    """A command line, or a script: a file that begins with #! and is not after `--`, or what came through `-`."""
    if not words:
        raise BadInput("there is nothing to run", "For example: yard run -g 1 -- nvidia-smi")
    if through is not None:
        fields: dict[str, Any] = {"script": _text(through, "standard input")}
        return fields | ({"command": words[1:]} if words[1:] else {})
    if dashes:
        return {"command": words}
    path = Path(words[0])
    content = _script(path)
    if content is None:
        _refuse_absent(path)
        return {"command": words}
    made = "".join([char if char.isalnum() or char in "._-" else "-" for char in path.name]).strip("._-")
    return {"script": _text(content, str(path)), "command": words[1:], "name": made[:100] or "script"}


def _script(path: Path) -> bytes | None:
    """What is in a file that begins with #!, also after a byte order mark; None: it is no script."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            if not file.read(5).removeprefix(_BYTE_ORDER_MARK).startswith(b"#!"):
                return None
            file.seek(0)
            return file.read(SCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def _refuse_absent(path: Path) -> None:
    """A slip of the hand is told now, not by a job that fails at night."""
    if path.is_dir():
        raise BadInput(f"{path}: is a folder, and nothing that runs")
    if path.suffix in _SCRIPTS and not path.exists():
        import shutil

        if shutil.which(str(path)) is None:
            raise BadInput(
                f"{path}: no such file",
                f"If it will be there when the job starts: yard submit -- {path}",
            )


def _text(content: bytes, name: str) -> str:
    if len(content) > SCRIPT_BYTES_MAX:
        raise BadInput(
            f"{name} is larger than {SCRIPT_BYTES_MAX // 1024} KiB", "Run it as a command instead."
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name}: byte {error.start + 1} is not UTF-8",
            f"Save it as UTF-8, for example: iconv -f latin1 -t utf-8 {name}",
        ) from None
