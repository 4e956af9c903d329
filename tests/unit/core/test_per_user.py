"""What one user may have, over the tenants that they name, and how many attempts a user and a node may have."""

import pytest

from gpuyard.control.wording import remedies_text
from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.explain.caps import find_caps
from gpuyard.core.explain.why import explain_why
from gpuyard.model import (
    ConfigSet,
    EndJobs,
    JobCancelled,
    JobSpec,
    RaiseAttempts,
    RaisePerUser,
    ReasonCode,
    Reservation,
    Settings,
)
from gpuyard.testing import BATCH, ask, node, nodes, tenant
from harness.machines.checked import CheckedYard
from harness.yard import Yard

LAB = tenant("lab", max_gpus_per_user=4000)
POLICIES = ["fifo", "strict-fifo", "default", "fair", "conservative"]


def capped(policy: str, count: int = 1, **most: int) -> Yard:
    return Yard(policy, nodes(count), settings=Settings(classes=(BATCH,), **most))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_user_gains_nothing_by_naming_other_tenants(policy: str) -> None:
    here = Yard(policy, nodes(4), [LAB, tenant("lab/vision"), tenant("other")])
    first = here.submit(3, tenant="lab/vision", user="ana")
    second = here.submit(3, tenant="lab/audio", user="ana")
    here.submit(2, tenant="lab", user="ana")
    bob = here.submit(4, tenant="lab/vision", user="bob")
    elsewhere = here.submit(8, tenant="other", user="ana")
    plan = here.step()

    assert {first, bob, elsewhere} == set(here.started(plan))
    assert ReasonCode.PER_USER is here.code(plan, second)
    here.end(first)
    here.step()
    assert {second, bob, elsewhere} == set(here.running())
    lab = here.state.tenants.number["lab"]
    assert 4000 == find_caps(here.state, lab, here.now_ms).max_gpus_per_user_milli
    assert 4000 == find_caps(here.state, lab, here.now_ms).most_per_user_milli


def test_a_tenant_without_members_holds_each_of_its_users_to_it() -> None:
    here = Yard("fifo", nodes(2), [LAB])
    jobs = [here.submit(3, tenant="lab", user=user) for user in ("ana", "ana", "bob")]
    here.step()

    assert [jobs[0], jobs[2]] == here.running()
    found = explain_why(here.state, here.policy, jobs[1], here.now_ms)
    assert found is not None
    (reason,) = found.reasons
    assert "each user of lab may use 4 GPUs, and ana would use 6 (uses 3, asks for 3)" == reason.text
    assert "jobs of ana ending, or more for each user of lab (max_gpus_per_user)" == remedies_text(
        reason.lifted_by
    )
    assert RaisePerUser("lab", 6000) == reason.lift
    never_starts = impossible_reason(here.state, JobSpec("lab", ask(5), user="ana"))
    assert never_starts is not None
    assert ReasonCode.PER_USER is never_starts.code


@pytest.mark.parametrize("policy", POLICIES)
def test_one_user_has_so_many_attempts_at_a_time(policy: str) -> None:
    here = capped(policy, attempts_per_user=2)
    mine = [here.submit(ask(0), tenant=f"t{number}", user="ana") for number in range(4)]
    theirs = here.submit(1, user="bob")
    plan = here.step()

    assert ReasonCode.PER_USER is here.code(plan, mine[2])
    assert mine[:2] == [job for job in here.running() if job in mine]
    assert theirs in here.running()
    found = explain_why(here.state, here.policy, mine[2], here.now_ms)
    assert found is not None
    reason = next(each for each in found.reasons if each.code is ReasonCode.PER_USER)
    assert "ana runs 2 jobs, and one user may run 2 at a time" == reason.text
    assert "a job of ana ending, or more for each user (attempts_per_user)" == remedies_text(reason.lifted_by)
    assert RaiseAttempts(3) == reason.lift
    here.end(mine[0])
    here.step()
    assert mine[1:3] == [job for job in here.running() if job in mine]
    here.apply(ConfigSet(here.now_ms, Settings(classes=(BATCH,))))
    here.step()
    assert {*mine[1:], theirs} == set(here.running())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_has_so_many_attempts_at_a_time(policy: str) -> None:
    here = capped(policy, 2, attempts_per_node=3)
    jobs = [here.submit(ask(0), user=f"u{number}") for number in range(7)]
    here.step()

    assert jobs[:6] == here.running()
    assert [3, 3] == [len(on) for on in here.state.nodes.attempts_on]
    found = explain_why(here.state, here.policy, jobs[6], here.now_ms)
    assert found is not None
    (reason,) = found.reasons
    assert (ReasonCode.ROOM, EndJobs) == (reason.code, type(reason.lift))
    assert "2 nodes have 3 jobs each, as many as one may have" in reason.text
    here.end(jobs[2])
    assert [jobs[6]] == here.started(here.step())
    assert not here.step().starts


def test_a_full_node_is_one_of_several() -> None:
    here = Yard(
        "fifo", [node("small", gpus=0), node("big")], settings=Settings(classes=(BATCH,), attempts_per_node=1)
    )
    first, second = here.submit(ask(0)), here.submit(8)
    third = here.submit(1)
    here.step()

    assert [first, second] == here.running()
    found = explain_why(here.state, here.policy, third, here.now_ms)
    assert found is not None
    assert any("node big has 1 job, as many as one may have" in reason.text for reason in found.reasons)


@pytest.mark.parametrize("name", ["fifo", "default"])
def test_a_full_node_is_promised_from_when_it_takes_another(name: str) -> None:
    few = Settings(classes=(BATCH,), attempts_per_node=2)
    here = CheckedYard(name, [node("one")], settings=few)
    here.submit(4, limit_ms=10_000)
    here.submit(1, limit_ms=5_000)
    here.step()
    small = here.submit(1, limit_ms=30_000)
    plan = here.step()
    assert Reservation(small, 5_000) == plan.reservations[0]

    here.now_ms = 1_000
    here.apply(JobCancelled(here.now_ms, small))
    large = here.submit(8, limit_ms=1_000)
    assert Reservation(large, 10_000) == here.step().reservations[0]


def test_a_lower_cap_stops_nobody() -> None:
    here = capped("fifo")
    jobs = [here.submit(ask(0), user="ana") for _ in range(4)]
    here.step()
    here.apply(ConfigSet(here.now_ms, Settings(classes=(BATCH,), attempts_per_node=2, attempts_per_user=2)))
    late = here.submit(ask(0), user="ana")
    for ends in jobs[:2]:
        assert not here.step().starts
        here.end(ends)
    assert not here.step().starts
    here.end(jobs[2])
    assert [late] == here.started(here.step())
