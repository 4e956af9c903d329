"""Values of keys that are more than a quantity: GPUs of a node, windows of a budget, names, `true` and `false`.

Every function takes the text of a YAML scalar, as those of `gpuyard.quantities` do, and raises a `ValueError` with the
end of a sentence that begins with the key.
"""

import re

from gpuyard.errors import quote
from gpuyard.model.names import NAME_PATTERN
from gpuyard.model.settings import Percentage, Window
from gpuyard.model.units import MILLI
from gpuyard.quantities import GPUS_PER_NODE_MAX, parse_gpu_milli, parse_scaled

WINDOW_DAYS_MAX = 366
GPUS_PATTERN = r"^([0-9]{1,9})\s*[x×]\s*([A-Za-z0-9][A-Za-z0-9._-]*)$"

PERCENTAGE_PATTERN = r"^([0-9]{1,3}(?:\.[0-9]{1,3})?)\s?%(?: of ([A-Za-z0-9][A-Za-z0-9._-]*))?$"
"""A part of the fleet or, under its name, of a GPU model; or a part of a pool."""

_WINDOWS = ("week", "month", "quarter")
_GPUS = re.compile(GPUS_PATTERN)
_PERCENTAGE = re.compile(PERCENTAGE_PATTERN)
_NAME = re.compile(NAME_PATTERN)
_INTEGER = re.compile(r"[0-9]{1,9}")


def budget_window(text: str) -> tuple[Window, int]:
    """`week`, `month`, `quarter`, or a number of days, which roll."""
    if text in _WINDOWS:
        return Window(text), 0
    if text.endswith("d") and text[:-1].isdecimal() and 1 <= int(text[:-1]) <= WINDOW_DAYS_MAX:
        return Window.ROLLING, int(text[:-1])
    known = f"{', '.join(_WINDOWS)}, or 1d to {WINDOW_DAYS_MAX}d for a window that rolls"
    raise ValueError(f"must be one of: {known}; not {quote(text)}")


def gpu_amount(text: str) -> int | Percentage:
    """GPUs of a quota: a number, in milli-GPU, or a percentage, as in `40%` or `40% of training`."""
    if "%" not in text:
        return parse_gpu_milli(text)
    match = _PERCENTAGE.fullmatch(text)
    if not match:
        raise ValueError(f"must be a percentage such as 40% or '40% of POOL', not {quote(text)}")
    figure, pool = match.groups()
    percent_milli = parse_scaled(figure, "a percentage", scale=MILLI, grain="0.001%", least=0, most=100)
    return Percentage(percent_milli, pool or "")


def gpus_of_node(text: str) -> tuple[int, str]:
    """GPUs of a node as `8 x H100`, or `0` for none: their number and model."""
    if text == "0":
        return 0, ""
    if _INTEGER.fullmatch(text):
        raise ValueError(f"must name the GPU model, as in '{int(text)} x H100'; found only {quote(text)}")
    match = _GPUS.fullmatch(text)
    if not match:
        raise ValueError(f"must be a number and a GPU model such as '8 x H100', or 0, not {quote(text)}")
    count = int(match.group(1))
    if count == 0:
        raise ValueError(f"must be plain 0 for nodes without GPUs, not {quote(text)}")
    if count > GPUS_PER_NODE_MAX:
        raise ValueError(f"must be at most {GPUS_PER_NODE_MAX} GPUs in a node, not {count}")
    return count, match.group(2)


def boolean(text: str) -> bool:
    """`true` or `false`; YAML's other spellings (`yes`, `on`) have bitten too many people."""
    if text in ("true", "false"):
        return text == "true"
    raise ValueError(f"must be true or false, not {quote(text)}")


def name(text: str) -> str:
    """A name that is safe as a host name's part, a path's part and an option's value."""
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{quote(text)} cannot be a name; use letters, digits, '.', '_' and '-', at most 63 of them, "
            "and begin with a letter or a digit"
        )
    return text
