"""The duty `retention`: removes what yard.yaml no longer keeps of ended jobs."""

from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.control.upkeep.retention import Pruner

FIRST_S, EVERY_S = 60.0, 3600.0


def duty(pruner: Pruner) -> Duty:
    """Of the leader. A walk ends with the step under way; the next one goes on from what the store knows."""

    def walk(turn: Turn) -> None:
        pruner.by_itself(turn.rest)

    return Duty(
        "retention",
        walk,
        every_s=EVERY_S,
        first_s=FIRST_S,
        leader=True,
        follower_s=EVERY_S,
        undone="what is too old was not removed",
        retry=BackOff(60.0, EVERY_S),
    )
