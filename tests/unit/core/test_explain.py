"""`explain`: every blocker with its numbers, from the state as it is."""

import pytest

from gpuyard.core import State, apply, decide
from gpuyard.core.explain import Explanation, explain
from gpuyard.core.words import span
from gpuyard.model import (
    Ask,
    AttemptStarted,
    Budget,
    ConfigSet,
    Job,
    JobClass,
    JobHeld,
    JobSpec,
    JobSubmitted,
    Node,
    NodeAdded,
    NodeCordoned,
    Quota,
    ReasonCode,
    Settings,
    Tenant,
    Whole,
)
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from gpuyard.policies import registry

FIFO = registry.build(registry.PRESETS["fifo"])
STRICT = registry.build(registry.PRESETS["strict-fifo"])


def yard(*tenants: Tenant, nodes: int = 2) -> State:
    state = State()
    apply(state, ConfigSet(0, Settings(tenants=tenants, classes=(JobClass("batch", limit_ms=30 * DAY_MS),))))
    for number in range(nodes):
        apply(state, NodeAdded(0, Node(f"n{number}", "c", "h100", "H100", 8, 96_000, 1_000_000)))
    return state


def submit(state: State, gpus: int, *, tenant: str = "research", hours: int = 2, **ask: object) -> int:
    number = state.last_job_id + 1
    spec = JobSpec(tenant, Ask(Whole(gpus), **ask))  # type: ignore[arg-type]
    apply(state, JobSubmitted(state.now_ms, Job(number, spec, state.now_ms, hours * HOUR_MS)))
    return number


def start_all(state: State) -> None:
    plan = decide(state, FIFO, state.now_ms)
    for start in plan.starts:
        apply(state, AttemptStarted(state.now_ms, start.job_id, start.attempt, start.grants))


def why(state: State, job_id: int, policy=FIFO) -> Explanation:
    found = explain(state, policy, job_id, state.now_ms)
    assert found is not None
    return found


def texts(explanation: Explanation) -> list[str]:
    return [reason.text for reason in explanation.reasons]


def test_no_room_names_the_best_node_and_the_sum() -> None:
    state = yard()
    for _ in range(2):
        submit(state, 6)
    start_all(state)
    job = submit(state, 8)
    found = why(state, job)
    assert ["8 x H100 on one node: best node has 2 free; 4 free in all on 2 nodes"] == texts(found)
    assert 2 * HOUR_MS == found.start_ms
    assert "when job 1 ends as promised" == found.how
    assert ("with 2 GPUs instead of 8 it could start now",) == found.helps


def test_all_quotas_on_all_levels_are_named() -> None:
    state = yard(
        Tenant("org", quota=Quota(limit={"total": 8000})),
        Tenant("org/lab", quota=Quota(limit={"H100": 6000}, max_running_jobs=1)),
    )
    submit(state, 6, tenant="org/lab/ana")
    start_all(state)
    found = why(state, submit(state, 4, tenant="org/lab/ben"))
    assert [
        "org/lab would be 4 H100 over its limit of 6 H100 (uses 6, asks for 4)",
        "org would be 2 GPUs over its limit of 8 (uses 6, asks for 4)",
        "org/lab runs 1 job and may run 1",
    ] == texts(found)
    assert 2 * HOUR_MS == found.start_ms


def test_a_budget_says_what_is_spent_and_when_the_window_turns() -> None:
    state = yard(Tenant("research", budget=Budget(10 * HOUR_MS, DAY_MS)))
    submit(state, 4)
    start_all(state)
    found = why(state, submit(state, 4))
    assert [
        "research has a budget of 10 GPU-hours: 0 spent, 8 promised to what runs, and this job may take 8; "
        "the window ends in 1 d"
    ] == texts(found)


def test_a_promise_to_someone_ahead_is_the_reason_where_there_is_room() -> None:
    state = yard(nodes=1)
    submit(state, 6, hours=1)
    start_all(state)
    big = submit(state, 8)
    small = submit(state, 2, hours=5)
    found = why(state, small)
    assert 1 == found.ahead
    assert [f"there is room now, but job {big} is promised 8 GPUs in 1 h, and this job may run 5 h"] == texts(
        found
    )
    assert ReasonCode.HEAD_BLOCKED is why(state, small, STRICT).reasons[0].code


def test_cordoned_nodes_that_would_matter_are_counted() -> None:
    state = yard()
    submit(state, 8)
    start_all(state)
    apply(state, NodeCordoned(0, 1, "maintenance"))
    found = why(state, submit(state, 8))
    assert "1 node with 8 H100 is cordoned" in texts(found)


def test_a_held_job_and_one_that_can_never_run() -> None:
    state = yard()
    job = submit(state, 1)
    apply(state, JobHeld(0, job))
    assert [ReasonCode.HELD] == [reason.code for reason in why(state, job).reasons]
    found = why(state, submit(state, 9))
    assert [ReasonCode.NEVER_FITS] == [reason.code for reason in found.reasons]
    assert None is found.start_ms


def test_a_gang_says_how_many_nodes_it_lacks() -> None:
    state = yard()
    submit(state, 3)
    start_all(state)
    found = why(state, submit(state, 8, tasks=2))
    assert ["8 x H100 on each of 2 nodes: 1 node has that; 13 free in all on 2 nodes"] == texts(found)


def test_a_job_that_can_start_has_no_reason_and_a_running_one_says_so() -> None:
    state = yard()
    job = submit(state, 1)
    assert () == why(state, job).reasons
    start_all(state)
    assert "starts since 0 s on n0, promised to end within 2 h" == why(state, job).how
    assert None is explain(state, FIFO, 99, 0)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (5_000, "5 s"),
        (125 * MINUTE_MS, "2 h 5 min"),
        (3 * DAY_MS + 1000, "3 d"),
        (90_000, "1 min 30 s"),
    ],
)
def test_spans(ms: int, text: str) -> None:
    assert text == span(ms)
