"""Logs on their way to receivers: a duty for each receiver that yard.yaml names, beside the loop and each other.

A shipper follows the log of events to know which attempts there are, reads what they wrote as `yard logs` does (with
their users' own rights), sends it, and then notes how far it came. Only the leader sends. Nothing here is waited for: a
receiver that is away, a file system that hangs and a full disk hold up that one receiver's lines and nothing else.
"""

import json
import logging
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import Any

from gpuyard.control.clusters import Clusters
from gpuyard.control.refusals import Refusal
from gpuyard.control.replica.labels import attempt_key
from gpuyard.control.replica.replica import Replica
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.contract import Engine, EngineError
from gpuyard.errors import YardError
from gpuyard.model import AttemptEnded, AttemptStarted
from gpuyard.shipping.contract import Away, Refused, Sends, Sink, SinkSpec, failure_text
from gpuyard.shipping.cursors import Cursors, Stream
from gpuyard.shipping.lines import LogLine
from gpuyard.shipping.reading import LOOK_S, Batch, Gatherer
from gpuyard.shipping.sinks import make_sink
from gpuyard.store import HistoryRow, Numbered, StoreDamaged

_log = logging.getLogger(__name__)

IDLE_S = 0.5
PACE = 3
"""A round is followed by a pause of at least so many times its CPU time: a quarter of a core at most."""
BACK_OFF_S_MIN, BACK_OFF_S_MAX = 0.5, 60.0
TROUBLE_S = 5.0
EVENTS_MAX = 1000
LOOKS_MAX = 1000
"""Logs that one round looks at."""
STREAMS_MAX = 200_000
"""Logs that wait to be sent; the oldest of ended attempts go when there are more."""
NODES_NAMED = 8
_KEPT_LONG_MS = 3_600_000
_JUST_STARTED_MS = 10_000
"""A server older than this that sends for the first time leads in the place of another, which sent what there was."""


class Shipper(Sends):
    """Sends the logs of a yard to one receiver."""

    def __init__(
        self,
        spec: SinkSpec,
        folder: Path,
        replica: Replica,
        clusters: Clusters,
        now_ms: Callable[[], int],
        sink: Sink | None = None,
        look_s: tuple[float, float] = LOOK_S,
    ) -> None:
        """`look_s`: the shortest and the longest pause between two looks at a log that does not grow."""
        self.spec = spec
        self.streams_max = STREAMS_MAX
        self.trouble = ""
        self.sent = self.refused = self.left_out_bytes = self.lost = self.restarted = 0
        self._path = folder / f"{spec.name}.db"
        self._replica = replica
        self._clusters = clusters
        self._now_ms = now_ms
        self._sink = make_sink(spec) if sink is None else sink
        self._gatherer = Gatherer(
            self._logs_of, spec.line_bytes, now_ms, (EngineError, OSError, Refusal), look_s=look_s
        )
        self._cursors: Cursors | None = None
        self._made = replica.seq, now_ms()
        self._seq, self._saved_seq = 0, -1
        self._streams: dict[tuple[str, str], Stream] = {}
        self._of_attempt: dict[tuple[int, int], list[Stream]] = {}
        self._unsaved: dict[tuple[str, str], Stream] = {}
        self._gone: dict[tuple[str, str], Stream] = {}
        self._failures = 0
        self._behind_s = 0.0
        """Since when there is something that was not taken; 0: there is nothing."""

    def close(self) -> None:
        """End. What is under way is sent again by the next server."""
        self._sink.close()
        self.let_go()

    @property
    def lag_s(self) -> float:
        """For how long there has been a line that the receiver has not taken."""
        since_s = self._behind_s
        return time.monotonic() - since_s if since_s else 0.0

    @property
    def streams(self) -> int:
        """Logs that are not sent to their end."""
        return len(self._streams)

    # -- one round -----------------------------------------------------------------------------------------------

    def round(self) -> float:
        """Send what there is to send; the pause until the next round."""
        began_s = time.thread_time()
        try:
            pause_s = self._step()
            self._failures, trouble = 0, ""
        except Away as away:
            trouble, self._failures = str(away), self._failures + 1
            pause_s = max(away.retry_s, back_off_s(self._failures, random.random()))
        except (sqlite3.Error, YardError, EngineError, OSError) as error:
            trouble, pause_s = failure_text(error), TROUBLE_S
        if trouble and not self.trouble:
            _log.warning("logs for %s wait: %s", self.spec.name, trouble)
        elif self.trouble and not trouble:
            _log.warning("logs for %s are sent again", self.spec.name)
        self.trouble = trouble
        return max(pause_s, PACE * (time.thread_time() - began_s))

    def _step(self) -> float:
        """Follow events, send a batch; gives the time until there may be more."""
        if self._cursors is None:
            self._open()
        self._follow()
        batch = self._gatherer.gather(self._in_turn())
        if batch.lines:
            self._behind_s = self._behind_s or time.monotonic()
            refused = self._send(batch.lines)
            self.refused += refused
            self.sent += len(batch.lines) - refused
        self._take_over(batch)
        self._save()
        if batch.full:
            return 0.0
        self._behind_s = 0.0
        now_s = time.monotonic()
        soonest_s = min([each.next_s for each in self._streams.values()], default=now_s + IDLE_S)
        return min(IDLE_S, max(0.05, soonest_s - now_s))

    def _in_turn(self) -> list[Stream]:
        """The logs whose turn it is, the one that was looked at longest ago first."""
        now_s = time.monotonic()
        due = [each for each in self._streams.values() if each.next_s <= now_s]
        return nsmallest(
            LOOKS_MAX, due, key=lambda each: (each.next_s, each.job_id, each.attempt, each.stream)
        )

    def _send(self, lines: Sequence[LogLine]) -> int:
        """Have lines taken; how many were refused. A batch that is not wanted is halved until one line is left."""
        try:
            return self._sink.send(lines)
        except Refused as refused:
            if len(lines) == 1:
                _log.warning(
                    "%s does not want a line of job %s: %s", self.spec.name, lines[0].labels["job"], refused
                )
                return 1
        middle = len(lines) // 2
        return self._send(lines[:middle]) + self._send(lines[middle:])

    def _take_over(self, batch: Batch) -> None:
        self.left_out_bytes += batch.left_out_bytes
        self.restarted += batch.restarted
        for name, place in batch.staged.items():
            stream = self._streams[name]
            stream.offset, stream.cursor = place.offset, place.cursor
            stream.part, stream.head = place.part, place.head
            if place.finished:
                self._drop(stream)
                self._count_lost(stream)
            else:
                self._unsaved[name] = stream

    def _count_lost(self, stream: Stream) -> None:
        """A log that was removed before it was sent looks as if it had ended."""
        if self._now_ms() - stream.ended_ms < _KEPT_LONG_MS:
            return
        row = self._replica.store.history.find(stream.job_id)
        if row is not None and "logs" in _mapping(row.detail.get("removed")):
            self.lost += 1
            _log.warning("a log of job %s was removed before %s took it", row.id, self.spec.name)

    def _logs_of(self, stream: Stream) -> Engine:
        """Of the cluster where its attempt ran. What lies in one that yard.yaml no longer has waits for it."""
        return self._clusters.engine_of(stream.labels.get("cluster", ""))

    # -- which logs there are ------------------------------------------------------------------------------------

    def _open(self) -> None:
        os.makedirs(self._path.parent, mode=0o700, exist_ok=True)
        cursors = Cursors(str(self._path))
        self._streams, self._of_attempt = {}, {}
        found = cursors.load(self._replica.store.yard)
        if found is None or found[0] > self._replica.store.head():
            # The first time, or the log is an older one than before: what runs now is sent from its beginning.
            cursors.clear()
            self._cursors = cursors
            self._begin()
            seq, at_ms = self._made
            if self._now_ms() - at_ms < _JUST_STARTED_MS:
                # Jobs that came and went between the server's start and this look are sent as well.
                self._seq = min(seq, self._seq)
            return
        self._seq = found[0]
        for stream in found[1]:
            self._add(stream)
        self._unsaved, self._saved_seq = {}, self._seq
        self._cursors = cursors

    def _begin(self) -> None:
        """Begin with the attempts that run now."""
        with self._replica.lock:
            self._replica.catch_up()
            self._seq = self._replica.seq
            running = [(each, each.attempt, each.grants) for each in self._replica.state.running.values()]
        for record, attempt, grants in running:
            for stream in self._streams_of(record, attempt, self._names(grants)):
                self._add(stream)

    def _follow(self) -> None:
        """Take in attempts that started, and ends."""
        store = self._replica.store
        while self._replica.seq > self._seq:
            try:
                events = store.read(self._seq, EVENTS_MAX)
            except StoreDamaged:
                _log.warning("events after %d are gone: %s gets what runs now", self._seq, self.spec.name)
                for stream in list(self._streams.values()):
                    # What became of it is not known: it is read to where it ends now.
                    stream.ended_ms = stream.ended_ms or self._now_ms()
                self._begin()
                return
            if not events:
                return
            self._take_in(events)
            self._seq = events[-1][0]
            self._save()

    def _take_in(self, events: Sequence[Numbered]) -> None:
        started = [event for _seq, event in events if type(event) is AttemptStarted]
        known: dict[int, JobRecord] = {}
        if started:
            with self._replica.lock:
                self._replica.catch_up()
                jobs = self._replica.state.jobs
                known = {
                    each.job_id: found for each in started if (found := jobs.get(each.job_id)) is not None
                }
        for _seq, event in events:
            if type(event) is AttemptStarted:
                job = known.get(event.job_id) or self._replica.store.history.find(event.job_id)
                if job is None:
                    continue
                for stream in self._streams_of(job, event.attempt, self._names(event.grants)):
                    self._add(stream)
            elif type(event) is AttemptEnded:
                for stream in self._of_attempt.get((event.job_id, event.attempt), ()):
                    stream.ended_ms, stream.next_s = max(1, event.at_ms), 0.0
                    self._unsaved[stream.key, stream.stream] = stream
        self._shed()

    def _names(self, grants: Iterable[Any]) -> list[tuple[str, str]]:
        """Clusters and names of nodes. There are only ever more nodes, and their names stay: no lock is needed."""
        nodes = self._replica.state.nodes.node
        return [(nodes[grant.node].cluster, nodes[grant.node].name) for grant in grants]

    def _streams_of(
        self, job: "JobRecord | HistoryRow", attempt: int, nodes: list[tuple[str, str]]
    ) -> list[Stream]:
        """The logs of an attempt. A cluster that schedules itself runs jobs whose output the yard does not have."""
        if isinstance(job, HistoryRow):
            spec = _mapping(job.detail.get("spec"))
            origin, recipe = spec.get("origin", ""), str(spec.get("recipe") or "")
            tenant, user = job.tenant, job.user
            array_id, index, submitted_ms = job.array_id, job.array_index, job.submitted_ms
        else:
            its = job.job.spec
            origin, recipe, tenant, user = its.origin, its.recipe, its.tenant, its.user
            array_id, index, submitted_ms = job.job.array_id, job.job.array_index, job.job.submitted_ms
        if origin or not recipe:
            return []
        store = self._replica.store
        names = [name for _cluster, name in nodes]
        more = f",+{len(names) - NODES_NAMED}" if len(names) > NODES_NAMED else ""
        labels = {
            "yard": store.yard,
            "cluster": nodes[0][0] if nodes else "",
            "tenant": tenant,
            "user": user,
            "job": f"{array_id}_{index}" if array_id else str(job.id),
            "attempt": str(attempt),
            "task": str(index) if array_id else "",
            "node": ",".join(names[:NODES_NAMED]) + more,
        }
        key = attempt_key(store.yard, job.id, attempt, submitted_ms)
        streams = (
            ["stdout", "stderr"]
            if _has_stderr(store.blob(recipe) or store.removals.bare_recipe(recipe))
            else ["stdout"]
        )
        return [Stream(key, stream, job.id, attempt, labels) for stream in streams]

    def _add(self, stream: Stream) -> None:
        if (stream.key, stream.stream) in self._streams:
            return
        self._streams[stream.key, stream.stream] = self._unsaved[stream.key, stream.stream] = stream
        self._of_attempt.setdefault((stream.job_id, stream.attempt), []).append(stream)

    def _drop(self, stream: Stream) -> None:
        name = (stream.key, stream.stream)
        del self._streams[name]
        self._unsaved.pop(name, None)
        self._gone[name] = stream
        left = [
            each for each in self._of_attempt.pop((stream.job_id, stream.attempt), []) if each is not stream
        ]
        if left:
            self._of_attempt[stream.job_id, stream.attempt] = left

    def _shed(self) -> None:
        """Keep the number of logs that wait within bounds."""
        over = len(self._streams) - self.streams_max
        if over <= 0:
            return
        ended = sorted(
            [each for each in self._streams.values() if each.ended_ms],
            key=lambda each: (each.ended_ms, each.key, each.stream),
        )
        for stream in ended[:over]:
            self._drop(stream)
            self.lost += 1
        _log.warning("%d logs are given up: %s has not taken them in time", len(ended[:over]), self.spec.name)

    def _save(self) -> None:
        if self._cursors is None or not (self._unsaved or self._gone or self._seq != self._saved_seq):
            return
        self._cursors.save(self._replica.store.yard, self._seq, self._unsaved.values(), self._gone.values())
        self._unsaved, self._gone, self._saved_seq = {}, {}, self._seq

    def let_go(self) -> None:
        """Another server leads: it goes on from what is on disk."""
        if self._cursors is not None:
            self._cursors.close()
            self._cursors = None
            self._unsaved, self._gone = {}, {}
        self.trouble, self._behind_s = "", 0.0


def back_off_s(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row; `chance`, from 0 to 1, keeps many senders apart."""
    return min(BACK_OFF_S_MAX, BACK_OFF_S_MIN * 2 ** min(failures - 1, 20)) * (0.5 + chance / 2)


def _has_stderr(recipe: bytes | None) -> bool:
    """Whether a job writes its errors into a file of their own."""
    try:
        found = json.loads(recipe or b"{}")
    except ValueError:
        return False
    return bool(found.get("stderr")) and found.get("stderr") != found.get("stdout")


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
