"""Times and durations as Slurm writes them: its own notation, so not that of `gpuyard.quantities`."""

import os
import time


def short_span_text(seconds: int) -> str:
    """As `squeue` does: 0:33, 5:00, 1:02:03, 1-02:03:04."""
    days, rest = divmod(max(0, seconds), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def full_span_text(seconds: int) -> str:
    """As `sacct` and `scontrol` do: 00:05:00, 1-02:03:04."""
    days, rest = divmod(max(0, seconds), 86_400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def moment_text(at_ms: int | None, none: str = "N/A") -> str:
    """A moment in local time; SLURM_TIME_FORMAT may say otherwise."""
    if not at_ms:
        return none
    pattern = os.environ.get("SLURM_TIME_FORMAT", "")
    pattern = pattern if pattern.startswith("%") else "%Y-%m-%dT%H:%M:%S"
    return time.strftime(pattern, time.localtime(at_ms / 1000))


def clock_line() -> str:
    """The line above the long listings."""
    return time.strftime("%a %b %d %H:%M:%S %Y")


def parse_moment_ms(text: str) -> int:
    """What -S and -E take: 2027-01-20, 2027-01-20T12:34, 01/20/27, now-2hours; `ValueError` if it is none."""
    from datetime import datetime

    from gpuyard.intake.sbatch.moments import parse_moment

    # Without a zone, since the day that is meant may be in summer time.
    now = datetime.now().astimezone().replace(tzinfo=None)
    word = text.strip().lower()
    if word.isdecimal() and len(word) > 8:
        return int(word) * 1000
    found = parse_moment(text, now)
    if word[:1].isdigit() and ":" in word and not any(sign in word for sign in "-/.t") and found > now:
        # A time of day alone is the next one for `sbatch`, the last one for `sacct`.
        found = found.replace(day=now.day, month=now.month, year=now.year)
    return int(found.timestamp()) * 1000
