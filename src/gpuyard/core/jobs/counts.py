"""How many jobs wait, by user and by tenant: counted when a job comes, starts or goes, so that nobody has to walk
through all jobs to know.

Derived: never dumped. A job waits here while it has no attempt, also if it is held or set aside.
"""

from collections.abc import Iterable, Sequence


class OfUser:
    """The waiting jobs of one user."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.jobs = 0


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

    def __init__(self) -> None:
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
