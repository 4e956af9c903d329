"""Numbers in readable form: `41 min`, `3.2 h`, `91 %`. Nobody compares more than three digits by eye."""

MISSING = "–"

_UNITS = (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 48 * 3600))
"""Name, seconds, and the seconds from which the next unit takes over."""

DAY_S = 86400


def duration(seconds: float | None) -> str:
    """`0 s`, `4.2 s`, `41 min`, `36 h`, `2.1 d`."""
    if seconds is None:
        return MISSING
    if seconds < 0.05:
        return "0 s"
    for name, size, limit in _UNITS:
        said = short(seconds / size)
        # The rounded value decides: 59.7 s is one minute, not 60 s.
        if float(said) * size < limit:
            return f"{said} {name}"
    days = seconds / DAY_S
    return f"{short(days)} d" if days < 1000 else f"{round(days):,} d"


def short(value: float) -> str:
    """One decimal below ten, none above."""
    said = f"{value:.1f}"
    return said if abs(float(said)) < 10 else f"{value:.0f}"


def percent(ratio: float | None) -> str:
    """`0 %`, `3.1 %`, `91 %`."""
    if ratio is None:
        return MISSING
    return f"{short(100 * ratio)} %" if ratio else "0 %"


def points(difference: float) -> str:
    """A difference of two percentages."""
    said = short(100 * difference)
    return {"0.0": "0 points", "1.0": "1 point"}.get(said, f"{said} points")


def times(factor: float | None) -> str:
    """`1.4×`, `32×`, `1,200×`."""
    if factor is None:
        return MISSING
    return f"{short(factor)}×" if factor < 1000 else f"{factor:,.0f}×"


def count(number: float | None) -> str:
    """`1,240`."""
    return MISSING if number is None else f"{number:,.0f}"


def ratio(value: float | None) -> str:
    """`0.94`."""
    return MISSING if value is None else f"{value:.2f}"


def gpu_hours(gpu_seconds: float | None) -> str:
    """GPU-seconds as GPU-hours, without the unit: `0`, `3.1`, `1,240`."""
    if gpu_seconds is None:
        return MISSING
    hours = gpu_seconds / 3600
    if not hours:
        return "0"
    return short(hours) if hours < 1000 else f"{hours:,.0f}"


def usd(dollars: float | None) -> str:
    """`$3.10`, `$12,340`; nothing if nothing has a price."""
    if not dollars:
        return MISSING
    return f"${dollars:,.2f}" if dollars < 100 else f"${dollars:,.0f}"


def gpus(milli: int) -> str:
    """`128 GPUs`, `0.5 GPUs`, `1 GPU`."""
    if milli % 1000:
        return f"{milli / 1000:,.1f} GPUs"
    return "1 GPU" if milli == 1000 else f"{milli // 1000:,} GPUs"


def listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
