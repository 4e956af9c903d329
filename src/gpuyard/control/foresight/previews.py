"""Previews on recorded history, each in a process of its own that is watched, bounded and ended with its asker.

The history is handed on page by page as it is read, so that a long one is never in the server's memory.
"""

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

from gpuyard import interpreter
from gpuyard.control.commands.configs import Proposal
from gpuyard.control.refusals import Overloaded
from gpuyard.control.replica.replica import Replica
from gpuyard.core.state.dump import dump
from gpuyard.job_sizes import SIZES, SizeRanges
from gpuyard.model.units import DAY_MS
from gpuyard.wire.replies.tenants import PreviewReply

LINE_BYTES_MAX = 4 * 1024 * 1024


class PreviewProgress(TypedDict):
    """How far one side is."""

    side: str
    done: int
    jobs: int


class Line(TypedDict, total=False):
    """How far a preview is, any number of times, then the preview; an empty one: still at it."""

    progress: PreviewProgress
    preview: PreviewReply


class PreviewLimits(NamedTuple):
    """How much a preview looks at, and for how long."""

    jobs_max: int = 100_000
    """Ended jobs that are simulated at most: the latest."""
    page: int = 2000
    """Ended jobs that are read at one go."""
    limit_s: float = 600.0
    """How long a preview may take."""
    quiet_s: float = 10.0
    """After this long without news a line says that the preview goes on."""


LIMITS = PreviewLimits()


@dataclass(slots=True)
class Previews:
    """The previews of one server: one at a time, since each takes a core."""

    replica: Replica
    now_ms: Callable[[], int]
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread
    """Runs a function in another thread, on the account of the user that asks."""
    limits: PreviewLimits = LIMITS
    busy: bool = False

    async def run(
        self, proposal: Proposal, changed: list[str], days: int, sizes: SizeRanges = SIZES
    ) -> AsyncIterator[Line]:
        """Simulate; gives how far it is, and at last the preview."""
        if self.busy:
            raise Overloaded("another preview is being made", "Try again when it is done.")
        self.busy = True
        try:
            async for line in self._run(proposal, changed, days, sizes):
                yield line
        finally:
            self.busy = False

    async def _run(
        self, proposal: Proposal, changed: list[str], days: int, sizes: SizeRanges
    ) -> AsyncIterator[Line]:
        process = await asyncio.create_subprocess_exec(
            *interpreter.command("-m", "gpuyard.control.foresight.preview_process"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX, cwd="/",
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        feeding = asyncio.create_task(self._feed(process.stdin, proposal, changed, days, sizes))
        complaints = asyncio.create_task(process.stderr.read())
        until_s = asyncio.get_running_loop().time() + self.limits.limit_s
        try:
            while True:
                if asyncio.get_running_loop().time() > until_s:
                    raise Overloaded(
                        f"the preview took longer than {self.limits.limit_s / 60:.0f} min",
                        "Ask for fewer --days.",
                    )
                try:
                    line = await asyncio.wait_for(process.stdout.readline(), self.limits.quiet_s)
                except TimeoutError:
                    yield {}
                    continue
                if not line:
                    break
                yield json.loads(line)
            await feeding
            if await process.wait():
                raise RuntimeError(
                    f"the preview failed: {(await complaints).decode(errors='replace')[-2000:]}"
                )
        finally:
            feeding.cancel()
            complaints.cancel()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _feed(
        self,
        pipe: asyncio.StreamWriter,
        proposal: Proposal,
        changed: list[str],
        days: int,
        sizes: SizeRanges,
    ) -> None:
        """The state, the question, and the history from the latest end backwards."""
        until_ms, page = self.now_ms(), self.limits.page
        from_ms = until_ms - days * DAY_MS
        with suppress(BrokenPipeError, ConnectionResetError):
            await _send(pipe, await self.in_thread(self._header, proposal, changed, from_ms, until_ms, sizes))
            before: tuple[int, int] | None = None
            sent = 0
            while True:
                rows = await self.in_thread(self.replica.store.history.ended_since, from_ms, before, page)
                sent += len(rows)
                about: dict[str, Any] = {}
                if rows:
                    before = (rows[-1][4], rows[-1][0])
                    if sent >= self.limits.jobs_max:
                        about = {"from_ms": before[0], "shortened": True}
                await _send(pipe, pickle.dumps({"rows": rows, "about": about}))
                if len(rows) < page or about:
                    break
            await _send(pipe, pickle.dumps(None))
            pipe.close()

    def _header(
        self, proposal: Proposal, changed: list[str], from_ms: int, until_ms: int, sizes: SizeRanges
    ) -> bytes:
        replica = self.replica
        with replica.lock:
            replica.catch_up()
            plain = dump(replica.state)
            live = replica.store.configs.version()
        return pickle.dumps(
            {
                "state": plain,
                "settings": proposal.settings,
                "changed": tuple(changed),
                "from_ms": from_ms,
                "until_ms": max(until_ms, from_ms + 1),
                "since_ms": live.at_ms if live is not None else 0,
                "sizes": sizes,
            }
        )


async def _send(pipe: asyncio.StreamWriter, piece: bytes) -> None:
    pipe.write(piece)
    await pipe.drain()
