"""`--export=ALL,NAME,OTHER=value`: which of the submitter's variables are passed on, and which are set."""

import re
from typing import NamedTuple

from gpuyard.errors import quote

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Export(NamedTuple):
    """What the job's environment is made of."""

    everything: bool
    names: tuple[str, ...]
    values: dict[str, str]


def export(text: str) -> Export:
    """What is passed on; else `ValueError` with the rest of a sentence."""
    everything = False
    names: list[str] = []
    values: dict[str, str] = {}
    for part in _parts(text):
        name, sign, value = part.partition("=")
        if not sign and name.upper() == "ALL":
            everything = True
        elif not sign and name.upper() in ("NONE", "NIL"):
            continue
        elif not _NAME.fullmatch(name):
            raise ValueError(f"must be ALL, NONE or names of variables, not {quote(part)}")
        elif sign:
            values[name] = value
        else:
            names.append(name)
    return Export(everything, tuple(names), values)


def _parts(text: str) -> list[str]:
    """Split at commas outside of quotes; the quotes stay in the value, as in sbatch."""
    parts, quote, current = [], "", ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == ",":
            parts.append(current)
            current = ""
            continue
        current += char
    return [part for part in [*parts, current] if part]
