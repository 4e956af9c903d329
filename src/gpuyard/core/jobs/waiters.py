"""What is left of a group of jobs that others wait for: the tasks of an array, and the jobs of one name and user.

Derived: both are counted again from the live jobs wherever they are missing.
"""

from collections import deque
from collections.abc import Container

NO_ID = 1 << 62
"""Above all ids."""


class Tally:
    """An array's tasks: how many are live, how many have never started, and the last one that failed."""

    __slots__ = ("at_failure", "at_start", "failed", "live", "unstarted")

    def __init__(self) -> None:
        self.live = self.unstarted = self.failed = 0
        self.at_failure: list[int] = []
        """Jobs to update when the first task fails."""
        self.at_start: list[int] = []
        """Jobs to update when all tasks have started."""


class Namesakes:
    """Jobs of one name and user, and those among them that wait for all earlier ones."""

    __slots__ = ("ids", "waiting")

    def __init__(self, ids: deque[int]) -> None:
        self.ids = ids
        """Ascending; ended jobs are removed when they come first."""
        self.waiting: deque[int] = deque()
        """Ascending, too."""

    def first_live(self, jobs: Container[int]) -> int:
        """The earliest job that is still live."""
        ids = self.ids
        while ids and ids[0] not in jobs:
            ids.popleft()
        return ids[0] if ids else NO_ID
