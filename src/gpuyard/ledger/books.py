"""The two books, event by event.

An attempt holds its parts of GPUs from the event of its start to that of its end, and everything else of a node is
free: so the time of attempts and the free time of nodes are the capacity, whatever happens. What was booked is
corrected by booking the difference: a difference that falls into a closed month becomes a correction in the open one.

Rows, all that the books know: `head`; `n/NODE`, how nodes stand; `j/NUMBER`, how eight jobs stand that were submitted
one after the other; `o/OWNER` and `p/PLACE`, what the
two names in an entry stand for; `l/OWNER`, how many sets of labels that owner has; `d/DAY/PLACE/OWNER`, an entry of a
day; `c/DAY/DAY/PLACE/OWNER`, a correction, first the day on which it was learned, then the day that it is about;
`prices`, in force; `m/MONTH`, a closed month with its prices.
"""

import json
from typing import Any

from gpuyard.ledger.jobs import (
    RUNNING,
    STARTING_UP,
    STOPPING,
    SUSPENDED,
    TIMES,
    WAITING,
    Fresh,
    JobBook,
    cut_out,
)
from gpuyard.ledger.nodes import NodeBook, split_span
from gpuyard.ledger.rows import NO_BLOCKS, Blocks, Names, RowsLike, Shelf
from gpuyard.ledger.units import (
    CHARGED,
    COLUMNS,
    ENERGY,
    FLEET,
    NOBODY,
    PARTS,
    PARTS_OF_MILLI,
    STARTING,
    UNMEASURED,
    USED,
    WASTED,
    month_days,
    split_days,
)
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
    Event,
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
    MonthClosed,
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
from gpuyard.model.serialise import Plain, to_plain
from gpuyard.model.units import DAY_MS, MILLI

_CATEGORY = {STARTING_UP: STARTING, STOPPING: STARTING, RUNNING: UNMEASURED, SUSPENDED: WASTED}
"""What the time of an attempt is, by how it stands. A suspended one keeps GPUs that nobody can use."""
_OF_JOB = {column: place for place, column in enumerate(TIMES)}
"""The places of the categories in the times of a job."""


_Key = tuple[int, int, str, str]
"""Of an entry: the day on which it was learned (0: the day itself), the day, the place and the owner."""


class Books:
    """The books as they stand after the last event, over rows that are written when `flush` is called."""

    def __init__(self, rows: RowsLike) -> None:
        self._rows = rows
        head = rows.get("head") or {}
        self.now_ms: int = head.get("now_ms", 0)
        """The latest time that any event told: a clock that goes back stands still here."""
        self._set_ms: int = head.get("set_ms", 0)
        """When the clock was last set ahead: what came before it is booked."""
        self.nodes: int = head.get("nodes", 0)
        self.closed_day: int = head.get("closed_day", 0)
        """Days before this one belong to closed months."""
        self._klass: str = head.get("klass", "batch")
        self._markets: dict[str, str] = head.get("markets", {})
        self._regions: dict[str, str] = head.get("regions", {})
        self._earmarks: dict[str, tuple[int, list[int]]] = head.get("earmarks", {})
        """By job: when the earmark expires, and its nodes."""
        self._nodes, self._jobs = Shelf[int, NodeBook](), Shelf[int, JobBook]()
        self._fresh = Shelf[int, Fresh]()
        self._queued = Shelf[int, str]()
        """Jobs that were submitted and not asked for since: the owner of each."""
        self._kept = Blocks(rows, head.get("blocks", NO_BLOCKS))
        """All jobs as the rows have them, and those that have ended since: hardly any of these is asked for again."""
        self._entries = Shelf[_Key, list[int]]()
        self._day = self.now_ms // DAY_MS
        self._day_ms = self._day * DAY_MS
        """When the day of the latest event begins."""
        self._today: dict[tuple[str, str], list[int]] = {}
        """Entries of that day that may have changed since the rows were written, by place and owner."""
        self._last_day: int = head.get("last_day", 0)
        """The last day that has entries."""
        self._whole_day = self._last_day + 1
        """From this day on, all entries are on the shelf: none has to be looked up."""
        self._names = Names(rows)

    def flush(self) -> None:
        """Write everything that may have changed into the rows. What was read is remembered for what comes next."""
        rows = self._rows
        self._names.flush()
        for (learned, day, place, owner), entry in self._entries.take().items():
            if learned:
                rows.put(f"c/{learned:06}/{day:06}/{place}/{owner}", entry)
            else:
                rows.put(f"d/{day:06}/{place}/{owner}", entry)
        self._today = {}
        for number, node in self._nodes.take().items():
            rows.put(f"n/{number}", node.row())
        keep = self._kept.put
        for job_id, owner in self._queued.take().items():
            keep(job_id, f'["{owner}"]')
        for job_id, fresh in self._fresh.take().items():
            keep(job_id, fresh.text())
        live = self._jobs.keep
        for job_id, job in self._jobs.hand_out().items():
            keep(job_id, job.text())
            if job.phase != WAITING:
                live(job_id, job)
        self._kept.flush()
        self._queued.forget()
        self._fresh.forget()
        self._nodes.forget()
        self._jobs.forget()
        if self._entries.forget():
            self._whole_day = self._last_day + 1
        rows["head"] = {
            "now_ms": self.now_ms,
            **({"set_ms": self._set_ms} if self._set_ms else {}),
            "nodes": self.nodes,
            "closed_day": self.closed_day,
            "last_day": self._last_day,
            "klass": self._klass,
            "markets": self._markets,
            "regions": self._regions,
            "earmarks": self._earmarks,
            "blocks": self._kept.last,
        }

    def fold(self, event: Event, _seq: int = 0) -> None:
        """Fold one event."""
        at_ms = event.at_ms
        if at_ms > self.now_ms:
            if type(event) is ClockSet:
                self._skip(event)
            elif at_ms - self._day_ms < DAY_MS:
                self.now_ms = at_ms
            else:
                self._come_to(at_ms)
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)

    def _come_to(self, now_ms: int) -> None:
        if now_ms <= self.now_ms:
            return
        self.now_ms = now_ms
        if now_ms - self._day_ms >= DAY_MS:
            self._day = now_ms // DAY_MS
            self._day_ms = self._day * DAY_MS
            self._today = {}

    # -- entries ---------------------------------------------------------------------------------------------------

    def _book(self, place: str, owner: str, column: int, parts: int, from_ms: int, until_ms: int) -> None:
        """Enter these parts for a span; a span that ends before it begins takes back what was entered."""
        if from_ms > until_ms:
            from_ms, until_ms, parts = until_ms, from_ms, -parts
        if not parts or from_ms == until_ms:
            return
        day = from_ms // DAY_MS
        if until_ms <= (day + 1) * DAY_MS:
            self._entry(day, place, owner)[column] += parts * (until_ms - from_ms)
            return
        for day, span_ms in split_days(from_ms, until_ms):
            self._entry(day, place, owner)[column] += parts * span_ms

    def _entry(self, day: int, place: str, owner: str) -> list[int]:
        key = (self._day if day < self.closed_day else 0, day, place, owner)
        entry = self._entries.get(key)
        if entry is None:
            row = None
            if key[0] or day < self._whole_day:
                learned = f"c/{key[0]:06}" if key[0] else "d"
                row = self._rows.get(f"{learned}/{day:06}/{place}/{owner}")
            entry = row or [0] * COLUMNS
            self._last_day = max(self._last_day, day)
            self._entries.touched[key] = entry
        return entry

    def _of_today(self, place: str, owner: str) -> list[int]:
        """An entry of the day of the latest event: no closed month has that day."""
        entry = self._today[place, owner] = self._entry(self._day, place, owner)
        return entry

    # -- nodes -----------------------------------------------------------------------------------------------------

    def node(self, number: int) -> NodeBook | None:
        """A node by its number; None: a log that was cut does not tell of it."""
        found = self._nodes.get(number)
        if found is None:
            row = self._rows.get(f"n/{number}")
            if row is None:
                return None
            found = NodeBook.of(row)
            self._nodes.touched[number] = found
        return found

    def _settled(self, number: int) -> NodeBook | None:
        """A node whose free time is booked up to now."""
        node, now_ms = self._nodes.touched.get(number) or self.node(number), self.now_ms
        if node is None or node.since_ms >= now_ms:
            return node
        place, since_ms = node.place, node.since_ms
        rest = node.rest()
        if rest is not None and since_ms >= self._day_ms:
            entry, span_ms = self._today.get(node.unused) or self._of_today(place, NOBODY), now_ms - since_ms
            entry[rest] += node.left * span_ms
            entry[FLEET] += node.fleet * span_ms
        else:
            for owner, column, parts in node.free():
                self._book(place, owner, column, parts, since_ms, now_ms)
            self._book(place, NOBODY, FLEET, node.fleet, since_ms, now_ms)
        node.since_ms = now_ms
        return node

    def _place(self, cluster: str, pool: str, model: str) -> str:
        at = f"{cluster}/{pool}"
        market, region = self._markets.get(at, "reserved"), self._regions.get(at, "")
        return self._names.place((cluster, pool, model, market, region))

    def _node_added(self, event: NodeAdded) -> None:
        node = event.node
        place = self._place(node.cluster, node.pool, node.gpu_model if node.gpus else "")
        self._nodes.touched[self.nodes] = NodeBook(node, place, self.now_ms)
        self.nodes += 1

    def _node_changed(self, event: NodeChanged) -> None:
        node, now = self._settled(event.number), event.node
        if node is None:
            return
        node.change(now, self._place(now.cluster, now.pool, now.gpu_model if now.gpus else ""))
        self._moved(event.number, node)

    def _moved(self, number: int, node: NodeBook) -> None:
        """The node is at another place: what attempts on it do from now on belongs there."""
        for job_id in sorted(node.jobs):
            job = self.job(job_id)
            if job is None:
                continue
            for at, part in enumerate(job.parts):
                if part.node == number and part.places[-1][1] != node.place:
                    job.parts[at] = part._replace(places=(*part.places, (self.now_ms, node.place)))

    def settle(self, now_ms: int = 0) -> None:
        """Book everything up to the last event, or to a later time: it is otherwise booked when it changes."""
        self._come_to(now_ms)
        for number in range(self.nodes):
            node = self._settled(number)
            for job_id in sorted(node.jobs) if node is not None else ():
                job = self._live(job_id)
                if job is not None:
                    self._pay(job, self.now_ms)

    def _skip(self, event: ClockSet) -> None:
        """The clock was set ahead: nothing is booked for a time that never was, neither of nodes nor of attempts."""
        self.settle(event.at_ms - event.by_ms)
        self._come_to(event.at_ms)
        self._set_ms = event.at_ms
        for number in range(self.nodes):
            node = self.node(number)
            if node is None:
                continue
            node.since_ms = event.at_ms
            for job_id in sorted(node.jobs):
                job = self.job(job_id)
                if job is not None and job.phase != WAITING:
                    job.since_ms = event.at_ms
                    # What another scheduler runs is charged by that scheduler's clock.
                    job.paid_ms = job.paid_ms if job_id >= FIRST_EXTERNAL_ID else event.at_ms

    def untold(self, since_ms: int) -> dict[str, int]:
        """By owner, what jobs that run now had from a time on and nobody has told of yet: parts x ms, once settled.

        A job of which nothing was told in all the time before is none that somebody measures.
        """
        nodes = [self._settled(number) for number in range(self.nodes)]
        found: dict[str, int] = {}
        for job_id in sorted({job_id for node in nodes if node is not None for job_id in node.jobs}):
            job = self._live(job_id)
            if job is None or (job.start_ms < since_ms and not (job.times[0] or job.times[1])):
                continue
            ran_ms = sum([max(0, until_ms - max(from_ms, since_ms)) for from_ms, until_ms in job.runs])
            parts = sum([part.parts for part in job.parts])
            found[job.owner] = found.get(job.owner, 0) + parts * ran_ms
        return found

    def bill(self, job_id: int, now_ms: int) -> JobBook | None:
        """A job that is charged up to the last event, or to a later time; None: it never came, or never started."""
        self._come_to(now_ms)
        job = self._live(job_id)
        if job is not None:
            self._pay(job, self.now_ms)
        return self.job(job_id)

    def _flagged(self, number: int, *, down: bool | None = None, cordoned: bool | None = None) -> None:
        node = self._settled(number)
        if node is not None:
            node.down = node.down if down is None else down
            node.cordoned = node.cordoned if cordoned is None else cordoned

    def _gpus_taken(self, event: GpusTaken) -> None:
        node = self._settled(event.node)
        if node is not None:
            node.taken = event.gpus

    def _layout_pinned(self, event: LayoutPinned) -> None:
        node = self._settled(event.node)
        if node is not None:
            node.broken &= ~event.gpus
            # GPUs that were found like this need no cutting.
            node.recut = node.recut & ~event.gpus if event.found else node.recut | event.gpus

    def _layout_over(self, event: LayoutReleased | LayoutMade) -> None:
        node = self._settled(event.node)
        if node is None:
            return
        if isinstance(event, LayoutReleased):
            node.recut, node.broken = node.recut & ~event.gpus, node.broken & ~event.gpus
            return
        known = event.gpus & (node.recut | node.broken)
        node.recut &= ~event.gpus
        node.broken = node.broken | known if event.why else node.broken & ~event.gpus

    # -- jobs ------------------------------------------------------------------------------------------------------

    def job(self, job_id: int) -> JobBook | None:
        """A job; None: it never came, or ended without a start."""
        found = self._jobs.get(job_id)
        if found is None and (fresh := self._fresh.drop(job_id)) is not None:
            found = self._jobs.touched[job_id] = fresh.book()
        if found is None:
            owner = self._queued.drop(job_id)
            row: Plain = [owner] if owner is not None else None
            if row is None and (text := self._kept.get(job_id)) is not None:
                row = json.loads(text)
            if row is not None:
                found = self._jobs.touched[job_id] = JobBook.of(row)
        return found

    def _live(self, job_id: int) -> JobBook | None:
        """A job with an attempt, whose time is booked up to now."""
        job, now_ms = self._jobs.touched.get(job_id) or self.job(job_id), self.now_ms
        if job is None or job.phase == WAITING:
            return None
        self._start_up(job)
        if job.since_ms < now_ms:
            self._time(job, _CATEGORY[job.phase], job.since_ms, now_ms)
            if job.phase == RUNNING:
                job.ran(job.since_ms, now_ms)
            job.since_ms = now_ms
        return job

    def _start_up(self, job: JobBook) -> None:
        """Book how long its attempt took to start, if that is left."""
        if job.since_ms < job.begun_ms:
            self._time(job, STARTING, job.since_ms, job.begun_ms)
            job.since_ms = job.begun_ms

    def _time(self, job: JobBook, column: int, from_ms: int, until_ms: int) -> None:
        """Book time of its attempt; a span that ends before it begins takes back what was booked."""
        owner, span_ms, held = job.owner, until_ms - from_ms, 0
        for part in job.parts:
            parts, places = part.parts, part.places
            held += parts
            if len(places) > 1 or from_ms < self._day_ms or span_ms < 0:
                low_ms, high_ms, sign = (from_ms, until_ms, 1) if span_ms >= 0 else (until_ms, from_ms, -1)
                for place, low, high in split_span(places, low_ms, high_ms):
                    self._book(place, owner, column, sign * parts, low, high)
            elif parts and span_ms:
                place = places[0][1]
                entry = self._today.get((place, owner)) or self._of_today(place, owner)
                entry[column] += parts * span_ms
        job.times[_OF_JOB[column]] += held * span_ms

    def _pay(self, job: JobBook, until_ms: int) -> None:
        """Charge its attempt up to a time; one that lies before what it was charged for gives back."""
        self._charge(job, job.paid_ms, until_ms)
        job.paid_ms = until_ms

    def _charge(self, job: JobBook, from_ms: int, until_ms: int) -> None:
        sign = 1 if from_ms <= until_ms else -1
        low_ms, high_ms = min(from_ms, until_ms), max(from_ms, until_ms)
        if low_ms == high_ms:
            return
        costs, owner = job.costs, job.owner
        for part in job.parts:
            parts, places = sign * part.charged, part.places
            if low_ms >= self._day_ms and high_ms <= self.now_ms and len(places) == 1:
                place = places[0][1]
                entry, amount = (
                    self._today.get((place, owner)) or self._of_today(place, owner),
                    parts * (high_ms - low_ms),
                )
                entry[CHARGED] += amount
                costs[self._day, place] = costs.get((self._day, place), 0) + amount
                continue
            for place, low, high in split_span(places, low_ms, high_ms):
                for day, span_ms in split_days(low, high):
                    amount = parts * span_ms
                    self._entry(day, place, owner)[CHARGED] += amount
                    costs[day, place] = costs.get((day, place), 0) + amount

    def _submitted(self, event: JobSubmitted) -> None:
        job = event.job
        self._queued.touched[job.id] = self._names.owner(job.spec, self._klass)

    def _changed(self, event: JobChanged) -> None:
        """A job that has started once stays on the books of the owner, class and labels that it had then."""
        job = self.job(event.job_id)
        if job is not None and not job.attempt:
            job.owner = self._names.owner(event.job.spec, self._klass)

    def _started(self, event: AttemptStarted) -> None:
        job_id = event.job_id
        if self._earmarks:
            self._drop_earmark(job_id)
        owner = self._queued.drop(job_id)
        if owner is not None and len(event.grants) == 1:
            grant = event.grants[0]
            node = self._settled(grant.node)
            if node is not None:
                self._fresh.touched[job_id] = Fresh(
                    owner, event.attempt, self.now_ms, node.take(job_id, grant)
                )
                return
        job = JobBook(owner) if owner is not None else self.job(job_id) or JobBook(self._names.unknown())
        self._jobs.touched[job_id] = job
        job.start(event.attempt, self.now_ms)
        for grant in event.grants:
            node = self._settled(grant.node)
            if node is not None:
                job.parts.append(node.take(job_id, grant))

    def _confirmed(self, event: AttemptConfirmed) -> None:
        fresh = self._fresh.get(event.job_id)
        if fresh is not None and not fresh.begun_ms and not event.started_ms:
            fresh.begun_ms = self.now_ms
            return
        job = self._jobs.get(event.job_id) or self.job(event.job_id)
        if job is None or job.phase == WAITING:
            return
        if job.phase == STARTING_UP:
            # All that it is charged for comes with its end, as a rule: until then there is nothing to write.
            job.begun_ms = self.now_ms
        else:
            self._live(event.job_id)
        if job.phase != SUSPENDED:
            job.phase = RUNNING
        if event.started_ms:
            # Another scheduler started it, and tells so late: it is charged from then on.
            if job.paid_ms == job.start_ms:
                job.paid_ms = event.started_ms
            else:
                self._charge(job, event.started_ms, job.start_ms)
            job.start_ms = event.started_ms

    def _phase(self, job_id: int, phase: str) -> None:
        job = self._live(job_id)
        if job is not None:
            job.phase = phase

    def _ended(self, event: AttemptEnded) -> None:
        job_id, now_ms = event.job_id, self.now_ms
        ended_ms = event.ended_ms or now_ms
        if ended_ms > now_ms:
            ended_ms = now_ms
        if ended_ms < self._set_ms and job_id < FIRST_EXTERNAL_ID:
            # It is charged up to when the clock was set, and ended a moment before.
            ended_ms = self._set_ms
        fresh = self._fresh.drop(job_id)
        if fresh is not None:
            if 0 < fresh.begun_ms < ended_ms and fresh.since_ms >= self._day_ms and fresh.part.charged:
                self._end_fresh(job_id, fresh, ended_ms)
                return
            self._jobs.touched[job_id] = fresh.book()
        job = self.job(job_id)
        if job is None or job.phase == WAITING:
            return
        self._live(job_id)
        for from_ms, until_ms in cut_out(job.runs, ended_ms, now_ms):
            self._time(job, UNMEASURED, until_ms, from_ms)
            self._time(job, STARTING, from_ms, until_ms)
        self._pay(job, max(ended_ms, job.start_ms))
        for part in job.parts:
            node = self._settled(part.node)
            if node is not None:
                node.give(job_id, part)
        job.end()

    def _end_fresh(self, job_id: int, job: Fresh, ended_ms: int) -> None:
        """The same for a job that ran for the first time, on one node within a day: all of it is booked at once."""
        part, since_ms, begun_ms = job.part, job.since_ms, job.begun_ms
        node = self._settled(part.node)
        if node is not None:
            node.give(job_id, part)
        at, held = (part.places[0][1], job.owner), part.parts
        entry = self._today.get(at) or self._of_today(*at)
        ran = held * (ended_ms - begun_ms)
        waited = held * (self.now_ms - since_ms) - ran
        owed = part.charged * (ended_ms - since_ms)
        entry[UNMEASURED] += ran
        entry[STARTING] += waited
        entry[CHARGED] += owed
        self._kept.put(job_id, job.over(ended_ms, ran, waited, self._day, owed))

    def _cancelled(self, job_id: int) -> None:
        """A waiting job has ended. One that never had an attempt leaves nothing."""
        job = self.job(job_id)
        if job is None or job.phase != WAITING:
            return
        self._drop_earmark(job_id)
        if not job.attempt:
            self._jobs.drop(job_id)
            self._kept.drop(job_id)

    def _requested(self, event: Requested) -> None:
        job = self.job(event.job_id)
        if job is None or job.phase != WAITING:
            return
        if event.verb is Verb.CANCEL:
            self._cancelled(event.job_id)
        elif event.verb is Verb.HOLD:
            self._drop_earmark(event.job_id)

    def _measured(self, event: AttemptMeasured) -> None:
        """In these spans, the GPUs of an attempt were used for so long, all together.

        What was measured before stays. The used time is spread evenly over the run time; the rest of it is wasted.
        """
        job = self.job(event.job_id)
        if job is None:
            return
        if job.phase != WAITING and job.attempt == event.attempt:
            self._live(event.job_id)
            held, runs = [(part.parts, part.places) for part in job.parts], job.runs
        else:
            found = [each for each in job.past if each.attempt == event.attempt]
            if not found:
                return
            held, runs = [(each.parts, each.places) for each in found[-1].held], found[-1].runs
        ran: dict[tuple[int, str], int] = {}
        measured = [
            span for seen in event.spans for span in cut_out(runs, seen[0], min(seen[1], self.now_ms))
        ]
        for span in measured:
            for parts, places in held:
                for place, low, high in split_span(places, *span):
                    for day, span_ms in split_days(low, high):
                        ran[day, place] = ran.get((day, place), 0) + parts * span_ms
        total = sum(ran.values())
        used, so_far, given, burnt = min(event.used_gpu_ms * PARTS, total), 0, 0, 0
        for (day, place), amount in sorted(ran.items()):
            if not amount:
                continue
            so_far += amount
            share = used * so_far // total - given
            given += share
            entry = self._entry(day, place, job.owner)
            energy_mj = (event.energy_mj or 0) * so_far // total - burnt
            burnt += energy_mj
            entry[ENERGY] += energy_mj
            if energy_mj:
                job.energy = job.energy if job.energy is not None else {}
                job.energy[day, place] = job.energy.get((day, place), 0) + energy_mj
            for column, booked in ((USED, share), (WASTED, amount - share), (UNMEASURED, -amount)):
                entry[column] += booked
                job.times[column] += booked

    # -- earmarks, settings, months --------------------------------------------------------------------------------

    def _earmarked(self, event: EarmarkSet) -> None:
        job = self.job(event.job_id)
        owner = job.owner if job is not None else NOBODY
        kept: dict[int, list[tuple[int, int]]] = {}
        for grant in event.grants:
            kept.setdefault(grant.node, []).append((grant.gpus, _kept_parts(grant)))
        for number, grants in kept.items():
            node = self._settled(number)
            if node is not None:
                node.kept[event.job_id] = (owner, grants)
        self._earmarks[str(event.job_id)] = (event.expires_ms, sorted(kept))

    def _drop_earmark(self, job_id: int) -> None:
        _expires_ms, numbers = self._earmarks.pop(str(job_id), (0, ()))
        for number in numbers:
            node = self._settled(number)
            if node is not None:
                node.kept.pop(job_id, None)

    def _ticked(self, event: Ticked) -> None:
        due = [job for job, (expires_ms, _nodes) in self._earmarks.items() if expires_ms <= event.at_ms]
        for job in due:
            self._drop_earmark(int(job))

    def _configured(self, event: ConfigSet) -> None:
        settings = event.settings
        self._klass = settings.default_class
        self._rows["prices"] = {
            "book": to_plain(settings.price_book),
            "models": settings.prices,
            "list": {model.name: model.list_price_micro_usd_h for model in settings.gpu_models},
        }
        if (settings.markets, settings.regions) == (self._markets, self._regions):
            return
        self._markets, self._regions = dict(settings.markets), dict(settings.regions)
        for number in range(self.nodes):
            node = self._settled(number)
            if node is not None:
                node.stand(self._place(*node.names, node.model))
                self._moved(number, node)

    def _month_closed(self, event: MonthClosed) -> None:
        """From here on its entries and its prices stand. A month that has not ended, or is closed, stays as it is."""
        _first, after = month_days(event.month)
        if after <= self.closed_day or after * DAY_MS > self.now_ms:
            return
        self.settle()
        self._rows[f"m/{event.month}"] = {
            "from_day": self.closed_day,
            "until_day": after,
            "prices": self._rows.get("prices") or {},
        }
        self.closed_day = after


def _kept_parts(grant: Grant) -> int:
    return min(grant.milli, MILLI) * PARTS_OF_MILLI


_STEPS: dict[type, Any] = {
    ConfigSet: Books._configured,
    NodeAdded: Books._node_added,
    NodeChanged: Books._node_changed,
    NodeDown: lambda books, event: books._flagged(event.node, down=True),
    NodeUp: lambda books, event: books._flagged(event.node, down=False),
    NodeCordoned: lambda books, event: books._flagged(event.node, cordoned=True),
    NodeUncordoned: lambda books, event: books._flagged(event.node, cordoned=False),
    GpusTaken: Books._gpus_taken,
    LayoutPinned: Books._layout_pinned,
    LayoutReleased: Books._layout_over,
    LayoutMade: Books._layout_over,
    JobSubmitted: Books._submitted,
    JobChanged: Books._changed,
    JobHeld: lambda books, event: books._drop_earmark(event.job_id),
    JobCancelled: lambda books, event: books._cancelled(event.job_id),
    JobSuspended: lambda books, event: books._phase(event.job_id, SUSPENDED),
    JobContinued: lambda books, event: books._phase(event.job_id, RUNNING),
    Requested: Books._requested,
    AttemptStarted: Books._started,
    AttemptConfirmed: Books._confirmed,
    AttemptStopping: lambda books, event: books._phase(event.job_id, STOPPING),
    AttemptEnded: Books._ended,
    AttemptMeasured: Books._measured,
    EarmarkSet: Books._earmarked,
    EarmarkDropped: lambda books, event: books._drop_earmark(event.job_id),
    Ticked: Books._ticked,
    MonthClosed: Books._month_closed,
}
"""The step for each kind of event; the books learn nothing from any other."""
