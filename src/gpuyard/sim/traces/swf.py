"""Standard Workload Format, in which histories of batch systems are published: 18 numbers a line, -1 unknown.

A processor stands for a GPU unless the caller says how many make one. What was requested is what is replayed;
where the log has no request, what was allocated.
"""

from collections.abc import Callable

from gpuyard.model import JobSpec
from gpuyard.model.units import MILLI
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import TIME_MS_MAX, RowError, show, whole
from gpuyard.sim.traces.gangs import gang
from gpuyard.sim.traces.options import Options
from gpuyard.sim.traces.source import Source

FIELDS = 18
Known = dict[tuple[str, str, str, str], int]
"""(requested, allocated, group, user) -> the number of the spec."""
# Places in a line, from 0.
_SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_TIME, _STATUS, _USER, _GROUP = 1, 3, 4, 7, 8, 10, 11, 12

_BURSTS = frozenset({"2", "3", "4"})
"""Statuses of a part of a job, whose whole stands on a line of its own."""
_CANCELLED = "5"

_START = "unixstarttime:"


def matches(lines: list[str]) -> bool:
    """By a comment or 18 numbers in its first line."""
    if lines[0].startswith(";"):
        return True
    try:
        return len([float(cell) for cell in lines[0].split()]) == FIELDS
    except ValueError:
        return False


def read(source: Source, builder: Builder, options: Options) -> None:
    """Hand every row to the builder."""
    known: Known = {}
    add = builder.add
    for number, line in source.lines(builder):
        cells = line.split()
        if len(cells) == FIELDS and _plain_row(cells, known, add):
            continue
        if line.startswith(";"):
            _comment(line, builder)
            continue
        if len(cells) != FIELDS:
            builder.broken(number, f"has {len(cells)} fields instead of {FIELDS}")
            continue
        try:
            submit_ms = _seconds_ms(cells[_SUBMIT], "submit time")
            run_ms = _seconds_ms(cells[_RUN], "run time")
            limit_ms = max(0, _seconds_ms(cells[_REQUESTED_TIME], "requested time"))
            why = _no_job(cells, submit_ms, run_ms)
            if why:
                builder.left_out(number, why)
                continue
            key = (cells[_REQUESTED], cells[_ALLOCATED], cells[_GROUP], cells[_USER])
            index = known.get(key)
            if index is None:
                index = known[key] = builder.index(_spec(key, options))
        except RowError as error:
            builder.broken(number, str(error))
        else:
            builder.add(index, submit_ms, run_ms, limit_ms)


def _plain_row(cells: list[str], known: Known, add: Callable[[int, int, int, int], None]) -> bool:
    """Take a line as nearly all are: plain seconds, and an ask seen before. False: it needs a closer look."""
    _id, submit, _wait, run, used, _cpu, _memory, wanted, asked, _m, status, user, group, *_rest = cells
    index = known.get((wanted, used, group, user))
    if index is None or status in _BURSTS or not (submit + run + asked).isdecimal():
        return False
    submit_ms, run_ms, limit_ms = int(submit) * 1000, int(run) * 1000, int(asked) * 1000
    if submit_ms > TIME_MS_MAX or run_ms > TIME_MS_MAX or limit_ms > TIME_MS_MAX:
        return False
    add(index, submit_ms, run_ms, limit_ms)
    return True


def _comment(line: str, builder: Builder) -> None:
    """Of the comments only the start of the log matters: the epoch time that submissions count from."""
    words = line.lstrip("; \t").split()
    if len(words) >= 2 and words[0].lower() == _START:
        try:
            builder.epoch_ms = whole(words[1], _START, TIME_MS_MAX // 1000) * 1000
        except RowError:
            builder.epoch_ms = None


def _seconds_ms(text: str, what: str) -> int:
    """Seconds, in milliseconds; -1 is unknown and stays negative."""
    try:
        value = float(text)
    except ValueError:
        raise RowError(f"{what} is {show(text)}, not a number") from None
    if 0 <= value <= TIME_MS_MAX / 1000:
        return int(value * 1000 + 0.5)
    if value == -1:
        return -1
    raise RowError(f"{what} is {show(text)}, out of range")


def _no_job(cells: list[str], submit_ms: int, run_ms: int) -> str:
    """Why there is nothing to replay; empty: there is."""
    if cells[_STATUS] in _BURSTS:
        return "is a part of a job that stands on a line of its own"
    if run_ms < 0:
        return "was cancelled before it started" if cells[_STATUS] == _CANCELLED else "has no run time"
    return "has no submit time" if submit_ms < 0 else ""


def _spec(key: tuple[str, str, str, str], options: Options) -> JobSpec:
    requested, allocated, group, user = key
    processors = _processors(requested, "requested") or _processors(allocated, "allocated")
    if not processors:
        raise RowError("has neither requested nor allocated processors")
    per_gpu = options.processors_per_gpu
    # Where a GPU is several processors, these are real cores and are asked for beside it.
    cpu_milli = processors * MILLI if per_gpu > 1 else 0
    parts = [f"g{whole(group, 'group')}"] if group != "-1" else []
    parts += [f"u{whole(user, 'user')}"] if user != "-1" else []
    ask = gang(-(-processors // per_gpu), options.gpus_per_node, cpu_milli)
    return JobSpec("/".join(parts) or "swf", ask)


def _processors(text: str, what: str) -> int:
    """0 where the number is unknown."""
    return 0 if text == "-1" else whole(text, f"{what} processors")
