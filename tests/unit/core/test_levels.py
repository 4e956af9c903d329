"""Switches, racks and fabrics: how near to each other the nodes of a gang are, and who waits for near ones."""

from dataclasses import replace

import pytest

from gpuyard.core.explain.admission import impossible_reason
from gpuyard.core.explain.why import explain_why
from gpuyard.core.state.dump import canonical, derived, dump, load
from gpuyard.model import AskFor, JobChanged, JobSpec, Level, Node, Ticked
from gpuyard.policies import registry
from gpuyard.testing import ask, node
from harness.yard import Yard

BACKFILLING = [name for name, spec in registry.PRESETS.items() if spec.backfill != "none"]


def fleet(
    switches: int = 2, *, each: int = 4, racks: int = 1, fabrics: tuple[str, ...] = ("",)
) -> list[Node]:
    """Nodes with 8 GPUs, so many on a switch, the switches dealt out to racks and fabrics in order."""
    return [
        node(
            f"n{switch}{place}",
            switch=f"sw{switch}",
            rack=f"r{switch * racks // switches}",
            fabric=fabrics[switch * len(fabrics) // switches],
        )
        for switch in range(switches)
        for place in range(each)
    ]


def near(nodes: int, level: Level = Level.SWITCH, **fields: object) -> object:
    return ask(8, nodes, level=level, **{"level_required": True, **fields})


def fill(here: Yard, *names: str) -> None:
    for name in names:
        here.submit(ask(8, on_nodes=(name,)), limit_ms=60_000)
    here.step()


def placed(here: Yard, job_id: int) -> list[str]:
    return [here.state.nodes.node[grant.node].name for grant in here.state.jobs[job_id].grants]


@pytest.mark.parametrize("name", BACKFILLING)
def test_a_gang_that_requires_a_switch_waits_for_one(name: str) -> None:
    here = Yard(name, fleet(), now_ms=1000)
    fill(here, "n00", "n10")
    waits, apart = here.submit(near(4), limit_ms=60_000), here.submit(ask(8, 4), limit_ms=30_000)
    assert [apart] == here.started(here.step())
    here.now_ms = 61_000
    for job_id in [*here.state.running]:
        here.end(job_id)
    assert [waits] == here.started(here.step())
    assert 1 == len({place[:2] for place in placed(here, waits)})


def test_a_preferred_level_keeps_nobody_waiting() -> None:
    here = Yard("default", fleet(), now_ms=1000)
    fill(here, "n00", "n10")
    wished = here.submit(near(4, level_required=False))
    assert [wished] == here.started(here.step())


def test_a_preferred_level_goes_before_a_cheaper_model() -> None:
    others = [replace(each, name=f"t{each.name}", gpu_model="T4", switch="t", rack="t") for each in fleet(1)]
    here = Yard("default", [*fleet(), *others], now_ms=1000)
    fill(here, "tn00", "n10")
    wished = here.submit(near(4, level_required=False))
    plain = here.submit(ask(8, 3))
    here.step()
    assert ["n00", "n01", "n02", "n03"] == placed(here, wished)
    assert ["tn01", "tn02", "tn03"] == placed(here, plain)


@pytest.mark.parametrize("name", BACKFILLING)
def test_no_gang_is_on_two_fabrics(name: str) -> None:
    here = Yard(name, fleet(2, fabrics=("ib0", "ib1")), now_ms=1000)
    fill(here, "n00", "n10")
    waits = here.submit(ask(8, 4), limit_ms=60_000)
    two = [here.submit(ask(8, 3), limit_ms=30_000) for _each in range(2)]
    assert two == sorted(here.started(here.step()))
    assert waits not in here.state.running


def test_gangs_keep_to_one_rack_where_no_switch_suffices() -> None:
    here = Yard("default", fleet(4, each=2, racks=2), now_ms=1000)
    fill(here, "n00")
    gang = here.submit(ask(8, 3))
    here.step()
    # The rack with the fewest free nodes that suffice.
    assert ["n01", "n10", "n11"] == placed(here, gang)
    whole = here.submit(ask(8, 4))
    here.step()
    assert ["n20", "n21", "n30", "n31"] == placed(here, whole)


@pytest.mark.parametrize("name", ["default", "conservative"])
def test_ranks_follow_the_fabric(name: str) -> None:
    """The rest of a gang, on a lower number than its full nodes, comes between them."""
    nodes = fleet(2, each=2)
    here = Yard(name, [nodes[0], nodes[2], nodes[1], nodes[3]], now_ms=1000)
    gang = here.submit(ask(2, 14))
    here.step()
    assert ["n00", "n01", "n10", "n11"] == placed(here, gang)


@pytest.mark.parametrize("name", ["default", "fifo", "conservative", "pack"])
def test_what_is_promised_to_a_gang_is_on_one_switch(name: str) -> None:
    here = Yard(name, fleet(2, each=2), now_ms=1000)
    first = here.submit(ask(8, on_nodes=("n00",)), limit_ms=20_000)
    here.submit(ask(8, on_nodes=("n10",)), limit_ms=90_000)
    here.step()
    waits = here.submit(near(2), limit_ms=60_000)
    long = here.submit(ask(8, on_nodes=("n01",)), limit_ms=50_000)
    other = here.submit(ask(8, on_nodes=("n11",)), limit_ms=50_000)
    plan = here.step()
    assert [other] == here.started(plan)
    assert [(waits, 21_000)] == [(each.job_id, each.at_ms) for each in plan.reservations][:1]
    here.now_ms = 21_000
    here.end(first)
    assert waits in here.started(here.step())
    assert long not in here.state.running


def test_why_names_the_level_with_numbers() -> None:
    here = Yard("default", fleet(), now_ms=1000)
    fill(here, "n00", "n10", "n11")
    waits = here.submit(near(4))
    here.step()
    told = explain_why(here.state, here.policy, waits, here.now_ms)
    assert told is not None
    (reason,) = told.reasons
    assert reason.text == "32 x H100 on one switch: the largest free switch has 24 of 32 GPUs"
    lifts = [each.lift for each in told.helps]
    assert isinstance(lifts[0], AskFor)
    assert (Level.RACK, True) == (lifts[0].ask.level, lifts[0].ask.level_required)
    assert 61_000 == told.start_ms


@pytest.mark.parametrize(
    ("level", "tasks", "says"),
    [
        (Level.SWITCH, 5, "asks for 5 x (8 GPUs) on one switch; the largest switch has 32 GPUs on 4 nodes"),
        (Level.RACK, 9, "asks for 9 x (8 GPUs); 64 GPUs on 8 nodes cannot hold it"),
    ],
)
def test_a_gang_that_no_switch_could_hold_is_told_so(level: Level, tasks: int, says: str) -> None:
    here = Yard("default", fleet(), now_ms=1000)
    reason = impossible_reason(here.state, JobSpec("", near(tasks, level)))  # type: ignore[arg-type]
    assert reason is not None
    assert says == reason.text


def test_a_gang_that_no_fabric_could_hold_is_told_so() -> None:
    here = Yard("default", fleet(2, fabrics=("ib0", "ib1")), now_ms=1000)
    reason = impossible_reason(here.state, JobSpec("", ask(8, 5)))
    assert reason is not None
    assert reason.text == "asks for 5 x (8 GPUs) on one fabric; the largest fabric has 32 GPUs on 4 nodes"


@pytest.mark.parametrize("name", ["default", "fifo", "conservative"])
def test_after_a_time_the_level_is_required_no_longer(name: str) -> None:
    here = Yard(name, fleet(), now_ms=1000)
    fill(here, "n00", "n10")
    period_ms = here.state.settings.period_ms
    waits = here.submit(near(4, level_ms=period_ms), limit_ms=60_000)
    assert not here.step().starts
    assert 2 * period_ms >= (here.state.wake_ms() or 0) > 0
    here.now_ms = period_ms
    here.apply(Ticked(here.now_ms))
    assert not here.step().starts
    again = load(dump(here.state))
    again.reindex(here.state.queue.order)
    assert derived(again) == derived(here.state)
    here.now_ms = 2 * period_ms
    here.apply(Ticked(here.now_ms))
    again = load(dump(here.state))
    again.reindex(here.state.queue.order)
    assert (canonical(again), derived(again)) == (canonical(here.state), derived(here.state))
    assert [waits] == here.started(here.step())


def test_a_change_of_a_job_does_not_require_the_level_again() -> None:
    """A dump of the state had relaxed it, and the state itself not."""
    here = Yard("default", fleet(), now_ms=1000)
    fill(here, "n00", "n10")
    period_ms = here.state.settings.period_ms
    waits = here.submit(near(4, level_ms=period_ms), limit_ms=60_000)
    here.now_ms = 2 * period_ms
    here.apply(Ticked(here.now_ms))
    job = here.state.jobs[waits].job
    here.apply(JobChanged(here.now_ms, job._replace(spec=replace(job.spec, name="other"))))
    again = load(dump(here.state))
    again.reindex(here.state.queue.order)
    assert (canonical(again), derived(again)) == (canonical(here.state), derived(here.state))
    assert [waits] == here.started(here.step())


def test_a_job_on_one_node_requires_nothing_of_switches() -> None:
    here = Yard("default", fleet(), now_ms=1000)
    both = here.submit(ask(2, 4, level=Level.SWITCH, level_required=True))
    assert [both] == here.started(here.step())
    assert 1 == len(here.state.jobs[both].shape.ways)
