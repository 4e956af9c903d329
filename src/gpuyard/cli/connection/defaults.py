"""A person's defaults: ~/.config/gpuyard/defaults.yaml, and YARD_TENANT.

The command line overrides the environment, which overrides the file, which overrides the server's defaults. The file
is a few lines `name: value`, so it is read here, without the time that a whole YAML parser takes to import.
"""

import os
import re
from pathlib import Path

from gpuyard.cli.connection.places import defaults_file, has_defaults
from gpuyard.errors import BadInput

KEYS = {
    "tenant": "the tenant that jobs count for",
    "class": "how jobs are treated",
    "pool": "pools that will do, with commas",
    "time": "time limit of a job, as in 2h",
    "gpus": "GPUs of each task, as in 1",
    "queue_columns": "columns of `yard queue`",
    "history_columns": "columns of `yard history`",
    "nodes_columns": "columns of `yard nodes`",
    "notes": "off: nothing is said at submit of what earlier jobs used",
}
"""Every key of the file, and what it says."""
VARIABLES = {"tenant": "YARD_TENANT"}
_LINE = r"([A-Za-z_][\w-]*)\s*:(?:\s+(.*))?"
"""Not compiled here: most people have no such file."""


def read_defaults() -> dict[str, str]:
    """The person's defaults, by key."""
    path = Path(defaults_file())
    try:
        kept = read(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        kept = {}
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, PermissionError) and not os.access(path.parent, os.X_OK):
            # `sudo -u` and `setpriv` leave HOME as it was: another user's folder holds no defaults of ours.
            return _said({})
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or 'is not UTF-8 text'}") from None
    return _said(kept)


def _said(kept: dict[str, str]) -> dict[str, str]:
    """The defaults of the file, overridden by the environment."""
    return kept | {key: os.environ[name] for key, name in VARIABLES.items() if os.environ.get(name)}


def default_columns(command: str, output: str) -> str:
    """The columns that a person's defaults name for a table; empty: none, or it is data for a program."""
    if output not in ("table", "wide") or not has_defaults():
        return ""
    return read_defaults().get(f"{command}_columns", "")


def default_origin(key: str) -> str:
    """Where a default comes from, for people."""
    variable = VARIABLES.get(key)
    return variable if variable and os.environ.get(variable) else defaults_file()


def read(text: str, name: str) -> dict[str, str]:
    """The defaults of a file, or `BadInput` with its line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() in ("---", "..."):
            continue
        match = re.fullmatch(_LINE, line.rstrip())
        where = f"{name}:{number}"
        if match is None:
            raise BadInput(f"{where}: is not `name: value`", f"Known names: {', '.join(KEYS)}.")
        key, value = match[1], _value(match[2] or "", where)
        if key not in KEYS:
            from difflib import get_close_matches

            close = get_close_matches(key, KEYS, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise BadInput(f"{where}: unknown key {key!r}{meant}", f"Known keys: {', '.join(KEYS)}.")
        if key in found:
            raise BadInput(f"{where}: {key!r} occurs twice")
        found[key] = value
    return found


def _value(text: str, where: str) -> str:
    """A text, in quotes or not; `[a, b]` is a list, kept as `a,b`."""
    said = text.strip()
    if said[:1] in ("'", '"'):
        end = said.find(said[0], 1)
        rest = said[end + 1 :].strip()
        if end < 0 or (rest and not rest.startswith("#")):
            raise BadInput(f"{where}: has a quote that does not end")
        return said[1:end]
    said = re.sub(r"(^|\s)#.*", "", said).strip()
    if said.startswith("["):
        if not said.endswith("]"):
            raise BadInput(f"{where}: has a list that does not end; write it in one line, as in [a, b]")
        said = ",".join([part.strip().strip("'\"") for part in said[1:-1].split(",") if part.strip()])
    if not said:
        raise BadInput(f"{where}: has no value")
    if said[0] in "{&*|>!%@`":
        raise BadInput(f"{where}: must be a text, a number or a list in one line")
    return said
