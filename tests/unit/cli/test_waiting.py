"""The line that says what a job waits for: drawn in place on a terminal, written once elsewhere."""

import io
from typing import Any

import pytest

from gpuyard.api.client import NoServer
from gpuyard.cli.commands.jobs.waiting import Waiting, words
from gpuyard.quantities import span_up


class Screen(io.StringIO):
    """A terminal, as far as somebody asks."""

    def isatty(self) -> bool:
        return True


def pending(**more: Any) -> Any:
    base = {"state": "PENDING", "label": "7", "reason": "no room", "place": 1, "starts_by_ms": None,
            "nodes": [], "submitted_ms": 1_000, "now_ms": 6_000}  # fmt: skip
    return base | more


RUNNING: Any = {"state": "RUNNING", "label": "7", "nodes": ["h100-0001", "h100-0002"], "submitted_ms": 1_000}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"starts_by_ms": 6_000 + 230_000}, "waiting: no room, 1st in line, likely within 4 min"),
        ({"place": 22}, "waiting: no room, 22nd in line"),
        ({"reason": "in line, 3 ahead", "place": 4}, "waiting: 4th in line"),
        ({"reason": "waits for another job", "place": None}, "waiting: waits for another job"),
        ({"reason": "", "place": None}, "waiting: in line"),
    ],
)
def test_what_it_says(more: dict[str, Any], text: str) -> None:
    assert text == words(pending(**more))


def test_a_terminal_has_one_line_that_is_gone_before_anything_else_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    with Waiting(stream=screen) as line:
        line.told(pending())
        line.told(pending(place=2, now_ms=121_000))
        line.told(RUNNING)
    erase = "\r\x1b[2K"
    assert screen.getvalue() == (
        f"{erase}waiting: no room, 1st in line{erase}waiting: no room, 2nd in line (2 min so far){erase}"
        "running on h100-0001, h100-0002\n"
    )


def test_a_file_has_a_line_when_the_wait_begins_and_when_the_reason_changes() -> None:
    file = io.StringIO()
    with Waiting(stream=file) as line:
        for more in (
            {"now_ms": 2_000},
            {},
            {"place": 2},
            {"now_ms": 90_000},
            {"reason": "on hold", "place": None},
        ):
            line.told(pending(**more))
        line.told(RUNNING)
    assert file.getvalue().splitlines() == [
        "yard: waiting: no room, 1st in line",
        "yard: waiting: on hold",
        "yard: running on h100-0001, h100-0002",
    ]


def test_nothing_is_said_of_a_job_that_did_not_wait_or_to_who_wants_quiet() -> None:
    file = io.StringIO()
    with Waiting(stream=file) as line:
        line.told(RUNNING)
    with Waiting(stream=file, quiet=True) as line:
        line.told(pending())
    assert "" == file.getvalue()


@pytest.mark.parametrize("seen", ["never", "waiting", "running"])
def test_a_job_that_ended_before_it_was_seen_running_is_said_to_have_run_once(
    seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    with Waiting(stream=screen, look=lambda: {"state": "COMPLETED", "nodes": ["vm"]}) as line:
        for news in {"never": [], "waiting": [pending()], "running": [RUNNING | {"nodes": ["vm"]}]}[seen]:
            line.told(news)
        line.begins()
        print("root", file=screen)
        line.begins()
    assert screen.getvalue().endswith("running on vm\nroot\n")
    assert 1 == screen.getvalue().count("running on vm")


def test_where_a_job_ran_is_not_made_up_and_the_output_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    answers: list[Any] = [NoServer("away"), {"state": "COMPLETED", "nodes": ["vm"]}]

    def look() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, NoServer):
            raise answer
        return answer

    screen = Screen()
    line = Waiting(stream=screen, look=look)
    line.begins()
    assert "" == screen.getvalue()
    line.begins()
    assert "running on vm\n" == screen.getvalue()

    nowhere, asked = Screen(), [{"state": "CANCELLED", "nodes": []}]
    Waiting(stream=nowhere, look=asked.pop).begins()
    Waiting(stream=nowhere, look=asked.pop, quiet=True).begins()
    Waiting(stream=nowhere).begins()
    assert "" == nowhere.getvalue()
    file = io.StringIO()
    Waiting(stream=file, look=asked.pop).begins()
    assert "" == file.getvalue(), "a file has the job's own words alone"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 s"), (59, "59 s"), (60, "1 min"), (61, "2 min"), (7_200, "2 h"), (3_600 * 60, "3 days")],
)
def test_spans(seconds: int, text: str) -> None:
    assert text == span_up(seconds * 1000)
