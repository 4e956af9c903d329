"""How many jobs of one user may wait: each takes memory of the server, and makes every list of all jobs longer.

Jobs that were accepted and that the books have not read yet count, too, so that many submissions at the same moment
get no further than one by one.
"""

from collections import deque

from gpuyard.control.access.people import Person
from gpuyard.control.refusals import Impossible
from gpuyard.core import State
from gpuyard.wire.actions import Action


class Crowding:
    """Judges submissions in the order in which they are written, in the thread that writes them."""

    def __init__(self) -> None:
        self._unread: deque[tuple[int, str, int]] = deque()
        """Submissions that are newer than the books: the last id of each, its user and how many jobs it is."""
        self._sums: dict[str, int] = {}

    def check(self, person: Person, jobs: int, last_id: int, state: State) -> None:
        """Refuse a submission with which too many jobs of a user would wait; otherwise count it."""
        most = state.settings.waiting_per_user
        if not most or person.may(Action.MANAGE_CONFIG, ""):
            return
        name = person.name
        # In this order: the books may read on meanwhile, and a job is then missed for a moment, not counted twice.
        waiting = state.counts.of_user(name)
        waiting += self._newer(name, state.last_job_id)
        if waiting + jobs > most:
            more = f", and these would be {jobs:,} more" if jobs > 1 else ""
            raise Impossible(
                f"{waiting:,} jobs of {name} wait already{more}; a user may have {most:,}",
                "Submit the rest when some of them have started, or cancel some. "
                "An administrator sets the limit: `waiting_per_user` in yard.yaml.",
            )
        self._unread.append((last_id, name, jobs))
        self._sums[name] = self._sums.get(name, 0) + jobs

    def _newer(self, name: str, read_id: int) -> int:
        """How many jobs of a user are newer than the last one that the books have read."""
        unread, sums = self._unread, self._sums
        while unread and unread[0][0] <= read_id:
            _last_id, user, jobs = unread.popleft()
            sums[user] -= jobs
            if not sums[user]:
                del sums[user]
        count = sums.get(name, 0)
        if count and unread[0][1] == name:
            # An array is read some tasks at a time.
            last_id, _user, jobs = unread[0]
            count -= max(0, jobs - (last_id - read_id))
        return count
