"""GPUs in --gres, --gpus and similar options: a number, a type and a number, or several of these."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from gpuyard.errors import quote

_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
_COUNT = re.compile(r"([0-9]{1,9})([kmgtp]?)", re.IGNORECASE)
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
GPUS_MAX = 100_000

SHARES = ("mps", "shard")
"""Parts of GPUs in Slurm."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """A number of GPUs of one type."""

    count: int
    kind: str = ""
    """The site's name of the type; empty: any."""


class Gres(NamedTuple):
    """What --gres asks of each node."""

    gpus: Gpus | None
    others: tuple[str, ...]
    """Resources other than GPUs, as written."""


def parse_gpus(text: str) -> Gpus:
    """`4`, `a100:4` or `a100`."""
    return _one([_entry(part, text) for part in text.split(",")], text)


def parse_gres(text: str) -> Gres:
    """`gpu:2`, `gpu:a100:2,nvme:100`, `none`."""
    if text.lower() == "none" or not text:
        return Gres(None, ())
    found: list[Gpus] = []
    others: list[str] = []
    for part in text.split(","):
        # The old prefix and the flags of newer versions do not change what is asked for.
        words = part.strip().removeprefix("gres:").removeprefix("gres/").partition(":")
        if words[0] == "gpu":
            found.append(_entry(words[2], text) if words[1] else Gpus(1))
        elif words[0] in SHARES:
            raise ValueError(f"asks for a part of a GPU ({quote(part)}), which is not served; ask for gpu:1")
        elif not words[0]:
            raise ValueError(f"has an empty entry: {quote(text)}")
        else:
            others.append(part.strip())
    return Gres(_one(found, text) if found else None, tuple(others))


def _entry(text: str, whole: str) -> Gpus:
    words = re.split("[:=]", text.strip())
    if len(words) == 1:
        kind, number = ("", words[0]) if _COUNT.fullmatch(words[0]) else (words[0], "1")
    elif len(words) == 2:
        kind, number = words
    else:
        raise ValueError(f"must be a number, or a type and a number such as a100:2, not {quote(whole)}")
    match = _COUNT.fullmatch(number)
    if not match or not text or (kind and not _TYPE.fullmatch(kind)):
        raise ValueError(f"must be a number, or a type and a number such as a100:2, not {quote(whole)}")
    value = int(match[1]) * _FACTORS[match[2].lower()]
    if value > GPUS_MAX:
        raise ValueError(f"must be at most {GPUS_MAX} GPUs, not {quote(whole)}")
    return Gpus(value, kind)


def _one(found: list[Gpus], text: str) -> Gpus:
    if len(found) > 1:
        kinds = {each.kind for each in found}
        if len(kinds) > 1:
            raise ValueError(f"asks for GPUs of several types at once, which is not served: {quote(text)}")
        raise ValueError(f"names the same GPUs twice: {quote(text)}")
    return found[0]
