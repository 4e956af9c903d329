"""Measured use in the log: every hour of an attempt once, whenever a server dies; late samples add to what was told."""

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.control.replica.labels import current_key
from gpuyard.control.upkeep.measured_use import Hold, Told, find_untold
from gpuyard.control.upkeep.metering import EARLY_PER_H, FORGET_MS, Meter
from gpuyard.ledger.units import PARTS
from gpuyard.model import AttemptMeasured
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.store import Lease, StoreError
from gpuyard.telemetry.samples import check_sample
from gpuyard.telemetry.series import SETTLE_MS, Series
from harness.steered import Steered, steering
from rigs.request_service import Rig, rig

STEP = 10_000
START = 100 * HOUR_MS + 30 * MINUTE_MS
NODE = "c:n1"


class Killed(Exception):
    """The process died here."""


class Server:
    """One server process over a store: its series and its meter. `die` leaves what is on disk."""

    def __init__(self, desk: Rig, folder: Path, early_per_h: int = 0) -> None:
        self.desk, self.path, self.early_per_h = desk, str(folder / "series.db"), early_per_h
        self.lease: Lease | None = None
        self.begin()

    def begin(self) -> None:
        if self.lease is not None:
            self.lease.release()
        self.lease = self.desk.replica.store.elect("server")
        assert self.lease is not None
        epoch = self.lease.epoch
        self.series = Series(self.path)
        self.now_ms = 0
        self.meter = Meter(self.desk.replica, lambda: epoch, self.early_per_h, lambda: self.now_ms)

    def run(self, gpus: int = 0b11) -> str:
        self.desk.time_ms = START - 1000
        job = self.desk.submit(gpus=2)
        self.desk.time_ms = START - 1000
        self.desk.start(job, gpus)
        return current_key(self.desk.replica.store.yard, self.desk.replica.state.jobs[job])

    def end(self, key: str, at_ms: int) -> None:
        self.desk.time_ms = at_ms - 1000
        self.desk.end(int(key.split("-")[-2]))

    def sample(self, key: str, at_ms: int, now_ms: int, **more: int) -> None:
        ran_ms = at_ms - START
        told = {
            "gpu_busy": 500,
            "gpu_memory": 1000 + ran_ms // HOUR_MS,
            "cpu": ran_ms,
            "energy": 700 * ran_ms,
        }
        told |= {"memory": 64} | more
        named = {f"attempt/{key}/{name}": value for name, value in told.items()}
        self.series.add(check_sample(NODE, at_ms, named, now_ms), now_ms)

    def round(self, now_ms: int, seen: list[str]) -> None:
        self.now_ms = now_ms
        self.meter.round(self.series, now_ms, seen)
        self.series.work(now_ms)

    def events(self) -> list[AttemptMeasured]:
        found = [event for _seq, event in self.desk.replica.store.read(0, 10_000)]
        return [event for event in found if isinstance(event, AttemptMeasured)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with rig(tmp_path) as desk:
        yield Server(desk, tmp_path)


def live(server: Server, key: str, from_ms: int, until_ms: int) -> None:
    for at_ms in range(from_ms + STEP, until_ms + 1, STEP):
        server.sample(key, at_ms, at_ms)
        if at_ms % MINUTE_MS == 0:
            server.round(at_ms, [key])


def total(events: list[AttemptMeasured], name: str) -> int:
    return sum([getattr(event, name) or 0 for event in events])


def disjoint(events: list[AttemptMeasured]) -> bool:
    spans = sorted([span for event in events for span in event.spans])
    return all([before[1] <= after[0] for before, after in pairwise(spans)])


def test_each_hour_of_an_attempt_is_told_once_and_the_rest_at_its_end(server: Server) -> None:
    key = server.run()
    over = START + 105 * MINUTE_MS
    live(server, key, START, over)
    server.end(key, over)
    for minute in range(1, 5):
        server.round(over + minute * MINUTE_MS, [])
    found = server.events()

    assert [30, 60, 15] == [(each.until_ms - each.from_ms) // MINUTE_MS for each in found]
    assert [2 * (each.until_ms - each.from_ms) for each in found] == [each.held_gpu_ms for each in found]
    assert 210 * MINUTE_MS == total(found, "measured_gpu_ms") == 2 * total(found, "used_gpu_ms")
    assert 105 * MINUTE_MS == total(found, "cpu_ms")
    # Nobody saw where the counter of energy began.
    assert 700 * (105 * MINUTE_MS - STEP) == total(found, "energy_mj")
    assert [1000, 1001, 1001] == [each.gpu_memory_mib for each in found]
    assert ([0, 0, 0], [64, 64, 64]) == (
        [each.estimated_gpu_ms for each in found], [each.memory_mib for each in found],
    )  # fmt: skip
    assert disjoint(found)
    server.round(over + FORGET_MS + SETTLE_MS, [])
    assert {} == server.series.owed


@pytest.mark.parametrize(
    ("early_per_h", "events"),
    [
        # Every five minutes; with the end of the hour and that of the attempt.
        (EARLY_PER_H, 8),
        # One attempt alone is told of as often as all may be.
        (2, 2),
        (0, 2),
    ],
)
def test_some_of_an_hour_is_told_before_it_is_over(server: Server, early_per_h: int, events: int) -> None:
    server.early_per_h = early_per_h
    server.begin()
    key = server.run()
    over = START + 36 * MINUTE_MS
    live(server, key, START, over)
    server.end(key, over)
    for minute in range(1, 5):
        server.round(over + minute * MINUTE_MS, [])
    found = server.events()

    assert 72 * MINUTE_MS == total(found, "held_gpu_ms") == total(found, "measured_gpu_ms")
    assert 36 * MINUTE_MS == total(found, "cpu_ms")
    assert 700 * (36 * MINUTE_MS - STEP) == total(found, "energy_mj")
    assert disjoint(found)
    assert events == len(found)


def test_samples_that_come_after_the_hour_was_told_are_one_more_event(server: Server) -> None:
    key = server.run()
    late = set(range(START + 10 * MINUTE_MS, START + 20 * MINUTE_MS, STEP))
    for at_ms in range(START + STEP, START + 45 * MINUTE_MS + 1, STEP):
        if at_ms not in late:
            server.sample(key, at_ms, at_ms)
        if at_ms % MINUTE_MS == 0:
            server.round(at_ms, [key])
    before = server.events()
    now = START + 45 * MINUTE_MS
    for at_ms in sorted(late):
        server.sample(key, at_ms, now)
    server.round(now, [key])
    server.round(now + MINUTE_MS, [key])
    found = server.events()

    assert (1, 2) == (len(before), len(found))
    assert before == found[:1]
    assert 2 * 30 * MINUTE_MS == total(found, "measured_gpu_ms") == total(found, "held_gpu_ms")
    assert 0 == found[1].held_gpu_ms
    assert 30 * MINUTE_MS == total(found, "cpu_ms")
    assert disjoint(found)


def test_an_attempt_that_ended_while_the_yard_was_down_gets_its_last_event_and_its_curves(
    server: Server,
) -> None:
    key = server.run()
    live(server, key, START, START + 50 * MINUTE_MS)
    server.series.close()
    server.end(key, START + 55 * MINUTE_MS)
    server.begin()
    server.round(START + 9 * HOUR_MS, [])
    found = server.events()

    assert [30, 25] == [(each.until_ms - each.from_ms) // MINUTE_MS for each in found]
    assert 2 * 50 * MINUTE_MS == total(found, "measured_gpu_ms")
    assert 2 * 55 * MINUTE_MS == total(found, "held_gpu_ms")
    assert {"gpu_busy", "gpu_memory", "cpu", "energy", "memory"} == server.series.kept(key).keys()


def test_a_leader_that_was_deposed_tells_nothing(server: Server) -> None:
    key = server.run()
    live(server, key, START, START + 30 * MINUTE_MS)
    old, seen = server.meter, server.series
    server.begin()
    old.round(seen, START + 32 * MINUTE_MS, [key])

    assert [] == server.events()


def test_a_store_that_fails_for_a_while_loses_nothing(
    server: Server,
) -> None:
    key = server.run()
    over = START + 20 * MINUTE_MS
    live(server, key, START, over)
    server.end(key, over)

    def fails(*_args: object) -> None:
        raise StoreError("the disk is full")

    store = steering(server.desk.replica.store)
    with store.doing(history=Steered(store.history, find=fails)):
        server.round(over + 2 * MINUTE_MS, [])
    with store.doing(commit=fails):
        server.round(over + 3 * MINUTE_MS, [])
    assert [] == server.events()
    server.round(over + 4 * MINUTE_MS, [])

    assert [20 * MINUTE_MS] == [each.used_gpu_ms for each in server.events()]


def test_an_attempt_without_samples_has_no_event_and_one_that_tells_no_load_is_unmeasured(
    server: Server,
) -> None:
    key = server.run()
    server.round(START + MINUTE_MS, [key])
    server.round(START + 40 * MINUTE_MS, [key])
    assert [] == server.events()
    now = START + 95 * MINUTE_MS
    for at_ms in range(START + 40 * MINUTE_MS, now, STEP):
        told = {f"attempt/{key}/cpu": at_ms - START, f"attempt/{key}/memory": 7}
        server.series.add(check_sample(NODE, at_ms, told, at_ms), at_ms)
    server.round(now, [key])
    (found,) = server.events()

    assert (2 * HOUR_MS, 0, 0, ()) == (
        found.held_gpu_ms, found.measured_gpu_ms, found.used_gpu_ms, found.spans,
    )  # fmt: skip
    assert (None, 7) == (found.energy_mj, found.memory_mib)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_no_time_is_told_twice_and_none_that_is_on_disk_is_lost_whenever_a_server_dies(
    seed: int, tmp_path_factory: Any
) -> None:
    draw = random.Random(seed)
    folder = tmp_path_factory.mktemp("meter")
    with rig(folder) as desk:
        server = Server(desk, folder, draw.choice((0, EARLY_PER_H)))
        key = server.run()
        over = START + 100 * MINUTE_MS
        for at_ms in range(START + STEP, over + 1, STEP):
            server.sample(key, at_ms, at_ms)
            if at_ms % MINUTE_MS == 0:
                _round(server, at_ms, [key], draw)
        server.end(key, over)
        # Everything is saved before the last of it is told.
        for minute in range(1, 6):
            _round(server, over + minute * MINUTE_MS, [], draw)
        server.begin()
        server.round(over + 7 * MINUTE_MS, [])
        found = server.events()
        saved = set(server.series.of_attempts(NODE, {key: START}, ["cpu"], START, over + 1)[key]["cpu"][0])

    assert disjoint(found)
    assert total(found, "measured_gpu_ms") <= total(found, "held_gpu_ms") == 2 * 100 * MINUTE_MS
    assert max(saved) - START == total(found, "cpu_ms")
    # Nobody saw where that counter began.
    assert 700 * (max(saved) - min(saved)) == total(found, "energy_mj")
    on_disk = [at_ms for at_ms in saved if at_ms - STEP in saved]
    told = [span for event in found for span in event.spans]
    assert all([any([a <= at_ms - STEP and at_ms <= b for a, b in told]) for at_ms in on_disk])


def _round(server: Server, now_ms: int, seen: list[str], draw: random.Random) -> None:
    """A round, in which the process may die: before what it tells is written, or after, before it knows."""
    commit = server.meter._commit

    def dies(*args: Any) -> None:
        how = draw.randrange(3)
        if how == 0:
            raise Killed
        commit(*args)
        if how == 1:
            raise Killed

    server.meter._commit = dies  # type: ignore[method-assign]
    try:
        server.round(now_ms, seen)
        server.meter._commit = commit  # type: ignore[method-assign]
    except Killed:
        server.begin()
    if not draw.randrange(40):
        server.begin()


def test_use_of_shares_of_slices_and_of_several_nodes() -> None:
    def points(busy: int, name: str = "gpu_busy", until: int = 60) -> dict[str, Any]:
        times = list(range(0, until * 1000 + 1, STEP))
        return {name: (times, [busy] * len(times))}

    def use(*each: tuple[Hold, dict[str, Any]]) -> tuple[int, int, int]:
        found = find_untold([hold for hold, _p in each], [p for _h, p in each], 0, 0, 60_000, Told())
        assert found is not None
        return found.measured_gpu_ms, found.used_gpu_ms, found.estimated_gpu_ms

    quarter, whole, seventh = Hold("a", PARTS // 4, 250), Hold("b", PARTS, 1000), Hold("c", PARTS // 7, 1000)
    assert (15_000, 7_500, 0) == use((quarter, points(125)))
    assert (15_000, 15_000, 15_000) == use((quarter, points(900, "gpu_busy_estimated")))
    assert (8571, 4285, 0) == use((seventh, points(500)))
    # One of two nodes told for half of the time: the rest is unmeasured.
    both = use((whole, points(1000)), (whole._replace(node="d"), points(0, until=30)))
    assert (60_000, 30_000, 0) == both
