"""Fields of jobs on the wire: what a text, a path or an environment may hold, and what lists of them mean."""

import re
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field

from gpuyard.errors import quote
from gpuyard.wire.image_names import full_reference
from gpuyard.wire.job_fields import (
    ARRAY_TASKS_MAX,
    LABEL_VALUE_MAX,
    LABELS_MAX,
    NAME_MAX,
    PROJECT,
    SCRIPT_BYTES_MAX,
    SELECTIONS_MAX,
    TEXT_MAX,
    label_fault,
)

ENV_BYTES_MAX = 256 * 1024
COMMAND_BYTES_MAX = 256 * 1024
WORD_BYTES_MAX = 128 * 1024 - 1
"""Linux takes no longer argument or variable."""
ENV_NAMES_MAX = 10_000
PATH_MAX = 4096
IMAGE_MAX = 512
"""A reference with its registry, path, tag and digest, or the path of a bundle."""

_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@+-]*")
_VOLUME = re.compile(r"(?:(?P<source>/[^:]*|[A-Za-z0-9][A-Za-z0-9_.-]*):)?(?P<target>/[^:]*)(?::(?:ro|rw))?")
_NAME = re.compile(r"[^\W_][\w .:+=@,-]*")
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_INDICES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def _name(text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise ValueError(
            "may hold letters, digits, spaces and . _ : + = @ , - and begins with a letter or a digit"
        )
    return text


def parse_tenant_path(text: str) -> str:
    """A path of the tree of tenants."""
    if text and not all(_SEGMENT.fullmatch(part) for part in text.split("/")):
        raise ValueError("is a path such as org/team/user, each part of letters, digits, '.', '_' and '-'")
    return text


def _word(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character")
    if len(text.encode()) > WORD_BYTES_MAX:
        raise ValueError(f"is longer than {WORD_BYTES_MAX} bytes")
    return text


def _folder(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValueError("must be an absolute path")
    return _word(text)


def _image(text: str) -> str:
    name = full_reference(text)
    if text and not _IMAGE.fullmatch(name):
        raise ValueError(f"is a reference such as docker.io/library/python:3.12, not {quote(text)}")
    return name


def _volume(text: str) -> str:
    found = _VOLUME.fullmatch(_word(text))
    if found is None or "\n" in text:
        raise ValueError(
            f"is /folder, /folder:/inside, /folder:/inside:ro or NAME:/inside, with absolute paths, not {quote(text)}"
        )
    return text if found["source"] else f"{found['target']}:{text}"


def _secrets(files: dict[str, str]) -> dict[str, str]:
    for name, path in files.items():
        if not _SEGMENT.fullmatch(name):
            raise ValueError(f"{quote(name)} cannot be a name: letters, digits, '.', '_' and '-'")
        if not path.startswith("/") or ":" in path or "\n" in path:
            raise ValueError(f"{quote(name)} is a file by its absolute path, without ':', not {quote(path)}")
    return files


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        fault = label_fault(key, value)
        if fault:
            raise ValueError(f"{quote(f'{key}={value}')} cannot be a label: {fault}")
    return labels


def _project(text: str) -> str:
    if text:
        _labels({PROJECT: text})
    return text


def _script(text: str) -> str:
    if len(text.encode()) > SCRIPT_BYTES_MAX:
        raise ValueError(f"is longer than {SCRIPT_BYTES_MAX // 1024} KiB; put it into a file and run that")
    if "\0" in text:
        raise ValueError("holds a NUL character: it is not text")
    if text and not text.startswith("#!"):
        raise ValueError("must begin with a line such as #!/bin/bash that says what runs it")
    return text


def _env(env: dict[str, str]) -> dict[str, str]:
    total = 0
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise ValueError(f"{quote(name)} cannot be a variable: empty, or with '=' or NUL in it")
        total += len(name.encode()) + len(value.encode()) + 2
    if total > ENV_BYTES_MAX:
        raise ValueError(f"is larger than {ENV_BYTES_MAX // 1024} KiB")
    return env


def _command(words: list[str]) -> list[str]:
    if sum(len(word.encode()) + 1 for word in words) > COMMAND_BYTES_MAX:
        raise ValueError(f"is longer than {COMMAND_BYTES_MAX // 1024} KiB")
    return words


_READ_SCRIPTS = frozenset(
    {"python", "bash", "sh", "dash", "zsh", "Rscript", "julia", "perl", "ruby", "node", "lua", "torchrun",
     "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "env", "nohup", "time", "uv", "conda"}
)  # fmt: skip
"""Programs that run the script named after them; Python of any version is one of them."""
_SCRIPT = re.compile(r"(?:.*/)?([^/]+)\.(?:py|sh|bash|sbatch|slurm|R|jl|pl|rb|js|lua)")


def find_script(words: list[str]) -> str:
    """The script that a command line runs, without its suffix: `train` for `python3 -u train.py`; or empty."""
    program = words[0].rpartition("/")[2]
    if program.rstrip("0123456789.") not in _READ_SCRIPTS:
        found = _SCRIPT.fullmatch(words[0])
        return found[1] if found else ""
    module = ""
    for before, word in pairwise(words):
        if before == "-c":
            break
        found = _SCRIPT.fullmatch(word)
        if found:
            return found[1]
        module = module or (word if before == "-m" else "")
    return module


def parse_indices(text: str) -> tuple[int, ...]:
    """The indices of an array: `0-9`, `1,3,5`, `0-100:10`."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _INDICES.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"is written as 0-9, 1,3,5 or 0-100:10, not {quote(text)}")
        first, last = int(match[1]), int(match[2] or match[1])
        step = int(match[3] or 1)
        if last < first or step == 0:
            instead = f"{last}-{first}" if last < first else f"{first}-{last}"
            raise ValueError(f"has a range that goes nowhere: {quote(part)}; write {instead}")
        if (last - first) // step + 1 + len(found) > ARRAY_TASKS_MAX:
            raise ValueError(f"has more than {ARRAY_TASKS_MAX:,} tasks; split it into several arrays")
        found.update(dict.fromkeys(range(first, last + 1, step)))
    return tuple(sorted(found))


Name = Annotated[str, Field(max_length=NAME_MAX), AfterValidator(_name)]
Tenant = Annotated[str, Field(max_length=512), AfterValidator(parse_tenant_path)]
Klass = Annotated[str, Field(max_length=63), AfterValidator(parse_tenant_path)]
Word = Annotated[str, AfterValidator(_word)]
Command = Annotated[list[Word], Field(max_length=10_000), AfterValidator(_command)]
Script = Annotated[str, AfterValidator(_script)]
Env = Annotated[dict[str, Word], Field(max_length=ENV_NAMES_MAX), AfterValidator(_env)]
Reference = Annotated[str, Field(max_length=IMAGE_MAX), AfterValidator(_image)]
Volumes = Annotated[
    list[Annotated[str, Field(max_length=2 * PATH_MAX), AfterValidator(_volume)]], Field(max_length=100)
]
Secrets = Annotated[dict[str, Word], Field(max_length=100), AfterValidator(_secrets)]
Labels = Annotated[dict[str, str], Field(max_length=LABELS_MAX), AfterValidator(_labels)]
Project = Annotated[str, Field(max_length=LABEL_VALUE_MAX), AfterValidator(_project)]
ShortNames = list[Annotated[str, Field(min_length=1, max_length=63)]]
NodeNames = Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Field(max_length=10_000)]
Selections = Annotated[list[Annotated[str, Field(max_length=TEXT_MAX)]], Field(max_length=SELECTIONS_MAX)]
Path = Annotated[str, Field(max_length=PATH_MAX), AfterValidator(_word)]
Folder = Annotated[Path, AfterValidator(_folder)]
Id = Annotated[str, Field(max_length=40)] | Annotated[int, Field(ge=1, lt=1 << 63)]
