"""What attempts held between two moments, and what clusters had: planted rows, and the figures of slurmdbd."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.projections.fleet import Fleet
from gpuyard.control.views.held_time import CORES, GPUS, HOUR_S, read_held
from gpuyard.errors import BadInput
from gpuyard.model import (
    Ask,
    Event,
    Job,
    JobSpec,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    NodeDown,
    NodeUncordoned,
    NodeUp,
    Whole,
)
from gpuyard.reports import usage
from gpuyard.testing import projected
from gpuyard.testing.values import node

SECOND = 1000
HERE = (node("a", gpus=4, cpu_milli=8000), node("b", gpus=4, cpu_milli=8000))


class Store:
    """Rows of the history and of tries, and the nodes over time."""

    def __init__(self, events: list[Event], ended: list[Any] = (), tried: list[Any] = ()) -> None:
        rows = {key: json.dumps(value) for key, value in projected(Fleet(), events).items()}
        ran = [(*row[:-1], json.dumps(row[-1])) for row in ended]
        tries = [(*row[:-1], json.dumps({"nodes": row[-1]})) for row in tried]
        self.history = SimpleNamespace(ran_between=lambda *_: ran)
        self.tries = SimpleNamespace(between=lambda *_: tries)
        self.projections = SimpleNamespace(
            between=lambda _name, low, high: [
                (key, text) for key, text in sorted(rows.items()) if low <= key < high
            ]
        )


def model(*live: Any) -> Any:
    return SimpleNamespace(nodes=HERE, jobs=SimpleNamespace(values=lambda: live))


def added(*more: Event) -> list[Event]:
    return [*[NodeAdded(0, each) for each in HERE], *more]


def ended(job_id: int, start: int, end: int, gpus: int, cpus: int, submitted: int = 0) -> tuple[Any, ...]:
    """A job on node a, in seconds."""
    detail = {"spec": {"ask": {"cpu_milli": cpus * 1000, "tasks": 1}}, "grants": [{"node": 0}]}
    times = (submitted * SECOND, start * SECOND, end * SECOND)
    return (job_id, "lab", "ana", gpus * 1000, *times, detail)


def divided(store: Any, from_s: int, until_s: int, of: int, *live: Any) -> list[tuple[int, ...]]:
    """Of each hour in seconds: allocated, down, idle, planned, over."""
    found = read_held(store, model(*live), from_s, until_s, until_s)
    (hours,) = found.hours.values()
    return [tuple([each // 1000 for each in hour.divided(of)]) for hour in hours]


def test_a_job_counts_in_each_hour_that_it_ran_in() -> None:
    store = Store(added(), [ended(1, 1800, 9000, gpus=2, cpus=3)])
    assert [(3600, 0, 25_200, 0, 0), (7200, 0, 21_600, 0, 0), (3600, 0, 25_200, 0, 0)] == divided(
        store, 0, 3 * HOUR_S, GPUS
    )
    assert [5400, 10_800, 5400] == [hour[0] for hour in divided(store, 0, 3 * HOUR_S, CORES)]
    (run,) = read_held(store, model(), HOUR_S, 2 * HOUR_S, 3 * HOUR_S).runs
    assert (HOUR_S, 2 * HOUR_S) == (run.from_s, run.until_s)


def test_what_a_job_waited_for_is_planned_of_cores_and_never_more_than_is_idle() -> None:
    waits = [ended(1, 3600, 7200, gpus=1, cpus=4), ended(2, 3600, 7200, gpus=1, cpus=40)]
    store = Store(added(), waits)
    first, _second = divided(store, 0, 2 * HOUR_S, CORES)
    assert (0, 0, 0, 57_600, 44 * HOUR_S - 57_600) == first
    assert (0, 0, 28_800, 0, 0) == divided(store, 0, HOUR_S, GPUS)[0]


def test_the_tries_of_a_job_count_and_the_time_between_them_is_waiting() -> None:
    store = Store(added(), [ended(1, 3000, 3600, gpus=1, cpus=2)], [(1, 600 * SECOND, 1200 * SECOND, ["a"])])
    ((allocated, _down, _idle, planned, _over),) = divided(store, 0, HOUR_S, CORES)
    assert (2 * 1200, 2 * (600 + 1800)) == (allocated, planned)


def test_down_and_drained_nodes() -> None:
    events = added(
        NodeDown(600 * SECOND, 1, "x"),
        NodeUp(1200 * SECOND, 1),
        NodeCordoned(1800 * SECOND, 0, "y"),
        NodeUncordoned(3600 * SECOND, 0),
    )
    # A drained node that runs something is down once that has ended.
    store = Store(events, [ended(1, 400, 2400, gpus=1, cpus=1)])
    assert [(2000, 4 * 600 + 4 * 1200, 28_800 - 2000 - 7200, 0, 0)] == divided(store, 0, HOUR_S, GPUS)


def test_a_node_that_changes_or_comes_later_counts_from_then_on() -> None:
    events = [NodeAdded(0, HERE[0]), NodeChanged(1800 * SECOND, 0, node("a", gpus=2, cpu_milli=8000))]
    events.append(NodeAdded(2700 * SECOND, HERE[1]))
    assert [(0, 0, 4 * 1800 + 2 * 1800 + 4 * 900, 0, 0)] == divided(Store(events), 0, HOUR_S, GPUS)


def test_a_node_that_the_projection_does_not_know_counts_as_it_is() -> None:
    assert [(0, 0, 8 * HOUR_S, 0, 0)] == divided(Store([]), 0, HOUR_S, GPUS)


def test_nothing_is_there_before_the_first_node_and_after_now() -> None:
    store = Store([NodeAdded(7200 * SECOND, each) for each in HERE])
    found = read_held(store, model(), 0, 4 * HOUR_S, 3 * HOUR_S)
    assert [0, 0, 8 * 3_600_000, 0] == [hour.had[GPUS] for hour in next(iter(found.hours.values()))]


def test_more_than_there_is_is_cut_to_what_there_is() -> None:
    store = Store(added(NodeDown(0, 1, "x")), [ended(1, 100, 3600, gpus=7, cpus=1)])
    assert [(24_500, 4300, 0, 0, 0)] == divided(store, 0, HOUR_S, GPUS)


@pytest.mark.parametrize(
    ("from_ms", "until_ms", "said"),
    [(5, 5, "not before"), (None, None, "not before"), (0, 10**12, "400 days")],
)
def test_spans_that_make_no_sense_are_refused(from_ms: int | None, until_ms: int | None, said: str) -> None:
    readings = SimpleNamespace(now_ms=10, store=None, model=None)
    with pytest.raises(BadInput, match=said):
        usage.build(readings, {"from_ms": from_ms, "until_ms": until_ms}, None)


def test_waiting_jobs_that_are_alike_are_one_wait_and_those_on_hold_none() -> None:
    """A queue of 300,000 was gone through job by job, three times."""
    spec = JobSpec("lab", Ask(Whole(1), cpu_milli=2000))
    looked: list[int] = []

    def waiting(job_id: int, aside: bool = False, submitted: int = 0) -> Any:
        record = SimpleNamespace(shape=SimpleNamespace(gpu_milli=1000, cpu_milli=2000, tasks=1), grants=())
        row = SimpleNamespace(id=job_id, job=Job(job_id, spec, submitted * SECOND), phase=None, aside=aside)
        # Only one of those that are alike is looked at.
        return _Looked(row, record, looked)

    rows = [*[waiting(n) for n in range(5)], waiting(5, aside=True), waiting(6, submitted=1800)]
    (hour,) = divided(Store(added()), 0, HOUR_S, CORES, *rows)

    assert (5 * 2 + 1) * HOUR_S == hour[3]
    assert [0, 6] == looked


class _Looked:
    def __init__(self, row: Any, record: Any, looked: list[int]) -> None:
        self.id, self.job, self.phase, self.aside = row.id, row.job, row.phase, row.aside
        self._record, self._looked = record, looked

    @property
    def record(self) -> Any:
        self._looked.append(self.id)
        return self._record
