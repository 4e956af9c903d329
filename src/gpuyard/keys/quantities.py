"""Quantities as people write them, turned into the integers the rest of gpuyard counts in.

The arithmetic is exact: a float would make `0.1` GPUs and a tenth of a dollar depend on rounding. What cannot
be kept exactly is refused, not rounded. Every function takes the text of a YAML scalar and raises a
`ValueError` with the end of a sentence that begins with the key: "must be …, not …".
"""

import re
from fractions import Fraction

from gpuyard.durations import duration_positive_ms, duration_text
from gpuyard.errors import quoted
from gpuyard.model.names import NAME_PATTERN
from gpuyard.model.settings import Window
from gpuyard.model.units import GIB_MIB, HOUR_MS, MICRO_USD, MILLI

NODES_MAX = 1_000_000
GPUS_PER_NODE_MAX = 64
GPUS_MAX = NODES_MAX * GPUS_PER_NODE_MAX
CPUS_PER_NODE_MAX = 100_000
PRICE_USD_MAX = 1_000_000
BUDGET_USD_MAX = 1_000_000_000
WINDOW_DAYS_MAX = 366
PERCENT_MAX = 1000
_WINDOWS = ("week", "month", "quarter")
GPU_HOURS_MAX = 1_000_000_000

FOREVER = "forever"
MEMORY_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,12})?[KMGT]i?B?$"
GPUS_PATTERN = r"^([0-9]{1,9})\s*[x×]\s*([A-Za-z0-9][A-Za-z0-9._-]*)$"

_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})")
_MEMORY = re.compile(MEMORY_PATTERN)
_GPUS = re.compile(GPUS_PATTERN)
_NAME = re.compile(NAME_PATTERN)
_INTEGER = re.compile(r"[0-9]{1,9}")

_MEMORY_UNITS_MIB = {
    "K": Fraction(1, 1024),
    "M": Fraction(1),
    "G": Fraction(GIB_MIB),
    "T": Fraction(GIB_MIB**2),
}


def _exact(text: str, what: str) -> Fraction:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"must be {what}, not {quoted(text)}")
    return Fraction(text)


def _bounded(value: Fraction, text: str, what: str, least: Fraction | int, most: int) -> None:
    if value < least:
        raise ValueError(f"must be {what} of at least {decimal(least)}, not {text}")
    if value > most:
        raise ValueError(f"must be {what} of at most {most}, not {text}")


def decimal(value: Fraction | int) -> str:
    """A number in decimal notation; only called with values that have a finite one."""
    if value == int(value):
        return str(int(value))
    return f"{float(value):.6f}".rstrip("0")


def whole(text: str, *, least: int, most: int) -> int:
    """A whole number within bounds."""
    value = _exact(text, "a whole number")
    if value.denominator != 1:
        raise ValueError(f"must be a whole number, not {text}")
    _bounded(value, text, "a whole number", least, most)
    return int(value)


def scaled(text: str, what: str, *, scale: int, grain: str, least: Fraction | int, most: int) -> int:
    """An exact number within bounds, counted in parts of which `scale` are one."""
    value = _exact(text, what)
    _bounded(value, text, what, least, most)
    if (value * scale).denominator != 1:
        raise ValueError(f"is finer than {grain}, the smallest part that is counted: {text}")
    return int(value * scale)


def gpu_milli(text: str) -> int:
    """A number of GPUs, zero included, in milli-GPU."""
    return scaled(text, "a number of GPUs", scale=MILLI, grain="0.001 GPU", least=0, most=GPUS_MAX)


def gpu_milli_positive(text: str) -> int:
    """A number of GPUs above zero, in milli-GPU."""
    least = Fraction(1, MILLI)
    return scaled(text, "a number of GPUs", scale=MILLI, grain="0.001 GPU", least=least, most=GPUS_MAX)


def cpu_milli(text: str) -> int:
    """A number of cores, in milli-CPU."""
    least = Fraction(1, MILLI)
    return scaled(
        text, "a number of cores", scale=MILLI, grain="0.001 core", least=least, most=CPUS_PER_NODE_MAX
    )


def micro_usd(text: str) -> int:
    """Dollars, in micro-dollars."""
    return scaled(
        text, "an amount in USD", scale=MICRO_USD, grain="0.000001 USD", least=0, most=PRICE_USD_MAX
    )


def share_weight(text: str) -> int:
    """Dollars an hour, in milli-dollars; above zero, because otherwise a model's usage would never count."""
    least = Fraction(1, MILLI)
    return scaled(text, "an amount in USD", scale=MILLI, grain="0.001 USD", least=least, most=PRICE_USD_MAX)


def gpu_hours_ms(text: str) -> int:
    """GPU-hours, in milliseconds of a whole GPU."""
    what = "a number of GPU-hours"
    value = _exact(text, what)
    _bounded(value, text, what, Fraction(1, MILLI), GPU_HOURS_MAX)
    spent = value * HOUR_MS
    if spent.denominator != 1:
        raise ValueError(f"is finer than a millisecond of a GPU, the smallest part that is counted: {text}")
    return int(spent)


def budget_usd(text: str) -> int:
    """Dollars that a budget has, in micro-dollars; above zero."""
    what, least = "an amount in USD", Fraction(1, 100)
    return scaled(text, what, scale=MICRO_USD, grain="0.000001 USD", least=least, most=BUDGET_USD_MAX)


def budget_window(text: str) -> tuple[Window, int]:
    """`week`, `month`, `quarter`, or a number of days, which roll."""
    if text in _WINDOWS:
        return Window(text), 0
    if text.endswith("d") and text[:-1].isdecimal() and 1 <= int(text[:-1]) <= WINDOW_DAYS_MAX:
        return Window.ROLLING, int(text[:-1])
    known = f"{', '.join(_WINDOWS)}, or 1d to {WINDOW_DAYS_MAX}d for a window that rolls"
    raise ValueError(f"must be one of: {known}; not {quoted(text)}")


def percent(text: str) -> int:
    """A part of a budget of which people are told."""
    if not (text.isdecimal() and 1 <= int(text) <= PERCENT_MAX):
        raise ValueError(f"must be a whole number from 1 to {PERCENT_MAX}, in percent, not {quoted(text)}")
    return int(text)


def kept_ms(text: str) -> int:
    """How long something is kept: a duration above zero, or `forever`, which is 0."""
    return 0 if text == FOREVER else duration_positive_ms(text)


def kept_text(value_ms: int) -> str:
    """The inverse of `kept_ms`."""
    return duration_text(value_ms) if value_ms else FOREVER


def memory_mib(text: str) -> int:
    """An amount of memory such as `512M`, `80G` or `1.5TiB`, in MiB. All spellings are powers of 1024."""
    if not _MEMORY.fullmatch(text):
        raise ValueError(f"must be an amount of memory such as 512M, 80G or 1T, not {quoted(text)}")
    figure = text.rstrip("iB")
    value = Fraction(figure[:-1]) * _MEMORY_UNITS_MIB[figure[-1]]
    if value <= 0:
        raise ValueError(f"must be more than zero, not {text}")
    if value.denominator != 1:
        raise ValueError(f"must be a whole number of MiB (1M), not {text}")
    if value > GIB_MIB**3:
        raise ValueError(f"must be at most 1024T, not {text}")
    return int(value)


def stored_mib(text: str) -> int:
    """An amount of the store in MiB, as of memory; 0: any amount."""
    return 0 if text == "0" else memory_mib(text)


def memory_text(mib: int) -> str:
    """The inverse of `memory_mib`."""
    return f"{mib // GIB_MIB}G" if mib % GIB_MIB == 0 else f"{mib}M"


def gpus_of_node(text: str) -> tuple[int, str]:
    """GPUs of a node as `8 x H100`, or `0` for none: their number and model."""
    if text == "0":
        return 0, ""
    if _INTEGER.fullmatch(text):
        raise ValueError(f"must name the GPU model, as in '{int(text)} x H100'; found only {quoted(text)}")
    match = _GPUS.fullmatch(text)
    if not match:
        raise ValueError(f"must be a number and a GPU model such as '8 x H100', or 0, not {quoted(text)}")
    count = int(match.group(1))
    if count == 0:
        raise ValueError(f"must be plain 0 for nodes without GPUs, not {quoted(text)}")
    if count > GPUS_PER_NODE_MAX:
        raise ValueError(f"must be at most {GPUS_PER_NODE_MAX} GPUs in a node, not {count}")
    return count, match.group(2)


def boolean(text: str) -> bool:
    """`true` or `false`; YAML's other spellings (`yes`, `on`) have bitten too many people."""
    if text in ("true", "false"):
        return text == "true"
    raise ValueError(f"must be true or false, not {quoted(text)}")


def name(text: str) -> str:
    """A name that is safe as a host name's part, a path's part and an option's value."""
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{quoted(text)} cannot be a name; use letters, digits, '.', '_' and '-', at most 63 of them, "
            "and begin with a letter or a digit"
        )
    return text
