"""How many jobs of one user may wait, how much the store may keep for those that have not ended, and how fast what
it keeps of those that ended may grow.

Each takes memory of the server, and makes every list of all jobs longer; its recipe takes disk. Submissions are judged
in the order in which they are written, in the thread that writes them. Jobs that were accepted and that the replica has
not read yet count, too, so that many submissions at one moment get no further. What other servers have accepted counts
when the replica has read it, within a second or so.
"""

from collections import deque
from typing import NamedTuple

from gpuyard.control.access.people import Person
from gpuyard.control.refusals import Impossible
from gpuyard.core import State
from gpuyard.model.units import DAY_MS
from gpuyard.quantities import span_words
from gpuyard.wire.endpoints import Action


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
