"""What the processes of a running job use now, read from this machine: the user's own jobs, for root all."""

import os
from typing import NamedTuple

_KIB = 1024


class Usage(NamedTuple):
    """What was found of one job."""

    processes: int
    cpu_s: float
    """CPU time of the live processes, and of their children that have ended."""
    rss_kib: int
    peak_kib: int
    """The most that the largest of them had at any time."""
    virtual_kib: int


def measure_job(job_id: int, started_ms: int) -> Usage | None:
    """What a job's processes use; None: none is here, or none that may be looked at."""
    found = [pid for pid in os.listdir("/proc") if pid.isdecimal() and _is_of(pid, job_id, started_ms)]
    read = [each for each in map(_read, found) if each is not None]
    if not read:
        return None
    return Usage(
        len(read),
        sum([each.cpu_s for each in read]),
        sum([each.rss_kib for each in read]),
        max([each.peak_kib for each in read]),
        sum([each.virtual_kib for each in read]),
    )


def _is_of(pid: str, job_id: int, started_ms: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    if b"SLURM_JOB_ID=%d" % job_id not in words or not any(
        [word.startswith(b"YARD_ATTEMPT_KEY=") for word in words]
    ):
        return False
    # Another yard of this machine may have a job with the same number.
    start = next(
        (word.partition(b"=")[2] for word in words if word.startswith(b"SLURM_JOB_START_TIME=")), b""
    )
    return not start.isdigit() or abs(int(start) - started_ms // 1000) <= _CLOCK_S


_CLOCK_S = 5
"""How far a job's start in its environment may be from the one that the yard notes."""


def _read(pid: str) -> Usage | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            times = file.read().rpartition(b")")[2].split()[11:15]
        with open(f"/proc/{pid}/status", "rb") as file:
            sizes = {line.partition(b":")[0]: line.split()[1] for line in file if line.startswith(b"Vm")}
    except (OSError, IndexError):
        # It has ended meanwhile.
        return None
    cpu_s = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    sized = [int(sizes.get(name, b"0")) for name in (b"VmRSS", b"VmHWM", b"VmSize")]
    return Usage(1, cpu_s, *sized)


def used_memory_text(kib: int) -> str:
    """512K, 3.40M, as Slurm writes what was used."""
    amount, unit = float(kib), "K"
    for larger in "MGT":
        if amount < _KIB:
            break
        amount, unit = amount / _KIB, larger
    return f"{int(amount)}{unit}" if amount == int(amount) else f"{amount:.2f}{unit}"
