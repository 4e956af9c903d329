"""A node whose GPUs were called something else is called right while jobs run on it."""

from dataclasses import replace

import pytest

from gpuyard.control.loop.observe import node_events
from gpuyard.core import InvalidEvent, apply, decide
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.engines.contract import ForeignProcess, NodeReport
from gpuyard.model import (
    AttemptEnded,
    AttemptStarted,
    EarmarkDropped,
    EarmarkSet,
    Event,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    LayoutPinned,
    Node,
    NodeChanged,
    NodeDown,
    NodeUp,
    Outcome,
)
from gpuyard.model.mig import Slice
from gpuyard.testing import ask, node, share, tenant
from harness.yard import Yard

WRONG = [node(f"n{i}", 8, "A10") for i in range(2)]
RIGHT = [replace(each, gpu_model="A100-80GB", nvlink_group_size=8) for each in WRONG]
AT_MS = 1000


def busy_yard(*, limited: bool) -> Yard:
    """A gang over both nodes, a share on the first one, and one GPU that somebody else uses."""
    limits = [tenant("t", limit={"A100-80GB": 9, "A10": 20})] if limited else []
    here = Yard("default", WRONG, limits)
    state = here.state
    jobs = (
        (ask(4, 2, models=("A10",)), (Grant(0, 0xF, 1000, 0, 0, 1), Grant(1, 0xF, 1000, 0, 0, 1))),
        (share(250), (Grant(0, 0x10, 250, 0, 0, 1),)),
    )
    for job_id, (wanted, grants) in enumerate(jobs, 1):
        apply(state, JobSubmitted(0, Job(job_id, JobSpec("t", wanted), 0)))
        apply(state, AttemptStarted(0, job_id, 1, grants))
    for event in node_events(state, reports(WRONG), 0):
        apply(state, event)
    return here


def reports(nodes: list[Node]) -> list[NodeReport]:
    return [
        NodeReport(each, True, "", (ForeignProcess(7, 0, "ada"),) if each.name == "n1" else ())
        for each in nodes
    ]


def told(here: Yard, nodes: list[Node], at_ms: int) -> list[Event]:
    """What the reports come to, folded."""
    events = node_events(here.state, reports(nodes), at_ms)
    for event in events:
        apply(here.state, event)
    return events


@pytest.mark.parametrize("limited", [True, False])
def test_jobs_run_on_and_count_under_the_right_model_from_then_on(limited: bool) -> None:
    here = busy_yard(limited=limited)
    state = here.state

    events = told(here, RIGHT, AT_MS)

    assert [NodeChanged(AT_MS, n, RIGHT[n]) for n in range(2)] == events
    assert [] == told(here, RIGHT, AT_MS)
    assert ["A100-80GB"] * 2 == [each.gpu_model for each in state.nodes.node]
    # Nothing moved: what runs, what is free, what others use.
    assert {1, 2} == set(state.running)
    assert [0b11100000, 0b01110000] == list(state.nodes.free_mask)
    column = {name: 1 + number for name, number in state.models.items()}
    used = state.tenants.used[0]
    assert [8250, 0, 8250] == [used[0], used[column["A10"]], used[column["A100-80GB"]]]
    assert [0, 16_000] == [state.nodes.up_milli[state.models[name]] for name in ("A10", "A100-80GB")]
    # The time under the wrong name is charged at its price, all after it at the right one.
    (a10, a100), tenants = (8048 + 251, 27_448 + 857), state.tenants
    assert a100 == tenants.rate[0]
    assert a10 * AT_MS == tenants.accrued[0] + tenants.rate[0] * (AT_MS - tenants.period_start_ms)

    rebuilt = load(dump(state))
    assert canonical(state) == canonical(rebuilt)
    apply(state, JobSubmitted(AT_MS, Job(3, JobSpec("t", ask(1, models=("A100-80GB",))), AT_MS)))
    apply(rebuilt, JobSubmitted(AT_MS, Job(3, JobSpec("t", ask(1, models=("A100-80GB",))), AT_MS)))
    starts = [start.job_id for start in decide(state, here.policy, AT_MS).starts]
    assert ([] if limited else [3]) == starts
    assert starts == [start.job_id for start in decide(rebuilt, here.policy, AT_MS).starts]

    for job_id in (1, 2):
        apply(state, AttemptEnded(AT_MS, job_id, 1, Outcome.COMPLETED))
    assert 0 == sum(state.tenants.used[0]) == state.tenants.rate[0]
    assert [0b11111111, 0b01111111] == list(state.nodes.free_mask)


def test_a_node_that_is_down_for_its_name_alone_comes_up_again() -> None:
    here = busy_yard(limited=False)
    apply(
        here.state, NodeDown(1, 0, "its hardware has changed; it is taken in again once nothing runs on it")
    )

    assert NodeUp(2, 0) in told(here, RIGHT, 2)
    assert "" == here.state.nodes.down[0]


def test_what_is_kept_there_is_chosen_anew() -> None:
    here = busy_yard(limited=False)
    apply(here.state, JobSubmitted(1, Job(3, JobSpec("t", ask(2)), 1)))
    apply(here.state, EarmarkSet(1, 3, (Grant(0, 0b01100000, 1000, 0, 0, 1),), 9_000_000))

    assert EarmarkDropped(2, 3) in told(here, RIGHT, 2)
    assert canonical(here.state) == canonical(load(dump(here.state)))


@pytest.mark.parametrize("other", [{"gpus": 4}, {"cpu_milli": 32_000}, {"pool": "other"}])
def test_a_node_with_other_hardware_still_waits_until_it_is_empty(other: dict[str, object]) -> None:
    here = busy_yard(limited=False)
    changed = [replace(RIGHT[0], **other), WRONG[1]]  # type: ignore[arg-type]

    (event,) = told(here, changed, 1)

    assert isinstance(event, NodeDown)
    with pytest.raises(InvalidEvent):
        apply(here.state, NodeChanged(2, 0, changed[0]))


def test_a_node_that_is_cut_waits_until_it_is_empty() -> None:
    here = Yard("default", [RIGHT[0]])
    apply(here.state, JobSubmitted(0, Job(1, JobSpec("t", ask(1)), 0)))
    apply(here.state, AttemptStarted(0, 1, 1, (Grant(0, 1, 1000, 0, 0, 1),)))
    apply(here.state, LayoutPinned(0, 0, 0b10, (Slice(1, "3g.40gb", 0),), "ada"))

    (event,) = told(here, [replace(RIGHT[0], gpu_model="H100")], 1)

    assert isinstance(event, NodeDown)
