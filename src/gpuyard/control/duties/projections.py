"""The duty `projections`: fills the projections that follow the log."""

from collections.abc import Sequence

from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.control.upkeep.projection_filler import IDLE_S, PAUSE_S, Filler


def duties(filler: Filler) -> Sequence[Duty]:
    """Of the leader, where there is anything to fill. One projection that stands still keeps no other back."""
    if not filler.projections:
        return ()

    def fill(turn: Turn) -> float:
        return filler.round(turn.epoch)

    duty = Duty(
        "projections",
        fill,
        every_s=IDLE_S,
        first_s=PAUSE_S,
        leader=True,
        follower_s=IDLE_S,
        undone="projections were not filled",
        retry=BackOff(10.0),
        trouble=lambda: filler.trouble,
        close=filler.close,
    )
    return (duty,)
