"""Pure: the state of an attempt, from the files in its folder and from what Slurm says.

Nothing is concluded from silence. ENDED needs an end that a node wrote, or a final state of Slurm for the very job
that took the claim; without a claim and without a job the attempt is UNKNOWN, and may be handed in again under the
same key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.engines.contract import AttemptReport, Phase
from gpuyard.engines.node import files
from gpuyard.engines.slurm import plan as plans
from gpuyard.engines.slurm.words.queue import SlurmJob
from gpuyard.engines.slurm.words.states import find_outcome
from gpuyard.model import Outcome

ENGINE_CLAIM = 0
"""The number in a claim that the engine itself took: no job of Slurm has it."""


DOOM_MS = 2_500
UNCLAIMED_MS = 300_000
"""How long after the handoff a job that Slurm calls running may take to reach its wrapper: a prolog may be slow."""
_NOT_THE_PLACE = (
    "assoc",
    "qos",
    "jobhelduser",
    "begintime",
    "dependency",
    "licenses",
    "invalid",
    "maxgres",
    "maxcpu",
)
"""Beginnings of Slurm's reasons because of the user or account: the job would wait on any node."""


@dataclass(frozen=True, slots=True)
class Traces:
    """What is known of one attempt."""

    end: dict[str, Any] | None = None
    claimed_by: int | None = None
    """The number of the Slurm job that claimed it, 0 for the engine; None: it is not claimed."""
    claimed_ms: int = 0
    news: dict[str, Any] | None = None
    halt: dict[str, Any] | None = None
    doomed_ms: int = 0
    """When processes that may be left of it were asked to end; 0: they were not."""
    submitted_ms: int = 0
    """When it was last handed in; 0: never."""
    limit_ms: int | None = None
    """The time limit that it is held to; None: not known."""
    alive: bool = False
    """Whether its wrapper has given a sign of life lately."""
    checkpoint_ms: int = 0


@dataclass(frozen=True, slots=True)
class WriteEnd:
    """No node wrote its end, and none will: this is the end, if with `unclaimed` the engine gets the claim."""

    outcome: Outcome
    why: str
    unclaimed: bool = False
    unwritten: bool = False
    """Whether a node should have written its end, which may take a moment to be seen."""
    bad_place: bool = False
    """Whether its nodes are to be left out for a while."""
    started_ms: int = 0
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class WithdrawLate:
    """Slurm did not start it in time. It is to be taken back and decided again."""

    why: str
    bad_place: bool = True
    """Whether its nodes are to be left out for a while."""


@dataclass(frozen=True, slots=True)
class MarkLost:
    """Slurm has given a node up: processes that still live there are asked to end, and get a moment for it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A report, and what to do first where it is not final."""

    report: AttemptReport
    todo: WriteEnd | WithdrawLate | MarkLost | None = None
    extra: tuple[SlurmJob, ...] = ()
    """Jobs of Slurm under this key that can run nothing any more: to be cancelled."""


def judge(
    key: str,
    traces: Traces,
    jobs: Sequence[SlurmJob] | None,
    *,
    asked_ms: int,
    now_ms: int,
    handoff_ms: int,
    reached_ms: int = 0,
) -> Verdict:
    """The state of an attempt. `jobs`: Slurm's jobs under its key; None: Slurm is out of reach.

    `reached_ms`: since when it has been in reach without a break.
    """
    if traces.end is not None:
        return _ended(key, traces, traces.end, jobs, now_ms)
    if traces.claimed_by == ENGINE_CLAIM:
        # It stopped between the claim and the end.
        wish = (traces.halt or {}).get("outcome", Outcome.PREEMPTED.value)
        return Verdict(_unknown(key), WriteEnd(Outcome(wish), "stopped before it ran"))
    if jobs is None:
        phase = Phase.STARTING if traces.claimed_by is None and traces.submitted_ms else Phase.UNKNOWN
        if traces.claimed_by is not None:
            phase = _phase(traces)
        return Verdict(_report(key, phase, traces))
    if traces.claimed_by is not None:
        return _claimed(key, traces, jobs, now_ms)
    waited_ms = now_ms - max(traces.submitted_ms, reached_ms) if traces.submitted_ms else 0
    return _unclaimed(key, traces, jobs, asked_ms, waited_ms, handoff_ms)


def _ended(
    key: str, traces: Traces, end: dict[str, Any], jobs: Sequence[SlurmJob] | None, now_ms: int
) -> Verdict:
    extra = tuple([job for job in jobs or () if job.waits or job.state == "SUSPENDED"])
    if end["outcome"] != files.TOLD:
        report = plans.report_end(key, end, Outcome(end["outcome"]), now_ms)
        return Verdict(replace(report, gpus=plans.read_gpus(traces.news)), extra=extra)
    # Slurm ended it, so Slurm knows what to call it.
    mine = [job for job in jobs or () if job.first_id == end["slurm_id"]]
    if jobs is None or any([find_outcome(job.state) is None for job in mine]):
        return Verdict(_report(key, Phase.STOPPING, traces))
    outcome, why = Outcome.NODE_FAIL, "Slurm ended it and no longer knows why"
    if mine:
        outcome = find_outcome(mine[0].state) or Outcome.FAILED
        why = f"Slurm ended it: {mine[0].state}"
    if outcome is Outcome.COMPLETED:
        outcome = Outcome.FAILED
    if outcome is Outcome.FAILED:
        why = end["why"] or why
    settle = WriteEnd(outcome, why, started_ms=end["started_ms"], exit_code=end["exit_code"])
    return _settled(key, traces, settle, now_ms)


def _settled(key: str, traces: Traces, settle: WriteEnd, now_ms: int) -> Verdict:
    """The end that Slurm names. A lost node may only be out of its reach, so processes are ended there first."""
    told = bool(traces.doomed_ms)
    if settle.outcome is Outcome.NODE_FAIL and not (told and now_ms - traces.doomed_ms >= DOOM_MS):
        return Verdict(_report(key, Phase.STOPPING, traces), None if told else MarkLost())
    return Verdict(_unknown(key), settle)


def _claimed(key: str, traces: Traces, jobs: Sequence[SlurmJob], now_ms: int) -> Verdict:
    mine = [job for job in jobs if job.first_id == traces.claimed_by]
    extra = tuple([job for job in jobs if job.first_id != traces.claimed_by and job.waits])
    states = {job.state for job in mine}
    started_ms = (traces.news or {}).get("started_ms", traces.claimed_ms)
    if any([job.lives or job.waits for job in mine]):
        if "COMPLETING" in states:
            phase = Phase.STOPPING
        elif states & {"SUSPENDED", "STOPPED"}:
            phase = Phase.SUSPENDED if traces.halt is None else Phase.STOPPING
        else:
            phase = _phase(traces)
        return Verdict(_report(key, phase, traces), extra=extra)
    if mine:
        worst = [job.state for job in mine if job.state != "COMPLETED"] or ["FAILED"]
        outcome = find_outcome(worst[0]) or Outcome.FAILED
        if traces.halt is not None and outcome is not Outcome.NODE_FAIL:
            outcome = Outcome(traces.halt["outcome"])
        settle = WriteEnd(outcome, f"Slurm ended it: {worst[0]}", started_ms=started_ms, unwritten=True)
        return _settled(key, traces, settle, now_ms)
    # Slurm has forgotten it. Its wrapper may still live.
    return Verdict(_report(key, _phase(traces), traces) if traces.alive else _unknown(key), extra=extra)


def _unclaimed(
    key: str, traces: Traces, jobs: Sequence[SlurmJob], asked_ms: int, waited_ms: int, handoff_ms: int
) -> Verdict:
    live = [job for job in jobs if job.lives or job.waits]
    report = _report(key, Phase.STARTING, traces)
    if live:
        return Verdict(report, _late(live, waited_ms, handoff_ms))
    if traces.submitted_ms >= asked_ms:
        # Handed in after Slurm was asked, so it cannot be in the answer.
        return Verdict(report)
    if not jobs:
        return Verdict(_unknown(key))
    # Nothing of it ran, so it waits again, even if Slurm calls it cancelled: Slurm cancels a job by itself if it got
    # the number of one that still runs. A user who wants it gone for good cancels it in the yard.
    newest = max(jobs, key=lambda job: (job.submit_s, job.id))
    why = f"Slurm ended it before it ran: {newest.state}"
    bad_place = find_outcome(newest.state) is not Outcome.CANCELLED
    return Verdict(report, WriteEnd(Outcome.PREEMPTED, why, unclaimed=True, bad_place=bad_place))


def _late(live: Sequence[SlurmJob], waited_ms: int, handoff_ms: int) -> WithdrawLate | None:
    """Whether it has waited too long for Slurm to start it, or for its wrapper to begin."""
    reason = live[0].reason or "no reason given"
    if not all([job.waits for job in live]):
        if waited_ms < handoff_ms + UNCLAIMED_MS:
            return None
        return WithdrawLate(
            f"Slurm says that it runs, and its wrapper has not begun for {waited_ms // 1000} s"
        )
    if any([word in job.reason.lower() for job in live for word in ("launch failed", "jobheldadmin")]):
        # Slurm will not start it however long one waits.
        return WithdrawLate(f"Slurm did not start it: {reason}")
    if waited_ms < handoff_ms:
        return None
    place = not reason.lower().startswith(_NOT_THE_PLACE)
    return WithdrawLate(f"Slurm did not start it within {handoff_ms // 1000} s: {reason}", bad_place=place)


def _phase(traces: Traces) -> Phase:
    if traces.halt is not None:
        return Phase.STOPPING
    return Phase.RUNNING if traces.news is not None else Phase.STARTING


def _report(key: str, phase: Phase, traces: Traces) -> AttemptReport:
    return AttemptReport(
        key,
        phase,
        started_ms=(traces.news or {}).get("started_ms", 0),
        checkpoint_ms=traces.checkpoint_ms,
        saved_by_now=True,
        gpus=plans.read_gpus(traces.news),
        limit_ms=traces.limit_ms,
    )


def _unknown(key: str) -> AttemptReport:
    return AttemptReport(key, Phase.UNKNOWN)
