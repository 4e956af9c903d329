"""A live job as the scheduler keeps it: the frozen job and what has happened to it.

Ended jobs leave the state; the log and the tables made from it keep them. How many jobs wait, by user and by tenant, is
counted when a job comes, starts or goes, so that nobody has to walk through all jobs to know: derived, never dumped. A
job waits there while it has no attempt, also if it is held or set aside. How much the store keeps of a user's live jobs
is counted like that too; of ended jobs a dump has it, for nothing else in the state does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuyard.core.fleet.shapes import Shape
from gpuyard.core.quota.usage import UsageDelta
from gpuyard.model import (
    After,
    AttemptState,
    Earmark,
    Grant,
    Job,
    JobClass,
    JobSpec,
    JobState,
    StopCause,
    Verb,
)
from gpuyard.model.units import DAY_MS, NO_LIMIT_MS


class OfUser:
    """The waiting jobs of one user, and the recipes of all live ones and of those that ended lately."""

    __slots__ = ("ended_bytes", "ended_ms", "jobs", "recipe_bytes", "recipes")

    def __init__(self) -> None:
        self.jobs = self.recipe_bytes = 0
        # The recipes of jobs that had ended at a time. They count less from then on, by so much a day.
        self.ended_bytes = self.ended_ms = 0
        self.recipes: dict[str, int] = {}
        """How many live jobs have each recipe whose size is known: the store keeps it once, and here it counts once."""

    def keep(self, spec: JobSpec, jobs: int) -> None:
        """Count the recipe of so many jobs that came."""
        known = self.recipes.get(spec.recipe, 0)
        if not known:
            self.recipe_bytes += spec.recipe_bytes
        self.recipes[spec.recipe] = known + jobs

    def ended(self, now_ms: int, a_day: int) -> int:
        """How many bytes the recipes of ended jobs still count, where they count so much less with each day."""
        return max(0, self.ended_bytes - (now_ms - self.ended_ms) * a_day // DAY_MS)

    def drop(self, spec: JobSpec, at_ms: int, a_day: int) -> None:
        """A job with this recipe has ended."""
        left = self.recipes[spec.recipe] - 1
        if left:
            self.recipes[spec.recipe] = left
        else:
            del self.recipes[spec.recipe]
            self.recipe_bytes -= spec.recipe_bytes
            if a_day:
                self.ended_bytes = self.ended(at_ms, a_day) + spec.recipe_bytes
                self.ended_ms = at_ms


class Count:
    """The waiting jobs of one user, tenant and size."""

    __slots__ = ("gpu_milli", "jobs", "leaf", "of_user")

    def __init__(self, leaf: int, gpu_milli: int, of_user: OfUser) -> None:
        self.leaf = leaf
        self.gpu_milli = gpu_milli
        self.of_user = of_user
        self.jobs = 0


class Counts:
    """All of them. A job knows the one it is in."""

    def __init__(self, bytes_a_day: int = 0) -> None:
        self.bytes_a_day = bytes_a_day
        """By how much recipes of ended jobs count less with each day; 0: they do not count."""
        self.known: dict[tuple[int, str, int], Count] = {}
        """By tenant, user and size."""
        self._users: dict[str, OfUser] = {}

    def find(self, leaf: int, user: str, gpu_milli: int) -> Count:
        """Where a job is counted."""
        key = (leaf, user, gpu_milli)
        found = self.known.get(key)
        if found is None:
            of_user = self._users.setdefault(user, OfUser())
            found = self.known[key] = Count(leaf, gpu_milli, of_user)
        return found

    def of_user(self, user: str) -> int:
        """How many jobs of a user wait."""
        found = self._users.get(user)
        return found.jobs if found is not None else 0

    def recipe_bytes(self, user: str) -> int:
        """How many bytes the recipes of a user's live jobs are, equal ones once."""
        found = self._users.get(user)
        return found.recipe_bytes if found is not None else 0

    def has_recipe(self, user: str, recipe: str) -> bool:
        """Whether a live job of a user has a recipe."""
        found = self._users.get(user)
        return found is not None and recipe in found.recipes

    def recipes(self) -> dict[str, int]:
        """The bytes of all users that have any."""
        return {user: found.recipe_bytes for user, found in sorted(self._users.items()) if found.recipes}

    def ended_bytes(self, user: str, now_ms: int) -> int:
        """How many bytes the recipes of a user's jobs that ended lately still count."""
        found = self._users.get(user)
        return found.ended(now_ms, self.bytes_a_day) if found is not None and self.bytes_a_day else 0

    def all_ended(self, now_ms: int) -> dict[str, tuple[int, int]]:
        """The same of all users for which it is not nothing, as it was at a time."""
        return {
            user: (found.ended_bytes, found.ended_ms)
            for user, found in sorted(self._users.items())
            if self.ended_bytes(user, now_ms)
        }

    def count_ended(self, ended: Mapping[str, Sequence[int]]) -> None:
        """Count what `all_ended` said."""
        for user, (size, at_ms) in ended.items():
            found = self._users.setdefault(user, OfUser())
            found.ended_bytes, found.ended_ms = size, at_ms

    def waiting(self) -> Iterable[Count]:
        """Those that are not empty."""
        return [count for count in self.known.values() if count.jobs]

    def by_tenant(self, chain: Sequence[Iterable[int]]) -> tuple[list[int], list[int]]:
        """For each tenant with all below it: how many jobs wait, and the milli-GPUs that they ask for.

        `chain` has the numbers of each tenant and of all above it.
        """
        jobs, milli = [0] * len(chain), [0] * len(chain)
        for count in self.waiting():
            for number in chain[count.leaf]:
                jobs[number] += count.jobs
                milli[number] += count.jobs * count.gpu_milli
        return jobs, milli


_PENDING = JobState.PENDING


def waited_ms(submitted_ms: int, until_ms: int, ran_ms: int) -> int:
    """How long a job has waited: all the time from its submission until then in which it did not run.

    The one definition, for listings, reports and simulations alike. Time on hold, before its begin time and behind its
    dependencies counts. A job that ran more than once has waited before each of its tries. A suspended job keeps its
    GPUs and does not wait.
    """
    return max(0, until_ms - submitted_ms - ran_ms)


_NO_USAGE = UsageDelta(0, 0, 0, 0, (0, 0))
_NOWHERE = (0, 0, 0)


class JobExtras:
    """Fields that few jobs ever need, kept apart so that the others do not carry them."""

    __slots__ = (
        "boost",
        "cause",
        "delayed_ms",
        "doomed",
        "failures",
        "for_job",
        "held",
        "joined_ms",
        "moved_by",
        "nice_ms",
        "pending",
        "ran_ms",
        "saved_ms",
        "suspended_ms",
        "wanted",
        "wanted_by",
        "wanted_ms",
    )

    def __init__(self) -> None:
        self.held = False
        self.suspended_ms = self.saved_ms = self.ran_ms = self.for_job = self.failures = self.wanted_ms = 0
        self.boost = self.delayed_ms = self.joined_ms = self.nice_ms = 0
        self.wanted_by = self.moved_by = ""
        self.cause: StopCause | None = None
        self.pending: dict[After, None] = {}
        self.doomed = ""
        self.wanted: Verb | None = None


_NO_EXTRAS = JobExtras()
"""Never written to."""
HELD_ONLY = JobExtras()
HELD_ONLY.held = True
"""Of all jobs on hold of which nothing else is rare, such as an array of thousands. Never written to."""


class JobRecord:
    """One live job."""

    __slots__ = (
        "attempt",
        "begin_ms",
        "checkpoint_ms",
        "count",
        "earmark",
        "end_ms",
        "entry",
        "estimate_ms",
        "extras",
        "grants",
        "group",
        "id",
        "job",
        "klass",
        "leaf",
        "limit_ms",
        "party",
        "phase",
        "preemptions",
        "shape",
        "started_ms",
        "state",
        "stream",
        "usage",
    )

    def __init__(self, job: Job, shape: Shape, klass: JobClass, leaf: int, party: int, count: Count) -> None:
        self.job = job
        self.count = count
        """Where it is counted while it waits."""
        self.id = job.id
        self.shape = shape
        self.klass = klass
        self.leaf = leaf
        """The tenant's number."""
        self.party = party
        """The row for its quotas: the tenant's own, or one that adds its user's seats."""
        limit_ms = job.limit_ms
        most_ms = klass.limit_ms
        self.limit_ms = self.estimate_ms = limit_ms if 0 < limit_ms < most_ms else most_ms
        self.begin_ms = job.begin_ms
        """The earliest start."""
        self.state = _PENDING
        # How many attempts there were, the current one included; its start and expected end; when it last reported a
        # checkpoint (0: never); how often the job was preempted.
        self.attempt = self.started_ms = self.end_ms = self.checkpoint_ms = self.preemptions = 0
        self.phase: AttemptState | None = None
        self.usage = _NO_USAGE
        """What the current attempt is charged."""
        self.earmark: Earmark | None = None
        self.extras: JobExtras | None = None
        self.grants: tuple[Grant, ...] = ()
        # Its place in the queue.
        self.group: tuple[int, ...] = ()
        self.entry: tuple[Any, ...] = ()
        self.stream: tuple[int, int, int] = _NOWHERE

    @property
    def model(self) -> int:
        """Number of the GPU model it runs on."""
        return self.usage.model

    @property
    def rate(self) -> int:
        """Charge per millisecond of the current attempt."""
        return self.usage.rate

    def clear(self) -> None:
        """Forget the last attempt: a job without an attempt keeps nothing of it."""
        self.grants = ()
        self.started_ms = self.end_ms = self.delayed_ms = 0
        self.usage = _NO_USAGE

    def delay(self, later_ms: int) -> None:
        """All that happened to its attempt was that much later: the clock was set ahead."""
        self.started_ms += later_ms
        self.delayed_ms += later_ms
        if self.checkpoint_ms:
            self.checkpoint_ms += later_ms
        if self.state is JobState.SUSPENDED:
            self.suspended_ms += later_ms
        by, at_ms = self.wanted_by
        if by:
            self.wanted_by = (by, at_ms + later_ms)

    def keep(self, saved_ms: int) -> None:
        """Work that is saved need not be done again: the next attempt is that much shorter, plus its restart."""
        self.saved_ms = saved_ms
        self.estimate_ms = self.limit_ms
        if saved_ms and self.limit_ms < NO_LIMIT_MS:
            self.estimate_ms = max(1, self.limit_ms - saved_ms) + self.job.spec.restart_cost_ms

    def last_saved_ms(self, now_ms: int) -> int:
        """When the running attempt last saved its work: as reported, else by its interval, else its start."""
        if self.checkpoint_ms:
            return self.checkpoint_ms
        interval = self.job.spec.checkpoint_ms
        if not interval:
            return self.started_ms
        worked = now_ms - self.started_ms - (self.job.spec.restart_cost_ms if self.attempt > 1 else 0)
        return now_ms - worked % interval if worked > 0 else self.started_ms

    def saves_ms(self, now_ms: int) -> int:
        """When stopping it will cost less than before without any report: it saves its work by its interval."""
        interval = self.job.spec.checkpoint_ms
        if self.checkpoint_ms or not interval:
            return NO_LIMIT_MS << 1
        worked = now_ms - self.started_ms - (self.job.spec.restart_cost_ms if self.attempt > 1 else 0)
        return now_ms + (interval - worked % interval if worked > 0 else 1 - worked)

    def destroyed_gpu_ms(self, now_ms: int) -> int:
        """The work that stopping it now would lose: milli-GPU x ms since its last checkpoint, plus its restart."""
        spec = self.job.spec
        saved_at_ms = self.started_ms
        if self.checkpoint_ms or spec.checkpoint_ms:
            saved_at_ms = self.last_saved_ms(now_ms)
        return (now_ms - saved_at_ms + spec.restart_cost_ms) * (self.shape.gpu_milli or 1)

    # -- rare fields --------------------------------------------------------------------------------------------

    def _own_extras(self) -> JobExtras:
        extras = self.extras
        if extras is None or extras is HELD_ONLY:
            self.extras = JobExtras()
            self.extras.held = extras is HELD_ONLY
            return self.extras
        return extras

    @property
    def held(self) -> bool:
        """Whether the job may not start until it is released."""
        return (self.extras or _NO_EXTRAS).held

    @held.setter
    def held(self, value: bool) -> None:
        extras = self.extras
        if extras is None or extras is HELD_ONLY:
            self.extras = HELD_ONLY if value else None
        else:
            extras.held = value

    @property
    def suspended_ms(self) -> int:
        """When the job was suspended; 0: it is not."""
        return (self.extras or _NO_EXTRAS).suspended_ms

    @suspended_ms.setter
    def suspended_ms(self, value: int) -> None:
        if value or self.extras is not None:
            self._own_extras().suspended_ms = value

    @property
    def saved_ms(self) -> int:
        """Work that need not be done again."""
        return (self.extras or _NO_EXTRAS).saved_ms

    @saved_ms.setter
    def saved_ms(self, value: int) -> None:
        if value or self.extras is not None:
            self._own_extras().saved_ms = value

    @property
    def ran_ms(self) -> int:
        """How long its ended tries ran."""
        return (self.extras or _NO_EXTRAS).ran_ms

    @ran_ms.setter
    def ran_ms(self, value: int) -> None:
        if value or self.extras is not None:
            self._own_extras().ran_ms = value

    @property
    def delayed_ms(self) -> int:
        """By how much the clock was set ahead since its attempt started: its engine may not know of that."""
        return (self.extras or _NO_EXTRAS).delayed_ms

    @delayed_ms.setter
    def delayed_ms(self, value: int) -> None:
        if value or self.extras is not None:
            self._own_extras().delayed_ms = value

    @property
    def cause(self) -> StopCause | None:
        """Why the current attempt is being stopped."""
        return (self.extras or _NO_EXTRAS).cause

    @cause.setter
    def cause(self, value: StopCause | None) -> None:
        if value or self.extras is not None:
            self._own_extras().cause = value

    @property
    def for_job(self) -> int:
        """The job for which it is being stopped."""
        return (self.extras or _NO_EXTRAS).for_job

    @for_job.setter
    def for_job(self, value: int) -> None:
        if value or self.extras is not None:
            self._own_extras().for_job = value

    @property
    def failures(self) -> int:
        """How often the job failed by itself and was tried again."""
        return (self.extras or _NO_EXTRAS).failures

    @failures.setter
    def failures(self, value: int) -> None:
        if value or self.extras is not None:
            self._own_extras().failures = value

    @property
    def pending(self) -> dict[After, None]:
        """The dependencies that are not met yet, in the order of the spec."""
        return (self.extras or _NO_EXTRAS).pending

    @pending.setter
    def pending(self, value: dict[After, None]) -> None:
        if value or self.extras is not None:
            self._own_extras().pending = value

    @property
    def doomed(self) -> str:
        """Why the job can never start: a dependency can no longer be met."""
        return (self.extras or _NO_EXTRAS).doomed

    @doomed.setter
    def doomed(self, value: str) -> None:
        if value or self.extras is not None:
            self._own_extras().doomed = value

    @property
    def only_begins(self) -> bool:
        """Whether nothing but its begin time keeps the job from the queue: it is not held and waits for no other."""
        extras = self.extras
        return extras is None or not (extras.held or extras.pending or extras.doomed)

    @property
    def wanted(self) -> Verb | None:
        """What a user requested for the current attempt and is not done yet."""
        return (self.extras or _NO_EXTRAS).wanted

    @wanted.setter
    def wanted(self, value: Verb | None) -> None:
        if value or self.extras is not None:
            self._own_extras().wanted = value

    @property
    def wanted_by(self) -> tuple[str, int]:
        """The user behind the last request for an attempt, and when; an empty name: unknown."""
        extras = self.extras or _NO_EXTRAS
        return extras.wanted_by, extras.wanted_ms

    @wanted_by.setter
    def wanted_by(self, value: tuple[str, int]) -> None:
        if value[0] or self.extras is not None:
            extras = self._own_extras()
            extras.wanted_by, extras.wanted_ms = value

    @property
    def boost(self) -> int:
        """Its rank among the jobs that were moved to the top, the highest first; 0: the job was not moved."""
        return (self.extras or _NO_EXTRAS).boost

    @property
    def moved_by(self) -> str:
        """The user behind its move to the top."""
        return (self.extras or _NO_EXTRAS).moved_by

    @property
    def line_ms(self) -> int:
        """The time by which its place in its line goes: that of its submission, unless the job was changed.

        Never before time began: what is smaller stands for jobs at the top of all.
        """
        extras = self.extras or _NO_EXTRAS
        return max(0, (extras.joined_ms or self.job.submitted_ms) + extras.nice_ms)

    def has_waited_for_level(self, now_ms: int) -> bool:
        """Whether it has waited for near nodes as long as it wanted to."""
        level_ms = self.shape.ask.level_ms
        return level_ms > 0 and self.job.submitted_ms + level_ms <= now_ms

    @property
    def joined_ms(self) -> int:
        """When it went to the end of its line, because it asked for more than before; 0: it never did."""
        return (self.extras or _NO_EXTRAS).joined_ms

    @property
    def nice_ms(self) -> int:
        """By how much later its place in its line is; negative: earlier."""
        return (self.extras or _NO_EXTRAS).nice_ms

    def stand(self, joined_ms: int, nice_ms: int) -> None:
        """Give the job another place in its line."""
        if joined_ms or nice_ms or self.extras is not None:
            extras = self._own_extras()
            extras.joined_ms, extras.nice_ms = joined_ms, nice_ms

    def move(self, boost: int, by: str) -> None:
        """Move the job to the top, or back (0)."""
        if boost or self.extras is not None:
            extras = self._own_extras()
            extras.boost, extras.moved_by = boost, by if boost else ""
