"""A gang that has waited long enough comes by age in its team. Between teams the fair share decides as ever."""

from dataclasses import replace

import pytest

from gpuyard.core.explain.share import position_text
from gpuyard.core.jobs.queue import count_ahead, list_ids_in_order, walk_in_order
from gpuyard.core.state.dump import derived, dump, load
from gpuyard.model import (
    AttemptStopping,
    Job,
    JobCancelled,
    JobSpec,
    PolicySpec,
    Settings,
    StopCause,
    TasksSubmitted,
)
from gpuyard.policies.registry import GANGS, PRESETS, find_gangs, with_gangs
from gpuyard.testing import BATCH, ask, nodes
from harness.machines.checked import CheckedYard

S = 1000
TURN_MS = 60 * S
FAIR = PolicySpec("fair", order=("fair",), turn_ms=TURN_MS)
PLAIN = Settings(classes=(BATCH,), half_life_ms=600 * S, period_ms=10 * S)


def line(here: CheckedYard) -> list[int]:
    return list_ids_in_order(here.state.queue)


def a_busy_user(policy: PolicySpec = FAIR) -> CheckedYard:
    """Jobs 1 and 2 of ana fill the fleet for ever. Then she submits a gang, job 3, and later ben a small job, 4."""
    here = CheckedYard(policy, nodes(2), settings=PLAIN)
    for _ in range(2):
        here.submit(8, tenant="research/ana")
    here.step()
    here.submit(ask(8, tasks=2), tenant="research/ana")
    here.wait(40 * S)
    here.submit(8, tenant="research/ben")
    here.step()
    return here


def test_before_its_turn_the_user_who_had_less_goes_first() -> None:
    here = a_busy_user()
    assert [4, 3] == line(here)
    here.wait(19 * S)
    here.step()
    assert [4, 3] == line(here)


def test_after_its_turn_a_gang_goes_by_age_in_its_team() -> None:
    here = a_busy_user()
    here.wait(20 * S)
    plan = here.step()
    assert [3, 4] == line(here)
    assert 3 == plan.examined[0]
    # Its user's own line has lost it, and nobody is counted twice.
    queue, jobs = here.state.queue, here.state.jobs
    assert [0, 1] == [count_ahead(queue, jobs[job_id]) for job_id in line(here)]
    assert 2 == queue.count == len(list(walk_in_order(queue)))


def test_the_room_that_comes_free_is_gathered_for_it() -> None:
    """Before its turn, every node that ends goes to the users who had less; after it, the gang has a promise."""
    here = a_busy_user()
    here.wait(20 * S)
    here.end(1)
    plan = here.step()
    assert ((), 3) == (plan.starts, plan.reservations[0].job_id)
    here.end(2)
    assert [3] == [start.job_id for start in here.step().starts]


@pytest.mark.parametrize(("turn_ms", "starts"), [(0, False), (TURN_MS, True)])
def test_without_a_turn_it_starves(turn_ms: int, starts: bool) -> None:
    """Every ten seconds a node ends, and somebody who has had nothing submits a job for one."""
    here = a_busy_user(replace(FAIR, turn_ms=turn_ms))
    started: list[int] = []
    for number in range(12):
        here.wait(10 * S)
        here.end(min(here.state.running))
        here.submit(8, tenant=f"research/user-{number}")
        started += [start.job_id for start in here.step().starts]
    assert starts == (3 in started)


def test_between_teams_nothing_changes() -> None:
    """The gang's team has had more than the other one, whose job comes first however long the gang has waited."""
    here = a_busy_user()
    here.wait(100 * S)
    here.submit(8, tenant="product/eli")
    here.step()
    assert [5, 3, 4] == line(here)


def test_a_team_without_members_has_one_line_as_ever() -> None:
    here = CheckedYard(FAIR, nodes(1), settings=PLAIN)
    here.submit(8, tenant="solo")
    here.step()
    here.submit(4, tenant="solo")
    here.submit(2, tenant="solo")
    here.wait(100 * S)
    here.step()
    assert [2, 3] == line(here)


def test_the_order_follows_from_the_dump() -> None:
    here = a_busy_user()
    here.wait(20 * S)
    here.step()
    again = load(dump(here.state))
    again.reindex(here.policy.order)
    assert line(here) == list_ids_in_order(again.queue)
    assert derived(here.state)["queue"] == derived(again)["queue"]


def test_a_job_that_is_stopped_after_its_turn_is_by_age_at_once() -> None:
    here = a_busy_user()
    here.wait(100 * S)
    here.step()
    here.end(1)
    here.end(2)
    here.step()
    assert 3 in here.state.running
    here.apply(AttemptStopping(here.now_ms, 3, 1, StopCause.CLASS, 4))
    here.stop_confirmed(3)
    assert [3, 4] == line(here)


def test_other_jobs_stay_in_their_users_lines() -> None:
    here = a_busy_user()
    here.wait(100 * S)
    here.submit(8, tenant="research/chloe")
    here.step()
    assert 3 == line(here)[0]
    assert ["research", "research/ben", "research/chloe"] == [
        here.state.tenants.path[here.state.queue.line(here.state.jobs[job_id])] for job_id in (3, 4, 5)
    ]


def test_an_array_of_gangs_goes_by_age() -> None:
    here = a_busy_user()
    first = Job(6, JobSpec("research/ana", ask(8, tasks=2)), here.now_ms, array_id=5, array_index=1)
    here.apply(TasksSubmitted(here.now_ms, first, (1, 2, 3)))
    assert [4, 3, 6, 7, 8] == line(here)
    here.wait(100 * S)
    here.step()
    assert [3, 6, 7, 8, 4] == line(here)
    for job_id in (6, 7, 8):
        here.apply(JobCancelled(here.now_ms, job_id))
    assert [3, 4] == line(here)


def test_why_says_by_what_it_stands_where_it_does() -> None:
    here = a_busy_user()
    before = position_text(here.state, here.state.jobs[3])
    assert before == (
        "research/ana has had 100 % of what the members of research were charged, against its share of 50 %"
    )
    here.wait(20 * S)
    here.step()
    after = position_text(here.state, here.state.jobs[3])
    assert after == "after 1 min it comes by age in research, whichever member submitted it"
    here.submit(8, tenant="product/eli")
    above = position_text(here.state, here.state.jobs[3])
    assert above == (
        f"{after}; research has had 100 % of what the members of the yard were charged, against its share of 50 %"
    )


@pytest.mark.parametrize("word", GANGS)
def test_gangs_is_a_word_of_every_policy_with_fair_share(word: str) -> None:
    assert word == find_gangs(with_gangs(PRESETS["default"], word))
    assert PRESETS["fifo"] is with_gangs(PRESETS["fifo"], word)
    assert "balanced" == find_gangs(PRESETS["default"])
