"""The state of attempts: combines the folder and Slurm's queue, and does what follows."""

import os
import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuyard.engines.contract import AttemptReport, Permanent, Phase
from gpuyard.engines.machine.files import read_own
from gpuyard.engines.machine.launches import find_key_flaw
from gpuyard.engines.machine.readers import Readers
from gpuyard.engines.node import files
from gpuyard.engines.slurm import plan as plans
from gpuyard.engines.slurm.attempt_state import MarkLost, Traces, Verdict, WithdrawLate, WriteEnd, judge
from gpuyard.engines.slurm.calls.client import Client, Queue, Reach
from gpuyard.engines.slurm.calls.commands import OutOfReach, Refusal
from gpuyard.engines.slurm.folder import SUBMIT, Folder, check_news
from gpuyard.engines.slurm.words.queue import SlurmJob, index_by_comment
from gpuyard.engines.slurm.words.states import find_outcome
from gpuyard.model import Outcome

STALE_S = 3 * files.BEAT_S
"""A wrapper without a sign of life for this long is not counted on."""
SURE_S = 2 * files.LEASE_S
"""A wrapper without a sign of life for this long has ended its tasks: it had to."""
LINGER_S = 10.0
"""How long after the end of its attempt a Slurm job may go on before it is cancelled."""
_END_S = 2.0
_PAST_S, _SILENT_S, _LAG_S = 2.0, 30.0, 600.0
"""How soon the accounting is asked again: where it lags, and where it does not answer; and how long it may lag."""
_SAME_MS = 180_000
"""How far Slurm's time of a submission may differ from ours: the clocks, and how long the command took."""
_OLD_S_MIN, _OLD_S_MAX = 0.5, 5.0


@dataclass(slots=True)
class KnownAttempt:
    """What does not change about an attempt, and its last sign of life."""

    uid: int
    gid: int
    checkpoint: str
    parts: dict[str, list[int]]
    """GPUs of each node as the yard counts them."""
    limit_ms: int | None = None
    """The time limit that it was started with."""
    grace_ms: int = 0
    final_s: float = 0.0
    """When Slurm was first seen to be done with it while no end was there."""
    beat: float = 0.0
    past_s: float = 0.0
    """When the accounting was first asked about it."""
    ask_past_s: float = 0.0
    """When it may be asked again."""
    beat_s: float = 0.0
    """When that sign was first seen, on our own clock: the clocks of the nodes may differ."""


class AttemptMonitor:
    """Answers for attempts. Not for several threads at once: the engine holds a lock."""

    def __init__(
        self,
        folder: Folder,
        client: Client,
        handoff_ms: int,
        put_aside: Callable[[Sequence[str], str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._folder, self._client = folder, client
        self._handoff_ms = handoff_ms
        self._put_aside = put_aside
        self._now_ms = now_ms
        self.readers = Readers()
        self._ended: dict[str, AttemptReport] = {}
        self._known: dict[str, KnownAttempt] = {}
        self._lingering: dict[int, float] = {}
        self.linger_s = LINGER_S
        self._queue: Queue | None = None
        self._queue_s = 0.0

    # ---- Slurm's queue

    def queue(self, *, fresh: bool = False) -> Queue:
        """Slurm's jobs; a moment old where asking is slow. Raises `OutOfReach`."""
        held = self._queue
        age_s = time.monotonic() - self._queue_s
        if held is not None and not fresh and age_s < min(_OLD_S_MAX, max(_OLD_S_MIN, 4 * held.took_s)):
            return held
        self._queue = self._client.queue()
        self._queue_s = time.monotonic()
        return self._queue

    # ---- answering

    def look(self, keys: Sequence[str]) -> list[AttemptReport]:
        """The state of these attempts. Slurm is asked once for all of them, and only if one has not ended."""
        open_keys = [key for key in dict.fromkeys(keys) if key not in self._ended and self.known(key)]
        jobs: dict[str, list[SlurmJob]] | None = {}
        asked_ms = 0
        if open_keys:
            try:
                queue = self.queue()
                jobs, asked_ms = index_by_comment(queue.jobs), queue.asked_ms
            except OutOfReach:
                jobs = None
        found = {key: self._look(key, jobs, asked_ms) for key in open_keys}
        return [self._ended.get(key) or found.get(key) or AttemptReport(key, Phase.UNKNOWN) for key in keys]

    def _look(self, key: str, jobs: dict[str, list[SlurmJob]] | None, asked_ms: int) -> AttemptReport:
        known = self._known[key]
        mine = None
        if jobs is not None:
            # Any user may write a comment: only jobs of the attempt's own user are taken for it.
            mine = [job for job in jobs.get(self._folder.mark(key), ()) if job.uid == known.uid]
        traces = self.traces(key, known)
        if mine is not None and traces.end is not None and traces.end["outcome"] == files.TOLD:
            mine = self._with_past(known, traces, traces.end["slurm_id"], mine)
        now_ms = self._now_ms()
        finding = judge(
            key,
            traces,
            mine,
            asked_ms=asked_ms,
            now_ms=now_ms,
            handoff_ms=self._handoff_ms,
            reached_ms=self._reached_ms(now_ms),
        )
        return self._follow(key, known, traces, finding, mine or [])

    def _follow(
        self, key: str, known: KnownAttempt, traces: Traces, finding: Verdict, jobs: Sequence[SlurmJob]
    ) -> AttemptReport:
        report = finding.report
        match finding.todo:
            case WriteEnd() as settle:
                if settle.unwritten and self._too_soon(known):
                    report = AttemptReport(key, Phase.STOPPING, started_ms=settle.started_ms)
                else:
                    report = self._settle(key, known, settle)
            case MarkLost():
                self._folder.put(key, files.DEAD, {"at_ms": self._now_ms()})
            case WithdrawLate(why, bad_place):
                report = self.withdraw(key, known, Outcome.PREEMPTED, why)
                if report.phase is Phase.ENDED:
                    # It has not started up to this very moment, and cannot any more.
                    if bad_place:
                        self._put_aside(list(known.parts), why)
                    self.cancel(jobs)
            case None if report.outcome is Outcome.NODE_FAIL and not report.started_ms:
                # Not all of its nodes were ready for the start.
                self._put_aside(list(known.parts), report.why)
        if finding.extra:
            self.cancel(finding.extra)
        if report.phase is Phase.ENDED:
            self._ended[key] = report
        return report

    def _with_past(
        self, known: KnownAttempt, traces: Traces, job_id: int, mine: list[SlurmJob]
    ) -> list[SlurmJob] | None:
        """Slurm ended it. If Slurm no longer knows how, the accounting does; None: that does not answer now."""
        if any([job.first_id == job_id for job in mine]):
            return mine
        now_s = time.monotonic()
        if now_s < known.ask_past_s:
            return None
        known.past_s = known.past_s or now_s
        try:
            past = self._client.past(job_id)
        except OutOfReach:
            known.ask_past_s = time.monotonic() + _SILENT_S
            return None
        except Permanent:
            # There is no accounting.
            return mine
        known.ask_past_s = time.monotonic() + _PAST_S
        # Numbers are given again after a crash.
        near = [(abs(job.submit_s * 1000 - traces.submitted_ms), job) for job in past if job.uid == known.uid]
        away_ms, job = min(near, key=lambda pair: pair[0], default=(_SAME_MS + 1, None))
        if job is None or away_ms > _SAME_MS:
            return mine
        if find_outcome(job.state) is None:
            # The accounting lags; or it lost the end, and says forever that the job runs.
            return None if now_s - known.past_s < _LAG_S else mine
        return [*mine, job]

    def _reached_ms(self, now_ms: int) -> int:
        """Since when Slurm has been in reach without a break; 0: always. While it was away it could start nothing."""
        reach: Reach | None = getattr(self._client, "reach", None)
        if reach is None or reach.returned_s is None:
            return 0
        return now_ms - int((time.monotonic() - reach.returned_s) * 1000)

    def _too_soon(self, known: KnownAttempt) -> bool:
        """Whether an end may still be on its way through a network file system."""
        known.final_s = known.final_s or time.monotonic()
        return time.monotonic() - known.final_s < _END_S

    def traces(self, key: str, known: KnownAttempt) -> Traces:
        """The traces in an attempt's folder."""
        folder, uid = self._folder, known.uid
        # List the folder instead of asking for a name: a network file system caches that a name was not there.
        here = set(files.list_names(folder.run(key)))
        above = set(files.list_names(folder.attempt(key)))
        end = folder.end(key, uid) if files.END in above | here else None
        claim = folder.told(key, files.CLAIM, uid) if files.CLAIM in here else None
        submit = (folder.own(key, SUBMIT) or {}) if SUBMIT in above else {}
        claimed_by = claim.get("slurm_id") if claim else None
        if files.CLAIM in here and type(claimed_by) is not int:
            # Taken, though its content cannot be trusted: no job can take it again.
            claimed_by = -1
        return Traces(
            end=end,
            claimed_by=claimed_by,
            claimed_ms=claim["at_ms"] if claim and type(claim.get("at_ms")) is int else 0,
            news=check_news(folder.told(key, files.NEWS, uid)) if files.NEWS in here else None,
            halt=folder.own(key, files.HALT) if files.HALT in above else None,
            doomed_ms=(folder.own(key, files.DEAD) or {}).get("at_ms", 0) if files.DEAD in above else 0,
            submitted_ms=submit.get("at_ms", 0),
            limit_ms=self._limit_ms(key, known, above),
            alive=self.silent_s(key, known) < STALE_S,
            checkpoint_ms=self._checkpoint_ms(known),
        )

    def _limit_ms(self, key: str, known: KnownAttempt, above: Container[str]) -> int | None:
        found = self._folder.own(key, files.LIMIT) if files.LIMIT in above else None
        return found["limit_ms"] if found is not None else known.limit_ms

    def silent_s(self, key: str, known: KnownAttempt) -> float:
        """How long its wrapper has given no sign of life, as far as we have watched."""
        beat, now_s = files.read_change_s(os.path.join(self._folder.run(key), files.BEAT)), time.monotonic()
        if beat != known.beat or not known.beat_s:
            known.beat, known.beat_s = beat, now_s
        return now_s - known.beat_s

    def _checkpoint_ms(self, known: KnownAttempt) -> int:
        return max(0, min(int(files.read_change_s(known.checkpoint) * 1000), self._now_ms()))

    def known(self, key: str) -> KnownAttempt | None:
        """What does not change about an attempt; None: there is none of that key."""
        if found := self._known.get(key):
            return found
        if find_key_flaw(key):
            return None
        plan = self._folder.own(key, files.LAUNCH)
        if plan is None:
            return None
        # A wrapper of an earlier release heeds no other limit, and its launch says nothing of the one that it has.
        found = self._known[key] = KnownAttempt(
            plan["uid"],
            plan["gid"],
            plan["checkpoint"],
            plan["gpus"],
            plan.get("limit_ms"),
            plan.get("grace_ms", 0),
        )
        return found

    def drop(self, key: str) -> None:
        """Forget what is remembered of an attempt."""
        self._ended.pop(key, None)
        self._known.pop(key, None)

    # ---- what follows

    def _settle(self, key: str, known: KnownAttempt, settle: WriteEnd) -> AttemptReport:
        why = settle.why
        if settle.unclaimed:
            if said := self._last_words(key, known):
                why = f"{why}: {said}"
            if settle.bad_place:
                self._put_aside(list(known.parts), why)
            return self.withdraw(key, known, settle.outcome, why)
        end = plans.end_of(settle.outcome, why, settle.started_ms, self._now_ms(), settle.exit_code)
        end["checkpoint_ms"] = self._checkpoint_ms(known)
        self._folder.put(key, files.END, end, durable=True)
        return plans.report_end(key, end, settle.outcome, self._now_ms())

    def withdraw(self, key: str, known: KnownAttempt, outcome: Outcome, why: str) -> AttemptReport:
        """End an attempt that has not run, if it still has not: the claim decides."""
        if not self._folder.claim(key, self._now_ms()):
            claim = self._folder.told(key, files.CLAIM, known.uid) or {}
            if claim.get("slurm_id") != 0:
                return AttemptReport(key, Phase.STARTING)
        end: dict[str, Any] = plans.end_of(outcome, why, 0, self._now_ms())
        self._folder.put(key, files.END, end, durable=True)
        report = self._ended[key] = plans.report_end(key, end, outcome, self._now_ms())
        return report

    def give_up(self, key: str, known: KnownAttempt, outcome: Outcome) -> None:
        """End an attempt that has nothing left, so that it can be forgotten."""
        self._settle(
            key, known, WriteEnd(outcome, "nothing is left of it, neither on its nodes nor in Slurm")
        )

    def _last_words(self, key: str, known: KnownAttempt) -> str:
        """The batch script's complaint, where the wrapper never ran."""
        path = os.path.join(self._folder.run(key), "slurm.out")
        own = known.uid == os.geteuid()
        text = read_own(path, 0, 300) if own else self.readers.read(known.uid, known.gid, path, 0, 300)
        return " ".join(text.decode(errors="replace").split())

    def cancel(self, jobs: Sequence[SlurmJob]) -> None:
        """Cancel jobs in Slurm as well as possible now: they can run nothing, and are looked for again.

        Slurm is asked again first: after a crash it gives their numbers to other jobs. A job is ours only if its
        number, mark and time of submission still match.
        """
        with suppress(OutOfReach, Refusal):
            if jobs:
                ours = {(job.id, job.comment, job.submit_s) for job in jobs}
                there = [
                    job for job in self.queue(fresh=True).jobs if (job.id, job.comment, job.submit_s) in ours
                ]
                self._client.cancel(list(dict.fromkeys([job.first_id for job in there])))

    def tidy(self, ours: Callable[[SlurmJob], bool]) -> None:
        """Cancel Slurm jobs that outlive their attempts: the yard's books do not count what runs there."""
        with suppress(OutOfReach, Refusal):
            now_s = time.monotonic()
            left = [job for job in self.queue().jobs if (job.lives or job.waits) and ours(job)]
            left = [job for job in left if job.state != "COMPLETING"]
            self._lingering = {job.id: self._lingering.get(job.id, now_s) for job in left}
            self.cancel([job for job in left if now_s - self._lingering[job.id] >= self.linger_s])
