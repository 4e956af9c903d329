"""The parts of `yard top` by themselves: ten thousand rows, narrow terminals, a yard that may not be watched."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static
from textual.widgets._footer import FooterKey

from gpuyard.cli import top
from gpuyard.cli.top.app import Top
from gpuyard.cli.top.colours import TenantColours
from gpuyard.cli.top.feed import Feed, Picture
from gpuyard.cli.top.queue_pane import QueuePane, fitting
from gpuyard.cli.top.side_panes import GpusPane, TenantsPane, _shown
from gpuyard.cli.top.use_pane import UsePane, mean_use
from gpuyard.errors import BadInput
from gpuyard.extras import install_text
from gpuyard.wire.endpoints import CHANGES, GPUS, OVERVIEW, QUEUE
from gpuyard.wire.replies.fleet import GpuReply
from harness.answering import CUT, Problem, Stream


def row(job_id: int, name: str = "train", state: str = "PENDING") -> list[Any]:
    return [
        job_id,
        str(job_id),
        name,
        "lab/ana",
        "ana",
        "batch",
        state,
        "",
        1,
        "",
        1000,
        0,
        0,
        f"in line, {job_id} ahead",
    ]


class Counted(QueuePane):
    """Counts the lines that are made."""

    made = 0

    def _segments(self, row: list[Any]) -> Any:
        self.made += 1
        return super()._segments(row)


class Stage(App[None]):
    """One pane on a screen."""

    def __init__(self) -> None:
        super().__init__()
        self.pane = Counted(TenantColours())

    def compose(self) -> ComposeResult:
        yield self.pane


def test_of_ten_thousand_rows_only_the_visible_are_made() -> None:
    async def run() -> None:
        app = Stage()
        async with app.run_test(size=(100, 30)) as pilot:
            pane = app.pane
            pane.focus()
            pane.fill([row(number) for number in range(1, 10_001)], 61_000)
            await pilot.pause()
            pane.made = 0
            await pilot.press("end")
            await pilot.pause()
            assert pane.selected is not None
            assert 10_000 == pane.selected[0]
            assert 0 < pane.made <= 10 * 30, "a key redraws the screen, not the list"
            assert "10000" in "".join(segment.text for segment in pane.render_line(29))
            assert pane.render_line(0).text.startswith("ID")

    asyncio.run(run())


def test_a_job_of_another_tenant_has_no_names_and_no_time() -> None:
    async def look() -> str:
        stage = Stage()
        async with stage.run_test(size=(100, 10)):
            stage.pane.fill([[7, "7", "", "", "", "", "RUNNING", "", 2, "", 0, 0, 0, ""]], 1_794_733_311_491)
            return "".join(segment.text for segment in stage.pane._segments(stage.pane.rows[0]))

    assert ["7", "-", "-", "-", "RUNNING", "2", "-", "another", "tenant's"] == asyncio.run(look()).split()


def test_the_cursor_stays_on_its_job() -> None:
    async def run() -> None:
        app = Stage()
        async with app.run_test(size=(100, 30)) as pilot:
            pane = app.pane
            pane.focus()
            pane.fill([row(1), row(2), row(3)], 0)
            await pilot.press("down")
            pane.fill([row(7), row(8), row(3), row(2)], 0)
            assert pane.selected is not None
            assert (2, 3) == (pane.selected[0], pane.at)
            pane.fill([row(7)], 0)
            assert (7, 0) == (pane.selected[0], pane.at)
            pane.fill([], 0)
            assert pane.selected is None
            await pilot.press("down", "enter", "pageup")
            pane.fill([row(7, "eval"), row(9, "Train\x1b[31m")], 0)
            pane.sift("TRAIN")
            assert [9] == [each[0] for each in pane.rows]
            await pilot.pause()
            assert "\x1b" not in pane.render_line(1).text
            pane.sift("")
            assert 2 == len(pane.rows)

    asyncio.run(run())


@pytest.mark.parametrize("width", [30, 50, 80, 120, 300])
def test_columns_fit_every_width(width: int) -> None:
    fits = fitting(width, [5, 60, 40, 12])
    heads = [fit.head for fit in fits]
    assert {"ID", "STATE", "GPUS", "WHERE OR WHY"} <= set(heads)
    if width >= 50:
        assert sum(fit.width for fit in fits) + 2 * (len(fits) - 1) <= width
    assert ("NAME" in heads) >= ("TENANT" in heads) >= ("TIME" in heads) >= ("CLASS" in heads)


def text_of(lines: list[Any]) -> list[str]:
    return ["".join(segment.text for segment in line) for line in lines]


def test_gpus_by_who_is_on_them() -> None:
    pane = GpusPane(TenantColours())
    gpus = [(1000, "a", "1"), (500, "b", "2"), (0, "", ""), (1000, "", "foreign")]
    up: Any = {"name": "n1", "state": "UP", "why": "", "gpu_model": "H100", "gpus": gpus}
    shut: Any = up | {"name": "n2", "state": "DRAINED", "why": "fans", "gpus": gpus[:1] + gpus[2:3]}
    assert ["n1  ■ ◧ □ ▒  3/4  H100"] == text_of(pane.made([up], 80))
    assert ["n2  ■ ✕  1/2  H100  DRAINED: fans"] == text_of(pane.made([shut], 80))
    many = text_of(pane.made([up, shut] * 5, 80))
    assert 4 == len(many)
    assert max(map(len, many)) <= 80
    assert "drained" in many[0]


def test_tenants_with_what_they_are_promised() -> None:
    pane = TenantsPane(TenantColours())
    one: Any = {"tenant": "lab", "weight": 1, "running": 2, "waiting": 7, "gpus": 4, "gpus_wanted": 9, "guarantee": 2,
                "limit": 8}  # fmt: skip
    below: Any = one | {"tenant": "lab/ana", "guarantee": 0, "limit": None, "waiting": 0}
    head, first, second = text_of(pane.made([one, below], 60))
    assert head.split() == ["TENANT", "GPUS", "GUARANTEE", "LIMIT", "RUNS", "WAITS"]
    assert first.split()[-5:] == ["4", "2", "8", "2", "7"]
    assert "┃" in first
    assert second.startswith("  ana")
    assert second.split()[-5:] == ["4", "-", "-", "2", "0"]
    assert max(len(head), len(first), len(second)) <= 60


NO_JOBS = {
    **dict.fromkeys(("seq", "at_ms", "running", "waiting", "set_aside"), 0), "columns": [], "rows": [],
}  # fmt: skip


def test_the_queue_of_a_server_without_changes_is_read_every_few_seconds(answering_yard: Any) -> None:
    pictures: list[Picture] = []
    away: list[str] = []
    second = threading.Event()

    def overview(_wanted: Any) -> Any:
        return CUT if len(pictures) == 1 and not away else {"nodes": []}

    def show(picture: Picture) -> None:
        pictures.append(picture)
        if len(pictures) == 3:
            second.set()

    answering_yard({OVERVIEW: overview, QUEUE: NO_JOBS, CHANGES: Problem(404, "no"), GPUS: {"gpus": []}})
    feed = Feed(show, away.append, every_s=0.4)
    feed.start()
    try:
        assert second.wait(120)
    finally:
        feed.close()
    assert 1 == len(away)
    assert [False, False] == [picture.live for picture in pictures[1:3]]


def test_of_one_cluster_its_nodes_and_its_jobs_are_fetched(answering_yard: Any) -> None:
    nodes = [{"name": "n1", "cluster": name, "gpus": [[0, "", ""]]} for name in ("east", "west", "west")]
    seen: list[Picture] = []
    done = threading.Event()

    def queue(wanted: dict[str, Any]) -> Any:
        return NO_JOBS | {"rows": [row(1)] if wanted.get("cluster") == "west" else [row(1), row(2)]}

    def changes(_wanted: Any) -> Stream:
        def told() -> Iterator[tuple[str, Any]]:
            yield "start", {"seq": 0, "run": "a"}
            yard.ended.wait(120)

        return Stream(told())

    def show(picture: Picture) -> None:
        if picture.live:
            seen.append(picture)
            done.set()

    yard = answering_yard(
        {
            OVERVIEW: {"nodes_in_all": 13, "nodes": nodes},
            QUEUE: queue,
            CHANGES: changes,
            GPUS: {"gpus": nodes},
        }
    )
    feed = Feed(show, lambda _why: None, cluster="west", every_s=60)
    feed.start()
    try:
        assert done.wait(120)
    finally:
        yard.ended.set()
        feed.close()
    assert (12, nodes[1:], [row(1)]) == (
        seen[0].overview["nodes_in_all"], seen[0].overview["nodes"], seen[0].rows,
    )  # fmt: skip
    assert nodes[1:] == seen[0].gpus


def test_without_textual_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "textual", None)
    with pytest.raises(BadInput) as error:
        top.top()
    assert f"Install it with: {install_text('ui')}" == error.value.hint
    assert 2 == error.value.exit_code


@pytest.fixture
def silent_yard(answering_yard: Any) -> None:
    """A yard that tells nothing."""
    answering_yard({OVERVIEW: Problem(503, "not now"), CHANGES: Problem(404, "no")})


@pytest.mark.usefixtures("silent_yard")
def test_one_pane_is_left_as_soon_as_the_window_is_narrow() -> None:
    async def run() -> list[tuple[bool, bool]]:
        app = Top()
        shown = []
        async with app.run_test(size=(120, 30)) as pilot:
            for width in (40, 120):
                await pilot.resize_terminal(width, 20)
                await pilot.pause()
                shown.append((app.query_one("#gpus").display, app.query_one("#tenants").display))
        return shown

    assert [(True, False), (True, True)] == asyncio.run(run())


def test_a_tenants_own_jobs_are_called_so() -> None:
    assert ["lab", "  ana", "  (its own jobs)"] == [_shown(path) for path in ("lab", "lab/ana", "lab/-")]


def gpu(place: int, busy: int | None, age_s: int | None, *users: str) -> GpuReply:
    return {
        "node": "n1", "cluster": "c", "gpu": place, "gpu_model": "H100", "busy_pct": busy,
        "memory_used_mib": None if busy is None else 4096, "memory_mib": 81_920,
        "power_w": None if busy is None else 310, "temperature_c": None if busy is None else 61,
        "others_mib": None, "emulated": False, "age_s": age_s,
        "jobs": [
            {"label": f"1{place}", "user": user, "tenant": f"lab/{user}", "share": 1.0, "slices": [],
             "memory_used_mib": None}
            for user in users
        ],
    }  # fmt: skip


@pytest.mark.parametrize("width", [76, 126])
def test_a_line_says_what_a_gpu_does_and_what_is_unknown_is_no_zero(width: int) -> None:
    told = [gpu(0, 90, 0, "ana"), gpu(1, None, 0, "eli"), gpu(2, 40, 300, "ivo"), gpu(3, 0, 3)]
    lines = ["".join([part.text for part in line]) for line in UsePane(TenantColours()).made(told, width)]
    assert all(len(line) <= width for line in lines)
    head, busy, unknown, stale, idle = lines
    assert ["GPU", "BUSY", "MEMORY", "POWER", "TEMP", "JOBS"] == head.split()
    assert ["90%", "4.0/80", "GiB", "310", "W", "61", "C", "10", "ana"] == busy.split()[3:]
    assert busy.count("━") == round(0.9 * (busy.count("━") + busy.count("─"))) > 0
    assert "─" not in unknown
    assert "━" not in unknown
    assert ["-", "-/80", "GiB", "-", "-", "11", "eli"] == unknown.split()[2:]
    assert "5m00s old" in stale
    assert "old" not in busy + idle
    assert ", 90 % busy" == mean_use(told), "what is unknown or old is in no mean"
    assert "" == mean_use(told[1:3])


@pytest.mark.usefixtures("silent_yard")
def test_at_80_columns_the_footer_has_the_way_out_and_no_key_is_cut() -> None:
    async def run() -> None:
        app = Top()
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            ends = {str(key.description): key.region.right for key in app.query(FooterKey)}
            assert max(ends["quit"], ends["keys"]) <= 80, ends
            await pilot.press("f1")
            await pilot.pause()
            text = app.screen.query_one(Static)
            assert text.region.right <= app.screen.query_one(".box").content_region.right

    asyncio.run(run())
