"""Which asks to expect, learned from the jobs that came: in integers, and by the number of jobs, not by time.

The state counts the asks since demand was last learned. The known demand and the new asks are merged; beyond
`MEMORY_JOBS` jobs the older ones fade. The result goes into the log as `DemandLearned`, so that the state stays a fold
of it, and only if it makes a difference: after each new demand all nodes are valued again.

The control loop and the simulator both use a `Learner`, so that a simulated yard knows no more than a live one.
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
"""The weight of one job: a fading job still counts below one."""

MEMORY_JOBS = 4096
"""How many jobs are remembered. Half of the demand comes from the last 2,800 or so."""

FIRST_JOBS = 32
"""Nothing is concluded from fewer jobs."""

PART = 8
"""Demand is checked again after this part of the remembered jobs has arrived: an eighth."""

MATERIAL_MILLI = 30
"""Thousandths of the GPUs asked for that must have shifted to other asks."""

ASKS_MAX = 128
"""How many kinds of ask are kept: the most frequent ones."""


class Learner:
    """Decides when demand is learned. It only remembers the next check; after a restart that comes a little early."""

    def __init__(self) -> None:
        self.due = FIRST_JOBS
        """How many arrivals since demand was last learned trigger the next check."""

    def look(self, state: State) -> Asks | None:
        """The demand to write to the log now; None: the known demand is good enough."""
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
    """The known demand and the new asks, at most `MEMORY_JOBS` in all; most frequent first."""
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
    """What asks of one kind have in common: neither their memory nor the nodes that they require."""
    return replace(
        ask, memory_mib=0, on_nodes=(), not_nodes=(), features=(), selects=(), prefers=(), tolerates=()
    )


def differs(known: Asks, fresh: Asks) -> bool:
    """Whether enough of the GPUs are asked for differently. Jobs without GPUs do not count."""
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
