"""`yard queue`: an array that waits is one line, and nothing is hidden in it that differs."""

from typing import Any

import pytest

from gpuyard.cli.commands.jobs.queue import print_queue


def row(
    number: int, label: str, state: str = "PENDING", why: str = "no room", name: str = "scan"
) -> list[Any]:
    return [number, label, name, "lab", "ann", "batch", state, "", 1, "", 1_000, 0, 0, why]


ROWS = [
    row(3, "3_0", "RUNNING", ""),
    row(4, "3_1"),
    row(5, "3_2"),
    row(7, "3_4"),
    row(8, "3_5", why="on hold"),
    row(20, "20"),
    row(21, "1234_[6-9%2]"),
    row(9, "3_6"),
]


def ids(capsys: pytest.CaptureFixture[str], **more: Any) -> list[list[str]]:
    print_queue({"at_ms": 61_000, "rows": ROWS}, **more)
    lines = capsys.readouterr().out.splitlines()
    return [line.split()[:1] + line.split()[5:] for line in lines[1:]]


def test_tasks_that_wait_alike_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = ids(capsys)

    assert ["3_0", "3_[1-2,4]", "3_5", "20", "1234_[6-9%2]", "3_6"] == [each[0] for each in found]
    assert ["3", "x", "1", "1m00s", "no", "room"] == found[1][1:]


def test_or_each_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert [each[1] for each in ROWS] == [each[0] for each in ids(capsys, tasks=True)]
