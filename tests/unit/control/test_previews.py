"""Previews in a process of their own: fed page by page, bounded, one at a time, gone with whoever asked."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard import interpreter
from gpuyard.control.commands.configs import Proposal
from gpuyard.control.foresight.previews import PreviewLimits, Previews
from gpuyard.control.refusals import Overloaded
from gpuyard.model import Ask, JobSpec, Quota, Settings, Tenant, Whole
from gpuyard.model.serialise import to_plain
from gpuyard.model.units import MINUTE_MS
from gpuyard.policies.registry import PRESETS
from gpuyard.store import HISTORY_ROWS, HistoryRow
from harness.patience import until
from rigs.request_service import rig

M = MINUTE_MS
NOW = 1_700_000_000_000
SETTINGS = Settings(tenants=(Tenant("a", quota=Quota(limit={"total": 1000})),), policy=PRESETS["default"])
WIDER = replace(SETTINGS, tenants=(Tenant("a"),))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Previews]:
    """Twelve jobs of ten minutes, one after the other under a limit of one GPU, in a yard of two hours."""
    with rig(tmp_path, SETTINGS) as found:
        detail = {"spec": to_plain(JobSpec("a", Ask(Whole(1)))), "limit_ms": 60 * M, "begin_ms": 0}
        born_ms = NOW - 120 * M
        rows = [
            HistoryRow(
                n + 1, "j", "a", "u", "batch", "COMPLETED", 1000, born_ms, born_ms + 10 * n * M,
                born_ms + 10 * (n + 1) * M, attempts=1, detail=detail,
            )
            for n in range(12)
        ]  # fmt: skip
        found.replica.store.bound.put({HISTORY_ROWS: rows})
        yield Previews(found.replica, lambda: NOW)


async def _all(made: Previews) -> dict[str, Any]:
    found = [line async for line in made.run(Proposal("", WIDER), ["a"], 7)]
    assert {"preview"} == set(found[-1])
    preview: dict[str, Any] = found[-1]["preview"]
    return preview


def test_a_preview_comes_from_a_process_of_its_own(made: Previews) -> None:
    found = asyncio.run(_all(made))

    assert "over the last 2 hours: mean wait of a 55 → 3.3 min" == found["sentence"].partition(", ")[0]
    assert not made.busy
    assert json.dumps(found)


def test_a_long_history_is_cut_where_it_takes_too_long(
    made: Previews,
) -> None:
    made.limits = PreviewLimits(page=3, jobs_max=6)
    found = asyncio.run(_all(made))

    # The six that ended last; the first of them is when the simulated time begins.
    assert NOW - 50 * M == found["from_ms"]
    assert "more was recorded than is simulated: only the latest part of it counts" in found["notes"]


def test_one_at_a_time_and_gone_with_whoever_asked(made: Previews, monkeypatch: pytest.MonkeyPatch) -> None:
    made.limits = PreviewLimits(quiet_s=0.01)
    children: list[Any] = []
    real = asyncio.create_subprocess_exec

    async def watched(*words: Any, **more: Any) -> Any:
        children.append(await real(*words, **more))
        return children[-1]

    async def story() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
        lines = made.run(Proposal("", WIDER), ["a"], 7)
        assert {} == await anext(lines)
        with pytest.raises(Overloaded, match="another preview is being made"):
            await anext(made.run(Proposal("", WIDER), ["a"], 7))
        await lines.aclose()  # type: ignore[attr-defined]

    asyncio.run(story())

    assert [-9] == [child.returncode for child in children]
    assert not made.busy


def test_a_preview_that_takes_too_long_is_ended(made: Previews) -> None:
    made.limits = PreviewLimits(limit_s=-1.0)
    with pytest.raises(Overloaded, match="the preview took longer"):
        asyncio.run(_all(made))
    assert not made.busy


def test_the_keyboard_that_means_the_server_ends_no_preview() -> None:
    words = interpreter.command("-m", "gpuyard.control.foresight.preview_process")
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        # It has begun: its line is no longer its standard input.
        until(lambda: os.devnull == os.readlink(f"/proc/{process.pid}/fd/0"))
        process.send_signal(signal.SIGINT)
        _answer, said = process.communicate(b"")
    assert b"EOFError" in said, "it ends with the server"
    assert b"KeyboardInterrupt" not in said
