"""What `yard why` makes of an estimate, and of one that cannot be had."""

from typing import Any

import pytest

from gpuyard.cli.commands.jobs import why
from gpuyard.wire.endpoints import ETA, WHY
from harness.answering import Problem

FOUND = {
    "job": 2, "label": "2", "tenant": "ana", "state": "PENDING", "at_ms": 5, "ahead": 0, "waiting": 1, "position": "",
    "blockers": [{"code": "ROOM", "by": "placement", "text": "no room", "lifted_by": "job 1 ending", "lift": None}],
    "also": [], "judged": True, "start": {"at_ms": None, "how": "job 1 has no time limit"}, "helps": [],
}  # fmt: skip
ESTIMATE = {
    "job": "2", "task": None, "state": "PENDING", "now_ms": 0, "starts_by_ms": {"p50": 60_000, "p90": 120_000},
    "runs": 50, "how": "by runs forward", "basis": {"history_jobs": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("eta", "likely"),
    [
        (ESTIMATE, "(in 2 min) (run times of 1 ended job)"),
        (ESTIMATE | {"basis": {"history_jobs": 0}}, "(in 2 min) (a guess: no job has ended yet)"),
        (Problem(503, "too many estimates"), "no estimate: too many estimates"),
        (ESTIMATE | {"starts_by_ms": None, "how": "x; no more can be told: too long"}, "no estimate: too long"),
        (ESTIMATE | {"starts_by_ms": None, "not_before_ms": 60_000, "left_out_ahead": 4000},
         "not before 1970-01-01 00:01 (in 1 min): 4,000 of the jobs ahead of it were not counted"),
        (ESTIMATE | {"starts_by_ms": None, "not_before_ms": None, "left_out_ahead": 4000},
         "not within 14 days: 4,000 of the jobs ahead of it were not counted"),
    ],
)  # fmt: skip
def test_the_estimate_is_told_and_never_in_the_way(
    eta: Any, likely: str, answering_yard: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answering_yard({WHY: FOUND, ETA: eta})

    why.why("2")

    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("likely")]
    assert line.endswith(likely)


def test_nothing_is_said_where_nothing_more_is_known(
    answering_yard: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answering_yard({WHY: FOUND, ETA: ESTIMATE | {"starts_by_ms": None}})

    why.why("2")

    assert "likely" not in capsys.readouterr().out


def test_a_job_that_waits_for_another_has_no_place_in_line(
    answering_yard: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    also = [{"code": "DEPENDENCY", "text": "it waits for job 1 to complete"}]
    answering_yard({WHY: FOUND | {"also": also, "waiting": 0}, ETA: ESTIMATE})

    why.why("2")

    assert "in line    not yet" in capsys.readouterr().out.splitlines()


def test_a_judgement_of_a_part_of_the_line_says_so(
    answering_yard: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answering_yard({WHY: FOUND | {"left_out": 198_000}, ETA: ESTIMATE})

    why.why("2")

    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("judged")]
    assert line.endswith(
        "with that lifted it would start at once "
        "(tried out without 198,000 of the jobs that wait: all of them would take too long)"
    )


@pytest.mark.parametrize(
    ("says", "line"),
    [
        ({"said": "no berth", "said_by": "Harbour"}, "job 2 of ana is PENDING: Harbour says: no berth"),
        ({"said": "Resources"}, "job 2 of ana is PENDING: Slurm says: Resources"),
    ],
)
def test_the_scheduler_that_decides_is_named(
    says: dict[str, str], line: str, answering_yard: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server of an earlier release does not name it: there it is Slurm."""
    for blockers in (FOUND["blockers"], []):
        answering_yard({WHY: FOUND | {"said_by": ""} | says | {"blockers": blockers}, ETA: ESTIMATE})
        why.why("2")
        assert line == capsys.readouterr().out.splitlines()[0]
