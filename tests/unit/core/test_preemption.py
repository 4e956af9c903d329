"""Room made by force: who is stopped, for whom, and what is kept until it is free."""

from dataclasses import replace

import pytest

from gpuyard.model import (
    AttemptStopping,
    CheckpointSeen,
    ConfigSet,
    EarmarkDropped,
    JobClass,
    JobHeld,
    JobReleased,
    JobState,
    JobSuspended,
    NodeDown,
    Outcome,
    Plan,
    ReasonCode,
    Reservation,
    Settings,
    StopCause,
)
from gpuyard.testing import BATCH, URGENT, ask, node, nodes, share, tenant
from harness.machines.checked import CheckedYard
from harness.yard import Yard

S = 1000


def stopped(plan: Plan) -> list[int]:
    return [stop.job_id for stop in plan.stops]


def two_full_nodes(policy: str = "class", **first: int) -> Yard:
    """Jobs 1 and 2 fill a node each for a minute; the first may be unlike the second."""
    here = CheckedYard(policy, nodes(2))
    here.submit(8, limit_ms=60 * S, **first)
    here.submit(8, limit_ms=60 * S)
    here.step()
    return here


# -- whom ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "at_s", "victim"),
    [
        ({}, 10, 1),
        ({"checkpoint_ms": 4 * S}, 10, 1),
        ({"checkpoint_ms": 4 * S, "restart_cost_ms": 9 * S}, 10, 2),
        ({"checkpoint_ms": 10 * S, "restart_cost_ms": S}, 19, 1),
        ({"checkpoint_ms": 10 * S, "restart_cost_ms": 11 * S}, 19, 2),
    ],
)
def test_the_least_work_is_destroyed(first: dict[str, int], at_s: int, victim: int) -> None:
    """Time since the last checkpoint and the restart count; the lower id among equals."""
    here = two_full_nodes(**first)
    here.now_ms = at_s * S
    here.submit(8, klass="urgent")
    assert [victim] == stopped(here.step())


def test_a_reported_checkpoint_counts() -> None:
    here = two_full_nodes()
    here.now_ms = 10 * S
    here.apply(CheckpointSeen(here.now_ms, 2, 1, 9 * S))
    here.submit(8, klass="urgent")
    assert [2] == stopped(here.step())


def test_a_job_that_its_user_has_suspended_gives_way_like_any_other() -> None:
    """Its time limit waits: it would keep what others have a right to for as long as its user likes."""
    here = CheckedYard("class", nodes(1))
    here.submit(8, limit_ms=60 * S)
    here.step()
    here.apply(JobSuspended(here.now_ms, 1))
    here.now_ms = 10 * S
    urgent = here.submit(8, klass="urgent")
    assert [1] == stopped(here.step())
    here.end(1, Outcome.PREEMPTED)
    assert [urgent] == [start.job_id for start in here.step().starts]
    assert JobState.PENDING is here.state.jobs[1].state


def test_small_victims_are_spared_where_one_is_enough() -> None:
    """Four jobs of two GPUs run on one node; who wants two takes one of them."""
    here = CheckedYard("class", nodes(1))
    for _ in range(4):
        here.submit(2)
    here.step()
    here.now_ms = S
    here.submit(2, klass="urgent")
    assert [1] == stopped(here.step())


def test_nobody_is_stopped_where_there_is_room() -> None:
    here = CheckedYard("class", nodes(2))
    here.submit(8)
    here.step()
    here.now_ms = S
    plan_of = here.submit(8, klass="urgent")
    assert [plan_of] == here.started(here.step())


def test_neither_equals_nor_the_protected_are_stopped() -> None:
    classes = (BATCH, replace(URGENT, preemptible=True), JobClass("stable", 5, preemptible=False))
    here = CheckedYard("class", nodes(2), settings=Settings(classes=classes))
    here.submit(8, klass="urgent")
    here.submit(8, klass="stable")
    here.step()
    here.now_ms = S
    here.submit(8, klass="urgent")
    assert () == here.step().stops


def test_protection_doubles_with_every_preemption() -> None:
    here = CheckedYard(
        "class", nodes(1), settings=Settings(classes=(replace(BATCH, min_run_ms=4 * S), URGENT))
    )
    victim = here.submit(8)
    for protected_s in (4, 8, 16):
        here.step()
        urgent = here.submit(8, klass="urgent")
        here.now_ms += protected_s * S - 1
        assert () == here.step().stops
        here.now_ms += 1
        assert [victim] == stopped(here.step())
        here.stop_confirmed(victim)
        assert [urgent] == here.started(here.step())
        here.end(urgent)


def test_a_much_longer_job_makes_room_under_srtf() -> None:
    """Four times as long, and a moment more."""
    for limit_s, wanted in ((10, [1]), (15, [])):
        here = CheckedYard("srtf", nodes(1))
        here.submit(8, limit_ms=60 * S)
        here.step()
        here.now_ms = S
        here.submit(8, limit_ms=limit_s * S)
        assert wanted == stopped(here.step())


# -- guarantees ------------------------------------------------------------------------------------------------------

PAIR = [tenant("a", guarantee=8), tenant("b", guarantee=8)]


def borrowed(policy: str = "fair") -> Yard:
    """Tenant a runs two jobs of eight GPUs; eight of them belong to b."""
    here = CheckedYard(policy, nodes(2), PAIR)
    for _ in range(2):
        here.submit(8, tenant="a")
    here.step()
    here.now_ms = S
    return here


def test_a_guarantee_is_taken_back_and_no_more() -> None:
    """Two jobs of b ask at once. One is within its guarantee; with both, a would lose what it was promised itself."""
    here = borrowed()
    first, second = here.submit(8, tenant="b"), here.submit(8, tenant="b")
    plan = here.step()
    assert [1] == stopped(plan)
    assert [first] == [earmark.job_id for earmark in plan.earmarks]
    assert ReasonCode.EARMARK is not here.code(plan, second)
    here.now_ms += S
    assert () == here.step().stops


def test_two_tenants_do_not_take_back_the_same_gpus() -> None:
    """a borrows four of b's and four of c's. Each takes its own; what is leaving already is not a's any more."""
    here = CheckedYard(
        "fair",
        nodes(4, gpus=4),
        [tenant("a", guarantee=8), tenant("b", guarantee=4), tenant("c", guarantee=4)],
    )
    for _ in range(4):
        here.submit(4, tenant="a")
    here.step()
    here.now_ms = S
    here.submit(4, tenant="b")
    assert 1 == len(here.step().stops)
    here.submit(4, tenant="c")
    assert 1 == len(here.step().stops)
    here.submit(4, tenant="b")
    here.submit(4, tenant="c")
    assert () == here.step().stops


def test_a_class_takes_nobody_below_a_guarantee() -> None:
    """Two urgent jobs of c: one takes what a has borrowed, the other would take what a is promised."""
    here = CheckedYard("class", nodes(2), [tenant("a", guarantee=8)])
    for _ in range(2):
        here.submit(8, tenant="a")
    here.step()
    here.now_ms = S
    for _ in range(2):
        here.submit(8, tenant="c", klass="urgent")
    assert [1] == stopped(here.step())
    here.now_ms += S
    assert () == here.step().stops


def test_within_a_tenant_a_class_counts_alone() -> None:
    here = CheckedYard("class", nodes(1), [tenant("a", guarantee=8)])
    here.submit(8, tenant="a")
    here.step()
    here.now_ms = S
    here.submit(8, tenant="a", klass="urgent")
    assert [1] == stopped(here.step())


def test_who_is_over_its_limit_stops_its_own() -> None:
    here = CheckedYard("class", nodes(2), [tenant("a", limit=8)])
    here.submit(8, tenant="a")
    here.step()
    here.now_ms = S
    here.submit(8, tenant="a", klass="urgent")
    assert [1] == stopped(here.step())


def test_quota_that_is_leaving_is_not_made_free_twice() -> None:
    """Limit 8. Job 1 was told to stop for the first urgent one; the second must not stop job 2 in vain."""
    here = CheckedYard("class", nodes(2), [tenant("a", limit=8)])
    for _ in range(2):
        here.submit(4, tenant="a")
    here.step()
    here.now_ms = S
    for _ in range(3):
        here.submit(4, tenant="a", klass="urgent")
    assert [1, 2] == stopped(here.step())


# -- earmarks --------------------------------------------------------------------------------------------------------


def stopping() -> Yard:
    """Job 1 was told to stop, and its node is kept for job 2, urgent."""
    here = CheckedYard("class", nodes(1))
    here.submit(8)
    here.step()
    here.now_ms = S
    here.submit(8, klass="urgent")
    here.step()
    return here


def test_gpus_are_free_only_once_the_stop_is_confirmed() -> None:
    here = stopping()
    here.now_ms += 60 * S
    assert [1] == here.running()
    assert () == here.step().starts
    here.stop_confirmed(1)
    assert [2] == here.started(here.step())


def test_what_is_kept_is_kept_from_others() -> None:
    here = stopping()
    other = here.submit(1, klass="urgent")
    here.step()
    here.stop_confirmed(1)
    assert [2] == here.started(here.step())
    assert ReasonCode.ROOM is here.code(here.plans[-1], other)


def test_an_earmark_that_expires_frees_its_room() -> None:
    here = stopping()
    here.stop_confirmed(1)
    here.apply(NodeDown(here.now_ms, 0, "failed"))
    assert () == here.step().starts
    here.wait(20 * 60 * S)
    assert {} == here.state.earmarks
    assert [8000] == [sum(row) for row in here.state.nodes.gpu_free]


@pytest.mark.parametrize("what", [JobHeld, EarmarkDropped])
def test_what_was_kept_for_a_job_on_hold_is_given_up(what: type) -> None:
    here = stopping()
    here.apply(what(here.now_ms, 2))
    here.stop_confirmed(1)
    assert (1 if what is JobHeld else 2) in here.started(here.step())


def test_a_start_and_an_earmark_on_one_node_are_both_committed() -> None:
    """The earmark overdraws the node's cores until its victim is gone. The start beside it was decided before."""
    here = CheckedYard("class", [node(gpus=4, cpu_milli=16_000)])
    here.submit(ask(1, 3, cpu_milli=5000))
    here.step()
    here.now_ms = S
    beside = here.submit(ask(1), klass="urgent")
    here.submit(share(700, cpu_milli=5000), klass="urgent")
    plan = here.step()
    assert ([beside], [1]) == (here.started(plan), stopped(plan))


def test_a_node_whose_cores_are_overdrawn_takes_nobody() -> None:
    """Not even a gang that asks for no cores at all: at the commit it would be refused."""
    here = CheckedYard("class", nodes(2, gpus=4, cpu_milli=16_000))
    for _ in range(2):
        here.submit(ask(1, 3, cpu_milli=5000))
    here.step()
    here.now_ms = S
    here.submit(share(700, cpu_milli=5000), klass="urgent")
    assert [1] == stopped(here.step())
    gang = here.submit(ask(1, 2, nodes_max=2), klass="urgent")
    plan = here.step()
    assert [] == here.started(plan)
    assert ReasonCode.NOT_EXAMINED is not here.code(plan, gang)


def test_an_earmarked_job_starts_only_within_its_quota() -> None:
    """While its victim stops, its tenant's quota is cut, and others begin to hold back."""
    for changed in (tenant("b", limit=4), tenant("c", guarantee=8, lend=0)):
        here = CheckedYard("class", nodes(1), [tenant("b")])
        here.submit(8, tenant="a")
        here.step()
        here.now_ms = S
        urgent = here.submit(8, tenant="b", klass="urgent")
        assert [1] == stopped(here.step())
        here.apply(ConfigSet(here.now_ms, replace(here.state.settings, tenants=(changed,))))
        here.stop_confirmed(1)
        assert urgent not in here.started(here.step())


def test_a_job_being_cancelled_does_not_come_back_when_its_node_fails() -> None:
    here = CheckedYard("fifo", nodes(2))
    job = here.submit(8)
    here.step()
    here.apply(AttemptStopping(0, job, 1, StopCause.CANCEL))
    here.apply(NodeDown(0, 0, "failed"))
    here.end(job, Outcome.NODE_FAIL)
    assert () == here.step().starts
    assert {job: JobState.CANCELLED} == here.books.ended
    assert {} == here.state.jobs


def test_a_promise_worked_out_between_two_tries_is_not_taken_for_a_later_one() -> None:
    """A try that is taken back leaves no trace: the promise to the larger job sees what is kept for the smaller."""
    protected = replace(BATCH, min_run_ms=2 * S)
    tenants = (tenant("a"), tenant("a/x", guarantee=2, limit=4, borrow=2))
    settings = Settings(tenants=tenants, classes=(protected, URGENT))
    here = CheckedYard("fair", nodes(1, gpus=4), settings=settings)
    here.submit(1, tenant="a", limit_ms=10 * S)
    here.step()
    here.now_ms = 2 * S
    for limit_ms in (S, 60 * S, 60 * S, 60 * S, 60 * S):
        here.submit(1, tenant="a", limit_ms=limit_ms)
    here.step()
    larger = here.submit(2, tenant="a/x", limit_ms=10 * S)
    here.step()
    here.submit(1, tenant="a/x", limit_ms=10 * S)
    assert [1] == stopped(here.step())
    assert (Reservation(larger, 62 * S),) == here.step().reservations


def test_who_waits_for_its_earmark_is_told_so_behind_one_that_has_no_room() -> None:
    here = CheckedYard("class", nodes(2))
    victim = here.submit(8)
    here.submit(8, klass="urgent")
    here.step()
    here.now_ms = 10 * S
    ahead = here.submit(4, klass="urgent")
    here.apply(JobHeld(here.now_ms, ahead))
    second = here.submit(8, klass="urgent")
    (earmark,) = here.step().earmarks
    here.apply(NodeDown(here.now_ms, earmark.grants[0].node, "failed"))
    here.end(victim, Outcome.NODE_FAIL)
    here.apply(JobReleased(here.now_ms, ahead))
    for _ in range(2):
        plan = here.step()
        assert [ReasonCode.ROOM, ReasonCode.EARMARK] == [here.code(plan, ahead), here.code(plan, second)]
        here.submit(1)
