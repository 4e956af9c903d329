"""An admitted job on its way into the log and the blobs: whether there is still room for it, and what is written of it.

There is a limit to how many jobs of one user may wait, to how much the store may keep for those that have not ended,
and to how fast what it keeps of those that ended may grow. Each job takes memory of the server, and makes every list of
all jobs longer; its recipe takes disk. Submissions are judged by these limits in the order in which they are written,
in the thread that writes them. Jobs that were accepted and that the replica has not read yet count, too, so that many
submissions at one moment get no further. What other servers have accepted counts when the replica has read it, within a
second or so.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic_core import to_json

from gpuyard.control.access.people import Person, RunAs
from gpuyard.control.admission.admit import Admitted
from gpuyard.control.admission.wanted import NewJob, Wanted
from gpuyard.control.refusals import Impossible
from gpuyard.core import State
from gpuyard.model import (
    After,
    Ask,
    Event,
    Isolation,
    Job,
    JobHeld,
    JobSpec,
    JobState,
    JobSubmitted,
    Milli,
    Settings,
    TasksSubmitted,
)
from gpuyard.model.serialise import Plain, to_plain
from gpuyard.model.units import DAY_MS, MILLI, SECOND_MS
from gpuyard.quantities import span_words
from gpuyard.wire.endpoints import Action
from gpuyard.wire.replies.jobs import JobReply

TASKS_TOGETHER = 500
"""Tasks of an array in one line of the log: a line is folded at one go."""
TASKS_WITH_OWN = 100
"""The same where tasks have dependencies of their own: these are read and folded one by one."""


class Crowd(NamedTuple):
    """The jobs of one submission."""

    jobs: int
    first_id: int
    last_id: int
    recipe: str
    recipe_bytes: int
    now_ms: int


class Crowding:
    """The limits of each user, and what this process has accepted that the replica has not read."""

    def __init__(self) -> None:
        self._unread: deque[tuple[int, str, int]] = deque()
        """Submissions that are newer than the replica: the last id of each, its user and how many jobs it is."""
        self._recipes: deque[tuple[int, str, str, int]] = deque()
        """Recipes that are newer than the replica: the id that brings each, its user, its hash and its size."""
        self._users: dict[str, _Unread] = {}

    def has_room(self, person: Person, new: Crowd, state: State) -> bool:
        """Whether a submission would be accepted now. It is not counted."""
        try:
            self.check(person, new, state, count=False)
        except Impossible:
            return False
        return True

    def check(self, person: Person, new: Crowd, state: State, *, count: bool = True) -> None:
        """Refuse a submission with which too many jobs of a user would wait, or too much be kept; else count it."""
        settings, counts = state.settings, state.counts
        most, most_bytes = settings.waiting_per_user, settings.recipes_mib_per_user << 20
        if not (most or most_bytes) or person.may(Action.MANAGE_CONFIG, ""):
            return
        name, jobs = person.name, new.jobs
        # In this order: the replica may read on meanwhile, and a job is then missed for a moment, not counted twice.
        waiting, kept = counts.of_user(name), counts.recipe_bytes(name)
        self._forget(state.last_job_id)
        unread = self._users.get(name) or _Unread()
        waiting += unread.jobs - self._half_read(name, state.last_job_id)
        kept += unread.recipe_bytes
        if most and waiting + jobs > most:
            more = f", and these would be {jobs:,} more" if jobs > 1 else ""
            raise Impossible(
                f"{waiting:,} jobs of {name} wait already{more}; a user may have {most:,}",
                "Submit the rest when some of them have started, or cancel some. "
                "An administrator sets the limit: `waiting_per_user` in yard.yaml.",
            )
        brings = new.recipe not in unread.recipes and not counts.has_recipe(name, new.recipe)
        if brings and most_bytes:
            _check_recipe(name, new, kept, counts.ended_bytes(name, new.now_ms), most_bytes)
        if not count:
            return
        if brings:
            self._recipes.append((new.first_id, name, new.recipe, new.recipe_bytes))
            unread.recipes.add(new.recipe)
            unread.recipe_bytes += new.recipe_bytes
        self._unread.append((new.last_id, name, jobs))
        unread.jobs += jobs
        self._users[name] = unread

    def _forget(self, read_id: int) -> None:
        """The replica has read up to this id, and counts itself what is older."""
        users = self._users
        while self._recipes and self._recipes[0][0] <= read_id:
            _first_id, user, recipe, size = self._recipes.popleft()
            users[user].recipes.discard(recipe)
            users[user].recipe_bytes -= size
        while self._unread and self._unread[0][0] <= read_id:
            _last_id, user, jobs = self._unread.popleft()
            users[user].jobs -= jobs
            if not users[user].jobs:
                del users[user]

    def _half_read(self, name: str, read_id: int) -> int:
        """How many tasks of the oldest array that is not read whole are read, if it is this user's."""
        if not self._unread or self._unread[0][1] != name:
            return 0
        last_id, _user, jobs = self._unread[0]
        return max(0, jobs - (last_id - read_id))


def _check_recipe(name: str, new: Crowd, kept: int, ended: int, most: int) -> None:
    """Refuse one recipe more than the store keeps of a user, for live jobs or of ended ones."""
    limit = "An administrator sets the limit: `recipes_per_user` in yard.yaml."
    size = new.recipe_bytes
    if kept + size > most:
        raise Impossible(
            f"scripts and environments of {name}'s jobs that have not ended take {kept:,} bytes of the store, and this "
            f"one takes {size:,} more; a user may have {most:,}",
            "Submit the rest when some of them have ended, or cancel some. An array is kept once, and so are jobs that "
            f"differ in nothing; what a script reads from files is not kept. {limit}",
        )
    if ended + size > most:
        raise Impossible(
            f"scripts and environments of {name}'s jobs that ended take {ended:,} bytes of the store, counted less "
            f"with time, and this one takes {size:,} more; a user may have {most:,} a day",
            f"Submit it again in {span_words((ended + size - most) * DAY_MS // most)}. {limit}",
        )


class _Unread:
    """What the replica has not read of one user's submissions."""

    __slots__ = ("jobs", "recipe_bytes", "recipes")

    def __init__(self) -> None:
        self.jobs = self.recipe_bytes = 0
        self.recipes: set[str] = set()


def make_recipe_blob(new: NewJob, runs_as: RunAs) -> bytes:
    """How to run it, as the blob that is kept."""
    wanted, recipe = new.wanted, new.recipe
    plain = to_plain(recipe)
    if wanted.array:
        plain["env"] = to_plain(recipe.env | _array_variables(wanted.array))
    plain["uid"], plain["gid"], plain["user"] = runs_as.uid, runs_as.gid, runs_as.user
    plain["ranks"] = recipe.ranks or (wanted.tasks if recipe.batch else 0)
    plain["asked"] = _original_request(wanted)
    return _encoded(plain, recipe.script)


def _encoded(plain: Plain, script: str) -> bytes:
    """As `json.dumps` writes it, so that the same recipe has the same hash in every release.

    Of a long script that is the longest step in which no other request is served. The faster encoder escapes neither
    DEL nor what is not ASCII; without these it writes the same.
    """
    if script.isascii():
        with suppress(ValueError):  # Half of a surrogate pair in another text.
            body: bytes = to_json(plain)
            if body.isascii() and b"\x7f" not in body:
                return body
    return json.dumps(plain, separators=(",", ":")).encode()


def _original_request(wanted: Wanted) -> str:
    """What of a request the fleet will make concrete, so that it can be asked for again as it was; else nothing."""
    asked: dict[str, Any] = {}
    if wanted.exclusive or wanted.gpu_memory_mib:
        asked |= {
            "gpus": wanted.gpus,
            "gpu_milli": wanted.gpu_milli,
            "mig": wanted.mig,
            "gpu_memory_mib": wanted.gpu_memory_mib,
            "isolation": "" if wanted.isolation is Isolation.ANY else wanted.isolation.value,
            "gpu_models": wanted.gpu_models,
            "tasks": wanted.tasks,
            "cpus": None if wanted.cpu_milli is None else wanted.cpu_milli / MILLI,
            "memory_mib": wanted.memory_mib,
            "pools": wanted.pools,
            "nodes_max": wanted.nodes_max,
            "nodes_min": wanted.nodes_min,
            "exclusive": wanted.exclusive,
        }
    return json.dumps(asked, separators=(",", ":")) if asked else ""


def _array_variables(indices: tuple[int, ...] | None) -> dict[str, str]:
    """What Slurm tells each task of an array about all of them. (Of a list at even distances, 1,4,7, Slurm calls the
    step 1; here it is like the range 1-7:3, whose tasks are the same.)"""
    if not indices:
        return {}
    found = sorted(indices)
    steps = {after - before for before, after in pairwise(found)}
    return {
        "SLURM_ARRAY_TASK_COUNT": str(len(found)),
        "SLURM_ARRAY_TASK_MIN": str(found[0]),
        "SLURM_ARRAY_TASK_MAX": str(found[-1]),
        "SLURM_ARRAY_TASK_STEP": str(steps.pop() if len(steps) == 1 else 1),
    }


def make_spec(
    wanted: Wanted,
    admitted: Admitted,
    person: Person,
    ask: Ask,
    recipe: str,
    recipe_bytes: int,
    after: tuple[After, ...] = (),
) -> JobSpec:
    """What the scheduler needs to know of it."""
    return JobSpec(
        tenant=admitted.tenant,
        ask=ask,
        klass=admitted.klass,
        name=wanted.name,
        checkpoint_ms=wanted.checkpoint_s * SECOND_MS,
        user=person.name,
        recipe=recipe,
        retries=wanted.retries,
        requeue=wanted.requeue,
        after=after,
        after_one=wanted.dependencies_any,
        partition=admitted.partition,
        labels=wanted.labels,
        recipe_bytes=recipe_bytes,
        groups=admitted.groups,
    )


def set_share_owner(ask: Ask, account: RunAs, settings: Settings) -> Ask:
    """The ask with the owner of its share, where the shares of a GPU belong to one user: the one it runs as."""
    request = ask.gpus
    if settings.mps_users != "one" or not isinstance(request, Milli) or not account.user:
        # A yard of an ordinary user runs everything as that one.
        return ask
    return replace(ask, gpus=replace(request, user=account.user))


def make_events(
    wanted: Wanted, spec: JobSpec, first_id: int, now_ms: int, own: Mapping[int, tuple[After, ...]]
) -> Sequence[Event]:
    """The lines of the log that accept it. `own` are dependencies of single tasks of an array, by index."""
    times = (now_ms, wanted.limit_ms, wanted.deadline_ms, wanted.begin_ms)
    if wanted.array is None:
        submitted = JobSubmitted(now_ms, Job(first_id, spec, *times))
        return [submitted, JobHeld(now_ms, first_id)] if wanted.hold else [submitted]
    events, start = [], 0
    while start < len(wanted.array):
        indices = wanted.array[start : start + TASKS_TOGETHER]
        waits = tuple([own.get(index, ()) for index in indices]) if own else ()
        beside = _in_step(waits)
        if beside:
            waits = ()
        elif waits:
            indices, waits = indices[:TASKS_WITH_OWN], waits[:TASKS_WITH_OWN]
        job = Job(first_id + 1 + start, spec, *times, array_id=first_id, array_index=indices[0])
        events.append(TasksSubmitted(now_ms, job, indices, waits, beside, wanted.array_limit, wanted.hold))
        start += len(indices)
    return events


def _in_step(waits: tuple[tuple[After, ...], ...]) -> tuple[After, ...]:
    """What the first task waits for, where each task waits for the job beside: of `aftercorr`, nearly always."""
    first = waits[0] if waits else ()
    for place, each in enumerate(waits):
        if len(each) != len(first):
            return ()
        for one, other in zip(first, each, strict=True):
            if (
                other.job_id != one.job_id + place
                or other.kind is not one.kind
                or other.delay_ms
                or other.tasks
            ):
                return ()
    return first


def make_reply(wanted: Wanted, tenant: str, person: Person, first_id: int, now_ms: int) -> JobReply:
    """What is answered, and answered again to a repetition."""
    reply: JobReply = {
        "id": first_id,
        "label": str(first_id),
        "name": wanted.name,
        "tenant": tenant,
        "user": person.name,
        "state": JobState.PENDING.value,
        "submitted_ms": now_ms,
    }
    if wanted.array is not None:
        reply["array"] = True
        reply["tasks"] = len(wanted.array)
        reply["first_task_id"] = first_id + 1
    return reply
