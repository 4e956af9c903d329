"""What tenants are charged: by attempt, and against a budget."""

from dataclasses import dataclass


class Bill:
    """What every attempt of one ask is charged to one tenant on one kind of node, and what has moved of late.

    `jobs` more attempts run than the columns of `Tenants` say; `since_ms` is the sum of the times at which they
    started, less those at which others ended.
    """

    __slots__ = ("jobs", "key", "leaf", "milli", "model", "rate", "settled", "since_ms")

    def __init__(self, leaf: int, model: int, milli: int, rate: int) -> None:
        self.key = (leaf, model)
        """Whose columns it is entered in."""
        self.leaf = leaf
        self.model = model
        self.milli = milli
        self.rate = rate
        self.jobs = self.since_ms = 0
        self.settled = True


@dataclass(slots=True)
class Spend:
    """A budget's state: what this window has spent and what running attempts may still spend."""

    budget_milli_ms: int
    window_ms: int
    window_start_ms: int = 0
    spent_milli_ms: int = 0
    committed_milli_ms: int = 0
