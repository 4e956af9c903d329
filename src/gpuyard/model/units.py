"""Units. GPUs are counted in milli-GPU, time in milliseconds, memory in MiB, money in micro-dollars, all as integers.

A float in a comparison can make two machines break a tie differently, so quantities are integers from the file they
are read from to the report they end in.
"""

MILLI = 1000
"""Milli-GPU in a whole GPU; milli-CPU in a core."""

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

NO_LIMIT_MS = 3650 * DAY_MS
"""The assumed run time of a job without a time limit: ten years, finite so that sums need no special case."""

GIB_MIB = 1024

MICRO_USD = 1_000_000
