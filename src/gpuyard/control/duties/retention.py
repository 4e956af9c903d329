"""The duty `retention`: removes what yard.yaml no longer keeps of ended jobs.

Environments, scripts, logs, folders, images. A walk goes over the jobs in the order in which they ended, in small steps
with pauses between them: never in the loop, which touches no path of a job. Each step can be broken off anywhere: what
is removed is said in the store first, and goes whole or not at all. The history of a job stays, and says what was
removed and when.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuyard.control.clock import time_text
from gpuyard.control.clusters import Clusters
from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.control.refusals import Unacceptable
from gpuyard.control.replica.labels import attempt_key
from gpuyard.control.replica.replica import Replica
from gpuyard.engines.contract import KeepsImages, KeepsLeftovers, Leftover
from gpuyard.model import Retention
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.store import Ended, Mark, Removal

FIRST_S, EVERY_S = 60.0, 3600.0
BY_ITSELF = "retention"
"""The name under which the server removes what yard.yaml no longer keeps."""
ENVIRONMENTS, SCRIPTS = "environments", "scripts"
OF_RECIPES = (ENVIRONMENTS, SCRIPTS)
IMAGES = "images"
KINDS = (*OF_RECIPES, *[what.value for what in Leftover], IMAGES)
STEP_JOBS = 200
"""How many jobs are looked at in one step."""
PAUSE_S = 0.05
BUDGET_S = 0.5
"""How long one request may take steps."""
BACK_MS, FIRST_BACK_MS = HOUR_MS, DAY_MS
"""How far back ends are looked at again, every hour and after a start: an end may be seen late."""

_START: Mark = (0, 0)
_log = logging.getLogger(__name__)


class PruneCursor(NamedTuple):
    """How far a walk has come: what it removes now, and the last one that it looked at."""

    kind: str = KINDS[0]
    ended_ms: int = 0
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.ended_ms}:{self.name}"


def parse_cursor(text: str) -> PruneCursor:
    """The cursor that a reply named."""
    kind, _, rest = text.partition(":")
    ended_ms, _, name = rest.partition(":")
    # Names are hashes and ids; the store holds numbers of 63 bits.
    if kind not in KINDS or not (ended_ms.isdecimal() and len(ended_ms) < 18 and len(name) <= 64):
        raise Unacceptable("`next` is not what an earlier reply said", "Leave it out to begin anew.")
    if kind not in OF_RECIPES and name and not (name.isdecimal() and len(name) < 18):
        raise Unacceptable("`next` is not what an earlier reply said", "Leave it out to begin anew.")
    return PruneCursor(kind, int(ended_ms), name)


@dataclass(frozen=True, slots=True)
class PruneWish:
    """What is to go."""

    by: str = BY_ITSELF
    older_ms: int | None = None
    """Remove what is kept of jobs that ended this long ago; None: as long ago as yard.yaml says."""
    dry_run: bool = False
    """Only count it."""


@dataclass(slots=True)
class Tally:
    """How much of what has gone, or would: how many of each kind, and bytes."""

    counts: dict[str, list[int]] = field(default_factory=lambda: {kind: [0, 0] for kind in KINDS})

    def add(self, kind: str, count: int, size: int) -> None:
        """Count some."""
        self.counts[kind][0] += count
        self.counts[kind][1] += size

    @property
    def total(self) -> int:
        """How many in all."""
        return sum([count for count, _size in self.counts.values()])

    def __str__(self) -> str:
        return ", ".join([f"{n} {kind} ({size} bytes)" for kind, (n, size) in self.counts.items() if n])


class Pruner:
    """Removes what is no longer to be kept: by itself once in an hour while this process leads, or when asked to."""

    def __init__(self, replica: Replica, clusters: Clusters, now_ms: Callable[[], int]) -> None:
        self._replica = replica
        self._folders = [each for each in clusters.values() if isinstance(each, KeepsLeftovers)]
        """Engines with folders in which jobs leave something: each is asked what it has of those that ended, also of
        attempts that it ran when its cluster had another name."""
        self._images_kept = [each for each in clusters.values() if isinstance(each, KeepsImages)]
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._noted: Mark | None = None
        """Up to which end recipes were noted; None: not yet looked up since the start."""
        self._marks: dict[str, Mark] | None = None

    def by_itself(self, rest: Callable[[float], bool] = lambda _pause_s: False) -> Tally:
        """One walk as yard.yaml says, from where the last one ended. `rest` pauses, and says when to break off."""
        done = self._walk(rest)
        if done.total:
            _log.info("removed, as yard.yaml says: %s", done)
        return done

    def _walk(self, rest: Callable[[float], bool]) -> Tally:
        if self._marks is None:
            self._marks = {
                kind: (max(0, mark[0] - FIRST_BACK_MS), 0)
                for kind, mark in self._replica.store.removals.marks().items()
            }
        tally = Tally()
        for kind in KINDS:
            place: PruneCursor | None = self._begun(kind)
            while place is not None and place.kind == kind:
                if rest(PAUSE_S):
                    return tally
                place = self.step(PruneWish(), place, tally)
        self._remember()
        return tally

    def _begun(self, kind: str) -> PruneCursor:
        mark = (self._marks or {}).get(kind, _START)
        return PruneCursor(kind) if kind in OF_RECIPES else PruneCursor(kind, mark[0], str(mark[1]))

    def _remember(self) -> None:
        kept = self._replica.state.settings.retention
        now_ms = self._now_ms()
        marks: dict[str, Mark] = {}
        for what in Leftover:
            kept_ms: int = getattr(kept, f"{what.value}_ms")
            before = (self._marks or {}).get(what.value, _START)
            marks[what.value] = max(before, (now_ms - kept_ms - BACK_MS, 0)) if kept_ms else before
        if self._noted is not None:
            self._noted = marks[SCRIPTS] = (max(0, self._noted[0] - BACK_MS), 0)
        self._marks = marks
        self._replica.store.removals.put_marks(marks)

    def some(self, wish: PruneWish, place: PruneCursor) -> tuple[Tally, PruneCursor | None]:
        """As many steps of a walk as one request may take, and where to go on."""
        tally, until_s = Tally(), time.monotonic() + BUDGET_S
        going: PruneCursor | None = place
        while going is not None and time.monotonic() < until_s:
            going = self.step(wish, going, tally)
        if not wish.dry_run and tally.total:
            _log.info("removed for %s: %s", wish.by, tally)
        return tally, going

    def step(self, wish: PruneWish, place: PruneCursor, tally: Tally) -> PruneCursor | None:
        """One step of a walk: the next place, or nothing at its end."""
        with self._lock:
            before_ms = self._before_ms(wish, place.kind)
            after = None
            if before_ms is not None:
                if place.kind in OF_RECIPES:
                    after = self._recipes(wish, place, before_ms, tally)
                elif place.kind == IMAGES:
                    self._images(wish, before_ms, tally)
                elif self._folders:
                    after = self._leftovers(wish, place, before_ms, tally)
        if after is not None:
            return after
        rest = KINDS[KINDS.index(place.kind) + 1 :]
        return PruneCursor(rest[0]) if rest else None

    def _before_ms(self, wish: PruneWish, kind: str) -> int | None:
        """What ended before then is to go; None: nothing is."""
        kept_ms = wish.older_ms
        if kept_ms is None:
            kept_ms = getattr(self._replica.state.settings.retention, f"{kind}_ms") or None
        return None if kept_ms is None else self._now_ms() - kept_ms + (kept_ms == 0)

    def _recipes(
        self, wish: PruneWish, place: PruneCursor, before_ms: int, tally: Tally
    ) -> PruneCursor | None:
        # In this order: a job that ends meanwhile is then among the live ones or among the ends that are noted.
        needed, seq = self._needed()
        if not self._note_ends():
            return place
        removal = None if wish.dry_run else Removal(self._now_ms(), wish.by)
        at = (place.ended_ms, place.name)
        store, kind = self._replica.store, place.kind
        forget = store.removals.strip_recipes if kind == ENVIRONMENTS else store.removals.remove_recipes
        found = forget(before_ms, at, STEP_JOBS, needed, seq, removal)
        for recipe in found:
            if recipe.size and not recipe.needed:
                tally.add(kind, 1, recipe.size)
        return PruneCursor(kind, found[-1].ended_ms, found[-1].hash) if found else None

    def _needed(self) -> tuple[set[str], int]:
        """The recipes of live jobs, and up to which event they were looked for."""
        replica = self._replica
        with replica.lock:
            replica.catch_up()
            # A copy of the list is quick; looking at each takes time that others do not wait for.
            records, seq = list(replica.state.jobs.values()), replica.seq
        return {record.job.spec.recipe for record in records}, seq

    def _note_ends(self) -> bool:
        """Note one page of the ends since the last time; whether that was all."""
        store = self._replica.store
        if self._noted is None:
            noted = store.removals.marks().get(SCRIPTS, _START)
            self._noted = (max(0, noted[0] - FIRST_BACK_MS), 0)
        jobs = store.removals.ended_until(1 << 62, self._noted, STEP_JOBS)
        store.removals.note_ends({job.recipe: job.ended_ms for job in jobs if job.recipe})
        if jobs:
            self._noted = jobs[-1].mark
        return len(jobs) < STEP_JOBS

    def _leftovers(
        self, wish: PruneWish, place: PruneCursor, before_ms: int, tally: Tally
    ) -> PruneCursor | None:
        what, store = Leftover(place.kind), self._replica.store
        jobs = store.removals.ended_until(before_ms, (place.ended_ms, int(place.name or 0)), STEP_JOBS)
        if not jobs:
            return None
        with self._replica.lock:
            # A job of an older log that was restored may be in the history of a later one.
            live = {job.id for job in jobs if job.id in self._replica.state.jobs}
        names = {name: job for job in jobs if job.id not in live for name in self._names(what, job)}
        sizes: dict[str, int] = {}
        for engine in self._folders:
            for name, size in engine.leftovers(what, list(names)).items():
                sizes[name] = sizes.get(name, 0) + size
        tally.add(place.kind, len(sizes), sum(sizes.values()))
        if sizes and not wish.dry_run:
            gone = {names[name].id: names[name] for name in sizes}
            store.removals.note_removed(list(gone.values()), place.kind, Removal(self._now_ms(), wish.by))
            for engine in self._folders:
                engine.remove(what, list(sizes))
        return PruneCursor(place.kind, jobs[-1].ended_ms, str(jobs[-1].id))

    def _images(self, wish: PruneWish, before_ms: int, tally: Tally) -> None:
        """All of them in one step. They are no job's own: when one was last used is known where it lies."""
        for engine in self._images_kept:
            sizes = engine.prune_images(before_ms, dry_run=wish.dry_run)
            tally.add(IMAGES, len(sizes), sum(sizes.values()))

    def _names(self, what: Leftover, job: Ended) -> list[str]:
        if what is Leftover.FOLDERS:
            return [str(job.id)]
        yard = self._replica.store.yard
        return [attempt_key(yard, job.id, n + 1, job.submitted_ms) for n in range(job.attempts)]


def removed_text(what: str, removal: Removal, kept: Retention) -> str:
    """When something was removed, and why, in a sentence without its subject."""
    on = str(time_text(removal.at_ms))[:10]
    if removal.by != BY_ITSELF:
        return f"was removed on {on} by {removal.by}, with `yard prune`"
    days = getattr(kept, f"{what}_ms") // DAY_MS
    return f"was removed on {on} by retention" + (f": yard.yaml keeps {what} for {days} d" if days else "")


def duty(pruner: Pruner) -> Duty:
    """Of the leader. A walk ends with the step under way; the next one goes on from what the store knows."""

    def walk(turn: Turn) -> None:
        pruner.by_itself(turn.rest)

    return Duty(
        "retention",
        walk,
        every_s=EVERY_S,
        first_s=FIRST_S,
        leader=True,
        follower_s=EVERY_S,
        undone="what is too old was not removed",
        retry=BackOff(60.0, EVERY_S),
    )
