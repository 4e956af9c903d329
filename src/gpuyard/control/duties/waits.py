"""The duty `waits`: what jobs wait for enters the log."""

from collections.abc import Callable

from gpuyard.control.duties.duty import Duty, Turn
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.wait_recorder import LOOK_S, WaitMeter
from gpuyard.core.explain.causes import Elsewhere


def duty(
    replica: Replica,
    epoch: Callable[[], int | None],
    now_ms: Callable[[], int],
    elsewhere: Elsewhere,
) -> Duty:
    """Of the leader, which tells at its end what it has seen. `elsewhere`: why a job of an observed cluster waits."""
    meter = WaitMeter(replica, epoch, now_ms, elsewhere)

    def look(_turn: Turn) -> float:
        return meter.round()

    return Duty(
        "waits",
        look,
        every_s=LOOK_S,
        first_s=LOOK_S,
        leader=True,
        elsewhere=meter.let_go,
        undone="what jobs wait for was not told",
        close=meter.close,
    )
