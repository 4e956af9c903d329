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
            until_ms = heap[0][0] + later_ms // 10
            taken = []
            while ends.next_ms <= until_ms:
                taken += [end[:2] for end in ends.take(until_ms + 1)]
            expected = []
            while heap and heap[0][0] <= until_ms:
                expected.append(heappop(heap))
            assert expected == taken
            now_ms = until_ms
        else:
            ends.push((now_ms + later_ms, job_id, 1, record))
            heappush(heap, (now_ms + later_ms, job_id))
        assert ends.next_ms == (heap[0][0] if heap else NEVER_MS)
        assert bool(ends) == bool(heap)
    left = []
    while ends:
        left += [end[:2] for end in ends.take(NEVER_MS)]
    assert sorted(heap) == left


def test_an_end_before_the_open_day_comes_first() -> None:
    record: Any = None
    ends = Ends(10)
    ends.push((95, 1, 1, record))
    ends.push((12, 2, 1, record))
    assert [2] == [end[1] for end in ends.take(13)]
    assert [1] == [end[1] for end in ends.take(96)]
    assert NEVER_MS == ends.next_ms
