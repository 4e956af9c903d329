"""What lies ahead: when a job will start, and what would become of one that is not submitted yet.

The replica is locked only while it is read. The rest happens in a process of its own, at the lowest priority that
still gets there, and an answer is kept for as long as nothing has changed.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.admission.wanted import NewJob, Wanted
from gpuyard.control.commands.changes import Change, Revise
from gpuyard.control.commands.requests import Rehearsal, RequestService
from gpuyard.control.foresight.oracle import Foresight, Question, answer_of, estimate_cost, foresee, how_of
from gpuyard.control.refusals import CouldNever, Overloaded
from gpuyard.control.replica.labels import Label, find_live
from gpuyard.control.replica.questions import QuestionRunner, StatePassed
from gpuyard.control.replica.replica import Replica
from gpuyard.control.views.views import Views
from gpuyard.model import JobSpec, JobState
from gpuyard.model.serialise import from_plain
from gpuyard.model.units import DAY_MS, MINUTE_MS, NO_LIMIT_MS
from gpuyard.sim.calibration import GivenEstimate, Track
from gpuyard.sim.forecast import find_quantile
from gpuyard.sim.pastjobs import PastJob
from gpuyard.store import HistoryQuery, HistoryRow, Store
from gpuyard.wire.replies.jobs import DryRunReply, EtaReply

JOBS_MAX = 5_000
PAGE = 1_000
DAYS = 30
EVERY_MS = MINUTE_MS


class PastReader:
    """Reads and keeps them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._read_ms: int | None = None
        self._jobs: tuple[PastJob, ...] = ()

    def jobs(self, now_ms: int) -> tuple[PastJob, ...]:
        """Jobs that ended lately."""
        with self._lock:
            if self._read_ms is None or not 0 <= now_ms - self._read_ms < EVERY_MS:
                self._jobs = self._found(now_ms)
                self._read_ms = now_ms
            return self._jobs

    def _found(self, now_ms: int) -> tuple[PastJob, ...]:
        specs: dict[JobSpec, JobSpec] = {}
        found: list[PastJob] = []
        before: int | None = None
        while len(found) < JOBS_MAX:
            query = HistoryQuery(ended_from_ms=now_ms - DAYS * DAY_MS, before_id=before, limit=PAGE)
            rows = self._store.history.search(query)
            past = [_past(row, specs) for row in rows if "spec" in row.detail]
            found += [each for each in past if not each.spec.elsewhere]
            if len(rows) < PAGE:
                break
            before = rows[-1].id
        return tuple(found)


def _past(row: HistoryRow, specs: dict[JobSpec, JobSpec]) -> PastJob:
    # How it is run makes no difference to when others start, and without it many are equal.
    spec = replace(from_plain(JobSpec, row.detail["spec"]), work=None, recipe="", recipe_bytes=0, after=())
    spec = specs.setdefault(spec, spec)
    run_ms = max(0, row.ended_ms - row.started_ms) if row.started_ms else -1
    limit_ms = min(row.detail.get("limit_ms", NO_LIMIT_MS), NO_LIMIT_MS)
    return PastJob(row.submitted_ms, spec, row.gpus_milli, limit_ms, run_ms)


SEED = 1
BUDGET_S = 2.0
"""CPU seconds for one answer."""

KEPT_S = 10.0
"""How long an answer is given again while nothing has changed."""
_KEPT_MAX = 1000
_TRIED_MAX = 5
"""How often a rehearsal is begun again because others have written in between."""

PERCENTS = (50, 90)


class Foresights:
    """Estimates and rehearsals, and what they remember."""

    def __init__(
        self,
        replica: Replica,
        requests: RequestService,
        views: Views,
        think: QuestionRunner,
        now_ms: Callable[[], int],
    ) -> None:
        self._replica = replica
        self._requests = requests
        self._views = views
        self._think = think
        self._now_ms = now_ms
        self._past = PastReader(replica.store)
        self._track = Track()
        self._learning = threading.Lock()
        self._kept: dict[tuple[Any, ...], tuple[float, EtaReply]] = {}

    # -- when ----------------------------------------------------------------------------------------------------

    def estimate(self, label: Label, seed: int = SEED, sight: Sight = ALL) -> EtaReply:
        """By when a job starts; for an array, the next of its tasks. One out of sight is not found."""
        replica = self._replica
        with replica.lock:
            replica.catch_up()
            key = (replica.seq, label, seed)
            records = [r for r in find_live(replica.state, label) if sight.sees(r.job.spec.tenant)]
            waiting = [record for record in records if record.state is JobState.PENDING]
            kept = self._kept.get(key)
            if waiting and kept is not None and time.monotonic() - kept[0] < KEPT_S:
                return kept[1]
            seq = replica.seq
            now_ms = max(self._now_ms(), replica.state.now_ms)
        if not waiting:
            return self._not_waiting(label, now_ms, sight)
        first = waiting[0]
        if first.job.spec.elsewhere:
            how = "it waits in a cluster that schedules itself"
            return {**answer_of(now_ms, first.state.value), "job": str(label), "how": how}
        question = Question(now_ms, first.id, self._past.jobs(now_ms), seed, BUDGET_S)
        found = self._think.elsewhere(foresee, question, seq=seq)
        if found is None:
            return self._not_waiting(label, now_ms, sight)
        said = self._said(found, first.id, now_ms, seed)
        said["job"] = str(label)
        said["task"] = first.job.label if first.job.label != str(label) else None
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[key] = (time.monotonic(), said)
        return said

    def _not_waiting(self, label: Label, now_ms: int, sight: Sight) -> EtaReply:
        """A job that runs or has ended; raises where there is none."""
        view = self._views.job(label, brief=True, sight=sight)
        started_ms = None if "array" in view else view["started_ms"]
        return {
            **answer_of(now_ms, view["state"]),
            "job": str(label),
            "started_ms": started_ms,
            "how": how_of(view["state"], started_ms, now_ms),
        }

    def _said(self, found: Foresight, job_id: int, now_ms: int, seed: int) -> EtaReply:
        """The answer, with what past estimates taught."""
        with self._learning:
            return self._learned(found, job_id, now_ms, seed)

    def _learned(self, found: Foresight, job_id: int, now_ms: int, seed: int) -> EtaReply:
        self._settle()
        raw = {percent: find_quantile(found.waits_ms, percent, found.runs) for percent in PERCENTS}
        told = {p: None if w is None else self._track.stretched(p, w, now_ms) for p, w in raw.items()}
        if told[50] is not None and told[90] is not None:
            told[90] = max(told[50], told[90])
        stretch = {percent: self._track.stretch(percent, now_ms) for percent in PERCENTS}
        if job_id and raw[50] is not None and raw[90] is not None and not found.left_out_ahead:
            self._track.give(job_id, GivenEstimate(now_ms, {50: raw[50], 90: raw[90]}))
        return answer_of(now_ms, found.state, found, told, stretch, self._track.count, seed)

    def _settle(self) -> None:
        """Hold the estimates given so far against what became of the jobs."""
        replica = self._replica
        missing = []
        with replica.lock:
            for job_id in self._track.open:
                record = replica.state.jobs.get(job_id)
                if record is None:
                    missing.append(job_id)
                elif record.state is not JobState.PENDING:
                    self._track.started(job_id, record.started_ms)
        for job_id in missing:
            row = replica.store.history.find(job_id)
            if row is not None and row.started_ms and row.attempts == 1:
                self._track.started(job_id, row.started_ms)
            elif row is not None:
                self._track.gone(job_id)

    # -- what if -------------------------------------------------------------------------------------------------

    def rehearse(self, person: Person, new: NewJob) -> DryRunReply:
        """What would become of a job."""

        def submitted() -> Rehearsal:
            events = self._requests.rehearse(person, new)
            first: Any = events[0]
            return Rehearsal(first.at_ms, first.job, tuple(events))

        return self._rehearse(person, submitted, new.wanted)

    def rehearse_change(self, person: Person, change: Change, text: str, revise: Revise) -> DryRunReply:
        """What would become of a job with a change; of an array, of the next of its tasks."""
        return self._rehearse(person, lambda: self._requests.rehearse_change(person, change, text, revise))

    def _rehearse(
        self, person: Person, make: Callable[[], Rehearsal], new: Wanted | None = None
    ) -> DryRunReply:
        for _attempt in range(_TRIED_MAX):
            with suppress(StatePassed):
                return self._rehearsed(person, make, new)
        raise Overloaded("too much happens at once to say what would become of it", "Try again in a moment.")

    def _rehearsed(self, person: Person, make: Callable[[], Rehearsal], new: Wanted | None) -> DryRunReply:
        with self._replica.lock:
            try:
                now_ms, job, events = make()
            except CouldNever as never:
                return {"would_run": False, "why_never": never.message, "hint": never.hint}
            seq = self._replica.seq
        # Everything the array brings comes along, for its own tasks stand in each other's way.
        question = Question(
            now_ms,
            job.id,
            self._past.jobs(now_ms),
            SEED,
            BUDGET_S,
            events,
            person.sight.whole,
        )
        found = self._think.elsewhere(foresee, question, seq=seq, exact=True)
        assert found is not None
        tasks = new.tasks_of_array if new is not None else 1
        said = self._said(found, 0, now_ms, SEED)
        return {
            "job": None,
            "task": None,
            "state": said["state"],
            "now_ms": said["now_ms"],
            "started_ms": None,
            "starts_by_ms": said["starts_by_ms"],
            "not_before_ms": said["not_before_ms"],
            "left_out_ahead": said["left_out_ahead"],
            "never_of_runs": said["never_of_runs"],
            "runs": said["runs"],
            "bound_ms": said["bound_ms"],
            "how": said["how"],
            "basis": said["basis"],
            "seed": said["seed"],
            "would_run": True,
            "id": job.array_id if new is not None and job.array_id else job.id,
            "name": job.spec.name,
            "tenant": job.spec.tenant,
            "tasks": tasks,
            "gpus": found.gpu_milli / 1000,
            "starts_now": bool(found.nodes),
            "nodes": found.nodes,
            "why": found.reasons,
            "helps": found.helps,
            "cost": estimate_cost(found, tasks),
        }
