"""Units. GPUs are counted in milli-GPU, time in milliseconds, memory in MiB, money in micro-dollars: integers all.

A float that enters a comparison makes two machines disagree on a tie, so quantities are integers from the file
they are read from to the report they end in.
"""

MILLI = 1000
"""Milli-GPU in a whole GPU; milli-CPU in a core."""

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

NO_LIMIT_MS = 3650 * DAY_MS
"""What a job without a time limit is assumed to run: ten years, finite so that sums stay ordinary."""

GIB_MIB = 1024

MICRO_USD = 1_000_000
