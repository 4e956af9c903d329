"""Counts and factors in readable form: `1,240`, `1.4×`."""

from gpuyard.quantities import MISSING, rounded


def points_text(difference: float) -> str:
    """A difference of two percentages."""
    said = rounded(100 * difference)
    return {"0.0": "0 points", "1.0": "1 point"}.get(said, f"{said} points")


def factor_text(factor: float | None) -> str:
    """`1.4×`, `32×`, `1,200×`."""
    if factor is None:
        return MISSING
    return f"{rounded(factor)}×" if factor < 1000 else f"{factor:,.0f}×"


def count(number: float | None) -> str:
    """`1,240`."""
    return MISSING if number is None else f"{number:,.0f}"


def ratio_text(value: float | None) -> str:
    """`0.94`."""
    return MISSING if value is None else f"{value:.2f}"


def gpu_hours_text(gpu_seconds: float | None) -> str:
    """GPU-seconds as GPU-hours, without the unit: `0`, `3.1`, `1,240`."""
    if gpu_seconds is None:
        return MISSING
    hours = gpu_seconds / 3600
    if not hours:
        return "0"
    return rounded(hours) if hours < 1000 else f"{hours:,.0f}"


def gpus_text(milli: int) -> str:
    """`128 GPUs`, `0.5 GPUs`, `1 GPU`."""
    if milli % 1000:
        return f"{milli / 1000:,.1f} GPUs"
    return "1 GPU" if milli == 1000 else f"{milli // 1000:,} GPUs"


def list_text(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
