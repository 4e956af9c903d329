"""The last part of `yard demo`: three jobs that ask for the same, use it differently, and are told apart in one table.

They run beside the rest of the demo, on a small yard of their own: a job is looked at for a while before a smaller ask
is proposed for it. Their GPUs are emulated everywhere, and do what the jobs say that they do.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from gpuyard.cli.commands.foresight.demo_yard import open_yard
from gpuyard.errors import YardError
from gpuyard.reports.efficiency import SEEN_MIN_MS

if TYPE_CHECKING:
    from gpuyard.api.client import Client

CONFIG = """\
version: 1
clusters:
  here: {gpus: 3 x A100-40GB, emulate: true, allow_root: true}
"""
RUN_S = SEEN_MIN_MS // 1000 + 4
PATIENCE_S = 60.0
_COLUMNS = "job,name,gpu,gpu_memory,smaller_ask,saves"
LOADS = {
    "busy": "93% 34GiB",
    "half-idle": ", ".join(["96% 31GiB 2s", "0% 31GiB 2s"] * (RUN_S // 4 + 1)),
    "small-model": "11% 3GiB",
}
"""What each job does on its GPU, by its name."""


class Beside:
    """The yard of the three jobs, which starts in a thread of its own and is gone with this."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._thread = ThreadPoolExecutor(1)
        self._client: Future[Client] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # What it has begun has to be there before it can be taken down.
        self._thread.shutdown(wait=True)
        self._stack.close()

    def begin(self) -> None:
        """Start the yard and its jobs, and come back at once."""
        self._client = self._thread.submit(self._start)

    def _start(self) -> "Client":
        client = self._stack.enter_context(open_yard(CONFIG, "--look-every", 1))
        # Lists begin with the newest job.
        for name, load in reversed(LOADS.items()):
            client.submit(name=name, command=["sleep", str(RUN_S)], gpus=1, env={"YARD_EMULATED_LOAD": load})
        return client

    def show_use(self, say: Callable[[str], None]) -> None:
        """Wait for the three to end, and tell them apart."""
        assert self._client is not None, "begin() goes before"
        _show_use(self._client.result(), say)


def _show_use(client: "Client", say: Callable[[str], None]) -> None:
    from gpuyard.cli.listings.tables import print_records
    from gpuyard.cli.terminal.progress import REDRAW_S, show_busy
    from gpuyard.reports import registry

    say(
        f"Meanwhile three jobs of {RUN_S} s run on emulated GPUs. Each asked for one whole A100-40GB. One keeps it "
        "busy, one is idle half of the time, and one uses 3 of its 40 GiB. What they used, once they end:"
    )
    until_s = time.monotonic() + PATIENCE_S
    while (queue := client.queue())["rows"]:
        if time.monotonic() > until_s:
            raise YardError(f"the three jobs of the demo did not end within {PATIENCE_S:.0f} s")
        with show_busy(_left(queue, int(time.time() * 1000))):
            time.sleep(REDRAW_S)
    print(f"$ yard efficiency --columns {_COLUMNS}")
    report = registry.load_own_report("efficiency")
    reply = client.report(report)
    print_records(reply["jobs"], report.columns(reply), "table", wanted=_COLUMNS)
    print("".join([f"note: {note}\n" for note in report.notes(reply)]))


def _left(queue: Any, now_ms: int) -> str:
    """`they run: 0 of 3 done, 8 s left`."""
    at = queue["columns"].index
    last_ms = max([row[at("started_ms")] or now_ms for row in queue["rows"]]) + RUN_S * 1000
    done = len(LOADS) - len(queue["rows"])
    return f"they run: {done} of {len(LOADS)} done, {max(0, last_ms - now_ms) // 1000} s left"
