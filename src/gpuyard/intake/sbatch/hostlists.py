"""Node names as users write them, with brackets; only names that a node can have."""

import re

from gpuyard.engines import name_lists
from gpuyard.errors import quote

HOSTS_MAX = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def expand(text: str) -> list[str]:
    """Every name once, in the written order; else `ValueError` with the rest of a sentence."""
    names = name_lists.expand(text, HOSTS_MAX)
    if not names:
        raise ValueError("names no node")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"has a name that no node can have: {quote(name)}")
    return list(names)
