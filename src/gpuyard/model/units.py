"""Units. GPUs are counted in milli-GPU, time in milliseconds, memory in MiB, money in micro-dollars, all as integers.

A float in a comparison can make two machines break a tie differently, so quantities are integers from the file they
are read from to the report they end in. `gpuyard.quantities` reads them and writes them.
"""

from gpuyard.quantities import (
    DAY_MS,
    DURATION_MS_MAX,
    GIB_MIB,
    HOUR_MS,
    MICRO_USD,
    MILLI,
    MINUTE_MS,
    SECOND_MS,
)

__all__ = [
    "DAY_MS",
    "ENDLESS_MS",
    "GIB_MIB",
    "HOUR_MS",
    "MICRO_USD",
    "MILLI",
    "MINUTE_MS",
    "NO_LIMIT_MS",
    "SECOND_MS",
]

NO_LIMIT_MS = DURATION_MS_MAX
"""The assumed run time of a job without a time limit: ten years, finite so that sums need no special case."""

ENDLESS_MS = NO_LIMIT_MS // 2
"""A job that may run as long has no time limit, whatever work it has saved: it ends by no promised time."""
