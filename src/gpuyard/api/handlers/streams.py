"""What goes on over time: logs as they are written, events as they are logged, both as server-sent events.

A place in a log is a cursor of the engine that has it, or a number of bytes, which every engine understands.
Bytes of a log need not be text: a piece that is UTF-8 goes as `text`, any other as `base64`.
"""

import base64
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from anyio import CapacityLimiter
from fastapi import Request, Response

from gpuyard.api.edge.open_streams import OpenStreams, asks_no_more
from gpuyard.api.edge.peers import get_asker
from gpuyard.api.edge.pulse import AsyncNotifier
from gpuyard.api.edge.routes import Handlers, encode_json, read_number
from gpuyard.api.edge.throttle import charge, run_in_thread, wait_for_room, yield_to_others
from gpuyard.api.edge.unread import make_room, take_room
from gpuyard.api.messages.problems import Problem
from gpuyard.control.access.people import Person
from gpuyard.control.refusals import Forbidden, Impossible, Unacceptable
from gpuyard.control.replica.labels import Label, parse_label
from gpuyard.control.serve import Yard
from gpuyard.engines.contract import Leftover, LogPiece, NoSuchPlace, Permanent, ReadsOutputs, offset_of
from gpuyard.engines.observer import Observer
from gpuyard.model import JobState
from gpuyard.model.serialise import to_plain
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import READ_BYTES_MAX, Action
from gpuyard.wire.replies.jobs import End, OneJob, Standing

PIECE_BYTES_MAX = 64 * 1024
READS_PER_OWNER_MAX = 4
"""How many reads of one user's logs may go on at a time."""
LOOK_S_MIN = 0.05
LOOK_S_MAX = 1.0
"""A log that stands still is looked at less and less often."""
TURN_S = 0.0003
"""What a look costs in the event loop, about."""
QUIET_S = 15.0
"""After so long without news a comment is sent, so that a dead connection is noticed."""
STILL_HERE = b": still here\n\n"
STANDING_S_MIN, STANDING_S_MAX = 1.0, 15.0
"""How often a job that waits is told how it stands: less and less often."""
EVENTS_MAX = 500
CURSOR_MAX = 200


def handlers(yard: Yard) -> Handlers:
    """Logs and events."""
    api = _Streams(yard)
    return {endpoints.LOGS: api.logs, endpoints.LOG_EVENTS: api.events}


class _Streams:
    """Handlers."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._gates: dict[str, CapacityLimiter] = {}

    async def logs(self, request: Request, id: str) -> Response:
        """What the current attempt wrote, from `offset` on; with `follow=true`, as events until the job ends."""
        query = request.query_params
        label = parse_label(id)
        stream = query.get("stream", "stdout")
        if stream not in ("stdout", "stderr"):
            raise Problem(422, f"there is no stream {stream[:40]!r}; known streams: stdout, stderr")
        person = get_asker(request.scope)
        job_id, attempt, owner = await run_in_thread(self._readable, label, person)
        attempt = read_number("attempt", query.get("attempt", str(attempt)), 0, max(attempt, 0))
        offset = read_number("offset", query.get("offset", "0"), 0, 1 << 50)
        place = _place(query["cursor"]) if "cursor" in query else _Place(str(offset), offset)
        view = await run_in_thread(self._yard.views.brief, Label(job_id, by_number=True))
        self._yard.views.check_kept(view["label"], view.get("removed", {}), Leftover.LOGS.value)
        if attempt:
            # What is to be said of a cluster that is gone, before a stream begins.
            await run_in_thread(self._yard.attempts.at, view, attempt)
            if place.offset is None:
                await run_in_thread(self._look, label, attempt, stream, place, 1, among=self._gate(owner))
        if _said_yes(query.get("follow", "")):
            pulse: AsyncNotifier = request.app.state.pulse
            streams: OpenStreams = request.app.state.streams
            stands = FollowedJob(self._yard) if _said_yes(query.get("standing", "")) else None
            open_ = await streams.open(request, Action.READ_JOB, lambda person: self._readable(label, person))
            return open_.events(self._follow(pulse, label, owner, (stream, max(attempt, 1), place), stands))
        limit = read_number("limit", query.get("limit", str(PIECE_BYTES_MAX)), 1, READ_BYTES_MAX)
        await make_room(limit)
        gate = self._gate(owner)
        _view, piece, after, _more = await run_in_thread(
            self._look, label, attempt, stream, place, limit, among=gate
        )
        headers = {"X-Next-Cursor": after.cursor}
        if after.offset is not None:
            headers["X-Next-Offset"] = str(after.offset)
        return Response(piece, media_type="application/octet-stream", headers=headers)

    def _readable(self, label: Label, person: Person) -> tuple[int, int, str]:
        """Job, attempt and owner, if this person may read what the job wrote."""
        job_id, attempt, owner, tenant = self._yard.views.attempt(label, person.sight)
        if not person.may(Action.READ_JOB, tenant, owner):
            raise Forbidden(
                f"job {label} is {owner}'s",
                "Only its owner, an admin of its tenant and root may read its logs.",
            )
        return job_id, attempt, owner

    def _gate(self, owner: str) -> CapacityLimiter:
        """A file that its owner named may hang its reader: that holds up the owner's readers and nobody else's."""
        return self._gates.setdefault(owner, CapacityLimiter(READS_PER_OWNER_MAX))

    def _look(
        self, label: Label, attempt: int, stream: str, place: "_Place", limit: int
    ) -> tuple[OneJob, bytes, "_Place", bool]:
        """How a job stands; what it wrote behind a place, or that this is left out; where to read on; and whether more
        may be there already."""
        # Asked before reading: what was written before the end is then read before the end is told.
        view = self._yard.views.brief(label)
        if attempt < 1:
            return view, b"", place, False
        engine, key = self._yard.attempts.at(view, attempt)
        try:
            if isinstance(engine, Observer):
                piece = self._output(engine, key, view, stream, place, limit)
            else:
                piece = engine.log(key, stream, place.cursor, limit)
        except NoSuchPlace as error:
            raise Unacceptable(f"`cursor` is not what an earlier reply said: {error}") from error
        passed = len(piece.content) + piece.left_out
        offset = place.offset + passed if place.offset is not None else _place(piece.after).offset
        content = piece.content or left_out(piece.left_out)
        return view, content, _Place(piece.after, offset), passed >= limit

    def _output(
        self, engine: Observer, key: str, view: OneJob, stream: str, place: "_Place", limit: int
    ) -> LogPiece:
        """Part of what a job writes that another scheduler runs, where its engine can read that."""
        if not isinstance(engine, ReadsOutputs):
            cluster = view["label"].rpartition(":")[0] or next(iter(self._yard.engines))
            raise self._yard.opened.observed.refusal(cluster, "logs")
        try:
            piece = engine.output(key, view["user"], stream, place.cursor, limit)
        except NoSuchPlace:
            raise
        except Permanent as error:
            raise Impossible(f"the output of job {view['label']} cannot be read: {error}") from error
        if not piece.content and not place.offset and view["ended_ms"] is not None and stream == "stdout":
            raise Impossible(
                f"the output of job {view['label']} is empty, or {view['user']} cannot read it on this machine",
                "A file on the disk of its node is not seen from here.",
            )
        return piece

    async def _follow(
        self,
        pulse: AsyncNotifier,
        label: Label,
        owner: str,
        begin: "tuple[str, int, _Place]",
        stands: "FollowedJob | None" = None,
    ) -> AsyncIterator[bytes]:
        """Pieces as they come, attempt after attempt, and at last how the job ended."""
        stream, attempt, place = begin
        look_s, quiet_s = LOOK_S_MIN, 0.0
        while not pulse.closed:
            charge(TURN_S)
            await yield_to_others()
            view, piece, after, more = await run_in_thread(
                self._look, label, attempt, stream, place, PIECE_BYTES_MAX, among=self._gate(owner)
            )
            told = await stands.news(view) if stands is not None else None
            if told:
                yield encode_event("standing", told)
            if piece:
                # Counted from its end: words in place of what is left out are shorter than that.
                counted = {} if after.offset is None else {"offset": after.offset - len(piece)}
                event = encode_event(
                    "log", {"attempt": attempt, **counted, "cursor": after.cursor, **_piece(piece)}
                )
                if not take_room(len(event)):
                    # Read again when there is room: what waits would take it.
                    size = len(event)
                    del piece, event
                    async for sign in signs_until_room(size, pulse):
                        yield sign
                    continue
                yield event
                place, look_s = after, LOOK_S_MIN
                if more or view["attempts"] > attempt or view["ended_ms"] is not None:
                    continue
            elif view["attempts"] > attempt:
                attempt, place = attempt + 1, _Place("", 0)
                yield encode_event("attempt", {"attempt": attempt})
                continue
            elif view["ended_ms"] is not None:
                yield encode_event("end", end_view(view))
                return
            await pulse.next(look_s)
            quiet_s += look_s
            look_s = min(LOOK_S_MAX, 1.5 * look_s)
            if quiet_s > QUIET_S:
                quiet_s = 0.0
                yield STILL_HERE

    async def events(self, request: Request) -> Response:
        """Events of the log after `after` (or `Last-Event-ID`). Default: from now on. For administrators."""
        store = self._yard.store
        text = request.headers.get("last-event-id") or request.query_params.get("after")
        after = await run_in_thread(store.head) if text is None else read_number("after", text, 0, 1 << 62)
        streams: OpenStreams = request.app.state.streams
        # The log belongs to no tenant.
        open_ = await streams.open(request, Action.SEE_ALL, asks_no_more)
        return open_.events(self._watch(request.app.state.pulse, after))

    async def _watch(self, pulse: AsyncNotifier, after: int) -> AsyncIterator[bytes]:
        store = self._yard.store
        yield b": watching\n\n"
        while not pulse.closed:
            new = await run_in_thread(store.read, after, EVENTS_MAX)
            for seq, found in new:
                after = seq
                kind = type(found).__name__
                yield encode_event(kind, {"seq": seq, "kind": kind, "event": to_plain(found)}, seq)
            if not new:
                await pulse.next(QUIET_S)
                yield STILL_HERE


class FollowedJob:
    """What a follower is told of a job besides what it writes: why it waits, and where it runs.

    A job that starts at once is not said to wait. Asking is cheap, yet not free: a job that waits long is asked about
    less often.
    """

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._state = ""
        self._pause_s = STANDING_S_MIN
        self._next_s = time.monotonic() + STANDING_S_MIN

    async def news(self, view: OneJob) -> Standing | None:
        """What there is to tell now; None: nothing new."""
        state, before = view["state"], self._state
        self._state = state
        if state == JobState.PENDING.value:
            now_s = time.monotonic()
            if before and before != state:
                # It waits again, after it ran.
                self._pause_s, self._next_s = STANDING_S_MIN, now_s
            if now_s < self._next_s:
                return None
            self._next_s = now_s + self._pause_s
            self._pause_s = min(STANDING_S_MAX, 1.5 * self._pause_s)
            return await run_in_thread(self._yard.views.standing, view["id"])
        if state == before or view["ended_ms"] is not None:
            return None
        return {
            "state": state,
            "label": view["label"],
            "nodes": view["nodes"],
            "submitted_ms": view["submitted_ms"],
        }


def end_view(view: OneJob) -> End:
    """How a job that was followed ended."""
    return {
        "id": view["id"],
        "label": view["label"],
        "state": view["state"],
        "exit_code": view["exit_code"],
        "reason": view["reason"],
        "attempts": view["attempts"],
    }


def _said_yes(text: str) -> bool:
    return text.lower() in ("1", "true", "yes")


class _Place(NamedTuple):
    """A place in a log."""

    cursor: str
    offset: int | None
    """The bytes in front of it; None: they were not counted."""


def _place(cursor: str) -> _Place:
    """The place that a client names by a cursor: a number is one of bytes."""
    if len(cursor) > CURSOR_MAX or not (cursor.isascii() and cursor.isprintable()):
        raise Unacceptable("`cursor` is not what an earlier reply said", "Leave it out to begin anew.")
    try:
        return _Place(cursor, offset_of(cursor))
    except NoSuchPlace:
        return _Place(cursor, None)


def left_out(size: int) -> bytes:
    """A line in place of what a log no longer has."""
    if not size:
        return b""
    return f"[yard: {size / 2**20:,.1f} MiB are left out here: the log is longer than log_limit]\n".encode()


def _piece(piece: bytes) -> dict[str, str]:
    try:
        return {"text": piece.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(piece).decode()}


async def signs_until_room(size: int, pulse: AsyncNotifier, quiet_s: float = QUIET_S) -> AsyncIterator[bytes]:
    """Signs of life until there is room for a stream's next piece, or the server stops."""
    while not await wait_for_room(size, quiet_s, lambda: pulse.closed) and not pulse.closed:
        yield STILL_HERE


def encode_event(name: str, data: Any, number: int | str = "") -> bytes:
    """A server-sent event; `data` is a value, or JSON already."""
    # One line, whatever is in it: JSON escapes line breaks.
    head = f"id: {number}\n" if number != "" else ""
    text = data if isinstance(data, bytes) else encode_json(data)
    return f"{head}event: {name}\ndata: ".encode() + text + b"\n\n"
