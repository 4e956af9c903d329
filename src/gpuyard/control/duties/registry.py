"""The duties of a server: all of them, in one list.

A new one is a file with a function that makes it, and a line here. The parameters of the function are what it needs;
the line gives them, from what the wiring of a server has.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gpuyard.config.values import PrometheusSpec
from gpuyard.control.access.people_in_force import PeopleInForce
from gpuyard.control.duties import (
    forgetting,
    logs,
    people,
    projections,
    prometheus,
    reserve,
    retention,
    waits,
    watch,
)
from gpuyard.control.duties.duty import Duty
from gpuyard.control.duties.projections import Filler
from gpuyard.control.duties.reserve import Reserve
from gpuyard.control.duties.retention import Pruner
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.watching import Watch
from gpuyard.core.explain.causes import Elsewhere
from gpuyard.shipping.contract import Sends


@dataclass(frozen=True, slots=True)
class DutyParts:
    """What the wiring of a server gives to its duties."""

    replica: Replica
    epoch: Callable[[], int | None]
    """The epoch of this server while it leads."""
    now_ms: Callable[[], int]
    """The time of this machine."""
    log_ms: Callable[[], int]
    """The time of the log."""
    reserve: Reserve
    pruner: Pruner
    filler: Filler
    watch: Watch
    people: PeopleInForce
    senders: Sequence[Sends]
    """One for each receiver of logs."""
    prometheus: PrometheusSpec | None
    here: Collection[str]
    """The clusters that are this machine."""
    elsewhere: Elsewhere
    """Why a job of an observed cluster waits."""
    shared: bool
    """Whether other servers may work on the same store."""


def duties_of(parts: DutyParts) -> list[Duty]:
    """All duties of a server, in the order of their start; they end in the reverse order."""
    return [
        reserve.duty(parts.reserve),
        *people.duties(parts.people, parts.shared),
        *projections.duties(parts.filler),
        forgetting.duty(parts.replica.store, parts.filler.projections, parts.log_ms),
        retention.duty(parts.pruner),
        waits.duty(parts.replica, parts.epoch, parts.log_ms, parts.elsewhere),
        watch.duty(parts.watch),
        *prometheus.duties(parts.prometheus, parts.replica, parts.watch, parts.now_ms, parts.here),
        *[logs.duty(each) for each in parts.senders],
    ]
