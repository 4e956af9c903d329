"""What stays of an attempt once its end is in the log: its output, and a trace that it existed."""

import os

from gpuyard.engines.local import outputs
from gpuyard.engines.local.attempt import room
from gpuyard.engines.machine import files
from gpuyard.engines.node import files as node_files
from gpuyard.engines.node.visits import frames

_USELESS = frozenset(
    {
        files.WORK,
        files.SCRIPT,
        files.RUNNING,
        files.HALT,
        files.HALT_SPARE,
        files.FREEZE,
        room.ROOM,
        room.NAMES,
        frames.SOCKET,
        node_files.WISH,
    }
)
"""Files that are not needed once an attempt has ended."""


def keep_output(folder: str, aside: str) -> None:
    """Remove all else of an ended attempt, and take its log from its user; what may be a lot is put aside."""
    names = os.listdir(folder)
    if files.WORK not in names:
        outputs.strip(folder)
    for name in names:
        if name in _USELESS:
            os.unlink(os.path.join(folder, name))
    if any([name in room.FOLDERS for name in names]):
        room.clear(folder, aside)
    outputs.seal(folder)
