"""How much of the machine this process has taken."""

import resource
import sys

_KIB_PER_MIB = 1024


def peak_rss_mib() -> float:
    """The most memory this process has held so far.

    Linux's own figure for this program where there is one: `getrusage` includes the process that started this one, if
    that was larger.
    """
    kib = _high_water_kib()
    if kib is None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kib = most // 1024 if sys.platform == "darwin" else most
    return round(kib / _KIB_PER_MIB, 1)


def _high_water_kib() -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            lines = [line.split() for line in status if line.startswith("VmHWM:")]
        return int(lines[0][1])
    except (OSError, ValueError, IndexError):
        return None
