"""What must always be true of a scheduler, checked from the model and plain data alone.

The numbers are those of the list in the style guide: 1 capacity, 2 gangs, 3 attempts, 4 placements, 5 quotas,
6 victims, 8 cached totals, 14 reasons. Every check raises `AssertionError` with a sentence.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuyard.model import (
    AttemptState,
    BudgetAction,
    Grant,
    Plan,
    PolicySpec,
    ReasonCode,
    Start,
    Stop,
    StopCause,
)
from gpuyard.model.units import MILLI
from harness.reference.books import Books, Live, chain, model_of
from harness.reference.judge import (
    Holder,
    Layout,
    Quotas,
    Room,
    fewest_nodes,
    has_room,
    holders,
    layouts,
    liked,
    measure_of,
    misplaced,
    needless_domains,
    supported,
    too_far,
)

_QUOTA_CODES = frozenset(
    {
        ReasonCode.LIMIT,
        ReasonCode.BORROW,
        ReasonCode.RUNNING_JOBS,
        ReasonCode.PER_USER,
        ReasonCode.BUDGET,
        ReasonCode.NO_TIME_LIMIT,
        ReasonCode.HELD_BACK,
        ReasonCode.JOB_TOO_LARGE,
    }
)
_KEEPS_QUOTA = frozenset({ReasonCode.LIMIT, ReasonCode.BORROW, ReasonCode.RUNNING_JOBS, ReasonCode.PER_USER})
_CAUSE_OF = {"reclaim": StopCause.RECLAIM, "class": StopCause.CLASS, "srtf": StopCause.SHORTER}
_DOUBLINGS_MAX = 10
_MUCH_LONGER = 4


# -- 1, 2, 3: what is held -------------------------------------------------------------------------------------------


def check_capacity(books: Books) -> None:
    """No GPU, core or MiB is held twice; what is kept and what stays never exceed what there is."""
    held = Room(books, books.grants(earmarks=False))
    assert not held.overdrawn(), f"more is held than there is: {held.overdrawn()}"
    leaving = [live.job.id for live in books.running() if live.attempt.phase is AttemptState.STOPPING]  # type: ignore[union-attr]
    later = Room(books, books.grants(earmarks=True, without=leaving))
    assert not later.overdrawn(), f"more is kept than will be free: {later.overdrawn()}"


def check_gangs(books: Books) -> None:
    """Every running job has all its tasks, and nothing it did not ask for."""
    for live in books.running():
        assert live.attempt is not None
        ask = live.job.spec.ask
        if ask.level_ms:
            # It may have started when it no longer required what it does.
            ask = replace(ask, level_required=False)
        wrong = misplaced(books, ask, live.attempt.grants, runs=True)
        assert not wrong, f"job {live.job.id} runs with {wrong}"


# -- 4, 5, 6, 14: plans ----------------------------------------------------------------------------------------------


class PlanCheck:
    """One plan, gone through in the order in which it was made."""

    def __init__(self, books: Books, spec: PolicySpec, plan: Plan, now_ms: int) -> None:
        self.books = books
        self.spec = spec
        self.plan = plan
        self.now_ms = now_ms
        self.room = Room(books, books.grants(earmarks=True))
        self.evicted = {stop.job_id for stop in plan.stops if stop.cause is StopCause.TAINT}
        self.held: dict[int, Holder] = holders(books)
        self.later: dict[int, Holder] = {
            **{
                job_id: h
                for job_id, h in self.held.items()
                if not self.leaves(job_id) and job_id not in self.evicted
            },
            **{
                live.job.id: self.holder(live, live.earmark.grants)
                for live in books.jobs.values()
                if live.earmark
            },
        }
        """Who will hold GPUs once all stops are confirmed and all earmarks used."""
        self.starts = {start.job_id: start for start in plan.starts}
        self.earmarks = {earmark.job_id: earmark for earmark in plan.earmarks}
        self.quota_kept: set[str] = set()
        """Tenants of which a job was refused for quota so far."""

    def run(self) -> None:
        """Everything that can be said about a plan."""
        self.check_shape()
        self.check_order()
        for start in self.plan.starts:
            if self.books.jobs[start.job_id].earmark is not None:
                self.check_earmarked_start(start)
        for job_id, code in zip(self.plan.examined, self.plan.codes, strict=True):
            self.check_examined(self.books.jobs[job_id], ReasonCode(code))

    # -- the plan as a whole -------------------------------------------------------------------------------------

    def check_shape(self) -> None:
        """Each job at most once in each list; everyone examined waits; codes and lists agree."""
        plan, books = self.plan, self.books
        waiting = {live.job.id for live in books.waiting()}
        expected = books.leaving(self.now_ms)
        assert self.evicted == expected, f"{self.evicted} are stopped for taints, {expected} have to be"
        if not waiting:
            assert len(plan.stops) == len(self.evicted)
            assert not plan.starts, f"nobody waits, and yet {plan}"
            assert not plan.earmarks, f"nobody waits, and yet {plan}"
            return
        assert len(waiting) == plan.waiting, f"{len(waiting)} jobs wait, the plan says {plan.waiting}"
        assert len(set(plan.examined)) == len(plan.examined), f"a job was examined twice: {plan.examined}"
        assert set(plan.examined) <= waiting, f"examined, but not waiting: {set(plan.examined) - waiting}"
        assert len(plan.examined) == len(plan.codes)
        for rows in (plan.starts, plan.earmarks, plan.stops, plan.reservations):
            ids = [row.job_id for row in rows]
            assert len(set(ids)) == len(ids), f"a job twice in {rows}"
        for start in plan.starts:
            live = books.jobs[start.job_id]
            assert start.job_id in waiting, f"job {start.job_id} starts without waiting"
            assert start.attempt == live.attempts + 1, f"{start} after {live.attempts} attempts"
            assert start.job_id in plan.examined or live.earmark is not None
        for reservation in plan.reservations:
            assert reservation.job_id in plan.examined
            assert reservation.at_ms > self.now_ms, f"{reservation} is not after {self.now_ms}"
        beneficiaries = {stop.for_job for stop in plan.stops if stop.job_id not in self.evicted}
        assert beneficiaries == set(self.earmarks), (
            f"stops for {beneficiaries}, earmarks {set(self.earmarks)}"
        )
        if self.spec.backfill_depth < len(plan.examined):
            refused = [c for c in plan.codes if c not in (ReasonCode.STARTED, ReasonCode.EARMARK)]
            assert len(refused) <= self.spec.backfill_depth, "looked at more than the depth allows"

    def check_order(self) -> None:
        """Jobs are looked at in the order's own keys, then by age, then by id; with fair share, in each tenant."""
        jobs = [self.books.jobs[job_id] for job_id in self.plan.examined]
        names = self.spec.order
        if any(rule.action is BudgetAction.SOFT for rule in self.books.settings.budgets):
            # Jobs over such a budget come last, and a start of this very pass may have spent it.
            return
        if "fair" not in names:
            keys = [self.order_key(live, names) for live in jobs]
            assert keys == sorted(keys), f"{self.plan.examined} are out of order: {keys}"
            return
        at = names.index("fair")
        groups = [self.order_key(live, names[:at])[:-2] for live in jobs]
        assert groups == sorted(groups), f"{self.plan.examined} are out of order: {groups}"
        lines = [self.line(live) for live in jobs]
        for place in set(zip(groups, lines, strict=True)):
            there = [
                live for live, group, line in zip(jobs, groups, lines, strict=True) if (group, line) == place
            ]
            keys = [self.order_key(live, names[at + 1 :]) for live in there]
            assert keys == sorted(keys), (
                f"{place}: {[live.job.id for live in there]} are out of order: {keys}"
            )

    def line(self, live: Live) -> str:
        """In whose line a job waits: its tenant's, or its team's if it is a gang that a period has found old enough."""
        period_ms = self.books.settings.period_ms
        period_start_ms = self.books.event_ms // period_ms * period_ms
        team = live.leaf.rpartition("/")[0]
        if not team or live.boost or not self.spec.turn_ms or live.job.spec.ask.tasks == 1:
            return live.leaf
        return team if live.line_ms + self.spec.turn_ms <= period_start_ms else live.leaf

    def order_key(self, live: Live, names: Sequence[str]) -> tuple[int, ...]:
        """The smaller, the sooner."""
        job = live.job
        deadline_ms = job.deadline_ms - live.estimate_ms if job.deadline_ms else 1 << 60
        keys = {
            "fifo": live.line_ms,
            "class": -self.books.klass(live).priority,
            "sjf": live.limit_ms,
            "srtf": live.estimate_ms,
            "deadline": deadline_ms,
        }
        if live.boost:
            # Whoever was moved to the top comes first, the one moved last before the others.
            return (-live.boost, *[0 for _name in names], 0, 0)
        return (0, *[keys[name] for name in names], live.line_ms, job.id)

    # -- job by job ----------------------------------------------------------------------------------------------

    def check_earmarked_start(self, start: Start) -> None:
        """What was kept is used as it was kept, and only once it is really free."""
        live = self.books.jobs[start.job_id]
        assert live.earmark is not None
        assert start.grants == live.earmark.grants, f"{start} instead of {live.earmark}"
        self.room.give(live.earmark.grants)
        self.check_start(live, start)

    def check_examined(self, live: Live, code: ReasonCode) -> None:
        """The code says what happened, and is true."""
        job_id = live.job.id
        assert (code is ReasonCode.STARTED) == (job_id in self.starts), f"job {job_id}: {code.name}"
        if live.earmark is not None:
            assert code in (ReasonCode.STARTED, ReasonCode.EARMARK), f"job {job_id}: {code.name}"
        elif code is ReasonCode.STARTED:
            self.check_start(live, self.starts[job_id])
        elif code is ReasonCode.EARMARK:
            self.check_force(live)
        else:
            self.check_refusal(live, code)

    def check_start(self, live: Live, start: Start) -> None:
        """4 and 5: the placement passes every filter and every quota."""
        ask, name = self.books.ask_of(live), f"job {live.job.id}"
        wrong = misplaced(self.books, ask, start.grants, walled=live)
        assert not wrong, f"{name} would start with {wrong}"
        assert self.room.fits(start.grants), f"{name} would start where there is no room: {start.grants}"
        numbers = [grant.node for grant in start.grants]
        if not self.plan.reservations and live.earmark is None:
            could = layouts(self.books, ask, walled=live)
            (layout,) = [each for each in could if set(numbers) <= set(each.numbers)]
            layout = self.check_preferred(live, layout, numbers)
            fewest = fewest_nodes(self.room, ask, layout)
            assert len(numbers) <= fewest, f"{name} on {numbers}; {fewest} nodes would do"
            far = too_far(self.room, ask, layout, numbers)
            assert not far, f"{name} on {numbers}; {far}"
            apart = needless_domains(self.room, ask, start.grants)
            assert not apart, f"{name}: {apart}"
        model = model_of(self.books.nodes[numbers[0]])
        if self.spec.quotas:
            blockers = self.quotas().blockers(live, model)
            assert not blockers, f"{name} of {live.leaf} starts against {blockers}"
        if live.earmark is None:
            self.check_reserve(name, start.grants)
        self.room.start(start.grants)
        self.held[live.job.id] = self.later[live.job.id] = self.holder(live, start.grants)

    def check_preferred(self, live: Live, layout: Layout, numbers: Sequence[int]) -> Layout:
        """Nodes that a job prefers had no room for it; returns the layout on nodes as good as the chosen ones."""
        ask, books = live.job.spec.ask, self.books
        worst = min(liked(books, ask, number) for number in numbers)
        grades = {
            liked(books, ask, number) for each in layouts(books, ask, walled=live) for number in each.numbers
        }
        for grade in [each for each in grades if each > worst]:
            for each in layouts(books, ask, walled=live):
                there = tuple(number for number in each.numbers if liked(books, ask, number) >= grade)
                better = replace(each, numbers=there)
                if len(there) < each.fewest or (
                    self.spec.quotas and self.quotas().blockers(live, each.model)
                ):
                    continue
                room = has_room(self.room, ask, better)
                assert not room, f"job {live.job.id} on {numbers}, and nodes {there} are preferred"
        there = tuple(number for number in layout.numbers if liked(books, ask, number) >= worst)
        return replace(layout, numbers=there)

    def check_reserve(self, name: str, grants: Sequence[Grant]) -> None:
        """No GPU is broken into while too few would stay whole."""
        cut, whole = self.room.breaks_into(grants), self.room.whole_count()
        reserve = self.books.settings.whole_gpus
        assert not cut or whole - cut >= reserve, f"{name} cuts {cut} of {whole} GPUs, {reserve} stay whole"

    def check_refusal(self, live: Live, code: ReasonCode) -> None:
        """14: the reason given is a fact."""
        ask, name = self.books.ask_of(live), f"job {live.job.id} ({code.name})"
        could = list(layouts(self.books, ask, walled=live))
        if code is ReasonCode.UNSUPPORTED:
            assert not supported(ask), f"{name} can be served"
            return
        if code is ReasonCode.NEVER_FITS:
            assert supported(ask), f"{name} cannot be served at all"
            assert not could, f"{name} would fit on an empty fleet"
            assert not list(layouts(self.books, ask)), f"{name}: only walls keep it out"
            return
        if code is ReasonCode.WALL:
            assert not could, f"{name}: a pool takes it that could hold it"
            assert list(layouts(self.books, ask)), f"{name} would not fit without walls either"
            return
        now = [layout for layout in could if has_room(self.room, ask, layout)]
        if code is ReasonCode.ROOM:
            assert not now, f"{name}: there is room on nodes {[layout.numbers for layout in now]}"
        elif code is ReasonCode.RESERVATION:
            assert now, f"{name}: there is no room"
            assert self.plan.reservations, f"{name}: nothing is promised to anyone"
            self.check_bound(live, name)
        elif code is ReasonCode.QUOTA_AHEAD:
            assert self.quota_kept & set(chain(live.leaf)), f"{name}: nobody ahead waits for quota"
        else:
            assert code in _QUOTA_CODES, f"{name} is no reason to wait"
            quotas = self.quotas()
            if code in (ReasonCode.BUDGET, ReasonCode.NO_TIME_LIMIT):
                quotas = Quotas(self.books, quotas.held, self.promised())
            by_model = {layout.model: quotas.blockers(live, layout.model) for layout in could}
            assert any(code in blockers for blockers in by_model.values()), f"{name}: {by_model}"
            passable = [layout for layout in now if not by_model[layout.model]]
            assert not passable or self.quota_kept & set(chain(live.leaf)), f"{name}: {passable} would do"
            assert code is not ReasonCode.HELD_BACK or now, f"{name}: nothing is free that is held back"
            if code in _KEEPS_QUOTA:
                self.quota_kept |= set(chain(live.leaf))

    def check_bound(self, live: Live, name: str) -> None:
        """Where guarantees are taken back, a promise above its own guarantee binds no job within another one."""
        if not self.spec.quotas or self.spec.backfill != "easy" or "reclaim" not in self.spec.preemption:
            return
        quotas, ours = self.quotas(), chain(live.leaf)
        for reservation in self.plan.reservations:
            head = self.books.jobs[reservation.job_id]
            apart = [path for path in chain(head.leaf) if path not in ours]
            columns = [None, *self.books.models()]
            if not apart or any(head.milli <= quotas.guarantee(apart[-1], column) for column in columns):
                continue
            for path in ours:
                if path not in chain(head.leaf) and (promised := quotas.guarantee(path, None)):
                    used = quotas.used(path, None) + live.milli
                    assert used > promised, f"{name}: {path} is promised {promised}, would use {used}"

    def promised(self) -> list[Holder]:
        """Jobs for which the plan, or an earlier one, has promised or kept room, and that do not start in it."""
        ids = {each.job_id for each in (*self.plan.reservations, *self.plan.earmarks)}
        ids |= {job_id for job_id, live in self.books.jobs.items() if live.earmark is not None}
        return [
            Holder(job_id, live.leaf, "", live.milli, live.limit_ms, klass=self.books.klass(live).name)
            for job_id in sorted(ids - set(self.starts))
            for live in [self.books.jobs[job_id]]
        ]

    # -- 6: victims ----------------------------------------------------------------------------------------------

    def check_force(self, live: Live) -> None:
        """Victims are stopped by right, for this job, all of them needed."""
        job_id, ask = live.job.id, self.books.ask_of(live)
        earmark = self.earmarks[job_id]
        stops = [stop for stop in self.plan.stops if stop.for_job == job_id]
        assert stops, f"job {job_id} has an earmark and nobody is stopped for it"
        for stop in stops:
            self.check_victim(live, stop)
        self.check_guarantees(live, stops)
        victims = {stop.job_id for stop in stops}
        wrong = misplaced(self.books, ask, earmark.grants, walled=live)
        assert not wrong, f"kept for job {job_id}: {wrong}"
        grace_ms = max(self.books.klass(self.books.jobs[victim]).grace_ms for victim in victims)
        assert earmark.expires_ms > self.now_ms + grace_ms, f"{earmark} expires before its victims are gone"
        if not self.plan.reservations:
            for spared in [victims, *[{victim} for victim in victims]]:
                needless = self.would_start(live, victims - spared, self.held)
                needless = needless and self.would_start(live, victims - spared, self.later)
                assert not needless, f"job {job_id}: {spared} stopped for nothing"
        enough = self.would_start(live, victims, self.later)
        assert enough, f"stopping {victims} does not let job {job_id} start"
        freed = [g for victim in sorted(victims) for g in self.books.jobs[victim].attempt.grants]  # type: ignore[union-attr]
        with self.room.without(freed):
            fits = self.room.fits(earmark.grants)
            assert fits, f"kept for job {job_id}, and not free by then: {earmark.grants}"
            self.check_reserve(f"job {job_id}", earmark.grants)
        self.room.take(earmark.grants)
        for victim in victims:
            del self.later[victim]
        self.later[job_id] = self.holder(live, earmark.grants)

    def would_start(self, live: Live, gone: set[int], held: dict[int, Holder]) -> bool:
        """Whether there were room, and quota beside these holders, if some running jobs were gone."""
        freed = [g for job_id in sorted(gone) for g in self.books.jobs[job_id].attempt.grants]  # type: ignore[union-attr]
        quotas = Quotas(self.books, [h for job_id, h in held.items() if job_id not in gone])
        ask = self.books.ask_of(live)
        with self.room.without(freed):
            return any(
                has_room(self.room, ask, layout)
                and not (self.spec.quotas and quotas.blockers(live, layout.model))
                for layout in layouts(self.books, ask, walled=live)
            )

    def check_victim(self, live: Live, stop: Stop) -> None:
        """Preemptible, running, past its minimum run time, and lower in the order the rule names."""
        victim = self.books.jobs[stop.job_id]
        klass, attempt = self.books.klass(victim), victim.attempt
        assert attempt is not None, f"{stop}: it does not run"
        assert stop.attempt == attempt.number, f"{stop}: attempt {attempt.number} runs"
        going = (AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED)
        assert attempt.phase in going, f"{stop}: it is {attempt.phase}"
        assert klass.preemptible, f"{stop}: {klass.name} is not preemptible"
        safe_ms = klass.min_run_ms << min(victim.preemptions, _DOUBLINGS_MAX)
        assert attempt.started_ms + safe_ms <= self.now_ms, f"{stop}: stopped before its minimum run time"
        assert stop.cause in [_CAUSE_OF[name] for name in self.spec.preemption], (
            f"{stop}: not a rule in force"
        )
        ours, theirs = self.books.klass(live).priority, klass.priority
        if stop.cause is StopCause.CLASS:
            assert theirs < ours, f"{stop}: priority {theirs} against {ours}"
        if stop.cause is StopCause.SHORTER:
            assert theirs <= ours, f"{stop}: priority {theirs} against {ours}"
            assert attempt.end_ms - self.now_ms > _MUCH_LONGER * live.estimate_ms, f"{stop}: not much longer"

    def check_guarantees(self, live: Live, stops: Sequence[Stop]) -> None:
        """A class takes nobody below a guarantee; who reclaims is within one, and who gives is above."""
        ours = chain(live.leaf)
        quotas = Quotas(self.books, list(self.later.values()))
        by_tenant: dict[tuple[StopCause, str], list[Holder]] = {}
        for stop in stops:
            holder = self.held[stop.job_id]
            others = [path for path in chain(holder.leaf) if path not in ours]
            if stop.cause is StopCause.CLASS:
                for path in others:
                    by_tenant.setdefault((stop.cause, path), []).append(holder)
            elif stop.cause is StopCause.RECLAIM:
                assert others, f"{stop}: reclaimed within one tenant"
                by_tenant.setdefault((stop.cause, others[-1]), []).append(holder)
                self.check_entitled(live, ours[: ours.index(others[-1].rpartition("/")[0])], quotas)
        for (cause, path), victims in by_tenant.items():
            used, lost = quotas.used(path, None), sum(holder.milli for holder in victims)
            promised = quotas.guarantee(path, None)
            if cause is StopCause.CLASS:
                assert used - lost >= promised, f"{path} is promised {promised} and left with {used - lost}"
            else:
                most = max(holder.milli for holder in victims)
                assert used - lost + most > promised, f"{path} is promised {promised} of {used}, loses {lost}"

    def leaves(self, job_id: int) -> bool:
        """Whether a job was told to stop before this plan."""
        attempt = self.books.jobs[job_id].attempt
        return attempt is not None and attempt.phase is AttemptState.STOPPING

    def check_entitled(self, live: Live, below: Sequence[str], quotas: Quotas) -> None:
        """Some tenant on the job's way up, below where it meets the victim's, stays within a guarantee."""
        columns = {
            None,
            *[layout.model for layout in layouts(self.books, self.books.ask_of(live), walled=live)],
        }
        assert any(
            quotas.guarantee(path, column)
            and quotas.used(path, column) + live.milli <= quotas.guarantee(path, column)
            for path in below
            for column in columns
        ), f"job {live.job.id} reclaims, and {list(below)} are not within a guarantee"

    def holder(self, live: Live, grants: Sequence[Grant]) -> Holder:
        """A job as quotas see it."""
        model = model_of(self.books.nodes[grants[0].node])
        klass = self.books.klass(live).name
        return Holder(
            live.job.id,
            live.leaf,
            model,
            live.milli,
            live.limit_ms,
            live.job.spec.user,
            klass=klass,
            measure=measure_of(live),
        )

    def quotas(self) -> Quotas:
        """Quotas beside those who hold GPUs and those started so far in this plan."""
        return Quotas(self.books, list(self.held.values()))


def check_plan(books: Books, spec: PolicySpec, plan: Plan, now_ms: int) -> None:
    """4, 5, 6 and 14, judged independently."""
    PlanCheck(books, spec, plan, now_ms).run()


# -- 8: totals -------------------------------------------------------------------------------------------------------


def check_totals(books: Books, derived: dict[str, Any]) -> None:
    """The core's tables equal what is counted again from nothing."""
    running = [live.job.id for live in books.running()]
    assert running == derived["running"], f"{running} run, the core says {derived['running']}"
    waiting = [live.job.id for live in books.waiting()]
    assert sorted(_queue_ids(derived["queue"])) == waiting, f"{waiting} wait: {derived['queue']}"
    assert derived["queue"]["count"] == len(waiting)
    leaving = [live.job.id for live in books.running() if live.attempt.phase is AttemptState.STOPPING]  # type: ignore[union-attr]
    assert leaving == derived["leaving"], f"{leaving} are leaving, the core says {derived['leaving']}"
    assert derived["deferred"] == sorted(job_id for job_id, live in books.jobs.items() if live.deferred)
    assert derived["earmarks"] == sorted(job_id for job_id, live in books.jobs.items() if live.earmark)
    assert derived["used_milli"] == books.used("")
    assert derived["up_milli"] == [books.up_milli(model) for model in books.models()]
    _check_nodes(books, derived["nodes"])
    for live in books.jobs.values():
        assert derived["jobs"][live.job.id][0] == live.estimate_ms, f"job {live.job.id}: {live.estimate_ms}"
        assert derived["jobs"][live.job.id][1] == books.klass(live).name
    quotas = Quotas(books, list(holders(books).values()))
    for path, row in derived["tenants"].items():
        _check_tenant(books, quotas, path, row)


def _queue_ids(queue: dict[str, Any]) -> list[int]:
    if "ids" in queue:
        return list(queue["ids"])
    return [job_id for row in queue["groups"] if len(row) == 4 for job_id in row[2]]


def _check_nodes(books: Books, nodes: dict[str, Any]) -> None:
    room = Room(books, books.grants(earmarks=True))
    free = [
        [milli - MILLI * room.pinned_cut(number, gpu) for gpu, milli in enumerate(left.gpu)]
        for number, left in enumerate(room.free)
    ]
    assert nodes["gpu_free"] == free, f"free: {free}, the core says {nodes['gpu_free']}"
    assert nodes["cpu_free"] == [left.cpu_milli for left in room.free]
    assert nodes["memory_free"] == [left.memory_mib for left in room.free]
    masks = [sum(1 << gpu for gpu, milli in enumerate(left) if milli == MILLI) for left in free]
    assert nodes["free_mask"] == masks, f"wholly free: {masks}, the core says {nodes['free_mask']}"
    for index, (buckets, partial) in enumerate(zip(nodes["buckets"], nodes["partial"], strict=True)):
        wanted = [0] * len(buckets)
        shared = 0
        for number, mask in enumerate(masks):
            if nodes["kind"][number] == index and room.takes_new(number):
                wanted[mask.bit_count()] |= 1 << number
                if any(0 < milli < MILLI for milli in free[number]):
                    shared |= 1 << number
        assert wanted == buckets, f"nodes of kind {index} by free GPUs: {wanted}, the core says {buckets}"
        assert shared == partial, f"nodes of kind {index} that share: {shared:b}, the core says {partial:b}"
    for number, on in enumerate(nodes["on"]):
        ends = {
            live.job.id: (live.attempt.end_ms, tuple(grant))
            for live in books.running()
            if live.attempt is not None
            for grant in live.attempt.grants
            if grant.node == number
        }
        assert ends == on, f"{books.nodes[number].name} runs {ends}, the core says {on}"


def check_pins(books: Books, dump: dict[str, Any]) -> None:
    """The core keeps the layouts that were pinned, and what was said of them, and no others."""
    found = {
        (number, int(gpu)): (
            tuple(sorted((name, start) for name, start in row["held"])),
            (row["made"], row["why"], row["took_ms"]),
        )
        for number, node in enumerate(dump["nodes"])
        for gpu, row in node["pins"].items()
    }
    wanted = {at: (pieces, books.made[at]) for at, pieces in books.pins.items()}
    assert found == wanted, f"pinned: {wanted}, the core says {found}"


def _check_tenant(books: Books, quotas: Quotas, path: str, row: dict[str, Any]) -> None:
    columns = [None, *books.models()]
    used = [quotas.used(path, column) for column in columns]
    assert used == row["used"], f"{path} uses {used}, the core says {row['used']}"
    if row["claimed"]:
        claimed = [quotas.claimed(path, column) for column in columns]
        assert claimed == row["claimed"], f"{path} claims {claimed}, the core says {row['claimed']}"
    assert books.run_by(path) == row["running"]
    if row["measure"]:
        assert quotas.measured(path) == row["measure"], f"{path}: cores and memory are not {row['measure']}"
    rate = sum(
        live.attempt.charge.rate for live in books.running() if live.attempt and path in chain(live.leaf)
    )
    assert rate == row["rate"], f"{path} is charged {rate}, the core says {row['rate']}"
    if path in {tenant.path for tenant in books.settings.tenants if tenant.budget}:
        assert books.committed(path) == row["committed_milli_ms"]


def check_usage(books: Books, dump: dict[str, Any]) -> None:
    """The decayed charge of closed periods, and what budgets have spent, equal the integral of what was held."""
    start_ms = dump["period_start_ms"]
    periods = 1 + start_ms // books.settings.period_ms
    budgets = {tenant.path: tenant.budget for tenant in books.settings.tenants}
    for row in dump["tenants"]:
        path = row["path"]
        if not path.endswith("/-"):
            # Jobs that a change of the settings moves to a tenant's own leaf bring only later charges with them.
            wanted = books.usage(path, start_ms)
            # Fixed point rounds down by less than one unit in each period.
            slack = periods * (1 + len(books.charges)) + wanted * 1e-6
            assert abs(row["usage"] - wanted) <= slack, f"{path} used {wanted}, the core says {row['usage']}"
        budget = budgets.get(path)
        if (
            budget is not None
            and row["window_start_ms"] == books.now_ms // budget.window_ms * budget.window_ms
        ):
            spent = books.spent(path, budget.window_ms)
            assert spent == row["spent_milli_ms"], (
                f"{path} spent {spent}, the core says {row['spent_milli_ms']}"
            )
    spent_of = {row["name"]: row["spent"] for row in dump.get("budgets", ())}
    for rule in books.settings.budgets:
        assert books.spent_of(rule) == spent_of[rule.name], (
            f"{rule.name} spent {books.spent_of(rule)}: {spent_of}"
        )


def check_fair_first(books: Books, spec: PolicySpec, plan: Plan, dump: dict[str, Any]) -> None:
    """The first job looked at is of the least served tenant: down the tree by usage over weight, then by number.

    Usage is that of the closed periods, and a whole period of what runs.
    """
    if any(rule.action is BudgetAction.SOFT for rule in books.settings.budgets):
        return
    kept = [live for live in books.jobs.values() if live.earmark]
    if "fair" not in spec.order or not plan.examined or kept:
        # Jobs for which something is kept start before anyone is looked at, and count as served then.
        return
    check = PlanCheck(books, spec, plan, books.now_ms)
    before = spec.order[: spec.order.index("fair")]
    waiting = books.waiting()
    first = min(check.order_key(live, before)[:-2] for live in waiting)
    lines = {check.line(live) for live in waiting if check.order_key(live, before)[:-2] == first}
    usage = {row["path"]: row["usage"] for row in dump["tenants"]}
    weights = {tenant.path: tenant.weight for tenant in books.settings.tenants}

    def key(path: str) -> tuple[int, int]:
        rate = sum(c.rate for c in books.charges if c.ended_ms is None and path in chain(c.leaf))
        total = usage[path] + rate * books.settings.period_ms
        return (total << 16) // weights.get(path, 1), list(usage).index(path)

    path = ""
    while path not in lines:
        members = [p for p in usage if p and p.rpartition("/")[0] == path]
        path = min([p for p in members if any(p in chain(line) for line in lines)], key=key)
    line = check.line(books.jobs[plan.examined[0]])
    assert line == path, f"{path} is served least, and {line} goes first"
