"""A cluster that schedules itself: ask its observer, write down what is new, and nothing else.

The recorder decides nothing, and knows no engine. Alone it stands where the loop of engines that are driven would
(`loop.Controller`); beside driven clusters it has a thread of its own, and the jobs that it enters are kept apart from
theirs. What it knows is in the log: which tries of which jobs, and how they ended. So it can be stopped and restarted
at any time, and the cluster's daemons too: a question without an answer concludes nothing and is put again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from gpuyard.control.loop import observed_events as events
from gpuyard.control.loop.driving import Heard
from gpuyard.control.loop.loop import Step
from gpuyard.control.loop.observe import Difference, find_node
from gpuyard.control.loop.observed_events import Moment, MomentKind
from gpuyard.control.replica.replica import Draft, Replica
from gpuyard.core import State
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.contract import EngineError, NodeReport
from gpuyard.engines.observer import ForeignJob, ForeignJobs, Observer
from gpuyard.model import (
    EngineSeen,
    Event,
    JobCancelled,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
)
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.units import DAY_MS, HOUR_MS

QUEUE_EVERY_MS = 5_000
HISTORY_EVERY_MS = 30_000
NODES_EVERY_MS = 30_000
RETRY_MS = 2_000
"""How soon the ended jobs are asked for when one is no longer among the live ones."""
FIRST_MS = 30 * DAY_MS
"""How far back the first look reaches."""
OVERLAP_MS = HOUR_MS
"""How late an end may be told; this much is read again each time."""
START_OVERLAP_MS = DAY_MS
"""The same, after a start."""
LOST_MS = OVERLAP_MS
"""How long a job may be told of neither as live nor as ended, both answering all the while, before it is gone."""
SLICE = 4_000
"""Moments in one write."""
SLICE_APART = 400
"""The same beside driven clusters, whose decisions wait for it."""


@dataclass(slots=True)
class _Known:
    """What the log has of the cluster's jobs, by key."""

    live: dict[str, JobRecord] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    """Ends of tries that are over, as far back as they may be told again."""


class Recorder:
    """The leader's loop over one observed cluster."""

    def __init__(
        self, replica: Replica, cluster: str, observer: Observer, epoch: int, others: Set[str] = frozenset()
    ) -> None:
        """`others` are the clusters of other engines, whose nodes are not judged here."""
        self.replica = replica
        self.cluster = cluster
        self._others = others
        self._observer = observer
        self._scheduler = observer.scheduler.name
        self.epoch = epoch
        self.difference = Difference()
        self._heard = Heard()
        self._moments: list[Moment] = []
        self._done: dict[str, int] | None = None
        self._covered_ms = 0
        """`_done` has every end of the log since this time; whether an earlier end is new cannot be known."""
        self._position_ms: int | None = None
        """Up to when the ended jobs were read without fail."""
        self._missing: dict[str, int] = {}
        """Jobs that are live no longer and have no end, and when that was seen."""
        self._at: dict[str, int] = {}
        """When each question was last put."""
        self._nodes: tuple[NodeReport, ...] | None = None
        """Told, and not written yet."""
        self._unplaced: set[str] = set()
        self.waiting: Mapping[str, ForeignJob] = {}
        """Jobs of which it was told why they wait, by key."""

    def step(self, now_ms: int) -> Step:
        """Look if it is time, and write what is new, a slice at a time. Raises `Fenced` if deposed."""
        step = Step()
        now_ms = max(now_ms, self.replica.state.now_ms)
        if not self._moments:
            self._look(step, now_ms)
        if self._moments or self._nodes is not None:
            self._write(step, now_ms)
        if self._unplaced:
            step.errors.append(
                f"{len(self._unplaced)} jobs ran on nodes that {self._scheduler} no longer has; not counted"
            )
        return step

    @property
    def heard(self) -> Mapping[str, Heard]:
        """How the observer answers."""
        return {self.cluster: self._heard}

    # -- looking -------------------------------------------------------------------------------------------------

    def _due(self, what: str, every_ms: int, now_ms: int) -> bool:
        at_ms = self._at.get(what)
        return at_ms is None or not 0 <= now_ms - at_ms < every_ms

    def _look(self, step: Step, now_ms: int) -> None:
        if self._due("nodes", NODES_EVERY_MS, now_ms):
            self._at["nodes"] = now_ms
            try:
                self._nodes = self._observer.nodes()
            except EngineError as error:
                step.errors.append(f"nodes: {error}")
        if not self._due("queue", QUEUE_EVERY_MS, now_ms):
            return
        known_clusters = {kind.cluster for kind in self.replica.state.nodes.kinds}
        if self.cluster not in known_clusters and self._nodes is None:
            # Jobs are placed on nodes; until these are known there is nothing to place them on.
            return
        self._at["queue"] = now_ms
        queue: Sequence[ForeignJob] | None = None
        try:
            queue = _readable("queue", self._observer.jobs(), step)
        except EngineError as error:
            step.errors.append(f"queue: {error}")
        self._heard = Heard(self._heard.at_ms if queue is None else now_ms, queue is not None)
        known = self._known(now_ms)
        self._miss(queue, known, now_ms)
        history = self._history(step, known, now_ms)
        if queue is not None:
            self.waiting = {row.key: row for row in queue if row.reason}
        rows = events.merge_rows(queue or (), history)
        apart = events.is_apart(self.replica.state, self.cluster)
        self._moments = events.find_moments(rows, known.live, known.done, now_ms, apart)

    def _known(self, now_ms: int) -> _Known:
        replica = self.replica
        with replica.lock:
            replica.catch_up()
            live = events.find_tries(replica.state, self.cluster)
        if self._done is None:
            self._done = self._from_history(now_ms)
        return _Known(live, self._done)

    def _from_history(self, now_ms: int) -> dict[str, int]:
        """Tries that are over, from the store: those whose ends may be told again."""
        last = next((row for row in self._ended(0) if self._key(row)), None)
        if last is not None:
            self._position_ms = last[4]
        from_ms = (self._position_ms or now_ms) - START_OVERLAP_MS - OVERLAP_MS
        self._covered_ms = from_ms if last is not None else 0
        found: dict[str, int] = {}
        for row in self._ended(from_ms):
            if key := self._key(row):
                # One that was changed has ended twice: as it was, and as it became.
                found[key] = max(found.get(key, 0), row[4])
        return found

    def _ended(self, from_ms: int) -> Iterator[tuple[Any, ...]]:
        """Tries that have ended since then, of all observed clusters, the last one first."""
        before: tuple[int, int] | None = None
        while rows := self.replica.store.history.ended_since(from_ms, before, first_id=FIRST_EXTERNAL_ID):
            yield from rows
            before = (rows[-1][4], rows[-1][0])

    def _key(self, row: tuple[Any, ...]) -> str:
        """Of a try that has ended; empty: it is another cluster's."""
        origin = json.loads(row[6])["spec"].get("origin", "")
        return events.parse_key(self.replica.state, self.cluster, origin)

    def _miss(self, queue: Sequence[ForeignJob] | None, known: _Known, now_ms: int) -> None:
        """Note the jobs that are live no longer. Time in which there was no answer does not count."""
        if queue is None:
            self._missing = dict.fromkeys(self._missing, now_ms)
            return
        here = {row.key for row in queue}
        gone = known.live.keys() - here
        self._missing = {key: self._missing.get(key, now_ms) for key in gone}

    def _history(self, step: Step, known: _Known, now_ms: int) -> list[ForeignJob]:
        """Jobs that ended, if it is time to ask; again an overlap of what was told before."""
        every_ms = RETRY_MS if self._missing else HISTORY_EVERY_MS
        if not self._due("history", every_ms, now_ms):
            return []
        first = "history" not in self._at
        self._at["history"] = now_ms
        reach_ms = START_OVERLAP_MS if first else OVERLAP_MS
        from_ms = now_ms - FIRST_MS if self._position_ms is None else self._position_ms - reach_ms
        waiting = [known.live[key].job.submitted_ms for key in self._missing if key in known.live]
        try:
            found = self._observer.ended(min([from_ms, *waiting]))
        except EngineError as error:
            step.errors.append(f"history: {error}")
            # There was no answer, and so none about these jobs.
            self._missing = dict.fromkeys(self._missing, now_ms)
            return []
        self._position_ms = max(self._position_ms or 0, now_ms)
        told = _readable("history", found, step)
        rows = [row for row in told if row.ended_ms >= self._covered_ms or row.key in known.live]
        self._forget_ends(known, from_ms - START_OVERLAP_MS)
        return rows

    def _forget_ends(self, known: _Known, before_ms: int) -> None:
        """Ends that are not asked about any more."""
        if before_ms - self._covered_ms < DAY_MS:
            return
        self._covered_ms = before_ms
        for key in [key for key, end_ms in known.done.items() if end_ms < before_ms]:
            del known.done[key]

    # -- writing -------------------------------------------------------------------------------------------------

    def _write(self, step: Step, now_ms: int) -> None:
        """One slice. What a failed write leaves is thrown away, and found again at the next look."""
        size = SLICE_APART if self._others else SLICE
        part, self._moments = self._moments[:size], self._moments[size:]
        done: dict[str, int] = {}

        def make(draft: Draft) -> None:
            if self._nodes is not None:
                _add_nodes(draft, self._nodes, self.cluster, self._others)
            places = {tenant.path.rpartition("/")[2]: tenant.path for tenant in draft.state.settings.tenants}
            ids = events.find_tries(draft.state, self.cluster)
            for moment in part:
                self._apply(draft, moment, places, ids, done, now_ms)
            if self._moments:
                return
            self._give_up(draft, ids, done, now_ms)
            if self._nodes is not None:
                self._judge_nodes(draft, self._nodes, now_ms)

        try:
            step.events += self.replica.commit(self.epoch, make)
        except BaseException:
            self._moments, self._done = [], None
            raise
        if self._done is not None:
            self._done.update(done)
        if not self._moments:
            self._nodes = None

    def _apply(
        self,
        draft: Draft,
        moment: Moment,
        places: dict[str, str],
        ids: dict[str, JobRecord],
        done: dict[str, int],
        now_ms: int,
    ) -> None:
        state, row, key = draft.state, moment.row, moment.key
        at_ms = min(max(moment.at_ms, state.now_ms), max(now_ms, state.now_ms))
        record = ids.get(key)
        if moment.kind is MomentKind.SUBMIT:
            if record is None and key not in done and not self._nowhere(state, row, key):
                draft.add(
                    events.submission_event(state, self.cluster, row, key, self._tenant(row, places), at_ms)
                )
                ids[key] = state.jobs[state.last_external_id]
            return
        if record is None or record.id not in state.jobs:
            return
        if moment.kind is MomentKind.SETTLE:
            _offer(
                draft,
                events.hold_events(record, row, at_ms, events.is_apart(state, self.cluster)),
            )
        elif moment.kind is MomentKind.START and record.phase is None:
            tenant = self._tenant(row, places)
            if events.has_changed(state, self.cluster, record, row, tenant):
                # A job is what it was submitted as: what it has become is another one, and is charged as such.
                draft.add(JobCancelled(at_ms, record.id))
                draft.add(events.submission_event(state, self.cluster, row, key, tenant, at_ms))
                ids[key] = record = state.jobs[state.last_external_id]
            name = self._observer.name
            _offer(draft, events.start_events(state, self.cluster, record, row, at_ms, name))
        elif moment.kind is MomentKind.FREEZE:
            _offer(draft, events.suspension_events(record, row, at_ms))
        elif moment.kind in (MomentKind.END, MomentKind.LAST):
            draft.add(events.end_event(record, row, at_ms, self._scheduler))
            done[key] = row.ended_ms
            ids.pop(key, None)

    def _tenant(self, row: ForeignJob, places: dict[str, str]) -> str:
        above = places.get(row.account, row.account)
        return "/".join(part for part in (above, row.member or row.user) if part) or self._observer.name

    def _nowhere(self, state: State, row: ForeignJob, key: str) -> bool:
        """Whether it ran where the replica has no node: in a past that had others."""
        if row.started_ms and not events.find_nodes(state, self.cluster, row):
            self._unplaced.add(key)
            return True
        return False

    def _give_up(self, draft: Draft, ids: dict[str, JobRecord], done: dict[str, int], now_ms: int) -> None:
        """Jobs of which nothing was told for long."""
        if self._at.get("history") is None:
            return
        for key, since_ms in self._missing.items():
            record = ids.get(key)
            if record is not None and record.id in draft.state.jobs and now_ms - since_ms >= LOST_MS:
                draft.add(events.forgotten_event(record, max(now_ms, draft.state.now_ms), self._scheduler))
                done[key] = now_ms

    def _judge_nodes(self, draft: Draft, told: Sequence[NodeReport], now_ms: int) -> None:
        """Which nodes take work, as the cluster says."""
        state, by = draft.state, self._observer.name
        at_ms = max(now_ms, state.now_ms)
        here = {report.node.name: report for report in told}
        for (where, name), number in list(state.node_number.items()):
            if where in self._others:
                continue
            report = here.get(name) if where == self.cluster else None
            drained = report.drained if report is not None else ""
            down = f"it is no longer in {self._scheduler}" if report is None else ""
            if report is not None and not report.up and not drained:
                down = report.why or f"down in {self._scheduler}"
            if bool(state.nodes.down[number]) != bool(down):
                draft.add(NodeDown(at_ms, number, down) if down else NodeUp(at_ms, number))
            if bool(state.nodes.cordoned[number]) != bool(drained):
                draft.add(
                    NodeCordoned(at_ms, number, drained, by) if drained else NodeUncordoned(at_ms, number, by)
                )


def _readable(what: str, found: ForeignJobs, step: Step) -> Sequence[ForeignJob]:
    """The readable rows; the others are reported as errors, because their use is charged to no tenant."""
    if found.unread:
        step.errors.append(f"{what}: {found.unread} rows could not be read: {found.why}")
    return found.jobs


def _offer(draft: Draft, found: Sequence[Event]) -> None:
    for event in found:
        draft.offer(event)


def _add_nodes(draft: Draft, told: Sequence[NodeReport], cluster: str, others: Set[str]) -> None:
    """Nodes that are new, from the beginning of what the log tells on."""
    state = draft.state
    if cluster in state.nodes.lacks:
        # It was driven before. What its own scheduler starts, it can do.
        draft.add(EngineSeen(state.now_ms, cluster))
    for node in [report.node for report in told if report.node.pool]:
        number = find_node(state, node, others)
        if number is None:
            draft.add(NodeAdded(state.now_ms, node))
        elif state.nodes.node[number] != node and (
            not state.nodes.attempts_on[number] or state.nodes.may_rename(number, node)
        ):
            draft.offer(NodeChanged(state.now_ms, number, node))
