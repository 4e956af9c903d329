"""What `yard show` makes of the tries of a job."""

from typing import Any

from gpuyard.cli.commands.jobs.show import job_lines
from gpuyard.cli.commands.jobs.tries import last_try_text, tries_table

T = 1_700_000_000_000


def tried(
    attempt: int, outcome: str | None = "NODE_FAIL", why: str = "its node failed", **fields: Any
) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "attempt": attempt,
        "started_ms": T + attempt * 100_000,
        "ended_ms": T + attempt * 100_000 + 75_000 if outcome else None,
        "nodes": ["n1"],
        "gpu_indices": [[0, 1]],
        "outcome": outcome,
        "exit_code": 0 if outcome else None,
        "why": why,
    }
    return {**plain, **fields}


def job(*tries: dict[str, Any], state: str = "PENDING") -> dict[str, Any]:
    attempts = tries[-1]["attempt"] if tries else 1
    return {"label": "7", "state": state, "attempts": attempts, "tries": list(tries)}


def cells(lines: list[str]) -> list[list[str]]:
    return [[cell for cell in line.split("  ") if cell] for line in lines]


def test_one_line_for_each_try_and_where_to_read_on() -> None:
    lines = tries_table(job(tried(1), tried(2, None, "", gpu_indices=[[]]), state="RUNNING"))
    head, first, second, hint = lines
    assert ["TRY", "STARTED", "RAN", "ON", "END", "WHY"] == head.split()
    assert ["1", "1m15s", "n1[0,1]", "NODE_FAIL", "its node failed"] == [
        each.strip() for place, each in enumerate(cells([first])[0]) if place != 1
    ]
    assert ["-", "n1", "RUNNING"] == [each.strip() for each in cells([second])[0]][-3:]
    assert "what a try wrote: yard logs 7 --attempt 1" == hint
    assert first.index("NODE_FAIL") == second.index("RUNNING") == head.index("END")


def test_a_gang_is_told_by_its_first_nodes_and_shares_of_one_node_together() -> None:
    gang = tried(1, nodes=["n1", "n1", "n2", "n3", "n4"], gpu_indices=[[1], [0], [3], [], []])
    assert "  n1[0,1] n2[3] and 2 more  " in tries_table(job(gang))[1]
    assert "  -  " in tries_table(job(tried(1, nodes=[], gpu_indices=[])))[1]


def test_who_says_nothing_is_told_by_its_exit_code_and_nobody_paints_the_screen() -> None:
    assert tries_table(job(tried(1, "FAILED", "", exit_code=3)))[1].endswith("FAILED  exit code 3")
    assert tries_table(job(tried(1, "COMPLETED", "")))[1].endswith("COMPLETED")
    assert r"\x1b[31mred" in tries_table(job(tried(1, why="\x1b[31mred")))[1]


def test_a_long_reason_is_broken_under_where_it_began() -> None:
    why = "the MPS server that it shared with other jobs broke by a fault of one of them (exit code 1)"
    whole = tries_table(job(tried(1, why=why)))
    assert whole[1].endswith(why)
    broken = tries_table(job(tried(1, why=why)), 90)
    assert len(whole) < len(broken)
    assert max(map(len, broken)) <= 90
    start = whole[1].index(why)
    assert why == " ".join([line[start:].strip() for line in broken[1:-1]])
    assert {""} == {line[:start].strip() for line in broken[2:-1]}
    # Where there is no room for that, the terminal breaks it.
    assert whole == tries_table(job(tried(1, why=why)), 60)


def test_of_many_the_last_are_shown() -> None:
    lines = tries_table(job(*[tried(attempt) for attempt in range(31, 131)]))
    assert 1 + 20 + 2 == len(lines)
    assert lines[1].lstrip().startswith("111 ")
    assert "tries before number 111 are not shown" == lines[-2]


def test_a_job_without_tries_has_no_table() -> None:
    assert [] == tries_table(job())
    found = {
        "label": "7", "name": "train", "state": "PENDING", "tenant": "a", "user": "u", "class": "batch", "gpus": 1,
        "gpu_models": [], "tasks": 1, "cpus": 0, "memory_mib": 0, "time_limit_s": None, "submitted_ms": T,
        "started_ms": None, "ended_ms": None, "exit_code": None, "attempts": 1, "preemptions": 0, "reason": "no room",
        "tries": [],
    }  # fmt: skip
    assert not [line for line in job_lines(found) if "TRY" in line]
    shown = job_lines({**found, "tries": [tried(1)]})
    assert ("", True) == (shown[-4], shown[-2].endswith("its node failed"))


def test_a_try_that_was_ended_on_request_made_room_for_nobody() -> None:
    asked = tried(1, "PREEMPTED", "requeued on request; exit code 143")
    other = tried(2, "PREEMPTED", "preempted for job 9, which is of a higher class")
    _head, first, second, _hint = tries_table(job(asked, other))
    assert first.endswith("  REQUEUED   requeued on request; exit code 143")
    assert "  PREEMPTED  " in second
    assert ", REQUEUED: requeued on request" in last_try_text(asked)


def test_one_line_for_why() -> None:
    text = last_try_text(tried(2))
    assert text.startswith("try 2 ran 1 min 15 s on n1[0,1] and ended ")
    assert text.endswith(", NODE_FAIL: its node failed")
    assert last_try_text(tried(2, "PREEMPTED", "")).endswith(", PREEMPTED")
