"""What jobs are to be expected, learned from those that came: in integers, and by the number of jobs, not by time.

The state counts what has been asked for since demand was last learned. What was known before and what has come since
are put together; beyond `MEMORY_JOBS` jobs the older ones fade. The result goes into the log as `DemandLearned`, so
that the state stays a fold of it, and only if it makes a difference: every new demand has all nodes valued anew.

The control loop and the simulator both ask a `Learner`, so that a simulated yard knows no more than a live one.
"""

from collections.abc import Iterable
from dataclasses import replace

from gpuyard.core.fleet.mig_geometry import charge_of
from gpuyard.core.state.state import State
from gpuyard.model import Ask, Memory, Mig, Milli
from gpuyard.model.units import MILLI

Asks = tuple[tuple[Ask, int], ...]
"""Expected asks with their weights."""

JOB = 16
"""The weight of one job: what fades goes on counting below one."""

MEMORY_JOBS = 4096
"""How many jobs are remembered. The half of what is known comes from the last 2,800 or so."""

FIRST_JOBS = 32
"""Nothing is concluded from fewer."""

PART = 8
"""It is looked at again when so much more has come: an eighth of what is remembered."""

MATERIAL_MILLI = 30
"""Thousandths of the GPUs asked for that must have gone over to other asks."""

ASKS_MAX = 128
"""Kinds of ask that are kept: those that come most often."""


class Learner:
    """When demand is learned. It remembers only when to look next; after a restart it looks a little early."""

    def __init__(self) -> None:
        self.due = FIRST_JOBS
        """Arrivals since demand was last learned at which it looks again."""

    def look(self, state: State) -> Asks | None:
        """The demand to be written down now; None: what is known will do."""
        if state.arrivals < self.due:
            return None
        fresh = merged(state.demand, [(shape.ask, count) for shape, count in state.arrived.items()])
        step = max(FIRST_JOBS, sum([weight for _ask, weight in fresh]) // JOB // PART)
        if state.arrivals < MEMORY_JOBS and not differs(state.demand, fresh):
            self.due = state.arrivals + step
            return None
        self.due = step
        return fresh


def merged(known: Asks, arrived: Iterable[tuple[Ask, int]]) -> Asks:
    """What was known and what has come, at most `MEMORY_JOBS` of it; most frequent first."""
    came: dict[Ask, int] = {}
    for ask, count in arrived:
        kind = typical(ask)
        came[kind] = came.get(kind, 0) + count * JOB
    fresh, before = sum(came.values()), sum([weight for _ask, weight in known])
    room = max(0, MEMORY_JOBS * JOB - fresh)
    found = {ask: weight if before <= room else weight * room // before for ask, weight in known}
    for ask, weight in came.items():
        found[ask] = found.get(ask, 0) + weight
    ranked = sorted([row for row in found.items() if row[1] > 0], key=lambda row: (-row[1], repr(row[0])))
    return tuple(ranked[:ASKS_MAX])


def typical(ask: Ask) -> Ask:
    """What asks have in common that are one kind: not their memory, nor on which nodes they insist."""
    return replace(ask, memory_mib=0, on_nodes=(), not_nodes=(), features=())


def differs(known: Asks, fresh: Asks) -> bool:
    """Whether enough of the GPUs is asked for otherwise. A job that asks for none does not count."""
    old, new = _by_gpus(known), _by_gpus(fresh)
    whole_old, whole_new = sum(old.values()), sum(new.values())
    if not whole_old or not whole_new:
        return bool(whole_old or whole_new)
    moved = sum(
        [abs(old.get(ask, 0) * whole_new - new.get(ask, 0) * whole_old) for ask in {*old, *new}]
    )  # twice what has gone from one to the other, times both sums
    return moved * MILLI >= 2 * MATERIAL_MILLI * whole_old * whole_new


def _by_gpus(asks: Asks) -> dict[Ask, int]:
    return {ask: weight * milli for ask, weight in asks if (milli := _gpu_milli(ask))}


def _gpu_milli(ask: Ask) -> int:
    request = ask.gpus
    if isinstance(request, Mig):
        return ask.tasks * request.count * charge_of(request.profile)
    each = request.milli if isinstance(request, Milli) else MILLI
    return 0 if isinstance(request, Memory) else ask.tasks * request.count * each
