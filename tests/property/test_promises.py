"""EASY keeps its word: whoever is promised a time starts by then, if jobs end no later than they may."""

from heapq import heappop, heappush

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.model import Ask, Node, PolicySpec, Whole
from gpuyard.policies import registry
from harness.machines import strategies as some
from harness.reference.judge import layouts
from harness.yard import Yard

Arrival = tuple[int, Ask, int, int]
"""(gap before it, ask, limit, percent of the limit that it runs)"""

arrivals = st.lists(
    st.tuples(
        st.sampled_from((0, 0, 0, 500, 1000)),
        st.one_of(
            some.asks(), st.builds(Ask, st.builds(Whole, st.sampled_from((4, 2, 3))), st.integers(1, 3))
        ),
        st.sampled_from((1000, 2000, 5000, 20_000, 60_000)),
        st.sampled_from((100, 100, 100, 60, 1)),
    ),
    min_size=12,
    max_size=30,
)


def promised_and_started(policy: PolicySpec, fleet: list[Node], jobs: list[Arrival]) -> int:
    """Run all jobs to their ends; how many promises were made. Breaking one fails."""
    yard = Yard(policy, fleet)
    run_ms: dict[int, int] = {}
    promised_ms: dict[int, int] = {}
    ends: list[tuple[int, int]] = []

    def decide() -> None:
        plan = yard.step()
        for reservation in plan.reservations:
            earlier_ms = promised_ms.get(reservation.job_id, reservation.at_ms)
            promised_ms[reservation.job_id] = min(earlier_ms, reservation.at_ms)
        for start in plan.starts:
            by_ms = promised_ms.get(start.job_id, yard.now_ms)
            assert yard.now_ms <= by_ms, f"job {start.job_id} was promised {by_ms}, starts at {yard.now_ms}"
            heappush(ends, (yard.now_ms + run_ms[start.job_id], start.job_id))

    def pass_time(until_ms: int) -> None:
        while ends and ends[0][0] <= until_ms:
            yard.now_ms = ends[0][0]
            while ends and ends[0][0] == yard.now_ms:
                yard.end(heappop(ends)[1])
            decide()
        yard.now_ms = until_ms

    for gap_ms, ask, limit_ms, percent in jobs:
        if next(layouts(yard.books, ask), None) is None:
            continue
        pass_time(yard.now_ms + gap_ms)
        run_ms[yard.submit(ask, limit_ms=limit_ms)] = max(1, limit_ms * percent // 100)
        decide()
    pass_time(10_000_000)
    assert not yard.state.jobs, f"still waiting: {sorted(yard.state.jobs)}"
    return len(promised_ms)


@pytest.mark.parametrize("placement", registry.PLACEMENTS)
def test_who_is_promised_a_time_starts_by_then(placement: str) -> None:
    policy = PolicySpec("promises", placement=placement, backfill_depth=1000, quotas=False)
    promises = 0

    @settings(
        max_examples=100,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(fleet=some.fleets(), jobs=arrivals)
    def check(fleet: list[Node], jobs: list[Arrival]) -> None:
        nonlocal promises
        promises += promised_and_started(policy, fleet, jobs)

    check()
    assert promises > 50, f"only {promises} promises were made"
