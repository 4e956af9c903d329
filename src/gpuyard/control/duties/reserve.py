"""The duty `reserve`: looks at the disk, and gives back what is kept for a full one."""

from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.control.upkeep.reserve import Reserve

LOOK_S = 0.5
FAILED = BackOff(60.0, 60.0)
"""Where the file system did not answer."""


def duty(reserve: Reserve) -> Duty:
    """Of each server. What is kept stays at the end, for a start on a full disk."""

    def look(_turn: Turn) -> None:
        reserve.look()

    return Duty(
        "reserve",
        look,
        every_s=LOOK_S,
        first_s=LOOK_S,
        undone="the room on the disk cannot be looked at",
        retry=FAILED,
    )
