"""Batches of lines from many logs: each log in its turn, each line once, and no log for longer than others can wait.

The logs themselves are the spool: nothing is copied, and a receiver that is away costs no memory and no disk. What a
log has lost meanwhile (its middle, where it grew over `log_limit`) is counted, and a line says so.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpuyard.shipping.cursors import Stream
from gpuyard.shipping.lines import CutLines, LogLine, Piece, cut

BATCH_LINES = 2000
BATCH_BYTES = 1 << 20
READ_BYTES = 64 * 1024
HEAD_BYTES = 64
LOOK_S = 0.2, 5.0
"""A log that stands still is looked at less and less often."""
CHECK_S = 2.0
"""How often a log is asked whether it is still the same file."""
SETTLE_MS = 2000
"""How long after the end of its attempt a log may still grow: file systems tell of writes with a delay."""
SLOW_S = 0.5
SLOW_TIMES = 30
"""A read that takes longer is followed by so many times as long without a look at that user's logs."""


class PieceOfLog(Protocol):
    """Part of a log, as engines give it (`LogPiece`)."""

    @property
    def content(self) -> bytes:
        """Empty at the end of the log."""
        ...

    @property
    def after(self) -> str:
        """The cursor behind it."""
        ...

    @property
    def left_out(self) -> int:
        """How many bytes the log has lost in this place."""
        ...


class Logs(Protocol):
    """Where a log is read: the engine that has it."""

    def log(self, key: str, stream: str, cursor: str, limit: int) -> PieceOfLog:
        """So many bytes behind a cursor, fewer only at the end and in front of a part that is left out."""
        ...


@dataclass(slots=True)
class Staged:
    """Where a log stands once a batch is taken."""

    offset: int
    cursor: str
    part: int
    head: bytes
    finished: bool = False


@dataclass(slots=True)
class Batch:
    """Lines, and what they mean for the logs that they are from."""

    lines: list[LogLine] = field(default_factory=list)
    size: int = 0
    staged: dict[tuple[str, str], Staged] = field(default_factory=dict)
    left_out_bytes: int = 0
    restarted: int = 0
    """Logs that were truncated or replaced, and are read from their beginning."""

    @property
    def full(self) -> bool:
        """Whether it is to be sent before more is read."""
        return len(self.lines) >= BATCH_LINES or self.size >= BATCH_BYTES


class Gatherer:
    """Reads logs for one receiver."""

    def __init__(
        self,
        logs_of: Callable[[Stream], Logs],
        line_bytes: int,
        now_ms: Callable[[], int],
        troubles: tuple[type[Exception], ...],
        clock_ns: Callable[[], int] = time.time_ns,
        steady_s: Callable[[], float] = time.monotonic,
        look_s: tuple[float, float] = LOOK_S,
    ) -> None:
        """`troubles`: what reading a log raises where its file system does not answer. `look_s`: the shortest and the
        longest pause between two looks at a log that does not grow.
        """
        self._look_s = look_s
        self._logs_of = logs_of
        self._line_bytes = line_bytes
        self._now_ms = now_ms
        self._troubles = troubles
        self._clock_ns = clock_ns
        self._steady_s = steady_s
        self._last_ns = 0
        self._slow: dict[str, float] = {}
        """Until when nothing of a user is read, because it took long."""
        self.unread = 0
        """How often a log could not be read."""

    def gather(self, streams: Iterable[Stream]) -> Batch:
        """What these logs have to tell now, in this order; as much as fits in a batch."""
        batch = Batch()
        for stream in streams:
            if batch.full:
                break
            began_s = self._steady_s()
            user = stream.labels.get("user", "")
            if stream.next_s > began_s or self._slow.get(user, 0.0) > began_s:
                continue
            try:
                news = self._read(stream, batch)
            except self._troubles:
                self.unread += 1
                news = False
            took_s = self._steady_s() - began_s
            if took_s > SLOW_S:
                self._slow[user] = began_s + took_s * (1 + SLOW_TIMES)
            least_s, most_s = self._look_s
            stream.pause_s = 0.0 if news else min(most_s, max(least_s, 1.5 * stream.pause_s))
            stream.next_s = began_s + stream.pause_s
        return batch

    def _read(self, stream: Stream, batch: Batch) -> bool:
        """Put what is new of one log into a batch; whether there was anything."""
        place = Staged(stream.offset, stream.cursor, stream.part, stream.head)
        name, before = (stream.key, stream.stream), len(batch.lines)
        logs = self._logs_of(stream)
        self._check_same(logs, stream, place, batch)
        limit = self._line_bytes + READ_BYTES
        piece = logs.log(*name, place.cursor, limit)
        if piece.left_out:
            batch.left_out_bytes += piece.left_out
            words = f"[yard: {piece.left_out / 2**20:,.1f} MiB are left out here: log_limit was reached]"
            self._add(stream, batch, [Piece(place.offset, words, 0, last=True)])
            place.offset, place.cursor, place.part = place.offset + piece.left_out, piece.after, 0
            piece = logs.log(*name, place.cursor, limit)
        content = piece.content
        if not place.head and content:
            first = content if not place.offset else logs.log(*name, "", HEAD_BYTES).content
            place.head = first[:HEAD_BYTES]
        end = place.offset + len(content)
        whole = self._is_whole(logs, stream, piece.after, len(content) < limit)
        found = _within(
            cut(content, place.offset, place.part, self._line_bytes, ended=whole),
            max(1, BATCH_LINES - len(batch.lines)),
        )
        self._add(stream, batch, found.pieces)
        place.cursor = _behind(logs, name, place, piece, found.after)
        place.offset, place.part = found.after, found.part
        place.finished = whole and found.after == end
        news = len(batch.lines) > before
        if news or place.finished or place.offset != stream.offset:
            batch.staged[name] = place
        return news

    def _is_whole(self, logs: Logs, stream: Stream, end: str, short: bool) -> bool:
        """Whether nothing more will come behind a cursor."""
        if not stream.ended_ms or not short or self._now_ms() < stream.ended_ms + SETTLE_MS:
            return False
        return _is_end(logs.log(stream.key, stream.stream, end, 1))

    def _check_same(self, logs: Logs, stream: Stream, place: Staged, batch: Batch) -> None:
        """Begin again with a log that was truncated or replaced. One that cannot be read now may come back."""
        now_s = self._steady_s()
        if not stream.offset or stream.checked_s + CHECK_S > now_s:
            return
        stream.checked_s = now_s
        name = (stream.key, stream.stream)
        head = logs.log(*name, "", max(1, len(stream.head))).content
        # In the middle of a log that was cut something is left out, and it is the same log.
        shorter = bool(head) and _is_end(logs.log(*name, str(stream.offset - 1), 1))
        if head and (shorter or (stream.head and head != stream.head)):
            place.offset, place.cursor, place.part, place.head = 0, "", 0, b""
            batch.restarted += 1

    def _add(self, stream: Stream, batch: Batch, pieces: Sequence[Piece]) -> None:
        for each in pieces:
            # Loki takes two equal lines of one time for one line.
            self._last_ns = max(self._last_ns + 1, self._clock_ns())
            batch.lines.append(
                LogLine(
                    stream.key, stream.stream, each.offset, each.text, stream.labels, each.part, each.last,
                    self._last_ns,
                )
            )  # fmt: skip
            batch.size += len(each.text)


def _is_end(piece: PieceOfLog) -> bool:
    return not (piece.content or piece.left_out)


def _behind(logs: Logs, name: tuple[str, str], place: Staged, piece: PieceOfLog, offset: int) -> str:
    """The cursor behind what was taken of a piece: an unfinished line is read again."""
    taken = offset - place.offset
    if taken in (0, len(piece.content)):
        return piece.after if taken else place.cursor
    again = logs.log(*name, place.cursor, taken)
    # Where the log has changed since, the number of bytes is the place.
    return again.after if len(again.content) == taken else str(offset)


def _within(found: CutLines, most: int) -> CutLines:
    """The first so many of the lines."""
    if len(found.pieces) <= most:
        return found
    first = found.pieces[most]
    return CutLines(found.pieces[:most], first.offset, max(0, first.part - 1))
