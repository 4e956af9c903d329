"""What jobs waited for, on a history that was planted: every cause in a pool of its own, each known by its sum."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.waits import WaitMeter
from gpuyard.control.projections.waits import PART_MS, Waits
from gpuyard.control.views.past_waits import Waited, divided
from gpuyard.engines.contract import Launch
from gpuyard.engines.slurm.words.states import wait_cause
from gpuyard.errors import BadInput
from gpuyard.model import (
    After,
    AfterKind,
    Ask,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    ClockSet,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    NodeAdded,
    Outcome,
    Settings,
    Verb,
    WaitCause,
    WaitLine,
    WaitsSeen,
)
from gpuyard.model.serialise import to_plain
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.policies.registry import PRESETS
from gpuyard.reports.table import Table
from gpuyard.reports.waits import build
from gpuyard.store import Submission
from gpuyard.testing.engine import SimEngine
from gpuyard.testing.live import NOTHING, LiveYard
from gpuyard.testing.values import BATCH, ask, node, nodes, projected, tenant
from gpuyard.testing.world import Life

BEGIN_MS = 20_769 * 24 * HOUR_MS
PLANTED = {
    "hold": 6,
    "dependency": 2,
    "quota": 4,
    "fragmentation": 10,
    "tail": 12,
    "room": 6,
    "over-asking": 8,
    "crashes": 4 + 1 + 3,
    "begin": 5,
}
"""GPU-hours. Crashes: jobs waited 2 h and 1 h for GPUs on which another failed, and one of these waited 3 h again."""


class Planted:
    """A yard of small pools under a virtual clock, with the meter of waiting beside its loop."""

    def __init__(self) -> None:
        fleet = [
            *nodes(2, 2, pool="frag"),
            *[node(f"g{i}", 2, pool="gang") for i in range(3)],
            *[
                node(name, gpus, pool=name)
                for name, gpus in (("own", 8), ("room", 2), ("idle", 4), ("crash", 2), ("again", 1))
            ],
        ]
        self.lives: dict[int, Life] = {}
        settings = Settings(
            classes=(BATCH,), policy=PRESETS["default"], tenants=(tenant("q", limit=1), tenant("t"))
        )
        self.yard = LiveYard(
            lambda clock: SimEngine(clock, fleet, self._life), settings, now_ms=BEGIN_MS - 5 * MINUTE_MS
        )
        self.meter = self.metered()
        # The nodes come before the jobs, so that each job waits for what is planted and for nothing else.
        self.go(until_ms=BEGIN_MS)

    def metered(self) -> WaitMeter:
        return WaitMeter(self.yard.replica, lambda: self.yard.store.epoch, lambda: self.yard.now_ms)

    def _life(self, launch: Launch) -> Life:
        return self.lives.get(launch.job_id, Life(HOUR_MS))

    def job(self, gpus: Ask | int, hours: int = 1, outcome: Outcome | None = None, **spec: Any) -> int:
        fields = {name: spec.pop(name) for name in ("begin_ms",) if name in spec}
        if isinstance(gpus, int):
            gpus = ask(gpus, pools=(spec.pop("pool"),), on_nodes=spec.pop("on_nodes", ()))
        body = json.dumps(to_plain(NOTHING)).encode()
        made = JobSpec(spec.pop("tenant", "t"), gpus, recipe="nothing", **spec)
        now_ms = self.yard.now_ms
        submission = Submission(
            lambda first: [JobSubmitted(now_ms, Job(first, made, now_ms, **fields))], blobs={"nothing": body}
        )
        (answer,) = self.yard.store.submit([submission], now_ms)
        assert not isinstance(answer, Exception)
        code = 0 if outcome is None else 1
        self.lives[answer.first_id] = Life(hours * HOUR_MS, code, outcome)
        return answer.first_id

    def go(self, until_ms: int, step_ms: int = MINUTE_MS) -> None:
        while self.yard.now_ms < until_ms:
            self.yard.step(step_ms)
            self.meter.look(self.yard.now_ms)

    def events(self) -> list[Any]:
        return [event for _seq, event in self.yard.store.read(0)]

    def hours(self) -> dict[str, float]:
        return {line["reason"]: line["gpu_hours"] for line in report(self).rows}


def report(planted: Planted, by: str = "", sight: Sight = ALL, **values: Any) -> Table:
    rows = projected(Waits(), planted.events())

    def between(_name: str, low: str, high: str) -> Iterator[tuple[str, str]]:
        return iter([(key, json.dumps(value)) for key, value in sorted(rows.items()) if low <= key < high])

    store = SimpleNamespace(projections=SimpleNamespace(between=between))
    readings: Any = SimpleNamespace(store=store, now_ms=planted.yard.now_ms)
    return build(readings, {"by": by, "from": "", "to": "", "sizes": "", **values}, sight)


@pytest.fixture(scope="module")
def planted() -> Planted:
    world = Planted()
    held = world.job(2, pool="own")
    world.yard.ask_for(held, Verb.HOLD)
    first = world.job(1, 2, pool="own")
    world.job(1, pool="own", after=(After(AfterKind.COMPLETED, first),))
    world.job(1, 4, pool="own", tenant="q")
    world.job(1, 1, pool="own", tenant="q")
    world.job(1, pool="own", begin_ms=BEGIN_MS + 5 * HOUR_MS)
    for name in ("h100-0", "h100-1"):
        world.job(1, 5, pool="frag", on_nodes=(name,))
    world.job(2, 2, pool="gang")
    world.job(2, 3, pool="room")
    idle = world.job(4, 4, pool="idle")
    world.job(2, 2, Outcome.FAILED, pool="crash")
    world.job(1, 1, Outcome.FAILED, pool="again", retries=1)
    world.yard.step()
    world.job(2, pool="frag")
    world.job(ask(2, tasks=3, pools=("gang",)))
    for pool in ("room", "idle", "crash"):
        world.job(2, pool=pool)
    world.job(1, 3, pool="again")
    world.go(BEGIN_MS + 3 * HOUR_MS)
    world.yard.ask_for(held, Verb.RELEASE)
    world.go(BEGIN_MS + 4 * HOUR_MS + 30 * MINUTE_MS)
    for hour in range(4):
        from_ms = BEGIN_MS + hour * HOUR_MS
        seen = AttemptMeasured(
            world.yard.now_ms, idle, 1, from_ms, from_ms + HOUR_MS, 4 * HOUR_MS, 4 * HOUR_MS, 0
        )
        world.yard.add(seen)
    world.go(BEGIN_MS + 8 * HOUR_MS)
    return world


def test_each_cause_is_found_within_two_percent(planted: Planted) -> None:
    found = planted.hours()
    assert PLANTED.keys() == found.keys()
    for cause, hours in PLANTED.items():
        assert hours == pytest.approx(found[cause], rel=0.02), cause


def test_waiting_is_told_by_tenant_pool_size_and_hour(planted: Planted) -> None:
    lines = report(planted, "tenant,pool,size,reason").rows
    assert [{"tenant": "q", "pool": "own", "size": "up to 1", "reason": "quota"}] == [
        {name: line[name] for name in ("tenant", "pool", "size", "reason")}
        for line in lines
        if line["tenant"] == "q"
    ]
    assert {"up to 1", "2-8"} == {line["size"] for line in lines}
    tail = [line for line in report(planted, "hour,reason").rows if line["reason"] == "tail"]
    assert [6, 6] == [pytest.approx(line["gpu_hours"], rel=0.02) for line in tail]
    assert ["2026-11-12 00:00", "2026-11-12 01:00"] == [line["hour"] for line in tail]


def test_sizes_are_parted_where_it_is_asked(planted: Planted) -> None:
    whole = report(planted, "size").rows
    each = report(planted, "size", sizes="each").rows
    assert ["up to 1", "2-8"] == [line["size"] for line in whole]
    assert ["1", "2", "6"] == [line["size"] for line in each]
    assert [each[0]["gpu_hours"], each[1]["gpu_hours"] + each[2]["gpu_hours"]] == [
        pytest.approx(line["gpu_hours"]) for line in whole
    ]
    assert ["up to 1", "2-5", "6+"] == [line["size"] for line in report(planted, "size", sizes="1,5").rows]
    with pytest.raises(BadInput, match="sizes must be rising numbers of GPUs"):
        report(planted, "size", sizes="5,1")


def test_a_tenant_sees_its_own_waiting_alone(planted: Planted) -> None:
    lines = report(planted, "tenant,reason", Sight(("q",))).rows
    assert ["q"] == [line["tenant"] for line in lines]


def test_another_dimension_or_a_day_that_is_none_is_refused(planted: Planted) -> None:
    with pytest.raises(BadInput, match="is not a dimension of waiting"):
        report(planted, "colour")
    with pytest.raises(BadInput, match="is not a day"):
        report(planted, **{"from": "yesterday"})


def test_events_are_few_and_lie_within_five_minutes_of_the_clock(planted: Planted) -> None:
    told = [event for event in planted.events() if isinstance(event, WaitsSeen)]
    assert len(told) <= 8 * 12 + 1
    assert all(event.from_ms // PART_MS == (event.until_ms - 1) // PART_MS for event in told)


def test_time_in_which_nobody_looked_is_told_as_that() -> None:
    world = Planted()
    for _ in range(2):
        world.job(2, 9, pool="room")
    world.go(BEGIN_MS + HOUR_MS)
    world.yard.now_ms += 2 * HOUR_MS
    world.yard.lead()
    world.meter = world.metered()
    world.go(BEGIN_MS + 4 * HOUR_MS)
    found = world.hours()
    assert {"room": pytest.approx(4, rel=0.02), "unknown": pytest.approx(4, rel=0.02)} == found


def test_free_gpus_explain_as_many_jobs_as_could_have_them() -> None:
    world = Planted()
    for name in ("h100-0", "h100-1"):
        world.job(1, 5, pool="frag", on_nodes=(name,))
    world.yard.step()
    for _ in range(3):
        world.job(2, 9, pool="frag")
    world.go(BEGIN_MS + HOUR_MS)
    found = world.hours()
    assert {"fragmentation": pytest.approx(2, rel=0.03), "room": pytest.approx(4, rel=0.03)} == found


def test_what_others_did_explains_no_more_waiting_than_there_was() -> None:
    lines = [
        Waited(5, "a", "p", 1000, "room", 600, 600),
        Waited(5, "b", "p", 1000, "order", 300, 300),
        Waited(5, "b", "p", 1000, "quota", 50, 50),
        Waited(5, "c", "", 1000, "room", 100, 100),
    ]
    found = divided(lines, {"p": [300, 600], "r": [0, 40]})
    sums: Counter[tuple[str, str]] = Counter()
    for line in found:
        sums[line.tenant, line.cause] += line.gpu_ms
    expected = {
        ("a", "crashes"): 400,
        ("a", "over-asking"): 200,
        ("b", "crashes"): 200,
        ("b", "over-asking"): 100,
        ("b", "quota"): 50,
        ("c", "crashes"): 40,
        ("c", "room"): 60,
    }
    assert expected == {key: value for key, value in sums.items() if value}


def test_causes_of_a_few_minutes_are_found_within_two_percent() -> None:
    """Within one hour: nobody waited for the GPUs of a first attempt that crashed, others for those of a second."""
    world = Planted()
    unwanted = world.job(2, pool="room")
    world.lives[unwanted] = Life(8 * MINUTE_MS, 1, Outcome.FAILED)
    world.go(BEGIN_MS + 10 * MINUTE_MS, 10_000)
    crashed, good, idle, last = [world.job(2, pool="room") for _ in range(4)]
    world.lives[crashed] = Life(9 * MINUTE_MS, 1, Outcome.FAILED)
    world.lives[good], world.lives[idle] = Life(14 * MINUTE_MS), Life(11 * MINUTE_MS)
    world.go(BEGIN_MS + 58 * MINUTE_MS, 10_000)
    started = {event.job_id: event.at_ms for event in world.events() if isinstance(event, AttemptStarted)}
    ended = {event.job_id: event.at_ms for event in world.events() if isinstance(event, AttemptEnded)}
    span, lost = (started[idle], ended[idle]), ended[crashed] - started[crashed]
    held = 2 * (span[1] - span[0])
    world.yard.add(AttemptMeasured(world.yard.now_ms, idle, 1, *span, held, held, 0, spans=(span,)))
    world.meter.close()

    found = world.hours()
    total = sum([2 * (started[job] - BEGIN_MS - 10 * MINUTE_MS) for job in (good, idle, last)])
    planted = {"crashes": 2 * lost, "over-asking": held, "room": total - 2 * lost - held}
    assert planted.keys() == found.keys()
    for cause, gpu_ms in planted.items():
        assert gpu_ms / HOUR_MS == pytest.approx(found[cause], rel=0.02), cause


def test_rows_of_the_version_before_are_lifted() -> None:
    hours = [["t", "p", 2000, "quota", 120, 60], ["t", "p", 2000, "room", 1201, 601]]
    old = {"h/0000002": json.dumps(hours), "l/0000002": '{"p":[25,36]}', "nodes": "3", "n/0": '["p","",1]'}

    lifted = Waits().upgrade(1, old)
    assert lifted is not None
    assert None is Waits().upgrade(3, old)
    parts = [json.loads(lifted[f"w/{part:08}"])[0] for part in range(24, 36)]
    others = [json.loads(lifted[f"l/{part:08}"])["p"] for part in range(24, 36)]
    assert (1201, 601) == (sum(part[4] for part in parts), sum(part[5] for part in parts))
    assert [25, 36] == [sum(column) for column in zip(*others, strict=True)]
    assert {"h/0000002": json.dumps(hours[:1], separators=(",", ":")), "nodes": "3", "n/0": '["p","",1]'} == {
        key: text for key, text in lifted.items() if key[:2] not in ("w/", "l/")
    }


def test_rows_of_several_events_of_an_hour_add_up() -> None:
    line = WaitLine("t", "p", 2000, WaitCause.ROOM.value, 10, 5)
    events = [WaitsSeen(HOUR_MS + at, HOUR_MS + at, HOUR_MS + at + 1, (line,)) for at in (0, 7)]
    assert {"w/00000012": [["t", "p", 2000, "room", 20, 10]]} == projected(Waits(), events)
    other = [replace(event, lines=(line._replace(cause="quota"),)) for event in events]
    assert {"h/0000001": [["t", "p", 2000, "quota", 20, 10]]} == projected(Waits(), other)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Resources", WaitCause.ROOM),
        ("JobHeldAdmin", WaitCause.HOLD),
        ("AssocGrpGRES", WaitCause.QUOTA),
        ("QOSMaxJobsPerUserLimit", WaitCause.QUOTA),
        ("DependencyNeverSatisfied", WaitCause.DEPENDENCY),
        ("PartitionTimeLimit", WaitCause.OVER_ASKING),
        ("", WaitCause.UNKNOWN),
    ],
)
def test_reasons_of_slurm_have_causes(reason: str, cause: WaitCause) -> None:
    assert cause is wait_cause(reason)


def test_jobs_are_forgotten_two_hours_after_their_end() -> None:
    world = Planted()
    for _ in range(3):
        world.job(1, pool="room")
    world.go(BEGIN_MS + 6 * HOUR_MS)
    world.job(1, pool="room")
    world.go(BEGIN_MS + 8 * HOUR_MS)
    rows = projected(Waits(), world.events())
    assert ["j/4"] == [key for key in rows if key.startswith("j/")]


@pytest.mark.parametrize("beneath", [False, True])
def test_nobody_waits_in_a_time_that_the_clock_leaves_out(*, beneath: bool) -> None:
    """Also where the clock is set beneath a look, after the look has asked for the time."""
    world = Planted()
    world.job(2, 10, pool="room")
    world.yard.step()
    world.job(2, pool="room")
    world.go(BEGIN_MS + 30 * MINUTE_MS)
    asked_ms = world.yard.now_ms
    world.yard.now_ms += HOUR_MS
    world.yard.add(ClockSet(world.yard.now_ms, HOUR_MS))
    if beneath:
        world.meter.look(asked_ms)
    world.go(world.yard.now_ms + 30 * MINUTE_MS)
    assert {"room": pytest.approx(2.0, rel=0.02)} == world.hours()


def test_a_crashed_attempt_lost_no_more_than_it_ran() -> None:
    ends = AttemptEnded(BEGIN_MS + 3 * HOUR_MS, 1, 1, Outcome.FAILED)
    events = [
        NodeAdded(BEGIN_MS, node("g0", 2)),
        AttemptStarted(BEGIN_MS, 1, 1, (Grant(0, 0b11, 1000, 0, 0, 1),)),
        ClockSet(BEGIN_MS + 2 * HOUR_MS, HOUR_MS),
        ends,
    ]
    rows = projected(Waits(), events)
    lost = [sums[1] for key, pools in rows.items() if key.startswith("l/") for sums in pools.values()]
    assert 2 * 2 * HOUR_MS == sum(lost)


def test_users_and_names_of_jobs_are_told_apart_up_to_twenty_names() -> None:
    world = Planted()
    for user, name in [
        ("ana", "train"),
        ("ana", "train"),
        ("ana", "eval"),
        *[("bob", f"n{i:02}") for i in range(25)],
    ]:
        world.yard.ask_for(world.job(2, pool="own", user=user, name=name), Verb.HOLD)
    world.go(BEGIN_MS + HOUR_MS)
    rows = report(world, "user,name").rows
    hours = {(row["user"], row["name"]): round(row["job_hours"], 1) for row in rows}

    assert (2.0, 1.0) == (hours["ana", "train"], hours["ana", "eval"])
    assert 20 == sum(user == "bob" and name != "" for user, name in hours)
    assert 5.0 == hours["bob", ""]
    # Of the minute before the first look half counts.
    assert {"ana": 3.0, "bob": 24.8} == {
        r["user"]: round(r["job_hours"], 1) for r in report(world, "user").rows
    }


def test_what_was_told_before_users_were_is_kept_as_it_was() -> None:
    old = WaitsSeen(HOUR_MS, 0, HOUR_MS, (WaitLine("t", "p", 1000, "hold", 10, 10),))
    new = WaitsSeen(HOUR_MS, 0, HOUR_MS, (WaitLine("t", "p", 1000, "hold", 5, 5, "ana", "x"),))

    assert [["t", "p", 1000, "hold", 10, 10]] == projected(Waits(), [old])["h/0000000"]
    assert [["t", "p", 1000, "hold", 20, 20], ["t", "p", 1000, "hold", 5, 5, "ana", "x"]] == projected(
        Waits(), [old, new, old]
    )["h/0000000"]
