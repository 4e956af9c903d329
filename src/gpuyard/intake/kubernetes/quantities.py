"""Kubernetes quantities: `500m`, `2`, `64Gi`, `1e9`. Exact, because a rounded request is a different request."""

import re
from fractions import Fraction

from gpuyard.errors import quoted

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}))([numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]{1,2})"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_MIB = 1024 * 1024
_CORES_MAX = 100_000
_MEMORY_MIB_MAX = 1 << 30


def quantity(text: str) -> Fraction:
    """The number that a quantity stands for; else `ValueError` with the rest of a sentence."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"must be a quantity such as 2, 500m or 64Gi, not {quoted(text)}")
    figure, unit = Fraction(match[1]), match[2]
    if unit in _BINARY:
        value = figure * Fraction(1024) ** _BINARY[unit]
    elif unit in _DECIMAL:
        value = figure * Fraction(10) ** _DECIMAL[unit]
    else:
        value = figure * Fraction(10) ** int(unit[1:])
    if value < 0:
        raise ValueError(f"must not be negative, not {quoted(text)}")
    return value


def cores(text: str) -> float | int:
    """Cores, to a thousandth and rounded up to it as Kubernetes does."""
    milli = -((-quantity(text) * 1000) // 1)
    if milli > _CORES_MAX * 1000:
        raise ValueError(f"must be at most {_CORES_MAX} cores, not {quoted(text)}")
    return int(milli) // 1000 if milli % 1000 == 0 else int(milli) / 1000


def memory_mib(text: str) -> int:
    """Memory in MiB, rounded up."""
    value = int(-((-quantity(text) / _MIB) // 1))
    if value > _MEMORY_MIB_MAX:
        raise ValueError(f"must be at most 1024Ti, not {quoted(text)}")
    return value


def devices(text: str) -> int:
    """A number of devices: whole ones only."""
    value = quantity(text)
    if value.denominator != 1 or value > _CORES_MAX:
        raise ValueError(f"must be a whole number of devices, not {quoted(text)}")
    return int(value)
