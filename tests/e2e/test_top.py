"""`yard top` as it is used: a real yard, real keys, and what then stands on the screen."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from html import unescape
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Log, Static

from gpuyard.cli.top.app import Top
from gpuyard.cli.top.queue_pane import QueuePane
from harness.patience import Patience, patient
from harness.patience import until as holds

from .conftest import Box

CELL = 12.2
"""Width of a character in a picture of the screen."""

TENANTS = """\
version: 1
clusters:
  main: {engine: local, gpus: 8 x H100, emulate: true, allow_root: true}
tenants:
  research: {weight: 2, guarantee: 4}
  interns: {weight: 1, limit: 2}
"""


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A yard with two teams and some jobs."""
    box = Box(tmp_path_factory.mktemp("top") / "yard", TENANTS)
    box.up()
    yield box
    box("down", "--jobs")


def seen(app: Top) -> str:
    """The text on the screen, line by line, each character in its column."""
    lines: dict[float, str] = {}
    parts = re.findall(r'<text[^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', app.export_screenshot())
    for x, y, text in sorted(parts, key=lambda part: (float(part[1]), float(part[0]))):
        before = lines.get(float(y), "")
        lines[float(y)] = before.ljust(round(float(x) / CELL)) + unescape(text).replace("\xa0", " ").strip(
            "\n"
        )
    return "\n".join(lines[y] for y in sorted(lines))


async def until(pilot: Pilot[None], what: Callable[[], object], s: float = 60.0) -> None:
    patience = Patience(s)
    while not what():
        assert patience, seen(pilot.app)  # type: ignore[arg-type]
        await pilot.pause(0.05)


def on_screen(
    box: Box, monkeypatch: pytest.MonkeyPatch, use: Callable[[Top, Pilot[None]], Awaitable[None]],
    size: tuple[int, int] = (120, 36), **options: object,
) -> None:  # fmt: skip
    monkeypatch.setenv("YARD_DATA", str(box.data))
    monkeypatch.delenv("YARD_SERVER", raising=False)

    async def run() -> None:
        app = Top(**options)  # type: ignore[arg-type]
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.query_one("#head", Static).content)
            await use(app, pilot)

    asyncio.run(run())


def test_gpus_queue_and_tenants_and_the_way_to_a_job(teams: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = teams.submit(
        "-g", 4, "-n", "writer", "--tenant", "research/ana", "--", "sh", "-c", "echo line-one; sleep 600"
    )
    teams.submit("-g", 2, "-n", "small", "--tenant", "interns/ivo", "--", "sleep", 600)
    waits = teams.submit("-g", 8, "-n", "large", "--tenant", "research/ben", "--", "sleep", 600)
    teams.wait(writer, "RUNNING")

    async def use(app: Top, pilot: Pilot[None]) -> None:
        queue = app.query_one(QueuePane)
        await until(pilot, lambda: len(queue.rows) == 3)
        await until(pilot, lambda: re.search(r"interns +[━─]", seen(app)))
        # The first look may be there before the stream of events is.
        await until(pilot, lambda: "6 of 8 GPUs in use · 2 running · 1 waiting · live" in seen(app))
        text = seen(app)
        assert re.search(r"■ ■ ■ ■ ■ ■ □ □ +6/8 +H100", text)
        assert re.search(r"research\W*4 +4 +- +1 +1\b", text), text
        assert re.search(r"interns\W*2 +- +2 +1 +0\b", text), text
        assert re.search(rf"{waits} +large +research/ben .*PENDING +8 .*no room", text)

        await pilot.press("slash", *"LARGE", "enter")
        assert [waits] == [row[0] for row in queue.rows]
        await until(pilot, lambda: "queue: 1 with 'large'" in seen(app))
        await pilot.press("enter")
        await until(pilot, lambda: "8 x H100 on one node: 2 free on 1 node" in seen(app))
        await pilot.press("escape")
        await pilot.press("escape")
        assert 3 == len(queue.rows)

        await pilot.press("home")
        assert queue.selected is not None
        assert writer == queue.selected[0]
        await pilot.press("l")
        await until(pilot, lambda: "line-one" in "\n".join(app.screen.query_one(Log).lines))
        await pilot.press("escape", "t")
        await until(pilot, lambda: "GUARANTEE" not in seen(app))

    on_screen(teams, monkeypatch, use)


def test_hold_release_and_cancel_after_a_question(teams: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    filler = teams.submit("-g", 1, "-n", "filler", "--tenant", "interns/ivo", "--", "sleep", 600)
    with teams.client() as client:
        # It, or jobs of another test: with one GPU taken, eight are not free.
        holds(lambda: client.queue()["running"])
    job_id = teams.submit("-g", 8, "-n", "doomed", "--tenant", "research/eva", "--", "sleep", 600)

    async def use(app: Top, pilot: Pilot[None]) -> None:
        queue = app.query_one(QueuePane)
        await pilot.press("slash", *"doomed", "enter")
        await until(pilot, lambda: [row[0] for row in queue.rows] == [job_id])
        await pilot.press("h")
        await until(pilot, lambda: queue.rows[0][13] == "on hold")
        await pilot.press("r")
        await until(pilot, lambda: queue.rows[0][13] != "on hold")

        await pilot.press("c")
        await until(pilot, lambda: f"Cancel job {job_id} (doomed, research/eva)?" in seen(app))
        await pilot.press("n")
        await pilot.pause(0.3)
        assert "PENDING" == teams.wait(job_id, "PENDING")["state"]
        await pilot.press("c", "y")
        await until(pilot, lambda: not queue.rows)

    on_screen(teams, monkeypatch, use)
    teams.wait(job_id, "CANCELLED")
    assert 0 == teams("cancel", filler).code
    teams.wait(filler, "CANCELLED")


@pytest.mark.rig
def test_it_waits_for_a_yard_that_goes_away(bare: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.up()
    job_id = bare.submit("-g", 1, "-n", "stays", "--", "sleep", 600)
    bare.wait(job_id, "RUNNING")

    async def use(app: Top, pilot: Pilot[None]) -> None:
        banner, queue = app.query_one("#away", Static), app.query_one(QueuePane)
        await until(pilot, lambda: len(queue.rows) == 1)
        await asyncio.to_thread(bare, "down")
        await until(pilot, lambda: banner.display)
        await until(pilot, lambda: "the yard does not answer" in seen(app))
        assert [job_id] == [row[0] for row in queue.rows], "what was seen last stays"
        await pilot.press("c", "y")
        await asyncio.to_thread(bare.up)
        await until(pilot, lambda: not banner.display)
        await until(pilot, lambda: "live" in str(app.query_one("#head", Static).content))
        other = await asyncio.to_thread(bare.submit, "-g", 1, "--", "sleep", 600)
        await until(pilot, lambda: other in [row[0] for row in queue.rows])

    on_screen(bare, monkeypatch, use, every_s=1)


def test_only_one_tenants_jobs(teams: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    teams.submit("-g", 8, "--hold", "--tenant", "research/ana", "--", "true")
    teams.submit("-g", 1, "--hold", "--tenant", "interns/uma", "--", "true")

    async def use(app: Top, pilot: Pilot[None]) -> None:
        queue = app.query_one(QueuePane)
        await until(pilot, lambda: queue.rows)
        assert {"interns"} == {row[3].partition("/")[0] for row in queue.rows}
        await until(pilot, lambda: f"queue of interns: {len(queue.rows)}" in seen(app))

    on_screen(teams, monkeypatch, use, size=(80, 24), tenant="interns")


@pytest.mark.rig
def test_a_job_that_never_stops_writing_can_be_left(bare: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.up()
    chatter = "while true; do head -c 2000 /dev/zero | tr '\\0' x; echo; sleep 0.01; done"
    job_id = bare.submit("-g", 1, "-n", "chatter", "--", "sh", "-c", chatter)
    bare.wait(job_id, "RUNNING")
    left_s = 0.0

    async def use(app: Top, pilot: Pilot[None]) -> None:
        nonlocal left_s
        await until(pilot, lambda: app.query_one(QueuePane).rows)
        for _ in range(3):
            await pilot.press("l")
            await until(pilot, lambda: len(app.screen.query_one(Log).lines) > 5)
            await pilot.press("f", "escape")
        await pilot.press("l")
        left_s = time.monotonic()

    on_screen(bare, monkeypatch, use)
    assert time.monotonic() - left_s < patient(20), "quitting waits for nobody who writes"


def test_a_pipe_gets_a_sentence(box: Box, tmp_path: Path) -> None:
    done = box("top")
    assert (2, "") == (done.code, done.out)
    assert "yard: yard top draws on a terminal\n`yard queue` and `yard nodes` print" in done.err
