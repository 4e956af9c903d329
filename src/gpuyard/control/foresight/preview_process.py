"""A preview in a process of its own, so that simulating a week takes nothing from the server that asks for it.

On standard input come pickles of our own server: what is asked, then pages of the history, then None. On standard
output go lines of JSON: how far it is, and at last the preview.
"""

import json
import pickle
import time
from typing import IO, Any

from gpuyard.core.state.dump import load
from gpuyard.engines.machine.beside_process import begin
from gpuyard.sim.preview import PreviewRequest, run_preview

TOLD_EVERY_S = 0.2
NICENESS = 5


def main() -> None:
    """Read, simulate, answer."""
    its_pages, its_lines = begin(NICENESS)
    with open(its_pages, "rb") as pages, open(its_lines, "w", encoding="utf-8") as lines:
        _answer(pages, lines)


def _answer(pages: IO[bytes], lines: IO[str]) -> None:
    given = pickle.load(pages)
    rows: list[Any] = []
    while (page := pickle.load(pages)) is not None:
        rows += page["rows"]
        given |= page["about"]
    asked = PreviewRequest(load(given.pop("state")), **given)
    told_s = 0.0

    def say(line: dict[str, Any]) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    def progress(side: str, done: int, jobs: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= TOLD_EVERY_S:
            told_s = time.monotonic()
            say({"progress": {"side": side, "done": done, "jobs": jobs}})

    say({"preview": run_preview(asked, rows, progress)})


if __name__ == "__main__":
    main()
