"""The duty `watch`: looks at what the GPUs and jobs of this machine do, and keeps the series."""

from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.control.upkeep.watching import Watch

FAILED_S_MAX = 60.0


def duty(watch: Watch) -> Duty:
    """Of each server, which sees its own machine."""

    def look(_turn: Turn) -> float:
        return watch.round()

    return Duty(
        "watch",
        look,
        every_s=watch.every_s,
        undone="nothing was seen of this machine",
        retry=BackOff(watch.every_s, FAILED_S_MAX),
        close=watch.close,
    )
