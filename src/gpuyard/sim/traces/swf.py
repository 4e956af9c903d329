"""Standard Workload Format, in which histories of batch systems are published: 18 numbers a line, -1 unknown.

A processor stands for a GPU unless the caller says how many make one. The request is replayed; if the log has none, the
allocation.
"""

from itertools import repeat
from json import loads
from operator import mul
from typing import cast

from gpuyard.model import JobSpec
from gpuyard.model.units import MILLI
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.cells import TIME_MS_MAX, RowError, parse_whole, show
from gpuyard.sim.traces.options import Options, make_gang_ask
from gpuyard.sim.traces.source import Source

FIELDS = 18
_USED = 13
"""The fields that are used come before this position."""
_AT_ONCE = 256
"""Lines that are read together. If one of them is not plain, all are read one by one."""

Known = dict[tuple[str, str, str, str], int]
"""(requested, allocated, group, user) -> the number of the spec."""
# Places in a line, from 0.
_SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_TIME, _STATUS, _USER, _GROUP = 1, 3, 4, 7, 8, 10, 11, 12

_BURSTS = frozenset({"2", "3", "4"})
"""Statuses of a part of a job; the whole job has its own line."""
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
    for before, lines in source.batches(builder):
        head = 0
        while head < len(lines) and lines[head].startswith(";"):
            _comment(lines[head], builder)
            head += 1
        for first in range(head, len(lines), _AT_ONCE):
            some = lines[first : first + _AT_ONCE]
            if not _plain_rows(some, known, builder, options):
                for number, line in enumerate(some, start=before + first + 1):
                    if line and not line.isspace():
                        _row(number, line, known, builder, options)


def _plain_rows(lines: list[str], known: Known, builder: Builder, options: Options) -> bool:
    """Read lines like nearly all, with plain seconds and no comment, column by column.

    False, and nothing is read: one of them is not plain.
    """
    rows = [line.split(None, _USED) for line in lines]
    if set(map(len, rows)) != {_USED + 1}:
        return False
    cells = list(zip(*rows, strict=True))
    # Unused fields are hardly ever known, so they are mostly the same on every line.
    if any(len(unused.split()) != FIELDS - _USED for unused in set(cells[_USED])) or ";" in "".join(cells[0]):
        return False
    times = (cells[_SUBMIT], cells[_RUN], cells[_REQUESTED_TIME])
    digits = "".join(["".join(column) for column in times])
    # Bytes are checked faster than letters, and have no digits of other scripts.
    if not (digits.isascii() and digits.encode().isdigit() and _BURSTS.isdisjoint(cells[_STATUS])):
        return False
    try:
        columns = [_whole_ms(column) for column in times]
    except ValueError:
        return False
    if max(map(sum, columns)) > TIME_MS_MAX:
        return False
    keys = list(zip(*[cells[place] for place in (_REQUESTED, _ALLOCATED, _GROUP, _USER)], strict=True))
    specs = list(map(known.get, keys))
    if None in specs:
        try:
            # In the order of the rows: specs are numbered as they appear.
            for key in dict.fromkeys(keys):
                if key not in known:
                    known[key] = builder.index(_spec(key, options))
        except RowError:
            return False
        specs = list(map(known.get, keys))
    builder.extend(cast("list[int]", specs), *columns)
    return True


def _whole_ms(seconds: tuple[str, ...]) -> list[int]:
    """Whole seconds, in milliseconds. A JSON reader reads a list of numbers faster than `int` parses them."""
    if "0" in seconds:
        return list(map(mul, loads(f"[{','.join(seconds)}]"), repeat(1000)))
    found: list[int] = loads(f"[{'000,'.join(seconds)}000]")
    return found


def _row(number: int, line: str, known: Known, builder: Builder, options: Options) -> None:
    """Read one line, whatever it is."""
    if line.startswith(";"):
        _comment(line, builder)
        return
    cells = line.split()
    if len(cells) != FIELDS:
        builder.broken(number, f"has {len(cells)} fields instead of {FIELDS}")
        return
    try:
        submit_ms = _seconds_ms(cells[_SUBMIT], "submit time")
        run_ms = _seconds_ms(cells[_RUN], "run time")
        limit_ms = max(0, _seconds_ms(cells[_REQUESTED_TIME], "requested time"))
        why = _no_job(cells, submit_ms, run_ms)
        if why:
            builder.left_out(number, why)
            return
        key = (cells[_REQUESTED], cells[_ALLOCATED], cells[_GROUP], cells[_USER])
        index = known.get(key)
        if index is None:
            index = known[key] = builder.index(_spec(key, options))
    except RowError as error:
        builder.broken(number, str(error))
    else:
        builder.add(index, submit_ms, run_ms, limit_ms)


def _comment(line: str, builder: Builder) -> None:
    """Of the comments only the start of the log matters: the epoch time from which submissions count."""
    words = line.lstrip("; \t").split()
    if len(words) >= 2 and words[0].lower() == _START:
        try:
            builder.epoch_ms = parse_whole(words[1], _START, TIME_MS_MAX // 1000) * 1000
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
    # If a GPU is several processors, these are real cores, and the job asks for them too.
    cpu_milli = processors * MILLI if per_gpu > 1 else 0
    parts = [f"g{parse_whole(group, 'group')}"] if group != "-1" else []
    parts += [f"u{parse_whole(user, 'user')}"] if user != "-1" else []
    ask = make_gang_ask(-(-processors // per_gpu), options.gpus_per_node, cpu_milli)
    return JobSpec("/".join(parts) or "swf", ask)


def _processors(text: str, what: str) -> int:
    """0 if the number is unknown."""
    return 0 if text == "-1" else parse_whole(text, f"{what} processors")
