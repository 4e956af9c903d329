"""The duty `prometheus`: reads a Prometheus for what nodes do that have no collector of the yard's."""

from collections.abc import Callable, Collection, Sequence

from gpuyard.config.values import PrometheusSpec
from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.watching import Watch


def duties(
    spec: PrometheusSpec | None,
    replica: Replica,
    watch: Watch,
    now_ms: Callable[[], int],
    here: Collection[str],
) -> Sequence[Duty]:
    """Of each server, where yard.yaml names one. `here`: clusters that are this machine, which has a watch."""
    if spec is None:
        return ()
    from gpuyard.control.upkeep.prometheus_reader import Asking  # noqa: PLC0415 (only where there is one)

    asking = Asking(spec, replica, watch, now_ms, here)
    watch.asking = asking

    def read(turn: Turn) -> float:
        return asking.round(turn.rest)

    duty = Duty(
        "prometheus",
        read,
        every_s=asking.pause_s,
        undone="what nodes do was not read",
        retry=BackOff(asking.pause_s, max(60.0, asking.pause_s)),
        trouble=lambda: asking.trouble,
        close=asking.close,
    )
    return (duty,)
