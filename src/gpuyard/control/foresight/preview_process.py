"""A preview in a process of its own, so that simulating a week takes nothing from the server that asks for it.

On standard input come pickles of our own server: what is asked, then pages of the history, then None. On standard
output go lines of JSON: how far it is, and at last the preview.
"""

import json
import pickle
import sys
import time
from typing import Any

from gpuyard.core.state.dump import load
from gpuyard.engines.machine import processes
from gpuyard.sim.preview import PreviewRequest, run_preview

TOLD_EVERY_S = 0.2
NICENESS = 5


def main() -> None:
    """Read, simulate, answer."""
    processes.stand_back(NICENESS)
    given = pickle.load(sys.stdin.buffer)
    rows: list[Any] = []
    while (page := pickle.load(sys.stdin.buffer)) is not None:
        rows += page["rows"]
        given |= page["about"]
    asked = PreviewRequest(load(given.pop("state")), **given)
    told_s = 0.0

    def progress(side: str, done: int, jobs: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= TOLD_EVERY_S:
            told_s = time.monotonic()
            _say({"progress": {"side": side, "done": done, "jobs": jobs}})

    _say({"preview": run_preview(asked, rows, progress)})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
