"""The two books, event by event.

An attempt holds its parts of GPUs from the event of its start to that of its end, and everything else of a node is
free: so the time of attempts and the free time of nodes are the capacity, whatever happens. What was booked is
corrected by booking the difference: a difference that falls into a closed month becomes a correction in the open one.

Rows, all that the books know: `head`; `n/NODE` and `j/JOB`, how nodes and jobs stand; `o/OWNER` and `p/PLACE`, what the
two names in an entry stand for; `l/OWNER`, how many sets of labels that owner has; `d/DAY/PLACE/OWNER`, an entry of a
day; `c/DAY/DAY/PLACE/OWNER`, a correction, first the day on which it was learned, then the day that it is about;
`prices`, in force; `m/MONTH`, a closed month with its prices.
"""

import json
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from gpuyard.ledger.jobs import PAST_MAX, RUNNING, STARTING_UP, STOPPING, SUSPENDED, WAITING, JobBook, cut_out
from gpuyard.ledger.nodes import NodeBook, Part
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
    days,
    month_days,
)
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    AttemptStopping,
    ConfigSet,
    EarmarkDropped,
    EarmarkSet,
    Event,
    GpusTaken,
    Grant,
    JobCancelled,
    JobContinued,
    JobHeld,
    JobSpec,
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
from gpuyard.model.serialise import Plain, to_plain
from gpuyard.model.units import DAY_MS, MILLI

_CATEGORY = {STARTING_UP: STARTING, STOPPING: STARTING, RUNNING: UNMEASURED, SUSPENDED: WASTED}
"""What the time of an attempt is, by how it stands. A suspended one keeps GPUs that nobody can use."""
_OF_JOB = {USED: 0, WASTED: 1, UNMEASURED: 2, STARTING: 3}
"""The places of the categories in the times of a job."""


class RowsLike(Protocol):
    """Where the books are kept: JSON values by key."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a key."""
        ...

    def __setitem__(self, key: str, value: Plain) -> None: ...

    def __delitem__(self, key: str) -> None: ...


@lru_cache(maxsize=4096)
def name_of(facts: tuple[object, ...]) -> str:
    """A short name for an owner or a place, the same in every process."""
    return sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()[:16]


_Key = tuple[int, int, str, str]
"""Of an entry: the day on which it was learned (0: the day itself), the day, the place and the owner."""
PROJECT = "project"
"""The label that is a dimension of its own."""
LABEL_SETS_MAX = 1_000
"""How many sets of labels are told apart for a user in a tenant and a class; later ones are booked by project alone."""
SHELF_MAX = 50_000
"""How many values of a kind are remembered, with their rows on disk."""
K = TypeVar("K")
V = TypeVar("V")


class Shelf(Generic[K, V]):
    """Values made of rows: those that may have changed since the rows were written, and others."""

    __slots__ = ("_same", "_touched")

    def __init__(self) -> None:
        self._touched: dict[K, V] = {}
        self._same: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """A value, to be changed."""
        found = self._touched.get(key)
        if found is None:
            found = self._same.pop(key, None)
            if found is not None:
                self._touched[key] = found
        return found

    def put(self, key: K, value: V) -> None:
        """A new value, or one of a row that was looked up."""
        self._touched[key] = value

    def drop(self, key: K) -> None:
        """Forget a value."""
        self._touched.pop(key, None)
        self._same.pop(key, None)

    def take(self) -> dict[K, V]:
        """What may have changed since this was asked last."""
        touched = self._touched
        self._same |= touched
        self._touched = {}
        return touched

    def forget(self) -> bool:
        """Forget the older half if there are too many; whether there were."""
        full = len(self._same) > SHELF_MAX
        if full:
            self._same = dict(islice(self._same.items(), len(self._same) // 2, None))
        return full


class Books:
    """The books as they stand after the last event, over rows that are written when `flush` is called."""

    def __init__(self, rows: RowsLike) -> None:
        self._rows = rows
        head = rows.get("head") or {}
        self.now_ms: int = head.get("now_ms", 0)
        """The latest time that any event told: a clock that goes back stands still here."""
        self.nodes: int = head.get("nodes", 0)
        self.closed_day: int = head.get("closed_day", 0)
        """Days before this one belong to closed months."""
        self._klass: str = head.get("klass", "batch")
        self._markets: dict[str, str] = head.get("markets", {})
        self._regions: dict[str, str] = head.get("regions", {})
        self._earmarks: dict[str, tuple[int, list[int]]] = head.get("earmarks", {})
        """By job: when the earmark expires, and its nodes."""
        self._nodes, self._jobs = Shelf[int, NodeBook](), Shelf[int, JobBook]()
        self._entries = Shelf[_Key, list[int]]()
        self._last_day: int = head.get("last_day", 0)
        """The last day that has entries."""
        self._whole_day = self._last_day + 1
        """From this day on, all entries are on the shelf: none has to be looked up."""
        self._gone: list[int] = []
        """Jobs that ended without a start."""
        self._names: dict[str, Plain] = {}
        """Owners and places that came up."""
        self._named: set[str] = set()
        """Those of them that are in the rows."""
        self._sets: dict[str, int] = {}
        """How many sets of labels an owner has, where that has changed."""

    def flush(self) -> None:
        """Write everything that may have changed into the rows. What was read is remembered for what comes next."""
        rows = self._rows
        for name, told in self._names.items():
            if name not in self._named and rows.get(name) is None:
                rows[name] = told
        self._named.update(self._names)
        self._names = {}
        for bare, count in self._sets.items():
            rows[f"l/{bare}"] = count
        self._sets = {}
        for (learned, day, place, owner), entry in self._entries.take().items():
            if learned:
                rows[f"c/{learned:06}/{day:06}/{place}/{owner}"] = entry
            else:
                rows[f"d/{day:06}/{place}/{owner}"] = entry
        for number, node in self._nodes.take().items():
            rows[f"n/{number}"] = node.row()
        for job_id, job in self._jobs.take().items():
            rows[f"j/{job_id}"] = job.row()
        for job_id in self._gone:
            del rows[f"j/{job_id}"]
        self._gone = []
        self._nodes.forget()
        self._jobs.forget()
        if self._entries.forget():
            self._whole_day = self._last_day + 1
        rows["head"] = {
            "now_ms": self.now_ms,
            "nodes": self.nodes,
            "closed_day": self.closed_day,
            "last_day": self._last_day,
            "klass": self._klass,
            "markets": self._markets,
            "regions": self._regions,
            "earmarks": self._earmarks,
        }

    def fold(self, event: Event) -> None:
        """Fold one event."""
        if event.at_ms > self.now_ms:
            self.now_ms = event.at_ms
        step = _STEPS.get(type(event))
        if step is not None:
            step(self, event)

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
        for day, span_ms in days(from_ms, until_ms):
            self._entry(day, place, owner)[column] += parts * span_ms

    def _entry(self, day: int, place: str, owner: str) -> list[int]:
        key = (self.now_ms // DAY_MS if day < self.closed_day else 0, day, place, owner)
        entry = self._entries.get(key)
        if entry is None:
            row = None
            if key[0] or day < self._whole_day:
                learned = f"c/{key[0]:06}" if key[0] else "d"
                row = self._rows.get(f"{learned}/{day:06}/{place}/{owner}")
            entry = row or [0] * COLUMNS
            self._last_day = max(self._last_day, day)
            self._entries.put(key, entry)
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
            self._nodes.put(number, found)
        return found

    def _settled(self, number: int) -> NodeBook | None:
        """A node whose free time is booked up to now."""
        node, now_ms = self.node(number), self.now_ms
        if node is not None and node.since_ms < now_ms:
            place, since_ms = node.place, node.since_ms
            for owner, column, parts in node.free():
                self._book(place, owner, column, parts, since_ms, now_ms)
            self._book(place, NOBODY, FLEET, node.fleet, since_ms, now_ms)
            node.since_ms = now_ms
        return node

    def _place(self, cluster: str, pool: str, model: str) -> str:
        at = f"{cluster}/{pool}"
        facts = (cluster, pool, model, self._markets.get(at, "reserved"), self._regions.get(at, ""))
        name = name_of(facts)
        self._names[f"p/{name}"] = list(facts)
        return name

    def _node_added(self, event: NodeAdded) -> None:
        node = event.node
        place = self._place(node.cluster, node.pool, node.gpu_model if node.gpus else "")
        self._nodes.put(self.nodes, NodeBook(node, place, self.now_ms))
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
            for part in job.parts if job is not None else ():
                if part.node == number and part.places[-1][1] != node.place:
                    part.places.append((self.now_ms, node.place))

    def settle(self) -> None:
        """Book everything up to now: it is otherwise booked when it changes."""
        for number in range(self.nodes):
            node = self._settled(number)
            for job_id in sorted(node.jobs) if node is not None else ():
                job = self._live(job_id)
                if job is not None:
                    self._pay(job, self.now_ms)

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
        if found is None and job_id not in self._gone:
            row = self._rows.get(f"j/{job_id}")
            if row is not None:
                found = JobBook.of(row)
                self._jobs.put(job_id, found)
        return found

    def _live(self, job_id: int) -> JobBook | None:
        """A job with an attempt, whose time is booked up to now."""
        job, now_ms = self.job(job_id), self.now_ms
        if job is None or job.phase == WAITING:
            return None
        if job.since_ms < now_ms:
            column = _CATEGORY[job.phase]
            for part in job.parts:
                self._time(job, part, column, 1, job.since_ms, now_ms)
            if job.phase == RUNNING:
                job.ran(job.since_ms, now_ms)
            job.since_ms = now_ms
        return job

    def _time(self, job: JobBook, part: Part, column: int, sign: int, from_ms: int, until_ms: int) -> None:
        """Book time of an attempt, or take it back."""
        parts = sign * part.parts
        if len(part.places) == 1:
            self._book(part.places[0][1], job.owner, column, parts, from_ms, until_ms)
        else:
            for place, low, high in part.pieces(from_ms, until_ms):
                self._book(place, job.owner, column, parts, low, high)
        job.times[_OF_JOB[column]] += parts * (until_ms - from_ms)

    def _pay(self, job: JobBook, until_ms: int) -> None:
        """Charge its attempt up to a time; one that lies before what it was charged for gives back."""
        self._charge(job, job.paid_ms, until_ms)
        job.paid_ms = until_ms

    def _charge(self, job: JobBook, from_ms: int, until_ms: int) -> None:
        sign = 1 if from_ms <= until_ms else -1
        low_ms, high_ms = min(from_ms, until_ms), max(from_ms, until_ms)
        if low_ms == high_ms:
            return
        for part in job.parts:
            parts = sign * part.charged
            for place, low, high in part.pieces(low_ms, high_ms):
                for day, span_ms in days(low, high):
                    amount = parts * span_ms
                    self._entry(day, place, job.owner)[CHARGED] += amount
                    job.costs[day, place] = job.costs.get((day, place), 0) + amount

    def _submitted(self, event: JobSubmitted) -> None:
        self._jobs.put(event.job.id, JobBook(self._owner(event.job.spec)))

    def _owner(self, spec: JobSpec) -> str:
        facts: tuple[object, ...] = (spec.tenant, spec.user, spec.klass or self._klass)
        if spec.labels:
            facts = self._labelled(facts, spec.labels)
        name = name_of(facts)
        self._names[f"o/{name}"] = facts
        return name

    def _labelled(self, facts: tuple[object, ...], labels: tuple[tuple[str, str], ...]) -> tuple[object, ...]:
        """An owner with labels: of one that has too many sets of them, new sets are the project alone, then none."""
        bare = name_of(facts)
        row = self._rows.get(f"l/{bare}", 0) if bare not in self._sets else self._sets[bare]
        project = tuple([each for each in labels if each[0] == PROJECT])
        for kept, most in ((labels, LABEL_SETS_MAX), (project, 2 * LABEL_SETS_MAX)):
            if not kept:
                break
            named = f"o/{name_of((*facts, kept))}"
            if named in self._names or named in self._named or self._rows.get(named) is not None:
                return (*facts, kept)
            if row < most:
                self._sets[bare] = row + 1
                return (*facts, kept)
        return facts

    def _unknown(self) -> JobBook:
        """A job of whose submission a log that was cut does not tell."""
        facts = ("", "", "")
        name = name_of(facts)
        self._names[f"o/{name}"] = list(facts)
        return JobBook(name)

    def _started(self, event: AttemptStarted) -> None:
        job_id, now_ms = event.job_id, self.now_ms
        self._drop_earmark(job_id)
        job = self.job(job_id)
        if job is None:
            job = self._unknown()
            self._jobs.put(job_id, job)
        job.attempt, job.phase, job.parts, job.runs = event.attempt, STARTING_UP, [], []
        job.since_ms = job.start_ms = job.paid_ms = now_ms
        for grant in event.grants:
            node = self._settled(grant.node)
            if node is not None:
                job.parts.append(node.take(job_id, grant))

    def _confirmed(self, event: AttemptConfirmed) -> None:
        job = self._live(event.job_id)
        if job is None:
            return
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
        job = self._live(event.job_id)
        if job is None:
            return
        ended_ms = min(event.ended_ms or self.now_ms, self.now_ms)
        for from_ms, until_ms in cut_out(job.runs, ended_ms, self.now_ms):
            # It had ended by then, and its GPUs waited to be given back.
            for part in job.parts:
                self._time(job, part, UNMEASURED, -1, from_ms, until_ms)
                self._time(job, part, STARTING, 1, from_ms, until_ms)
        self._pay(job, max(ended_ms, job.start_ms))
        for part in job.parts:
            node = self._settled(part.node)
            if node is not None:
                node.give(event.job_id, part)
        if job.runs:
            job.past = [*job.past, (job.attempt, job.parts, job.runs)][-PAST_MAX:]
        job.phase, job.parts, job.runs = WAITING, [], []

    def _cancelled(self, job_id: int) -> None:
        """A waiting job has ended. One that never had an attempt leaves nothing."""
        job = self.job(job_id)
        if job is None or job.phase != WAITING:
            return
        self._drop_earmark(job_id)
        if not job.attempt:
            self._jobs.drop(job_id)
            self._gone.append(job_id)

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
            held, runs = job.parts, job.runs
        else:
            found = [each for each in job.past if each[0] == event.attempt]
            if not found:
                return
            _attempt, held, runs = found[-1]
        ran: dict[tuple[int, str], int] = {}
        measured = [
            span for seen in event.spans for span in cut_out(runs, seen[0], min(seen[1], self.now_ms))
        ]
        for span in measured:
            for part in held:
                for place, low, high in part.pieces(*span):
                    for day, span_ms in days(low, high):
                        ran[day, place] = ran.get((day, place), 0) + part.parts * span_ms
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
                node.place = self._place(*node.names, node.model)
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
