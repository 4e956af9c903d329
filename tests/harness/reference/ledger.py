"""The two books by brute force: every stretch of time between two moments, every GPU, one by one.

Written from the decision alone, so that it can disagree with `gpuyard.ledger`: time is cut at every moment that any
event names, the yard is kept as plain dicts, and what is learned later is changed in the list of what was seen.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    AttemptStopping,
    ClockSet,
    ConfigSet,
    EarmarkDropped,
    EarmarkSet,
    GpusTaken,
    Grant,
    JobCancelled,
    JobChanged,
    JobContinued,
    JobHeld,
    JobSubmitted,
    JobSuspended,
    LayoutMade,
    LayoutPinned,
    LayoutReleased,
    Node,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
    Requested,
    Ticked,
    Verb,
)
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.mig import MIG_MODELS

DAY_MS = 86_400_000

Where = tuple[str, str, str, str, str]
"""Cluster, pool, model, market, region."""
Who = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""Tenant, user, class, labels; all empty: nobody."""
NOBODY: Who = ("", "", "", ())


@dataclass
class Seen:
    """What one GPU (or a part of it) did in one stretch of time."""

    from_ms: int
    until_ms: int
    where: Where
    who: Who
    kind: str
    gpus: Fraction
    attempt: tuple[int, int] | None = None

    @property
    def amount(self) -> Fraction:
        return self.gpus * (self.until_ms - self.from_ms)


@dataclass
class Machine:
    node: Node
    flags: set[str] = field(default_factory=set)
    gpus: dict[int, str] = field(default_factory=dict)
    """`taken`, `recut` or `broken`, each as a word in the text of a GPU."""


@dataclass
class Attempt:
    number: int
    grants: tuple[Grant, ...]
    start_ms: int
    real_ms: int
    phase: str = "starting"
    wheres: list[list[tuple[int, Where]]] = field(default_factory=list)
    """For each grant: where it is, from when on."""
    dear: list[Fraction] = field(default_factory=list)
    """For each grant: the GPUs that it is charged for."""
    skipped: list[tuple[int, int]] = field(default_factory=list)
    """Times that the clock left out while it ran."""


class Integral:
    """All that was seen, up to the last event."""

    def __init__(self, steps: list[Any]) -> None:
        self.seen: list[Seen] = []
        self.charges: dict[tuple[int, Where, Who], Fraction] = {}
        self.fleet: dict[tuple[int, Where], Fraction] = {}
        self.energy_mj: dict[Who, int] = {}
        self.machines: list[Machine] = []
        self.who: dict[int, Who] = {}
        self.started: set[int] = set()
        self.live: dict[int, Attempt] = {}
        self.kept: dict[int, EarmarkSet] = {}
        self.klass, self.markets, self.regions = "batch", dict[str, str](), dict[str, str]()
        named = {getattr(step, name, 0) for step in steps for name in ("at_ms", "ended_ms", "started_ms")}
        spans = {at_ms for step in steps for span in getattr(step, "spans", ()) for at_ms in span}
        left = {step.at_ms - step.by_ms for step in steps if isinstance(step, ClockSet)}
        self.moments = sorted(named | spans | left)
        self.now_ms = steps[0].at_ms
        self.set_ms = 0
        for step in steps:
            if isinstance(step, ClockSet):
                self.skip(step)
                continue
            self.pass_time(step.at_ms)
            self.take(step)
        for job_id in list(self.live):
            self.charge(job_id, self.now_ms)

    # -- time ------------------------------------------------------------------------------------------------------

    def pass_time(self, until_ms: int) -> None:
        if until_ms <= self.now_ms:
            return
        days = range(self.now_ms // DAY_MS * DAY_MS, until_ms, DAY_MS)
        cuts = sorted({self.now_ms, until_ms, *days, *self.moments})
        cuts = [cut for cut in cuts if self.now_ms <= cut <= until_ms]
        for low, high in pairwise(cuts):
            for number, machine in enumerate(self.machines):
                self.look(number, machine, low, high)
        self.now_ms = until_ms

    def skip(self, step: ClockSet) -> None:
        if step.at_ms <= self.now_ms:
            return
        self.pass_time(step.at_ms - step.by_ms)
        for job_id, attempt in self.live.items():
            if job_id < FIRST_EXTERNAL_ID:
                attempt.skipped.append((self.now_ms, step.at_ms))
        self.now_ms = self.set_ms = step.at_ms

    def look(self, number: int, machine: Machine, low: int, high: int) -> None:
        node, where = machine.node, self.where(machine.node)
        units = Fraction(node.gpus or 1)
        day = low // DAY_MS
        self.fleet[day, where] = self.fleet.get((day, where), Fraction(0)) + units * (high - low)
        here = [
            (job_id, a, g) for job_id, a in sorted(self.live.items()) for g in a.grants if g.node == number
        ]
        cpus = node.cpu_milli - sum(g.cpu_milli for _job, _a, g in here)
        memory = node.memory_mib - sum(g.memory_mib for _job, _a, g in here)
        bare = (node.cpu_milli and cpus < 1000) or (node.memory_mib and memory < 1024)
        for gpu in range(node.gpus):
            left, slots = Fraction(1), 0
            for job_id, attempt, grant in here:
                if grant.gpus >> gpu & 1:
                    part, memory_slots, _dear = size(node, grant, gpu)
                    kind = {"running": "unmeasured", "suspended": "wasted"}.get(attempt.phase, "starting")
                    self.see(low, high, where, self.who[job_id], kind, part, (job_id, attempt.number))
                    left, slots = left - part, slots + memory_slots
            self.look_at_rest(number, machine, gpu, left, slots, bare=bool(bare), low=low, high=high)

    def look_at_rest(
        self,
        number: int,
        machine: Machine,
        gpu: int,
        left: Fraction,
        slots: int,
        *,
        bare: bool,
        low: int,
        high: int,
    ) -> None:
        where, words = self.where(machine.node), machine.gpus.get(gpu, "")
        if machine.flags or "taken" in words or "broken" in words:
            self.see(low, high, where, NOBODY, "unavailable", left)
        elif "recut" in words:
            self.see(low, high, where, NOBODY, "recutting", left)
        else:
            for job_id, mark in sorted(self.kept.items()):
                wanted = [
                    Fraction(g.milli, 1000) for g in mark.grants if g.node == number and g.gpus >> gpu & 1
                ]
                held = min(left, sum(wanted, Fraction(0)))
                self.see(low, high, where, self.who[job_id], "held", held)
                left -= held
            geometry = MIG_MODELS.get(machine.node.gpu_model)
            full = geometry is not None and slots >= geometry.slots
            self.see(low, high, where, NOBODY, "stranded" if bare or full else "idle", left)

    def see(
        self,
        low: int,
        high: int,
        where: Where,
        who: Who,
        kind: str,
        gpus: Fraction,
        attempt: tuple[int, int] | None = None,
    ) -> None:
        if gpus:
            self.seen.append(Seen(low, high, where, who, kind, gpus, attempt))

    # -- what happens ----------------------------------------------------------------------------------------------

    def where(self, node: Node) -> Where:
        at = f"{node.cluster}/{node.pool}"
        model = node.gpu_model if node.gpus else ""
        return node.cluster, node.pool, model, self.markets.get(at, "reserved"), self.regions.get(at, "")

    def take(self, step: Any) -> None:
        match step:
            case ConfigSet(settings=settings):
                self.klass, self.markets, self.regions = (
                    settings.default_class,
                    settings.markets,
                    settings.regions,
                )
                self.moved()
            case NodeAdded(node=node):
                self.machines.append(Machine(node))
            case NodeChanged(number=number, node=node):
                self.machines[number].node = node
                if not any(g.node == number for attempt in self.live.values() for g in attempt.grants):
                    # It may be other hardware: what was known of its GPUs is forgotten.
                    self.machines[number].gpus = {}
                self.moved()
            case NodeDown():
                self.machines[step.node].flags.add("down")
            case NodeUp():
                self.machines[step.node].flags.discard("down")
            case NodeCordoned():
                self.machines[step.node].flags.add("cordoned")
            case NodeUncordoned():
                self.machines[step.node].flags.discard("cordoned")
            case GpusTaken() | LayoutPinned() | LayoutReleased() | LayoutMade():
                self.cut(step)
            case JobSubmitted(job=job):
                spec = job.spec
                self.who[job.id] = (spec.tenant, spec.user, spec.klass or self.klass, spec.labels)
            case JobChanged(job=job):
                if job.id not in self.started:
                    spec = job.spec
                    self.who[job.id] = (spec.tenant, spec.user, spec.klass or self.klass, spec.labels)
            case EarmarkSet():
                self.kept[step.job_id] = step
            case EarmarkDropped() | JobCancelled() | JobHeld():
                self.kept.pop(step.job_id, None)
            case Requested(verb=verb):
                if verb in (Verb.CANCEL, Verb.HOLD) and step.job_id not in self.live:
                    self.kept.pop(step.job_id, None)
            case Ticked():
                self.kept = {j: mark for j, mark in self.kept.items() if mark.expires_ms > step.at_ms}
            case AttemptMeasured():
                self.measure(step)
            case _:
                self.attempt(step)

    def moved(self) -> None:
        for attempt in self.live.values():
            for grant, wheres in zip(attempt.grants, attempt.wheres, strict=True):
                wheres.append((self.now_ms, self.where(self.machines[grant.node].node)))

    def cut(self, step: Any) -> None:
        machine = self.machines[step.node]
        for gpu in range(machine.node.gpus):
            words = set(machine.gpus.get(gpu, "").split())
            inside = bool(step.gpus >> gpu & 1)
            if isinstance(step, GpusTaken):
                words = words - {"taken"} | ({"taken"} if inside else set())
            elif inside and isinstance(step, LayoutPinned):
                words = words - {"broken", "recut"} | (set() if step.found else {"recut"})
            elif inside and isinstance(step, LayoutReleased):
                words -= {"broken", "recut"}
            elif inside:
                failed = bool(step.why and words & {"recut", "broken"})
                words = words - {"recut", "broken"} | ({"broken"} if failed else set())
            machine.gpus[gpu] = " ".join(sorted(words))

    def attempt(self, step: Any) -> None:
        if isinstance(step, AttemptStarted):
            self.kept.pop(step.job_id, None)
            self.started.add(step.job_id)
            made = Attempt(step.attempt, step.grants, self.now_ms, self.now_ms)
            for grant in step.grants:
                node = self.machines[grant.node].node
                made.wheres.append([(0, self.where(node))])
                made.dear.append(dearest(node, grant))
            self.live[step.job_id] = made
            return
        attempt = self.live.get(getattr(step, "job_id", -1))
        if attempt is None:
            return
        match step:
            case AttemptConfirmed():
                attempt.phase = "suspended" if attempt.phase == "suspended" else "running"
                attempt.real_ms = step.started_ms or attempt.real_ms
            case JobSuspended():
                attempt.phase = "suspended"
            case JobContinued():
                attempt.phase = "running"
            case AttemptStopping():
                attempt.phase = "stopping"
            case AttemptEnded():
                ended_ms = min(step.ended_ms or self.now_ms, self.now_ms)
                if step.job_id < FIRST_EXTERNAL_ID:
                    ended_ms = max(ended_ms, self.set_ms)
                for seen in self.of(step.job_id, attempt.number, ended_ms, self.now_ms):
                    seen.kind = "starting"
                self.charge(step.job_id, max(ended_ms, attempt.real_ms))
                del self.live[step.job_id]

    def of(self, job_id: int, attempt: int, from_ms: int, until_ms: int) -> list[Seen]:
        """What is unmeasured of an attempt between two moments."""
        return [
            seen
            for seen in self.seen
            if seen.attempt == (job_id, attempt)
            and seen.kind == "unmeasured"
            and from_ms <= seen.from_ms
            and seen.until_ms <= until_ms
        ]

    def measure(self, step: AttemptMeasured) -> None:
        """By day and place, in their order, as evenly as whole parts allow."""
        unmeasured = self.of(step.job_id, step.attempt, 0, self.now_ms)
        found = [
            seen
            for seen in unmeasured
            if any(from_ms <= seen.from_ms and seen.until_ms <= until_ms for from_ms, until_ms in step.spans)
        ]
        ran: dict[tuple[int, Where], list[Seen]] = {}
        for seen in found:
            ran.setdefault((seen.from_ms // DAY_MS, seen.where), []).append(seen)
        total = sum((seen.amount for seen in found), Fraction(0))
        if total and step.energy_mj:
            self.energy_mj[found[0].who] = self.energy_mj.get(found[0].who, 0) + step.energy_mj
        used, so_far, given = min(Fraction(step.used_gpu_ms), total), Fraction(0), Fraction(0)
        for (_day, _where), some in sorted(ran.items(), key=lambda item: (item[0][0], name_of(item[0][1]))):
            amount = sum((seen.amount for seen in some), Fraction(0))
            so_far += amount
            share = Fraction(int(used * 7000 * so_far / total), 7000) - given
            given += share
            for seen in some:
                seen.kind = "gone"
            first = some[0]
            for kind, part in (("used", share), ("wasted", amount - share)):
                # One millisecond of so many GPUs: the sum is what counts.
                at_ms = first.from_ms
                self.seen.append(Seen(at_ms, at_ms + 1, first.where, first.who, kind, part))

    def charge(self, job_id: int, until_ms: int) -> None:
        attempt = self.live[job_id]
        days = range(attempt.real_ms // DAY_MS * DAY_MS, until_ms, DAY_MS)
        for wheres, dear in zip(attempt.wheres, attempt.dear, strict=True):
            ways = [at_ms for at_ms, _where in wheres] + [at_ms for gap in attempt.skipped for at_ms in gap]
            cuts = sorted({attempt.real_ms, until_ms, *days, *ways})
            cuts = [cut for cut in cuts if attempt.real_ms <= cut <= until_ms]
            for low, high in pairwise(cuts):
                if any(left_ms <= low and high <= at_ms for left_ms, at_ms in attempt.skipped):
                    continue
                where = [place for at_ms, place in wheres if at_ms <= low][-1]
                key = (low // DAY_MS, where, self.who[job_id])
                self.charges[key] = self.charges.get(key, Fraction(0)) + dear * (high - low)

    def time(self) -> dict[tuple[int, Where, Who, str], Fraction]:
        """The time book."""
        book: dict[tuple[int, Where, Who, str], Fraction] = {}
        for seen in self.seen:
            if seen.kind != "gone":
                key = (seen.from_ms // DAY_MS, seen.where, seen.who, seen.kind)
                book[key] = book.get(key, Fraction(0)) + seen.amount
        return {key: amount for key, amount in book.items() if amount}


def name_of(where: Where) -> str:
    """The order of places is that of their names in the books."""
    from gpuyard.ledger.rows import name_of as named  # noqa: PLC0415

    return named(where)


def size(node: Node, grant: Grant, gpu: int) -> tuple[Fraction, int, Fraction]:
    """Of one GPU of a grant: how much of it, its memory slots, and how much it is worth."""
    if not grant.slices:
        part = Fraction(grant.milli, 1000)
        return part, 0, part
    geometry = MIG_MODELS[node.gpu_model]
    profiles = [p for s in grant.slices if s.gpu == gpu for p in geometry.profiles if p.name == s.profile]
    part = Fraction(sum(p.compute for p in profiles), geometry.compute)
    slots = sum(p.memory for p in profiles)
    return part, slots, max(part, Fraction(slots, geometry.slots))


def dearest(node: Node, grant: Grant) -> Fraction:
    """The GPUs that an attempt is charged for on a node: those of its dominant resource, in whole parts."""
    units = node.gpus or 1
    gpus = [gpu for gpu in range(node.gpus) if grant.gpus >> gpu & 1]
    claims = [sum((size(node, grant, gpu)[2] for gpu in gpus), Fraction(0))]
    if node.cpu_milli:
        claims.append(Fraction(grant.cpu_milli * units * 7000 // node.cpu_milli, 7000))
    if node.memory_mib:
        claims.append(Fraction(grant.memory_mib * units * 7000 // node.memory_mib, 7000))
    return min(max(claims), Fraction(units))
