"""NUMA domains: GPUs of one domain first, then of the fewest; and jobs that require one."""

import pytest

from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.explain.why import explain_why
from gpuyard.core.fleet.bits import choose_gpus, choose_in_domains, tasks_in_domains
from gpuyard.core.fleet.fixed_choice import choose_gpus as choose_for_good
from gpuyard.model import Ask, AskFor, JobSpec
from gpuyard.policies import registry
from gpuyard.testing import ask, nodes
from harness.yard import Yard

BACKFILLING = [name for name, spec in registry.PRESETS.items() if spec.backfill != "none"]


def single(gpus: int, tasks: int = 1, **fields: object) -> Ask:
    return ask(gpus, tasks, one_domain=True, **fields)


def taken(here: Yard, job_id: int) -> int:
    return here.state.jobs[job_id].grants[0].gpus


def halves(name: str = "default") -> Yard:
    """A node with two domains of four GPUs, one GPU of each taken for a while."""
    here = Yard(name, nodes(1, numa_domains=2), now_ms=1000)
    for _domain in range(2):
        for gpus, limit_ms in ((1, 30_000), (3, 60_000)):
            here.submit(ask(gpus), limit_ms=limit_ms)
            here.step()
    for job_id in (2, 4):
        here.end(job_id)
    return here


@pytest.mark.parametrize("choose", [choose_gpus, choose_for_good])
def test_gpus_come_from_one_domain_though_nvlink_joins_smaller_groups(choose: object) -> None:
    # Pairs are linked; the second pair of the first domain is free, and both of the second domain.
    assert 0b1111_0000 == choose(0b1111_1100, 4, 4, 8, 2)  # type: ignore[operator]
    assert 0b0011_0000 == choose(0b0111_0100, 2, 4, 8, 2)  # type: ignore[operator]


def test_tasks_are_dealt_out_to_domains() -> None:
    assert 2 == tasks_in_domains(0b0111_0111, 3, 4)
    assert 0 == tasks_in_domains(0b0011_0001, 3, 4)
    assert 0b0111_0111 == choose_in_domains(0b1111_0111, 2, 3, 4, 0, 8)


@pytest.mark.parametrize("name", BACKFILLING)
def test_a_job_that_requires_one_domain_waits_for_it(name: str) -> None:
    here = halves(name)
    assert 0b0001_0001 == 0xFF & ~here.state.nodes.free_mask[0]
    apart, waits = here.submit(ask(4), limit_ms=20_000), here.submit(single(4), limit_ms=60_000)
    assert [apart] == here.started(here.step())
    here.now_ms = 31_000
    for job_id in [*here.state.running]:
        here.end(job_id)
    assert [waits] == here.started(here.step())
    assert taken(here, waits) in (0b0000_1111, 0b1111_0000)


@pytest.mark.parametrize("name", BACKFILLING)
def test_what_is_promised_to_it_is_kept(name: str) -> None:
    here = halves(name)
    waits = here.submit(single(4), limit_ms=60_000)
    here.step()
    for _each in range(4):
        here.submit(ask(1), limit_ms=90_000)
    plan = here.step()
    # Three GPUs of the other domain are not promised.
    assert (waits, 31_000) == (plan.reservations[0].job_id, plan.reservations[0].at_ms)
    assert 3 == len(here.started(plan))


def test_a_gang_has_each_task_in_one_domain() -> None:
    here = Yard("default", nodes(2, numa_domains=2), now_ms=1000)
    gang = here.submit(single(3, 4))
    assert [gang] == here.started(here.step())
    assert [0b0111_0111, 0b0111_0111] == [grant.gpus for grant in here.state.jobs[gang].grants]


def test_why_says_how_many_gpus_a_domain_has() -> None:
    here = halves()
    waits = here.submit(single(4))
    here.step()
    told = explain_why(here.state, here.policy, waits, here.now_ms)
    assert told is not None
    assert (
        "4 x H100 on one node, in one NUMA domain: 1 node has the GPUs, and at most 3 of them in one domain"
        in [reason.text for reason in told.reasons]
    )
    (change, *_others) = [each.lift for each in told.helps]
    assert isinstance(change, AskFor)
    assert not change.ask.one_domain


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (single(5), "asks for 5 GPUs in one NUMA domain; the largest domain of a node has 4"),
        (
            single(1, cpu_milli=40_000),
            "asks for 1 GPU in one NUMA domain; no domain has the cores and the memory of a task too",
        ),
    ],
)
def test_a_job_that_no_domain_could_hold_is_told_so(wanted: Ask, says: str) -> None:
    here = Yard("default", nodes(1, numa_domains=2), now_ms=1000)
    reason = impossible_reason(here.state, JobSpec("", wanted))
    assert reason is not None
    assert says == reason.text


def test_nodes_without_gpus_have_no_domain_to_ask_for() -> None:
    here = Yard("default", [*nodes(1, 0, "none"), *nodes(2)])
    job = here.submit(single(4))
    here.step()
    assert 0b1111 == taken(here, job)
