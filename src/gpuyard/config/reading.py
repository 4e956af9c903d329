"""The ways in: a path or a text."""

import os
import stat
from pathlib import Path

from gpuyard.config import document, shape
from gpuyard.config.build import build
from gpuyard.config.engine_keys import separate_keys
from gpuyard.config.values import Access, Config
from gpuyard.errors import error_text
from gpuyard.keys.findings import Findings
from gpuyard.keys.problems import WHOLE_FILE, ConfigError, Problem


def load(path: str | os.PathLike[str]) -> Config:
    """Read a configuration file; `ConfigError` with every problem if it cannot be used."""
    return loads(read_text(path), os.fspath(path))


def read_text(path: str | os.PathLike[str], *, lasting: bool = False) -> str:
    """The text of a configuration file; `ConfigError` if it cannot be read. `lasting`: it is read more than once."""
    name = os.fspath(path)
    try:
        mode = os.stat(path).st_mode if lasting else stat.S_IFREG
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise _unreadable(
                name, "is a pipe or a device; write what comes from it to a file, and name that"
            )
        with Path(path).open("rb") as file:
            # One byte more than may be there shows that the file is too large without reading all of it.
            content = file.read(document.BYTES_MAX + 1)
    except FileNotFoundError:
        raise _unreadable(name, "no such file; give the path of a yard.yaml") from None
    except IsADirectoryError:
        raise _unreadable(name, "is a directory; give the path of a file") from None
    except PermissionError:
        raise _unreadable(name, "may not be read; check the file's permissions") from None
    except (OSError, ValueError) as error:
        raise _unreadable(name, f"cannot be read: {error_text(error, name)}") from None
    return document.decode(content, name)


def loads(text: str, name: str = "yard.yaml") -> Config:
    """Read a configuration from its text; `name` stands for the file in messages."""
    tree = document.parse(text, name)
    parted = separate_keys(tree)
    findings = Findings(parted.document)
    findings.extend(parted.problems)
    file, problems = shape.check(parted.rest, parted.document)
    findings.extend(problems)
    findings.raise_if_any()
    assert file is not None
    return build(file, findings, parted.read, tuple(parted.notes))


def read_access(text: str, name: str = "yard.yaml") -> Access | None:
    """The people that a configuration names; None: it says nothing of `auth`."""
    return loads(text, name).access


def _unreadable(name: str, why: str) -> ConfigError:
    return ConfigError(name, [Problem(WHOLE_FILE, why)])
