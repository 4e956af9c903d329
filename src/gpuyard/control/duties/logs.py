"""The duties `logs-NAME`, one for each receiver of logs: send it what jobs write."""

from collections.abc import Callable, Sequence
from pathlib import Path

from gpuyard.control.clusters import Clusters
from gpuyard.control.duties.duty import Duty, Turn
from gpuyard.control.replica.replica import Replica
from gpuyard.shipping.contract import Sends, SinkSpec

IDLE_S = 0.5
CLOSE_S = 2.0
"""What is under way is sent again by the next server."""


def make_senders(
    sinks: Sequence[SinkSpec], folder: Path, replica: Replica, clusters: Clusters, now_ms: Callable[[], int]
) -> tuple[Sends, ...]:
    """One for each receiver; without any, nothing of it is loaded."""
    if not sinks:
        return ()
    from gpuyard.control.upkeep.log_sender import Shipper  # noqa: PLC0415 (only where there is a receiver)

    return tuple([Shipper(spec, folder, replica, clusters, now_ms) for spec in sinks])


def duty(sender: Sends) -> Duty:
    """Of the leader. A receiver that is away says itself when it is tried again."""

    def send(_turn: Turn) -> float:
        return sender.round()

    return Duty(
        f"logs-{sender.spec.name}",
        send,
        every_s=IDLE_S,
        first_s=IDLE_S,
        leader=True,
        follower_s=IDLE_S,
        elsewhere=sender.let_go,
        undone=f"logs for {sender.spec.name} were not sent",
        trouble=lambda: sender.trouble,
        close=sender.close,
        close_s=CLOSE_S,
    )
