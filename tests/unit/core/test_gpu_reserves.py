"""Jobs without GPUs: on nodes without GPUs where there are any, and never on what a pool reserves for its GPUs."""

from dataclasses import replace

import pytest

from gpuyard.core.explain.why import explain_why
from gpuyard.core.state.dump import derived, dump, load
from gpuyard.model import ConfigSet, GpuReserve, Settings
from gpuyard.policies import registry
from gpuyard.testing import ask, node, nodes
from harness.yard import Yard

RESERVE = {"main/pool": GpuReserve(6000, 65_536)}
"""Of the 64 cores of a node with 8 GPUs, 16 are left to jobs without GPUs."""
BACKFILLING = [name for name, spec in registry.PRESETS.items() if spec.backfill != "none"]


def yard(name: str = "default", *, gpu_nodes: int = 1, others: int = 0) -> Yard:
    """Nodes with 8 GPUs in a pool that reserves cores and memory, and some without GPUs in another."""
    plain = [node(f"cpu-{number}", 0, pool="plain", cpu_milli=8000) for number in range(others)]
    here = Yard(name, [*nodes(gpu_nodes), *plain], now_ms=1000)
    here.apply(ConfigSet(1000, replace(here.state.settings, reserves=RESERVE)))
    return here


def cores(number: int) -> object:
    return ask(0, cpu_milli=number * 1000)


@pytest.mark.parametrize("name", registry.PRESETS)
def test_jobs_without_gpus_go_on_nodes_without_gpus_first(name: str) -> None:
    here = yard(name, others=1)
    first, second = here.submit(cores(8)), here.submit(cores(8))
    plan = here.step()
    placed = {start.job_id: here.state.nodes.node[start.grants[0].node].gpus for start in plan.starts}
    assert {first: 0, second: 8} == placed


@pytest.mark.parametrize("name", BACKFILLING)
def test_they_do_so_behind_a_job_that_waits(name: str) -> None:
    here = yard(name, others=1)
    here.submit(ask(4), limit_ms=60_000)
    here.step()
    waits = here.submit(ask(8), limit_ms=60_000)
    small = here.submit(cores(8), limit_ms=10_000)
    plan = here.step()
    assert [small] == here.started(plan), waits
    assert 0 == here.state.nodes.node[plan.starts[0].grants[0].node].gpus


@pytest.mark.parametrize("name", BACKFILLING)
def test_they_leave_what_is_reserved(name: str) -> None:
    here = yard(name)
    first, second, third = [here.submit(cores(8), limit_ms=60_000) for _each in range(3)]
    assert [first, second] == sorted(here.started(here.step()))
    train = here.submit(ask(8, cpu_milli=48_000), limit_ms=60_000)
    assert [train] == here.started(here.step())
    here.end(first)
    assert [third] == here.started(here.step())
    assert second in here.state.running


def test_jobs_with_gpus_may_take_more_than_the_reserve() -> None:
    here = yard()
    train = here.submit(ask(1, cpu_milli=60_000))
    assert [train] == here.started(here.step())
    here.submit(cores(8))
    assert not here.step().starts


def test_why_says_what_is_left_beside_the_reserve() -> None:
    here = yard()
    for _each in range(2):
        here.submit(cores(8), limit_ms=60_000)
    here.step()
    waits = here.submit(cores(4))
    here.step()
    told = explain_why(here.state, here.policy, waits, here.now_ms)
    assert told is not None
    assert any(
        reason.text == "4 cores on one node: at most 0 cores free beside what its pool reserves for GPUs"
        for reason in told.reasons
    ), [reason.text for reason in told.reasons]
    assert 61_000 == told.start_ms


def test_a_job_that_no_node_could_hold_beside_the_reserve_is_told_so() -> None:
    here = yard()
    waits = here.submit(cores(20))
    here.step()
    told = explain_why(here.state, here.policy, waits, here.now_ms)
    assert told is not None
    (reason,) = told.reasons
    assert reason.text == (
        "asks for 20 cores on one node and no GPUs; beside what pools reserve for GPUs, a node has at most "
        "16 cores and 512 GiB"
    )


@pytest.mark.parametrize("name", BACKFILLING)
def test_what_is_promised_beside_the_reserve_is_kept(name: str) -> None:
    """The first job waits for all 16 cores: none that lasts longer may take those that come free before."""
    here = yard(name)
    soon = here.submit(cores(8), limit_ms=10_000)
    here.submit(cores(8), limit_ms=20_000)
    here.step()
    head = here.submit(cores(16), limit_ms=60_000)
    here.step()
    here.now_ms = 11_000
    here.end(soon)
    longer = here.submit(cores(4), limit_ms=60_000)
    train = here.submit(ask(8, cpu_milli=48_000), limit_ms=60_000)
    shorter = here.submit(cores(4), limit_ms=5000)
    assert {train, shorter} == set(here.started(here.step())), (head, longer)


def test_a_reserve_that_comes_later_stops_no_job() -> None:
    here = Yard("default", nodes(1), now_ms=1000)
    runs = here.submit(cores(40), limit_ms=60_000)
    here.step()
    here.apply(ConfigSet(1000, replace(here.state.settings, reserves=RESERVE)))
    waits = here.submit(cores(1), limit_ms=60_000)
    assert not here.step().starts
    assert runs in here.state.running
    assert (-24_000, 512 * 1024) == here.state.nodes.beside[0]
    here.end(runs)
    assert [waits] == here.started(here.step())


def test_a_dump_has_the_same_room_beside_the_reserve() -> None:
    here = yard()
    here.submit(cores(8))
    here.step()
    again = load(dump(here.state))
    again.reindex(here.state.queue.order)
    assert derived(again) == derived(here.state)


def test_without_a_reserve_nothing_is_kept() -> None:
    here = Yard("default", nodes(1), now_ms=1000)
    assert {} == Settings().reserves == here.state.nodes.beside
    waits = here.submit(cores(64))
    assert [waits] == here.started(here.step())
