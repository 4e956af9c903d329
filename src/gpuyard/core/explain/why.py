"""Why a job waits, judged: the fewest reasons that explain it completely, each with what would lift it.

`explain` gives everything that is true of one pass. Much of that is lifted together, and some of it does not block the
job at all. Here the lifts are tried apart from the state. They are gathered until the job starts, and then each is left
out in turn: a lift that is not missed belongs to no blocker. So with all lifts applied the job starts, and without any
one of them it does not.
"""

from collections.abc import Iterable
from dataclasses import replace

from gpuyard.core.estimate.room_lifts import (
    Obstacles,
    find_nodes_to_add,
    find_obstacles,
    find_obstacles_on,
    make_servable,
)
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.explain.explain import BY_WEIGHT, Explanation, explain
from gpuyard.core.explain.line_reasons import set_aside_reasons
from gpuyard.core.explain.long_line import LOOKED_AT_MAX, LeftOutJobs, shorten
from gpuyard.core.explain.placement_reasons import make_unmarked
from gpuyard.core.explain.quota_reasons import tenant_reasons
from gpuyard.core.explain.remedies import wait_for_ends, wait_for_stops
from gpuyard.core.explain.what_if import Sandbox, Trial, Trials, copy_sandbox
from gpuyard.core.explain.why_line import blocking_reasons, line_reason, victims_reason
from gpuyard.core.explain.why_room import earmarked_reasons, kept_reason, obstacle_reasons
from gpuyard.core.fleet.shapes import Way
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.state.state import State
from gpuyard.model import (
    AskFor,
    BeginNow,
    Cure,
    EndJobs,
    LeaveLine,
    Lift,
    LimitTime,
    Reason,
    ReasonCode,
    ReleaseHold,
    Remedy,
    WithoutAfter,
)

_ROUNDS_MAX = 3
"""How often quotas and room are checked again after the findings were lifted."""
_LINE_ROUNDS = 6
"""How often the queue is searched for jobs in the way; each time more of them are taken."""
_SHRUNK_MAX = 64
"""If more jobs than this matter, no user would read which ones: all of them are named."""
_TRIALS_MIN, _TRIALS_SIZE = 8, 6000
"""How many copies may be made to find out which of several jobs matter: fewer where there are many jobs to copy."""


def explain_why(
    state: State,
    policy: Policy,
    job_id: int,
    now_ms: int,
    apart: Sandbox | None = None,
    *,
    spoilt: bool = False,
    looked_at_max: int = LOOKED_AT_MAX,
) -> Explanation | None:
    """The judged explanation of a job; None if there is no live job of that id.

    `apart` says how lifts are tried: on copies of the state, unless the caller has a cheaper way. With `spoilt`, the
    state is the caller's own and loses the part of a long queue that is not examined: beyond `looked_at_max` jobs.
    """
    told = explain(state, policy, job_id, now_ms)
    if told is None or not told.reasons:
        return told
    cut = shorten(state, state.jobs[job_id], looked_at_max) if spoilt else LeftOutJobs()
    found = replace(_judged(told, state, policy, now_ms, apart), left_out=cut.left_out)
    if not cut.ahead:
        return found
    return replace(found, reasons=tuple([_at_least(reason) for reason in found.reasons]))


def _at_least(reason: Reason) -> Reason:
    """If jobs ahead were left out, there may be more of them than the text says."""
    if reason.code is not ReasonCode.AHEAD or not isinstance(reason.lift, LeaveLine):
        return reason
    return replace(reason, text=f"at least {reason.text}")


def _judged(
    told: Explanation, state: State, policy: Policy, now_ms: int, apart: Sandbox | None
) -> Explanation:
    """The explanation, with only the reasons that are needed."""
    job_id = told.job_id
    trials = Trials(apart or copy_sandbox(state), policy, job_id, now_ms)
    gathered = trials.ask(lambda trial: _Gathering(trial).run())
    if gathered is None:
        return replace(told, reasons=(), start_ms=now_ms, how="it is about to start", judged=True)
    found = _Judging(trials, gathered, max(_TRIALS_MIN, _TRIALS_SIZE // len(state.jobs))).run()
    if found is None:
        return told
    needed, implied = found
    return replace(
        told,
        reasons=_by_weight(needed),
        implied=_by_weight(implied),
        helps=tuple([each for each in told.helps if trials.starts([each.lift])]),
        judged=True,
    )


def _by_weight(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple(sorted(reasons, key=lambda reason: BY_WEIGHT.index(reason.code)))


def _lifts(reasons: Iterable[Reason]) -> list[Lift]:
    return [reason.lift for reason in reasons if reason.lift is not None]


class _Gathering:
    """The blockers of one job, gathered in one trial in which each is lifted as soon as it is found."""

    def __init__(self, trial: Trial) -> None:
        self._job_id = trial.job_id
        self._trial = trial
        self._found: list[Reason] = []

    def run(self) -> list[Reason] | None:
        """All blockers; None: the job starts by time alone, which the state does not know yet."""
        if self._trial.starts():
            return None
        self._gather()
        return self._found

    def _gather(self) -> None:
        """Lift blockers until the job starts."""
        if self._add(set_aside_reasons(self._trial.state, self._trial.record, self._trial.now_ms)):
            return
        if self._add(self._impossible()) or self._trial.starts():
            return
        if self._trial.record.shape.walled and self._add(self._impossible()):
            # The nodes that the fleet lacked are behind a wall.
            return
        trial = self._trial
        stops = [stop.job_id for stop in trial.decide().stops if stop.for_job == trial.job_id]
        if stops and self._add([victims_reason(trial.state, stops)]):
            return
        for _round in range(_ROUNDS_MAX):
            new = self._quotas_and_room()
            if not new:
                break
            if self._add(new):
                return
        for number in range(_LINE_ROUNDS):
            if self._add(blocking_reasons(trial, number)):
                return
            if self._add(self._quotas_and_room()):
                return

    def _add(self, reasons: list[Reason]) -> bool:
        """Lift these reasons; return whether the job then starts."""
        new = [replace(reason, lift=self._own(reason.lift)) for reason in reasons if reason.lift is not None]
        if not new:
            return False
        self._trial.lift(_lifts(new))
        for reason in new:
            self._join(reason)
        return self._trial.starts()

    def _own(self, lift: Lift | None) -> Lift | None:
        """A lift of the job itself uses the job's real id, not that of a copy that was submitted again."""
        if isinstance(lift, ReleaseHold | BeginNow | WithoutAfter | AskFor | LimitTime):
            return replace(lift, job_id=self._job_id)
        return lift

    def _join(self, reason: Reason) -> None:
        """Add a blocker; a known one of the same kind is extended instead."""
        for at, known in enumerate(self._found):
            same = (known.code, known.by) == (reason.code, reason.by) and type(known.lift) is type(
                reason.lift
            )
            match known.lift, reason.lift:
                case (LeaveLine(before), LeaveLine(more)) if same:
                    self._found[at] = replace(reason, lift=LeaveLine(tuple(sorted({*before, *more}))))
                    return
                case (EndJobs(before), EndJobs(more)) if same:
                    self._found[at] = replace(known, lift=EndJobs(tuple(sorted({*before, *more}))))
                    return
                case _:
                    pass
        self._found.append(reason)

    def _impossible(self) -> list[Reason]:
        """What no engine can serve or no node can hold: change the ask if it is the cause, then the fleet."""
        trial = self._trial
        record = trial.record
        if record.shape.ways:
            return []
        if record.shape.walled:
            reason = impossible_reason(trial.state, record.job.spec, record.limit_ms)
            return [] if reason is None else [reason]
        reason = impossible_reason(trial.state, record.job.spec)
        ask = make_unmarked(trial.state, make_servable(record.job.spec.ask))
        if reason is not None and ask != record.job.spec.ask:
            lift = AskFor(self._job_id, ask)
            trial.lift([lift])
            self._found.append(replace(reason, lift=lift))
            if trial.starts():
                return []
        record = trial.record
        reason = impossible_reason(trial.state, record.job.spec) if not record.shape.ways else None
        return (
            [replace(reason, lift=find_nodes_to_add(trial.state, record.shape))] if reason is not None else []
        )

    def _quotas_and_room(self) -> list[Reason]:
        """Of all ways to serve the job, the one with the fewest quotas in the way, then the soonest."""
        trial = self._trial
        state, record, now_ms = trial.state, trial.record, trial.now_ms
        earmark = record.earmark
        if earmark is not None:
            model = state.nodes.kind_of[earmark.grants[0].node].model
            found = find_obstacles_on(state, record, earmark.grants, now_ms)
            return [*self._quotas(trial, model), *earmarked_reasons(state, record, found, now_ms)]
        best: tuple[int, int, list[Reason], Way, Obstacles] | None = None
        for way in record.shape.ways:
            quotas = self._quotas(trial, way.model)
            if self._trial.policy.place(state.nodes, record.shape, way, way.pools) is not None:
                found = Obstacles(0)
            else:
                found = find_obstacles(state, record, way, now_ms)
            if best is None or (len(quotas), found.when_ms) < best[:2]:
                best = (len(quotas), found.when_ms, quotas, way, found)
        if best is None:
            return []
        return [*best[2], *obstacle_reasons(state, record, best[3], best[4], now_ms)]

    def _quotas(self, trial: Trial, model: int) -> list[Reason]:
        if not self._trial.policy.spec.quotas:
            return []
        reasons = tenant_reasons(trial.state, trial.record, [model], trial.now_ms, False)
        limits = [r for r in reasons if isinstance(r.lift, LimitTime)]
        if limits:
            # One time limit covers all budgets: the shortest. What a budget still lacks shows after that.
            shortest = min(limits, key=lambda r: r.lift.limit_ms if isinstance(r.lift, LimitTime) else 0)
            reasons = [r for r in reasons if r not in limits or r is shortest]
        return reasons


class _Judging:
    """Finds out which of the gathered blockers are needed."""

    def __init__(self, trials: Trials, found: list[Reason], shrinks_max: int) -> None:
        self._trials = trials
        self._found = found
        self._shrinks_max = shrinks_max

    def run(self) -> tuple[list[Reason], list[Reason]] | None:
        """The blockers, and what is true besides; None: no way was found to let the job start."""
        if not self._trials.starts(_lifts(self._found)):
            self._found = self._everything()
            if not self._trials.starts(_lifts(self._found)):
                return None
        needed = self._needed(self._found)
        shrunk = self._shrunk(needed)
        if shrunk != needed:
            needed = self._needed(shrunk)
        needed = self._trials.ask(lambda trial: [_worded(trial, reason) for reason in needed])
        codes = {(reason.code, reason.by) for reason in needed}
        implied = [r for r in self._found if (r.code, r.by) not in codes and r.code is not ReasonCode.AHEAD]
        return needed, implied

    def _everything(self) -> list[Reason]:
        """Nothing else helped: remove all other jobs, running and waiting."""
        running, waiting = self._trials.ask(_others)
        kept = [r for r in self._found if not isinstance(r.lift, EndJobs | LeaveLine)]
        text = "the jobs that run and wait leave it nothing that could be told apart"
        for lift in (EndJobs(running), LeaveLine(waiting)):
            if lift.job_ids:
                moved = (Remedy(Cure.OTHERS_MOVE),)
                kept.append(Reason(ReasonCode.AHEAD, "order", text, False, moved, lift))
        return kept

    def _needed(self, reasons: list[Reason]) -> list[Reason]:
        """The reasons that are missed when they are left out; the lightest are tried first, until all are needed."""
        needed, again = list(reasons), True
        while again:
            again = False
            for reason in reversed(_by_weight(needed)):
                rest = [other for other in needed if other is not reason]
                if self._trials.starts(_lifts(rest)):
                    needed, again = rest, True
        return needed

    def _shrunk(self, reasons: list[Reason]) -> list[Reason]:
        """Of several jobs in one lift, only those that matter, as far as that can be found out."""
        shrunk, left = list(reasons), self._shrinks_max
        for at, reason in enumerate(shrunk):
            if not isinstance(reason.lift, EndJobs | LeaveLine):
                continue
            if not 2 <= len(reason.lift.job_ids) <= _SHRUNK_MAX:
                continue
            kind, ids = type(reason.lift), list(reason.lift.job_ids)
            step = max(1, len(ids) // 2)
            while step and left > 0:
                start = 0
                while start < len(ids) and left > 0 and len(ids) > 1:
                    fewer = ids[:start] + ids[start + step :]
                    left -= 1
                    trial = [*shrunk[:at], replace(reason, lift=kind(tuple(fewer))), *shrunk[at + 1 :]]
                    if fewer and self._trials.starts(_lifts(trial)):
                        ids = fewer
                    else:
                        start += step
                step //= 2
            shrunk[at] = replace(reason, lift=kind(tuple(ids)))
        return shrunk


def _others(trial: Trial) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """All other jobs: running and waiting."""
    jobs = trial.state.jobs
    others = [job_id for job_id in sorted(jobs) if job_id != trial.job_id]
    running = tuple([job_id for job_id in others if jobs[job_id].phase is not None])
    return running, tuple([job_id for job_id in others if jobs[job_id].phase is None])


def _worded(trial: Trial, reason: Reason) -> Reason:
    """Word the reason for the jobs that turned out to matter, not for all that were tried."""
    match reason.code, reason.lift:
        case ReasonCode.ROOM, EndJobs(job_ids):
            return replace(reason, lifted_by=(wait_for_ends(trial.state, job_ids, trial.now_ms),))
        case ReasonCode.EARMARK, EndJobs(job_ids):
            if trial.record.earmark is not None:
                return replace(reason, lifted_by=(wait_for_stops(trial.state, job_ids),))
            return victims_reason(trial.state, job_ids)
        case code, LeaveLine(job_ids):
            if reason.by == "preemption":
                return kept_reason(trial.state, job_ids)
            return line_reason(trial, trial.decide(), code, list(job_ids))
        case _:
            return reason
