"""A live job is changed: what it asks for, its times, what it waits for, its place in its line."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuyard.core import apply
from gpuyard.core.jobs.queue import list_ids_in_order
from gpuyard.core.state.dump import canonical, derived, dump, load
from gpuyard.core.state.state import InvalidEvent
from gpuyard.model import (
    After,
    AfterKind,
    Ask,
    AttemptConfirmed,
    AttemptStarted,
    AttemptStopping,
    Budget,
    Earmark,
    EarmarkDropped,
    EarmarkSet,
    Grant,
    JobChanged,
    JobClass,
    JobHeld,
    JobSuspended,
    Requested,
    Settings,
    StopCause,
    Tenant,
    Verb,
    Whole,
)
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.testing import nodes
from harness.yard import Yard

CLASSES = (
    JobClass("batch", 0, grace_ms=60_000, limit_ms=4 * HOUR_MS),
    JobClass("urgent", 10, grace_ms=60_000, limit_ms=HOUR_MS),
)


def yard(policy: str = "fifo", **more: Any) -> Yard:
    return Yard(policy, nodes(1), settings=Settings(classes=CLASSES, default_class="batch", **more))


def change(here: Yard, job_id: int, joined_ms: int = 0, nice_ms: int = 0, **fields: Any) -> None:
    """Change a job; fields of its spec and of its times."""
    job = here.state.jobs[job_id].job
    times = {name: fields.pop(name) for name in ("limit_ms", "begin_ms", "deadline_ms") if name in fields}
    new = job._replace(spec=replace(job.spec, **fields), **times)
    here.apply(JobChanged(here.now_ms, new, joined_ms, nice_ms, "root"))
    loaded = load(json.loads(json.dumps(dump(here.state))))
    loaded.reindex(here.state.queue.order)
    assert canonical(here.state) == canonical(loaded)
    assert derived(here.state) == derived(loaded)


def order(here: Yard) -> list[int]:
    return list_ids_in_order(here.state.queue)


def test_a_waiting_job_asks_for_something_else_and_is_decided_anew() -> None:
    here = yard()
    first = here.submit(8)
    here.step()
    second, third = here.submit(8), here.submit(8)
    assert not here.step().starts
    here.end(first)
    change(here, second, limit_ms=HOUR_MS, klass="urgent", tenant="other")
    record = here.state.jobs[second]

    assert (HOUR_MS, "urgent", "other") == (
        record.limit_ms,
        record.klass.name,
        here.state.tenants.path[record.leaf],
    )
    change(here, second, ask=Ask(Whole(9)))
    assert [third] == [start.job_id for start in here.step().starts], "no node has nine GPUs"


def test_a_limit_follows_the_class_unless_the_job_names_one() -> None:
    here = yard()
    job = here.submit(1)
    assert 4 * HOUR_MS == here.state.jobs[job].limit_ms
    change(here, job, klass="urgent")
    assert HOUR_MS == here.state.jobs[job].limit_ms
    change(here, job, limit_ms=6 * HOUR_MS)
    assert 6 * HOUR_MS == here.state.jobs[job].limit_ms, "who may write this is asked before"
    change(here, job, name="other")
    assert 6 * HOUR_MS == here.state.jobs[job].limit_ms


def test_a_job_goes_to_the_end_of_its_line_and_loses_the_top() -> None:
    here = yard()
    here.submit(8)
    here.step()
    jobs = []
    for _ in range(3):
        here.now_ms += 1000
        jobs.append(here.submit(8))
    one, two, three = jobs
    here.apply(Requested(here.now_ms, one, Verb.TOP, "root"))
    here.now_ms += 1000
    change(here, one, joined_ms=here.now_ms, limit_ms=2 * HOUR_MS)
    assert [two, three, one] == order(here)
    change(here, three, nice_ms=-5000)
    assert [three, two, one] == order(here)
    here.now_ms += 1000
    late = here.submit(8)
    change(here, two, nice_ms=MINUTE_MS)
    assert [three, one, late, two] == order(here)
    here.now_ms += 1000
    later = here.submit(8)
    assert [three, one, late, later, two] == order(here)
    assert not here.step().starts


def test_a_new_job_is_ahead_of_one_that_made_way_for_later_ones() -> None:
    """The short cut for arrivals takes the newest for the last: with `nice` it need not be."""
    here = yard()
    here.submit(7)
    here.step()
    big = here.submit(2, limit_ms=HOUR_MS)
    change(here, big, nice_ms=HOUR_MS)
    here.step()
    here.now_ms += 1000
    small = here.submit(1, limit_ms=HOUR_MS)
    assert [small] == [start.job_id for start in here.step().starts]


def test_a_held_job_stays_held_and_one_that_begins_later_waits_for_that() -> None:
    here = yard()
    held, later = here.submit(1), here.submit(1)
    here.apply(JobHeld(here.now_ms, held))
    change(here, held, ask=Ask(Whole(2)))
    change(here, later, begin_ms=here.now_ms + 5000)
    assert not here.step().starts
    here.wait(5000)
    assert [later] == sorted(here.state.running)
    assert here.state.jobs[held].held


def test_it_no_longer_waits_for_another_job_and_then_for_a_third() -> None:
    here = yard()
    one, two = here.submit(1), here.submit(1)
    change(here, two, after=(After(AfterKind.ENDED, one),))
    assert {two} == set(here.state.deferred)
    change(here, two, after=())
    assert (set(), {}) == (set(here.state.deferred), here.state.dependents)
    three = here.submit(1)
    change(here, two, after=(After(AfterKind.COMPLETED, three),))
    here.step()
    assert {one, three} == set(here.state.running)
    here.end(one)
    assert {two} == set(here.state.deferred)
    here.end(three)
    assert [two] == [start.job_id for start in here.step().starts]


def test_another_name_lets_go_of_those_that_waited_for_the_old_one() -> None:
    here = yard()
    here.submit(8)
    here.step()
    one, two, three = here.submit(1), here.submit(1), here.submit(1)
    for job in (one, two, three):
        change(here, job, name="train")
    change(here, three, after=(After(AfterKind.ALONE, 0),))
    assert {three} == set(here.state.deferred)
    change(here, one, name="eval")
    assert {three} == set(here.state.deferred), "another of that name is left"
    change(here, two, name="eval")
    assert set() == set(here.state.deferred)
    change(here, three, name="eval", after=())
    change(here, one, after=(After(AfterKind.ALONE, 0),))
    assert set() == set(here.state.deferred), "it is the first of its name"
    change(here, three, after=(After(AfterKind.ALONE, 0),))
    change(here, one, name="other")
    assert {three} == set(here.state.deferred), "the second is there"
    change(here, two, name="other")
    assert set() == set(here.state.deferred)


def test_a_job_that_could_never_start_can_again() -> None:
    here = yard()
    one = here.submit(1)
    two = here.submit(1)
    change(here, two, after=(After(AfterKind.FAILED, one),))
    here.step()
    here.end(one)
    assert here.state.jobs[two].doomed
    change(here, two, after=())
    assert ("", {}) == (here.state.jobs[two].doomed, here.state.doomed)
    assert [two] == [start.job_id for start in here.step().starts]


def test_a_running_job_keeps_its_gpus_and_ends_at_its_new_limit() -> None:
    here = yard(tenants=(Tenant("t", budget=Budget(1000 * HOUR_MS * 1000, 24 * HOUR_MS)),))
    job = here.submit(2, limit_ms=HOUR_MS)
    here.step()
    here.apply(AttemptConfirmed(here.now_ms, job, 1))
    before = here.state.jobs[job].end_ms
    here.now_ms += MINUTE_MS
    change(here, job, limit_ms=2 * HOUR_MS, name="longer", labels=(("project", "x"),))
    record = here.state.jobs[job]
    assert (before + HOUR_MS, 2 * HOUR_MS) == (record.end_ms, record.limit_ms)
    here.apply(JobSuspended(here.now_ms, job))
    change(here, job, limit_ms=HOUR_MS)
    here.end(job)
    assert 0 == here.state.tenants.used[0][0]


def test_one_that_is_being_stopped_ends_when_it_did() -> None:
    here = yard()
    job = here.submit(2, limit_ms=HOUR_MS)
    here.step()
    here.apply(AttemptStopping(here.now_ms, job, 1, StopCause.REQUEUE))
    end_ms = here.state.jobs[job].end_ms
    change(here, job, limit_ms=3 * HOUR_MS)
    assert end_ms == here.state.jobs[job].end_ms


@pytest.mark.parametrize(
    "fields",
    [{"ask": Ask(Whole(1))}, {"klass": "urgent"}, {"tenant": "other"}],
)
def test_a_running_job_asks_for_nothing_else(fields: dict[str, Any]) -> None:
    here = yard()
    job = here.submit(2)
    here.step()
    with pytest.raises(InvalidEvent, match="it holds what it asked for"):
        change(here, job, **fields)


def test_room_that_is_kept_is_given_back_before_the_job_asks_for_something_else() -> None:
    here = yard()
    job = here.submit(2)
    grant = Grant(0, 3, 1000, 0, 0, 1)
    here.apply(EarmarkSet(here.now_ms, job, (grant,), here.now_ms + HOUR_MS))
    change(here, job, name="other")
    assert Earmark(job, (grant,), here.now_ms + HOUR_MS) == here.state.jobs[job].earmark
    with pytest.raises(InvalidEvent, match="room is kept"):
        change(here, job, ask=Ask(Whole(1)))
    here.apply(EarmarkDropped(here.now_ms, job))
    change(here, job, ask=Ask(Whole(1)))
    here.apply(AttemptStarted(here.now_ms, job, 1, (Grant(0, 1, 1000, 0, 0, 1),)))


def test_what_makes_it_this_job_stays() -> None:
    here = yard()
    job = here.submit(1)
    for fields in ({"user": "eve"}, {"recipe": "other"}, {"origin": "x"}):
        with pytest.raises(InvalidEvent, match="another job"):
            change(here, job, **fields)
    with pytest.raises(InvalidEvent, match="no live job"):
        apply(here.state, JobChanged(here.now_ms, here.state.jobs[job].job._replace(id=7)))


def test_no_place_in_line_is_before_a_job_at_the_top_of_all() -> None:
    """In an order by age alone, an hour earlier than the first moment stood before it."""
    here = Yard("strict-fifo", nodes(1))
    here.submit(8)
    here.step()
    top, earlier = here.submit(8), here.submit(8)
    here.apply(Requested(here.now_ms, top, Verb.TOP))
    here.apply(JobChanged(here.now_ms, here.state.jobs[earlier].job, nice_ms=-HOUR_MS))
    assert (top,) == here.step().examined
