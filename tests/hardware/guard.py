"""Runs a command once whoever started it is gone, however it went, a `kill -9` too."""

import subprocess
import sys

DONE = "done"
"""What it is told when there is nothing left to do."""


def start(*command: str) -> "subprocess.Popen[str]":
    """Begin to watch this process."""
    # Its own session: what ends the group of processes that this one is in leaves the guard alone.
    return subprocess.Popen(
        [sys.executable, __file__, *command], stdin=subprocess.PIPE, text=True, start_new_session=True
    )


if __name__ == "__main__" and DONE != sys.stdin.read():
    sys.exit(subprocess.call(sys.argv[1:]))
