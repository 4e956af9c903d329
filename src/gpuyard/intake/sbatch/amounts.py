"""Amounts in sbatch: counts, node ranges, memory and time limits. Pure: text in, numbers out.

Not `gpuyard.quantities`: sbatch reads a bare number as minutes or MiB, rounds up, and has no `90m`.

Every function raises `ValueError` with the rest of a sentence that starts with the option's name.
"""

import re

from gpuyard.errors import quote

COUNT_MAX = 1_000_000
MEMORY_MIB_MAX = 1 << 30
MINUTES_MAX = 3650 * 24 * 60
SWITCH_WAIT_S = 300
"""How long Slurm waits for switches where the script does not say (`max_switch_wait`)."""

_COUNT = re.compile(r"[0-9]{1,9}")
_NODES = re.compile(r"([0-9]{1,9})([km]?)(?:-([0-9]{1,9})([km]?))?", re.IGNORECASE)
_MEMORY = re.compile(r"([0-9]{1,15})([KMGT]?)B?", re.IGNORECASE)
_TIME = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{0,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_ENDLESS = ("infinite", "unlimited", "-1")
_FACTORS = {"": 1, "k": 1024, "m": 1024 * 1024}
_MIB = {"K": 1 / 1024, "M": 1, "": 1, "G": 1024, "T": 1024 * 1024}


def count(text: str) -> int:
    """A number of something, above zero."""
    if not _COUNT.fullmatch(text) or not 0 < int(text) <= COUNT_MAX:
        raise ValueError(f"must be a whole number from 1 to {COUNT_MAX}, not {quote(text)}")
    return int(text)


def parse_node_range(text: str) -> tuple[int, int]:
    """`2`, `2-4` or `1k`: the least and the largest number of nodes."""
    match = _NODES.fullmatch(text)
    if not match:
        raise ValueError(f"must be a number of nodes such as 2, or a range such as 2-4, not {quote(text)}")
    least = int(match[1]) * _FACTORS[match[2].lower()]
    most = int(match[3]) * _FACTORS[match[4].lower()] if match[3] else least
    if not 0 < least <= most <= COUNT_MAX:
        raise ValueError(f"must be at least one node, and a range must go up, not {quote(text)}")
    return least, most


def parse_memory_mib(text: str) -> int:
    """`4G`, `512`, `2000K`: in MiB by default, rounded up to whole ones. 0: all memory of a node."""
    match = _MEMORY.fullmatch(text)
    if not match:
        raise ValueError(
            f"must be an amount such as 512M, 4G or 1T, whole and without spaces, not {quote(text)}"
        )
    figure, unit = int(match[1]), match[2].upper()
    value = -(-figure // 1024) if unit == "K" else figure * int(_MIB[unit])
    if value > MEMORY_MIB_MAX:
        raise ValueError(f"must be at most {MEMORY_MIB_MAX // 1024**2}T, not {quote(text)}")
    return value


def parse_minutes(text: str) -> int:
    """A time limit in minutes, seconds rounded up as in sbatch; 0: none.

    `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`: after days the first number is hours; without days the last but one
    is minutes.
    """
    if text.lower() in _ENDLESS:
        return 0
    match = _TIME.fullmatch(text)
    if not match or not (match[1] or match[2]):
        raise ValueError(
            f"must be minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S, not {quote(text)}{_meant(text)}"
        )
    days, first, second, third = match[1], int(match[2] or 0), match[3], match[4]
    if days is not None:
        if (second or third) and not match[2]:
            raise ValueError(f"must have hours after the days, not {quote(text)}")
        seconds = ((int(days) * 24 + first) * 60 + int(second or 0)) * 60 + int(third or 0)
    elif third is not None:
        seconds = (first * 60 + int(second)) * 60 + int(third)
    else:
        seconds = first * 60 + int(second or 0)
    value = -(-seconds // 60)
    if value > MINUTES_MAX:
        raise ValueError(f"must be at most ten years, not {quote(text)}")
    return value


def parse_switches(text: str) -> tuple[int, int]:
    """`COUNT` or `COUNT@TIME`: switches at most, and for how many seconds to wait for them; 0: for good."""
    number, at, wait = text.partition("@")
    return count(number), parse_minutes(wait) * 60 if at else SWITCH_WAIT_S


def _meant(text: str) -> str:
    """A hint for a time with a unit, which users often try first; sbatch has no units."""
    match = re.fullmatch(r"([0-9]{1,4})([smhd])", text.lower())
    if not match:
        return ""
    figure = int(match[1])
    written = {"s": f"0:{figure:02d}", "m": str(figure), "h": f"{figure}:00:00", "d": f"{figure}-0"}
    return f"; for {text} write {written[match[2]]}"
