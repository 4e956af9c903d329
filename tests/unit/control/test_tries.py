"""Why a job ran more than once: written as tries end, made anew from the log, shown with the job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.replica.labels import parse_label
from gpuyard.control.replica.replica import Draft
from gpuyard.control.views.explanations import Explained
from gpuyard.control.views.queue_list import Filter
from gpuyard.core import State, dump, load
from gpuyard.model import (
    AttemptEnded,
    AttemptStarted,
    AttemptStopping,
    Grant,
    Outcome,
    Requested,
    StopCause,
    Verb,
)
from rigs.described import held_to
from rigs.request_service import Rig, rig


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def lose(yard: Rig, job_id: int, why: str = "its supervisor was killed", seen_late_ms: int = 0) -> None:
    """Its node fails under it."""
    attempt, now_ms = yard.replica.state.jobs[job_id].attempt, yard.now_ms()
    ended_ms = now_ms - seen_late_ms if seen_late_ms else 0
    yard.add(AttemptEnded(now_ms, job_id, attempt, Outcome.NODE_FAIL, 0, 9, why, ended_ms))


def stop(yard: Rig, job_id: int, cause: StopCause, for_job: int = 0, why: str = "") -> None:
    attempt = yard.replica.state.jobs[job_id].attempt
    yard.add(AttemptStopping(yard.now_ms(), job_id, attempt, cause, for_job))
    yard.add(AttemptEnded(yard.now_ms(), job_id, attempt, Outcome.PREEMPTED, 0, 143, why))


def tries(yard: Rig, job_id: int, *fields: str) -> list[Any]:
    found = yard.views.job(parse_label(str(job_id)))["tries"]
    return [each[fields[0]] if len(fields) == 1 else tuple(each[name] for name in fields) for each in found]


def counted(yard: Rig) -> int:
    with yard.replica.store._backend.reading() as conn:
        return int(conn.exec_driver_sql("SELECT count(*) FROM tries").scalar_one())


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMEOUT])
def test_nothing_is_written_of_a_job_that_runs_once(yard: Rig, outcome: Outcome) -> None:
    job_id = yard.submit()
    assert [] == tries(yard, job_id, "attempt")
    yard.start(job_id)
    assert [] == tries(yard, job_id, "attempt")
    yard.end(job_id, outcome, 1)
    assert ([], 0) == (tries(yard, job_id, "attempt"), counted(yard))


def test_every_try_is_told_while_the_job_waits_runs_and_when_it_has_ended(yard: Rig) -> None:
    job_id = yard.submit(gpus=2)
    yard.start(job_id, 0b101)
    started_ms = yard.replica.state.jobs[job_id].started_ms
    lose(yard, job_id, seen_late_ms=400)
    first = {
        "attempt": 1, "started_ms": started_ms, "ended_ms": yard.time_ms - 400,
        "nodes": ["n1"], "gpu_indices": [[0, 2]], "outcome": "NODE_FAIL", "exit_code": 9,
        "why": "its supervisor was killed",
    }  # fmt: skip
    (found,) = yard.views.job(parse_label(str(job_id)))["tries"]
    assert first == {name: value for name, value in found.items() if name not in ("started", "ended")}
    assert found["ended"].endswith("Z")
    yard.start(job_id, 0b11)
    assert [(1, "NODE_FAIL", [[0, 2]]), (2, None, [[0, 1]])] == tries(
        yard, job_id, "attempt", "outcome", "gpu_indices"
    )
    yard.end(job_id, Outcome.FAILED, 3)
    assert [(1, "NODE_FAIL", 9), (2, "FAILED", 3)] == tries(yard, job_id, "attempt", "outcome", "exit_code")
    assert 1 == counted(yard)
    # What lists jobs does not ask for it.
    assert "tries" not in yard.views.jobs(Filter(), None, 9)[0][0]
    assert "tries" not in yard.views.history(Filter(), None, None, 9)[0][0]
    assert "tries" not in yard.views.job(parse_label(str(job_id)), brief=True)


def test_a_job_that_is_cancelled_while_it_waits_again_has_the_tries_it_had(yard: Rig) -> None:
    job_id = yard.submit()
    yard.start(job_id)
    lose(yard, job_id)
    yard.add(Requested(yard.now_ms(), job_id, Verb.CANCEL, "ana"))
    assert [(1, "NODE_FAIL")] == tries(yard, job_id, "attempt", "outcome")


def test_who_was_stopped_says_for_whom(yard: Rig) -> None:
    array = yard.submit(array=(3,))
    job_id = yard.submit()
    for cause, for_job, why in (
        (StopCause.RECLAIM, array + 1, ""),
        (StopCause.CLASS, 99, ""),
        (StopCause.SHORTER, 0, "stopped before it ran"),
        (StopCause.REQUEUE, 0, ""),
    ):
        yard.start(job_id)
        stop(yard, job_id, cause, for_job, why)
    assert [
        f"preempted for job {array}_3, whose tenant is due what this one borrowed",
        "preempted for job 99, which is of a higher class",
        "preempted for another job, which is much shorter; stopped before it ran",
        "requeued on request",
    ] == tries(yard, job_id, "why")


def test_a_task_of_an_array_has_its_own(yard: Rig) -> None:
    array = yard.submit(array=(0, 1))
    yard.start(array + 2)
    lose(yard, array + 2)
    assert [1] == [each["attempt"] for each in yard.views.job(parse_label(f"{array}_1"))["tries"]]
    assert [] == yard.views.job(parse_label(f"{array}_0"))["tries"]
    assert "tries" not in yard.views.job(parse_label(str(array)))


def test_an_end_that_does_not_hold_leaves_no_try(yard: Rig) -> None:
    job_id = yard.submit()
    yard.start(job_id)
    late = AttemptEnded(yard.now_ms(), job_id, 1, Outcome.NODE_FAIL)
    lose(yard, job_id)
    yard.replica.commit(None, lambda draft: draft.offer(late))  # type: ignore[arg-type, return-value]
    assert (1, [1]) == (counted(yard), tries(yard, job_id, "attempt"))


def test_they_can_be_made_anew_from_the_log(yard: Rig) -> None:
    jobs = [yard.submit() for _ in range(2)]
    for job_id in jobs:
        yard.start(job_id, 1 << job_id)
    lose(yard, jobs[0])
    stop(yard, jobs[1], StopCause.CLASS, jobs[0])
    yard.start(jobs[0])
    yard.end(jobs[0])
    store = yard.replica.store
    kept = [store.tries.of_job(job_id, 9) for job_id in jobs]
    with store._backend.writing() as conn:
        conn.exec_driver_sql("DELETE FROM tries")
        conn.exec_driver_sql("DELETE FROM history")

    again = Draft(State())
    for _seq, event in store.read(0):
        again.add(event)
    store.bound.put(again.rows)

    assert (kept, [1, 1]) == (
        [store.tries.of_job(job_id, 9) for job_id in jobs],
        [len(each) for each in kept],
    )
    assert [(1, "NODE_FAIL"), (2, "COMPLETED")] == tries(yard, jobs[0], "attempt", "outcome")


def test_why_tells_how_the_try_before_ended_now_and_then(yard: Rig) -> None:
    explained = Explained(yard.replica, yard.now_ms)
    job_id = yard.submit(gpus=8)
    label = parse_label(str(job_id))
    assert explained.why(label)["last_try"] is None
    yard.start(job_id, 0xFF)
    assert explained.why(label)["last_try"] is None
    lose(yard, job_id, "one")
    between_ms = yard.now_ms()
    assert "one" == explained.why(label)["last_try"]["why"]
    yard.start(job_id, 0xFF)
    lose(yard, job_id, "two")
    assert [(1, "one"), (2, "two")] == [
        (found["attempt"], found["why"])
        for found in (explained.why(label, between_ms)["last_try"], explained.why(label)["last_try"])
    ]
    yard.add(AttemptStarted(yard.now_ms(), job_id, 3, (Grant(0, 0xFF, 1000, 0, 0, 1),)))
    yard.end(job_id)
    assert explained.why(label)["last_try"] is None


def test_answers_are_as_they_are_described(yard: Rig) -> None:
    job_id = yard.submit()
    label = parse_label(str(job_id))
    for ends in (lambda: lose(yard, job_id), lambda: yard.end(job_id)):
        yard.start(job_id)
        running = held_to("JobView", yard.views.job(label, explained=True))
        ends()
        waiting = held_to("JobView", yard.views.job(label, explained=True))
        held_to("ExplainedReply", Explained(yard.replica, yard.now_ms).why(label))
    assert ([None, "COMPLETED"], 2) == (
        [view["tries"][-1]["outcome"] for view in (running, waiting)], len(waiting["tries"])
    )  # fmt: skip


def test_a_job_waits_all_the_time_that_it_does_not_run(yard: Rig) -> None:
    """Before its first try and between its tries; what it says is the same live, ended, and made anew from a dump."""
    job_id = yard.submit()
    submitted_ms = yard.views.job(parse_label(str(job_id)))["submitted_ms"]

    def told() -> tuple[int | None, int]:
        found = yard.views.job(parse_label(str(job_id)))
        return found["waited_ms"], found["ran_ms"]

    yard.time_ms = submitted_ms + 10_000
    yard.start(job_id)
    first_ms = yard.replica.state.jobs[job_id].started_ms - submitted_ms
    assert (first_ms, 0) == told()
    yard.time_ms = submitted_ms + 50_000
    # It was gone 5 s before anybody saw.
    lose(yard, job_id, seen_late_ms=5000)
    ran_ms = yard.time_ms - 5000 - submitted_ms - first_ms
    assert (None, ran_ms) == told()
    assert ran_ms == load(dump(yard.replica.state)).jobs[job_id].ran_ms
    yard.time_ms = submitted_ms + 70_000
    yard.start(job_id)
    waited_ms = yard.replica.state.jobs[job_id].started_ms - submitted_ms - ran_ms
    assert (waited_ms, ran_ms) == told()
    yard.time_ms = submitted_ms + 100_000
    yard.end(job_id, Outcome.FAILED, 3)
    (row,) = yard.views.history(Filter(), None, None, 9)[0]
    assert row["ended_ms"] - submitted_ms == row["waited_ms"] + row["ran_ms"]
    assert waited_ms == row["waited_ms"] < 40_000
    held_to("JobView", row)


def test_a_job_that_is_cancelled_while_it_runs_says_who_did_that_and_when(yard: Rig) -> None:
    job_id = yard.submit()
    yard.start(job_id)
    yard.add(Requested(yard.now_ms(), job_id, Verb.CANCEL, "ana"))
    yard.add(AttemptStopping(yard.now_ms(), job_id, 1, StopCause.CANCEL))
    yard.time_ms += 9000
    yard.end(job_id, Outcome.CANCELLED, 143)
    (row,) = yard.views.history(Filter(), None, None, 9)[0]
    assert ("CANCELLED", "cancelled by ana (11 s before it ended)") == (row["state"], row["reason"])
