"""Names of a site as names that the yard takes, as close as possible, and all different."""

import re
from collections.abc import Iterable

from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.errors import quote
from gpuyard.model.names import NAME_PATTERN

_NAME = re.compile(NAME_PATTERN)
LENGTH_MAX = 63


def is_allowed(text: str) -> bool:
    """Whether the file takes it as it is."""
    return _NAME.fullmatch(text) is not None


def mend_name(text: str) -> str:
    """The nearest name that the file takes."""
    if is_allowed(text):
        return text
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-")[:LENGTH_MAX] or "x"


def choose_names(texts: Iterable[str]) -> dict[str, str]:
    """A name for each of these. Valid names stay as they are; the others are mended, each to a name of its own."""
    each_once = list(dict.fromkeys(texts))
    found = {text: text for text in each_once if is_allowed(text)}
    taken = set(found)
    for text in each_once:
        if text in found:
            continue
        base = name = mend_name(text)
        number = 2
        while name in taken:
            end = f"-{number}"
            name, number = base[: LENGTH_MAX - len(end)] + end, number + 1
        found[text] = name
        taken.add(name)
    return found


def tell(what: str, text: str, name: str, notes: Notes) -> str:
    """The name, noted where it is another."""
    if name != text:
        notes.guess(f"{what} {quote(text)} is called {quote(name)}: its name is none that the file takes")
    return name
