"""What the user wants to run: a command line, a script as it stands, or a file that says itself what it needs.

A slip is reported now, with the line to type instead, and not by a job that fails at night.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuyard.cli.line.options import Called
from gpuyard.errors import BadInput
from gpuyard.wire.job_fields import SCRIPT_BYTES_MAX

PIPED_BYTES_MAX = 8 * 1024 * 1024
"""YAML may hold many jobs."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEY = re.compile(rb"^[A-Za-z_]+:", re.MULTILINE)
_YAML = (".yaml", ".yml")
_READERS = {
    ".py": "python3", ".r": "Rscript", ".jl": "julia", ".pl": "perl", ".rb": "ruby", ".js": "node", ".lua": "lua",
    ".sh": "bash", ".bash": "bash", ".sbatch": "bash", ".slurm": "bash", ".batch": "bash", ".job": "bash",
    ".zsh": "zsh", ".m": "octave",
}  # fmt: skip
"""The program that runs a file of this suffix, for the line to type."""
_LOOKED_AT = 8192
"""How many bytes to read to see whether a file is text."""


def read_piped(words: list[str] | None, dashes: bool) -> bytes | None:
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
    if path.suffix in _YAML:
        return True
    content = _script(path)
    return content is not None and (b"\n#SBATCH" in content or content.startswith(_BYTE_ORDER_MARK))


def read_command(
    verb: str, words: list[str] | None, called: Called, through: bytes | None = None, *, image: bool = False
) -> dict[str, Any]:
    """A command line, or a script: a file that begins with #! and is not after `--`, or what came through `-`.

    `verb`: the command of ours that was called, for the line to type instead. `image`: the programs are those of an
    image, which may have one that runs without being named.
    """
    if not words and image:
        return {}
    if not words:
        raise BadInput("there is nothing to run", f"For example: yard {verb} -g 1 -- nvidia-smi")
    if through is not None:
        fields: dict[str, Any] = {"script": _text(through, "standard input")}
        return fields | ({"command": words[1:]} if words[1:] else {})
    if called.dashes:
        return {"command": words}
    path = Path(words[0])
    content = _script(path)
    if content is None:
        if not image:
            _refuse_slips(verb, words, called.options)
        return {"command": words}
    return {"script": _text(content, str(path)), "command": words[1:], "name": _name(path)}


def _name(path: Path) -> str:
    """The job's name from its script: `train.sh` is `train`."""
    made = "".join([char if char.isalnum() or char in "._-" else "-" for char in path.stem])
    return made.strip("._-")[:100] or "script"


def _script(path: Path) -> bytes | None:
    """The content of a file that begins with #!, even after a byte order mark; None: it is no script."""
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


def _refuse_slips(verb: str, words: Sequence[str], options: Sequence[str]) -> None:
    """Refuse a first word that is no script and no program."""
    word = words[0]
    path = Path(word)
    if "/" not in word and _is_program(word):
        # The PATH comes before a file or a folder of the same name.
        return
    if not word or path.is_dir():
        line = _line(verb, options, ["COMMAND"])
        if not word:
            raise BadInput("the command is empty", f"Name what is to run: {line}")
        raise BadInput(f"{word}: is a folder, which cannot run", f"Name what is to run: {line}")
    if path.exists():
        _refuse_file(verb, path, words, options)
        return
    name, sign, _ = word.partition("=")
    if sign and name.isidentifier():
        raise BadInput(
            f"{word}: no such file or command",
            f"A variable is set with --env: {_line(verb, [*options, '--env', word], words[1:])}",
        )
    if path.suffix or "/" in word:
        later = _line(verb, options, words)
        raise BadInput(f"{word}: no such file", f"If it will be there when the job starts: {later}")
    raise BadInput(
        f"{word}: no such file or command",
        f"If the nodes of the yard have that command: {_line(verb, options, words)}",
    )


def _refuse_file(verb: str, path: Path, words: Sequence[str], options: Sequence[str]) -> None:
    """Refuse a file that is there and is neither a script nor a program."""
    try:
        with path.open("rb") as file:
            start = file.read(_LOOKED_AT)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", "Its owner can let you read it: chmod +r") from None
    if not start.strip():
        raise BadInput(
            f"{path}: is empty, so there is nothing to run", "Write the script, and submit it again."
        )
    if b"\0" in start:
        if os.access(path, os.X_OK):
            if "/" in words[0]:
                return
            line = _line(verb, options, [f"./{words[0]}", *words[1:]])
            raise BadInput(f"{path}: is a program that is not on the PATH", f"Type: {line}")
        raise BadInput(
            f"{path}: holds data, and is not a program",
            f"If it is a program: chmod +x {_quoted(str(path))}",
        )
    reader = _READERS.get(path.suffix.lower())
    if b"\n#SBATCH" in b"\n" + start or reader == "bash":
        raise BadInput(
            f"{path}: does not begin with #!, so nothing says which program reads it",
            f"Make its first line #!/bin/bash, or type: {_line(verb, options, [reader or 'bash', *words])}",
        )
    if reader:
        raise BadInput(
            f"{path}: does not begin with #!, so nothing says which program reads it",
            f"Type: {_line(verb, options, [reader, *words])}",
        )
    raise BadInput(
        f"{path}: does not begin with #!, so nothing says which program reads it",
        f"Name that program: {_line(verb, options, ['PROGRAM', *words])}",
    )


def refuse_folder(fields: Mapping[str, Any]) -> None:
    """Refuse a job if its folder is not there; a job that waits for others may get it from them."""
    folder = fields.get("cwd", "")
    if not folder or fields.get("dependencies") or os.path.isdir(folder):
        return
    try:
        os.stat(folder)
    except PermissionError:
        # The job may run as another user, with the right to look there.
        return
    except OSError as error:
        raise BadInput(
            f"{folder}: the job is to run there: {error.strerror}",
            f"Make the folder first: mkdir -p {_quoted(folder)}",
        ) from None
    raise BadInput(f"{folder}: is a file, and a job runs in a folder", "Name a folder with --chdir.")


def refuse_command(verb: str, fields: Mapping[str, Any], options: Sequence[str]) -> None:
    """Refuse a command that names a file of the job's folder which could not be run that way."""
    words = fields.get("command", ())
    if fields.get("script") or fields.get("image") or not words:
        return
    word, path = words[0], Path(fields.get("cwd", ""), words[0])
    if not path.is_file():
        # It may be there when the job starts.
        if "/" in word and not path.exists() and not fields.get("dependencies"):
            from gpuyard.cli.terminal.streams import print_notice

            print_notice(f"{word}: no such file yet: the job fails if it starts before", before="note: ")
        return
    if "/" not in word and _is_program(word, fields.get("env", {}).get("PATH")):
        return
    runs = os.access(path, os.X_OK)
    content = _script(path)
    if content is None:
        _refuse_file(verb, path, words, options)
    elif not runs:
        raise BadInput(
            f"{word}: is a script that may not be run: it is not executable",
            f"Make it so, chmod +x {_quoted(str(path))}, or leave out the `--`: its text is then submitted.",
        )
    elif "/" not in word:
        line = _line(verb, options, [f"./{word}", *words[1:]])
        raise BadInput(f"{word}: is a script in the job's folder, which is not on the PATH", f"Type: {line}")


def _is_program(word: str, path: str | None = None) -> bool:
    """Whether the PATH, or the place it names, has it."""
    import shutil

    return shutil.which(word, path=path) is not None


def _line(verb: str, options: Sequence[str], words: Sequence[str]) -> str:
    """The line to type, with the options that were typed."""
    given = list(options) if _asks_for_gpus(options) else ["-g", "1", *options]
    return " ".join(["yard", verb, *map(_quoted, given), "--", *map(_quoted, words)])


def _asks_for_gpus(options: Sequence[str]) -> bool:
    return any(word == "-g" or word.startswith("--gpu") for word in options)


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _text(content: bytes, name: str) -> str:
    if len(content) > SCRIPT_BYTES_MAX:
        raise BadInput(
            f"{name} is larger than {SCRIPT_BYTES_MAX // 1024} KiB", "Run it as a command instead."
        )
    if b"\r\n" in content:
        line = content.count(b"\n", 0, content.index(b"\r\n")) + 1
        raise BadInput(
            f"{name}:{line}: ends with a Windows line break, which becomes part of its last word",
            f"Turn the line breaks into those of Unix: sed -i 's/\\r$//' {name}",
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name}: byte {error.start + 1} is not UTF-8",
            f"Save it as UTF-8, for example: iconv -f latin1 -t utf-8 {name}",
        ) from None
