"""How an attempt stands, case by case: nothing is concluded from silence."""

from typing import Any

import pytest

from gpuyard.engines.contract import Phase
from gpuyard.engines.slurm.attempt_state import (
    DOOM_MS,
    MarkLost,
    Traces,
    Verdict,
    WithdrawLate,
    WriteEnd,
    judge,
)
from gpuyard.engines.slurm.words.queue import SlurmJob
from gpuyard.model import Outcome

NOW = 1_000_000
NEWS = {"started_ms": 900_000, "gpus": {"n1": [0]}}


def job(state: str, number: int = 7, het: int = 0, reason: str = "None") -> SlurmJob:
    return SlurmJob(number, het, state, reason, 0, 1, ("n1",), 1, 1, 1, "main", "y-1-1@ab")


def end(outcome: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    plain = {"exit_code": 0, "why": "", "started_ms": 1, "ended_ms": 2, "checkpoint_ms": 0, "slurm_id": 7}
    return {"outcome": outcome, **plain, **more}


def judged(traces: Traces, *jobs: SlurmJob, reached: bool = True, asked_ms: int = NOW) -> Verdict:
    found = list(jobs) if reached else None
    return judge("y-1-1", traces, found, asked_ms=asked_ms, now_ms=NOW, handoff_ms=60_000)


@pytest.mark.parametrize(
    ("traces", "jobs", "phase"),
    [
        # Written down, and Slurm does not have it: it may be handed in again.
        (Traces(), [], Phase.UNKNOWN),
        (Traces(submitted_ms=NOW - 5), [], Phase.UNKNOWN),
        # Handed in after Slurm was asked.
        (Traces(submitted_ms=NOW + 5), [], Phase.STARTING),
        (Traces(submitted_ms=NOW - 5), [job("PENDING")], Phase.STARTING),
        (Traces(submitted_ms=NOW - 5), [job("RUNNING")], Phase.STARTING),
        (Traces(claimed_by=7), [job("RUNNING")], Phase.STARTING),
        (Traces(claimed_by=7, news=NEWS), [job("RUNNING")], Phase.RUNNING),
        (Traces(claimed_by=7, news=NEWS), [job("SUSPENDED")], Phase.SUSPENDED),
        (Traces(claimed_by=7, news=NEWS), [job("COMPLETING")], Phase.STOPPING),
        (Traces(claimed_by=7, news=NEWS, halt={"outcome": "CANCELLED"}), [job("RUNNING")], Phase.STOPPING),
        # Forgotten by Slurm, and its wrapper shows that it lives, or does not.
        (Traces(claimed_by=7, news=NEWS, alive=True), [], Phase.RUNNING),
        (Traces(claimed_by=7, news=NEWS), [], Phase.UNKNOWN),
        # Slurm gave its number to another one.
        (Traces(claimed_by=7, news=NEWS), [job("RUNNING", number=8)], Phase.UNKNOWN),
        (Traces(end=end()), [], Phase.ENDED),
        (Traces(end=end()), [job("RUNNING")], Phase.ENDED),
        (Traces(end=end("TOLD"), claimed_by=7), [job("COMPLETING")], Phase.STOPPING),
    ],
)
def test_phases(traces: Traces, jobs: list[SlurmJob], phase: Phase) -> None:
    finding = judged(traces, *jobs)

    assert (phase, None) == (finding.report.phase, finding.todo)


@pytest.mark.parametrize(
    ("traces", "phase"),
    [
        (Traces(), Phase.UNKNOWN),
        (Traces(submitted_ms=5), Phase.STARTING),
        (Traces(claimed_by=7, news=NEWS), Phase.RUNNING),
        (Traces(end=end()), Phase.ENDED),
        (Traces(end=end("TOLD")), Phase.STOPPING),
    ],
)
def test_while_slurm_is_out_of_reach_only_files_speak(traces: Traces, phase: Phase) -> None:
    finding = judged(traces, reached=False)

    assert (phase, None) == (finding.report.phase, finding.todo)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("CANCELLED", Outcome.CANCELLED),
        ("TIMEOUT", Outcome.TIMEOUT),
        ("PREEMPTED", Outcome.PREEMPTED),
        ("OUT_OF_MEMORY", Outcome.OUT_OF_MEMORY),
        ("FAILED", Outcome.FAILED),
        # It left without an end, so something killed the wrapper.
        ("COMPLETED", Outcome.FAILED),
    ],
)
def test_a_final_state_of_slurm_is_an_end_for_the_job_that_has_the_claim(
    state: str, outcome: Outcome
) -> None:
    by_slurm = judged(Traces(claimed_by=7, news=NEWS), job(state)).todo
    told = judged(Traces(claimed_by=7, news=NEWS, end=end("TOLD", exit_code=143)), job(state)).todo

    assert isinstance(by_slurm, WriteEnd)
    assert isinstance(told, WriteEnd)
    assert [outcome, outcome] == [by_slurm.outcome, told.outcome]


def test_what_was_told_to_stop_ended_so() -> None:
    todo = judged(Traces(claimed_by=7, halt={"outcome": "PREEMPTED"}), job("CANCELLED")).todo

    assert isinstance(todo, WriteEnd)
    assert Outcome.PREEMPTED is todo.outcome


def test_what_is_left_on_a_lost_node_is_told_first() -> None:
    first = judged(Traces(claimed_by=7, news=NEWS), job("NODE_FAIL"))
    soon = judged(Traces(claimed_by=7, news=NEWS, doomed_ms=NOW - 1), job("NODE_FAIL"))
    then = judged(Traces(claimed_by=7, news=NEWS, doomed_ms=NOW - DOOM_MS), job("NODE_FAIL"))

    assert (Phase.STOPPING, MarkLost()) == (first.report.phase, first.todo)
    assert (Phase.STOPPING, None) == (soon.report.phase, soon.todo)
    assert isinstance(then.todo, WriteEnd)
    assert Outcome.NODE_FAIL is then.todo.outcome


@pytest.mark.parametrize("state", ["FAILED", "NODE_FAIL", "TIMEOUT", "COMPLETED", "CANCELLED"])
def test_what_ended_before_it_ran_waits_again(state: str) -> None:
    """Also where Slurm calls it cancelled: after a crash it does that to jobs whose numbers it gave out twice."""
    todo = judged(Traces(submitted_ms=5), job(state)).todo

    assert isinstance(todo, WriteEnd)
    assert (Outcome.PREEMPTED, True, state != "CANCELLED") == (todo.outcome, todo.unclaimed, todo.bad_place)


@pytest.mark.parametrize(
    ("submitted_ms", "reason", "todo"),
    [
        (NOW - 59_999, "Resources", None),
        (NOW - 60_000, "Resources", WithdrawLate("Slurm did not start it within 60 s: Resources")),
        (
            NOW - 5,
            "launch failed requeued held",
            WithdrawLate("Slurm did not start it: launch failed requeued held"),
        ),
        (NOW - 5, "JobHeldAdmin", WithdrawLate("Slurm did not start it: JobHeldAdmin")),
    ],
)
def test_what_slurm_does_not_start_is_taken_back(submitted_ms: int, reason: str, todo: object) -> None:
    assert todo == judged(Traces(submitted_ms=submitted_ms), job("PENDING", reason=reason)).todo


def test_one_that_the_engine_claimed_never_runs() -> None:
    todo = judged(Traces(claimed_by=0, halt={"outcome": "CANCELLED"}), job("RUNNING")).todo

    assert isinstance(todo, WriteEnd)
    assert Outcome.CANCELLED is todo.outcome


def test_doubles_that_wait_are_cancelled() -> None:
    double = job("PENDING", number=8)

    assert (double,) == judged(Traces(claimed_by=7, news=NEWS), job("RUNNING"), double).extra
    assert (double,) == judged(Traces(end=end()), job("COMPLETED"), double).extra


def test_components_of_one_job_are_one() -> None:
    finding = judged(Traces(claimed_by=7, news=NEWS), job("COMPLETED", 7, 7), job("RUNNING", 8, 7))

    assert (Phase.RUNNING, None) == (finding.report.phase, finding.todo)


def test_while_slurm_was_away_it_could_start_nothing() -> None:
    waits = Traces(submitted_ms=NOW - 90_000)
    finding = judge(
        "y-1-1", waits, [job("PENDING")], asked_ms=NOW, now_ms=NOW, handoff_ms=60_000, reached_ms=NOW - 5_000
    )

    assert (Phase.STARTING, None) == (finding.report.phase, finding.todo)


@pytest.mark.parametrize(
    ("reason", "bad_place"),
    [
        ("Resources", True),
        ("ReqNodeNotAvail", True),
        ("QOSMaxGRESPerUser", False),
        ("AssocGrpGRES", False),
        ("JobHeldUser", False),
    ],
)
def test_nodes_are_not_blamed_for_what_concerns_the_user(reason: str, bad_place: bool) -> None:
    finding = judged(Traces(submitted_ms=NOW - 60_000), job("PENDING", reason=reason))

    assert WithdrawLate(f"Slurm did not start it within 60 s: {reason}", bad_place) == finding.todo


def test_a_job_held_by_its_user_waits_for_the_handoff_like_any_other() -> None:
    assert judged(Traces(submitted_ms=NOW - 5_000), job("PENDING", reason="JobHeldUser")).todo is None


def test_a_job_that_runs_in_slurm_and_whose_wrapper_never_came_is_taken_back() -> None:
    running = job("RUNNING")

    assert judged(Traces(submitted_ms=NOW - 359_000), running).todo is None
    assert WithdrawLate("Slurm says that it runs, and its wrapper has not begun for 360 s") == (
        judged(Traces(submitted_ms=NOW - 360_000), running).todo
    )
