"""Lines of a server's log: whatever clients send, each line is one of ours, and no one thing fills the log.

A record is one line: control characters in it are escaped, each of its fields is cut, and so is the whole. The lines of
a traceback stand below it, marked, so that none of them passes for a record. Records that are alike are written up to a
few at a time; those left out are counted ("… 312 more like this").

What one person does takes no lines from what others do: a record that names its person (`person_extra`) is counted with
that person's alone. So many persons have a part of their own at a time; those beyond share one.
"""

import logging
import os
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Any

from gpuyard.errors import printable_text

FIELD_CHARS_MAX = 300
RECORD_CHARS_MAX = 2000
TRACE_LINES_MAX = 60
TRACE_MARK = "    | "
"""Before each line of a traceback."""
ALIKE_BURST, ALIKE_PER_S = 20, 0.1
"""Of records that are alike: so many at once, and then so many a second."""
SOURCE_BURST, SOURCE_PER_S = 100, 0.5
"""The same for all that one part of the program writes, however different it is."""
PERSON_BURST, PERSON_PER_S = 20, 0.1
"""The same for all that is written of one person."""
PERSONS_MAX = 32
"""So many persons have that at a time; one of whom nothing is heard for long enough makes room for another."""
TELL_S = 10.0
"""How long after the first that was left out they are counted up, where nothing like it is written before."""
_KINDS_MAX = 1000
_OTHERS = "others"
_SHOWN_CHARS = 120


class LineFormatter(logging.Formatter):
    """One line for each record, in UTC, and the marked lines of its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        name, said = (
            printable_text(record.name, FIELD_CHARS_MAX),
            printable_text(_message(record), RECORD_CHARS_MAX),
        )
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        line = f"{when} {record.levelname} {name}: {said}"
        if not record.exc_info or record.exc_info[0] is None:
            return line
        below = "".join(traceback.format_exception(*record.exc_info)).splitlines()
        if len(below) > TRACE_LINES_MAX:
            half = TRACE_LINES_MAX // 2
            below = [*below[:half], f"… {len(below) - 2 * half:,} lines …", *below[-half:]]
        return "\n".join([line, *[TRACE_MARK + printable_text(each, FIELD_CHARS_MAX) for each in below]])


def _message(record: logging.LogRecord) -> str:
    """What a record says, each of its fields cut."""
    args = record.args
    if isinstance(args, tuple):
        args = tuple([_field(each) for each in args])
    try:
        return str(record.msg) % args if args else str(record.msg)
    except (TypeError, ValueError):
        return f"{record.msg} {args!r}"


def _field(value: object) -> object:
    if isinstance(value, str):
        return printable_text(value, FIELD_CHARS_MAX)
    # An exception may have come from what a client sent.
    return printable_text(str(value), FIELD_CHARS_MAX) if isinstance(value, BaseException) else value


def person_extra(person: str) -> dict[str, str]:
    """The `extra` of a record that tells what a person did."""
    return {"person": person}


class _Allowance:
    """How many records of one kind may still be written."""

    def __init__(self, burst: float, per_s: float, now_s: float) -> None:
        self.burst, self.per_s = burst, per_s
        self.left, self.at_s = burst, now_s
        self.out = 0
        """How many were left out since the last one that was written."""
        self.last: logging.LogRecord | None = None
        self.person = ""

    def has(self, now_s: float) -> bool:
        """Whether one more may be written."""
        self.left = min(self.burst, self.left + self.per_s * (now_s - self.at_s))
        self.at_s = now_s
        return self.left >= 1


class RepeatFilter(logging.Filter):
    """Lets records through that are not too many of a kind, and counts the others. For one handler."""

    def __init__(self, handler: logging.Handler, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._handler, self._now_s = handler, now_s
        self._kinds: OrderedDict[tuple[str, ...], _Allowance] = OrderedDict()
        self._persons: dict[str, _Allowance] = {}
        self._timer: threading.Timer | None = None
        self._pid = os.getpid()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        # The handler's own lock: logging makes it anew in a fork.
        self._handler.acquire()
        try:
            now_s = self._now_s()
            name, source = self._source(record, now_s)
            alike = self._of((*_kind(record), name), ALIKE_BURST, ALIKE_PER_S, now_s)
            alike.person = name
            if alike.has(now_s) and source.has(now_s):
                alike.left -= 1
                source.left -= 1
                self._tell(alike)
                return True
            alike.out += 1
            alike.last = record
            if self._timer is None or self._pid != os.getpid():
                self._timer, self._pid = threading.Timer(TELL_S, self.tell), os.getpid()
                self._timer.daemon = True
                self._timer.start()
            return False
        finally:
            self._handler.release()

    def tell(self) -> None:
        """Say how many were left out, of every kind."""
        self._handler.acquire()
        try:
            self._timer = None
            for each in list(self._kinds.values()):
                self._tell(each)
        finally:
            self._handler.release()

    def _tell(self, kind: _Allowance) -> None:
        if kind.out and kind.last is not None:
            out, last = kind.out, kind.last
            kind.out, kind.last = 0, None
            like = printable_text(str(last.msg), _SHOWN_CHARS)
            told = f"… %s more like this{' of %s' if kind.person else ''}: %s"
            named = (kind.person,) if kind.person else ()
            # Past this filter.
            self._handler.emit(
                logging.LogRecord(last.name, last.levelno, "", 0, told, (f"{out:,}", *named, like), None)
            )

    def _source(self, record: logging.LogRecord, now_s: float) -> tuple[str, _Allowance]:
        """Whose part of the log a record is: of a person, of all persons without one, or of the program."""
        person = printable_text(str(getattr(record, "person", "")), _SHOWN_CHARS)
        if not person:
            return "", self._of((record.name,), SOURCE_BURST, SOURCE_PER_S, now_s)
        found = self._persons.get(person)
        if found is None and len(self._persons) >= PERSONS_MAX:
            for name, each in list(self._persons.items()):
                each.has(now_s)
                if each.left >= each.burst:
                    # It begins anew with as much.
                    del self._persons[name]
        if found is None and len(self._persons) < PERSONS_MAX:
            found = self._persons[person] = _Allowance(PERSON_BURST, PERSON_PER_S, now_s)
        if found is not None:
            return person, found
        return _OTHERS, self._of((_OTHERS,), SOURCE_BURST, SOURCE_PER_S, now_s)

    def _of(self, key: tuple[str, ...], burst: float, per_s: float, now_s: float) -> _Allowance:
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = _Allowance(burst, per_s, now_s)
            if len(self._kinds) > _KINDS_MAX:
                self._tell(self._kinds.popitem(last=False)[1])
        self._kinds.move_to_end(key)
        return found


def _kind(record: logging.LogRecord) -> tuple[str, ...]:
    """What records that are alike have in common: what is said, and which error it is, but not of whom."""
    said = (record.name, record.levelname, str(record.msg)[:_SHOWN_CHARS])
    if not record.exc_info or record.exc_info[0] is None:
        return said
    trace = record.exc_info[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    return (*said, record.exc_info[0].__name__, place)


def start_log(handler: "logging.StreamHandler[Any]", level: str) -> None:
    """Log to this handler, as all of a server's processes do; what else would go to standard error, too."""
    handler.setFormatter(LineFormatter())
    handler.addFilter(RepeatFilter(handler))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    threading.excepthook = _thread_failed
    sys.unraisablehook = _unraisable


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread is not None else "?"
    logging.getLogger("gpuyard").error(
        "thread %s failed", name, exc_info=_info(args.exc_type, args.exc_value, args.exc_traceback)
    )


def _unraisable(args: Any) -> None:
    logging.getLogger("gpuyard").error(
        "an error that could not be raised: %s",
        args.err_msg or "",
        exc_info=_info(args.exc_type, args.exc_value, args.exc_traceback),
    )


def _info(
    kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    return None if kind is None or value is None else (kind, value, trace)
