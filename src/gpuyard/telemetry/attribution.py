"""Whose work a GPU does: pure rules over what sources saw. A measurement is told as one, an estimate as an estimate.

What a GPU can tell depends on how it is shared. Memory is exact per process in every mode. Compute is exact where one
attempt alone is on the GPU, and where the driver keeps account of processes that take turns. Under MPS no counter says
which client computed; then the GPU's own figure is divided by the shares that were granted to those that are there, and
that is an estimate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FULL = 1000


@dataclass(frozen=True, slots=True)
class OnGpu:
    """What one attempt has and does on one GPU."""

    attempt: str
    memory_mib: int
    accounted: int | None = None
    """How busy it kept the GPU by the driver's own accounts, in parts of a thousand; None: there are none."""
    slice_busy: int | None = None
    """How busy its MIG slice was; None: it has none, or the slice does not say."""
    milli: int = FULL
    """The share of the GPU that it was granted."""


@dataclass(frozen=True, slots=True)
class Busy:
    """How busy an attempt kept a GPU, in parts of a thousand, and whether that was measured."""

    permille: int
    measured: bool


def divide_work(
    busy: int | None, present: Sequence[OnGpu], strangers: bool = False, mps: bool = False
) -> dict[str, Busy]:
    """How much of a GPU's work is whose. An attempt that nothing can be said of is left out.

    `busy` is the GPU's own figure; `strangers`: processes that are nobody's are on it too; `mps`: its clients share
    one process of the driver, so that accounts by process say 0 for all of them.
    """
    found: dict[str, Busy] = {}
    for each in present:
        if each.slice_busy is not None:
            found[each.attempt] = Busy(each.slice_busy, measured=True)
    rest = [each for each in present if each.attempt not in found]
    if busy is None or not rest:
        return found
    if len(rest) == 1 and not strangers:
        return found | {rest[0].attempt: Busy(busy, measured=True)}
    if not mps and all([each.accounted is not None for each in rest]):
        return found | {each.attempt: Busy(min(FULL, each.accounted or 0), measured=True) for each in rest}
    if strangers:
        # Nobody knows what the others take, so that not even an estimate has a foot to stand on.
        return found
    return found | {
        attempt: Busy(part, measured=False)
        for attempt, part in _by_share(busy, {each.attempt: each.milli for each in rest}).items()
    }


def _by_share(busy: int, shares: Mapping[str, int]) -> dict[str, int]:
    """A figure divided by shares, to the last part: what rounding leaves goes to those with the largest rest."""
    total = sum([max(1, share) for share in shares.values()])
    parts = {name: divmod(busy * max(1, share), total) for name, share in shares.items()}
    left = busy - sum([whole for whole, _rest in parts.values()])
    more = sorted(parts, key=lambda name: (-parts[name][1], name))[:left]
    return {name: whole + (name in more) for name, (whole, _rest) in parts.items()}


ROUNDING_MOST = 50
"""How far, in parts of a thousand, whole percents of a long life may be off for a recent part of it."""


def recent_busy(history: Sequence[tuple[int, int]]) -> int | None:
    """How busy a process kept a GPU lately, in parts of a thousand, by accounts of its life; None: too early to say.

    The driver tells whole percents of the time since the process began, so two of them tell of the time between with
    an error that grows with the life and shrinks with that time. `history` has pairs of life in ms and percent, the
    newest last; the shortest part of it counts whose error is small enough.
    """
    if not history:
        return None
    life_ms, percent = history[-1]
    if life_ms <= 0:
        return None
    for before_ms, before in reversed(history[:-1]):
        # Each percent is off by half of one at most.
        if life_ms > before_ms and 5 * (life_ms + before_ms) <= ROUNDING_MOST * (life_ms - before_ms):
            part = 10 * (percent * life_ms - before * before_ms) // (life_ms - before_ms)
            return min(FULL, max(0, part))
    # Its whole life is the part that is known best.
    return min(FULL, 10 * percent)


def average_gpus(found: Sequence[Busy | None]) -> Busy | None:
    """An attempt on several GPUs: their mean, measured only if all of them were; None: one of them is unknown."""
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    total = sum([each.permille for each in known])
    mean = (2 * total + len(known)) // (2 * len(known))
    return Busy(mean, all([each.measured for each in known]))


def find_attempt(path: str, groups: Mapping[str, str]) -> str:
    """The attempt in whose cgroup a process is; empty: in none. `groups` has the attempts by the paths of theirs."""
    while path and path != "/":
        if path in groups:
            return groups[path]
        path = path.rpartition("/")[0]
    return ""
