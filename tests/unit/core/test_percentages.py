"""Quotas in percent: of what they are a part, and when they become another number of GPUs."""

import json

import pytest

from gpuyard.core import apply, dump, explain, load
from gpuyard.core.quota.percentages import percentage_words, resolve
from gpuyard.model import (
    ConfigSet,
    NodeAdded,
    NodeChanged,
    NodeDown,
    Percentage,
    Quota,
    ReasonCode,
    Settings,
    Tenant,
)
from gpuyard.testing import BATCH, node, nodes, tenant
from harness.yard import Yard

GPUS = {("big", "H100"): 10, ("big", "A100-80GB"): 4, ("small", "H100"): 3}


def in_percent(path: str, **kinds: dict[str, Percentage]) -> Tenant:
    return Tenant(path, quota=Quota(percentages=kinds))


def part(percent: int, pool: str = "") -> Percentage:
    return Percentage(percent * 1000, pool)


def used(here: Yard, path: str) -> int:
    tenants = here.state.tenants
    return tenants.used[tenants.number[path]][0] // 1000


@pytest.mark.parametrize(
    ("key", "given", "gpus"),
    [
        ("total", part(50), 8),  # 8.5 of 17
        ("H100", part(25), 3),  # 3.25 of 13
        ("total", part(50, "big"), 7),
        ("H100", part(99, "small"), 2),
        ("H100", part(100, "gone"), 0),
        ("total", Percentage(33_333), 5),
    ],
)
def test_a_percentage_is_of_the_fleet_a_model_or_a_pool_and_rounded_down(
    key: str, given: Percentage, gpus: int
) -> None:
    quota = resolve(Quota(percentages={"limit": {key: given}}), GPUS)

    assert ({key: gpus * 1000}, {}) == (quota.limit, quota.percentages)


def test_a_guarantee_of_models_in_percent_is_one_in_total_too() -> None:
    parts = {"H100": part(50), "A100-80GB": part(50)}
    quota = resolve(Quota(percentages={"guarantee": parts}), GPUS)

    assert {"H100": 6000, "A100-80GB": 2000, "total": 8000} == quota.guarantee


def test_forty_percent_and_sixty_more_are_all_of_it() -> None:
    """Rounded down each by itself, a GPU of eight would be nobody's."""
    parts = {"guarantee": {"total": part(40)}, "borrow": {"total": part(60)}}
    quota = resolve(Quota(percentages=parts), {("p", "H100"): 8})
    assert (3000, 5000) == (quota.guarantee["total"], quota.borrow["total"])

    of_others = {"guarantee": {"total": part(40, "q")}, "borrow": {"total": part(60)}}
    assert 4000 == resolve(Quota(percentages=of_others), {("p", "H100"): 8}).borrow["total"]


def test_it_is_told_of_what_it_is_a_part() -> None:
    assert "25% of 13 H100" == percentage_words(part(25), "H100", GPUS)
    assert "12.5% of 14 GPUs of big" == percentage_words(Percentage(12_500, "big"), "total", GPUS)


def test_a_node_more_is_more_quota_and_a_node_that_is_down_is_not_less() -> None:
    here = Yard("fifo", nodes(2), [in_percent("a", limit={"total": part(50)})])
    first = here.submit(8, tenant="a")
    second = here.submit(4, tenant="a")
    plan = here.step()
    assert ([first], ReasonCode.LIMIT) == (here.started(plan), here.code(plan, second))

    here.apply(NodeDown(here.now_ms, 1, "broken"))
    assert ReasonCode.LIMIT is here.code(here.step(), second)
    assert 8 == used(here, "a")

    here.apply(NodeAdded(here.now_ms, node("one-more")))
    assert [second] == here.started(here.step())


def test_a_node_with_other_gpus_changes_the_quotas_of_models() -> None:
    tenants = [in_percent("a", limit={"H100": part(50)})]
    here = Yard("fifo", nodes(2), tenants)
    apply(here.state, NodeChanged(here.now_ms, 1, node("h100-1", 8, "A100-80GB")))

    number = here.state.tenants.number["a"]
    assert 4000 == here.state.tenants.limit[number][1 + here.state.models["H100"]]


def test_what_is_not_lent_grows_with_the_fleet() -> None:
    """Held back is half of the fleet: 4 of 8 at first, 8 of 16 once there is another node."""
    here = Yard("fifo", nodes(1), [in_percent("a", guarantee={"total": part(50)}, lend={"total": part(0)})])
    other = here.submit(5, tenant="b")
    assert ReasonCode.HELD_BACK is here.code(here.step(), other)

    here.apply(NodeAdded(here.now_ms, node("one-more")))
    assert [other] == here.started(here.step())
    one_more = here.submit(4, tenant="b")
    assert ReasonCode.HELD_BACK is here.code(here.step(), one_more)


def test_forty_percent_nominal_and_sixty_borrowed() -> None:
    """Document 003: team A has 40 % and borrows up to 60 % while others are idle; then they take theirs back."""
    team_a = in_percent("a", guarantee={"total": part(40)}, borrow={"total": part(60)})
    team_b = in_percent("b", guarantee={"total": part(60)})
    here = Yard("default", nodes(1, gpus=10), [team_a, team_b])
    jobs = [here.submit(2, tenant="a") for _ in range(5)]
    assert jobs == here.started(here.step())
    here.wait(600_000)

    back = here.submit(6, tenant="b")
    stopped = [stop.job_id for stop in here.step().stops]
    assert 3 == len(stopped)
    for job in stopped:
        here.stop_confirmed(job)
    assert [back] == here.started(here.step())
    assert (4, 6) == (used(here, "a"), used(here, "b"))


def test_why_says_the_percentage_and_what_would_help() -> None:
    here = Yard("fifo", nodes(2), [in_percent("team", limit={"total": part(30)})])
    job = here.submit(6, tenant="team")
    [reason] = explain(here.state, here.policy, job, here.now_ms).reasons

    assert (
        "team would be 2 GPUs over its limit of 4, which is 30% of 16 GPUs (uses 0, asks for 6)"
        == reason.text
    )


def test_a_dump_keeps_the_percentage() -> None:
    here = Yard("fifo", nodes(2), [in_percent("a", limit={"total": part(50)})])
    again = load(json.loads(json.dumps(dump(here.state))))

    assert here.state.settings == again.settings
    assert 8000 == again.tenants.limit[again.tenants.number["a"]][0]
    here.apply(ConfigSet(here.now_ms, Settings(tenants=(tenant("a", limit=3),), classes=(BATCH,))))
    assert 3000 == here.state.tenants.limit[here.state.tenants.number["a"]][0]
