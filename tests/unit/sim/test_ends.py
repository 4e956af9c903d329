"""The calendar of ends gives back what a heap would."""

from heapq import heappop, heappush
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.sim.ends import NEVER_MS, Ends

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 3000)), max_size=200)


@given(day_ms=st.integers(0, 500), steps=STEPS)
def test_ends_come_in_the_order_of_a_heap(day_ms: int, steps: list[tuple[bool, int]]) -> None:
    record: Any = None
    ends = Ends(day_ms)
    heap: list[tuple[int, int]] = []
    now_ms = 0
    for job_id, (takes, later_ms) in enumerate(steps):
        if takes and heap:
            at_ms, expected = heappop(heap)
            assert (at_ms, expected) == ends.pop()[:2]
            now_ms = at_ms
        else:
            ends.push((now_ms + later_ms, job_id, 1, record))
            heappush(heap, (now_ms + later_ms, job_id))
        assert ends.next_ms == (heap[0][0] if heap else NEVER_MS)
        assert bool(ends) == bool(heap)
    while heap:
        assert heappop(heap) == ends.pop()[:2]


def test_an_end_before_the_open_day_comes_first() -> None:
    record: Any = None
    ends = Ends(10)
    ends.push((95, 1, 1, record))
    ends.push((12, 2, 1, record))
    assert [2, 1] == [ends.pop()[1] for _ in range(2)]
    assert NEVER_MS == ends.next_ms
