"""Tasks of an array, told in one line of the log: they come to what each of them would by itself."""

import sys

import pytest

from gpuyard.core import InvalidEvent, apply
from gpuyard.core.jobs.queue import list_ids_in_order
from gpuyard.core.state.dump import canonical, derived
from gpuyard.model import (
    After,
    AfterKind,
    Ask,
    Event,
    Job,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSpec,
    JobSubmitted,
    TasksSubmitted,
    Whole,
)
from gpuyard.policies.registry import PRESETS
from gpuyard.testing import nodes
from harness.yard import Yard

FIRST = After(AfterKind.COMPLETED, 1)
SPEC = JobSpec("t", Ask(Whole(1)), name="sweep", after=(FIRST,))
ALONE = JobSpec("t", Ask(Whole(1)), name="sweep")


def after(job_id: int) -> After:
    return After(AfterKind.ENDED, job_id)


def singly(tasks: TasksSubmitted) -> list[Event]:
    """The lines that releases before had, one for each task."""
    events: list[Event] = []
    for place, index in enumerate(tasks.indices):
        job_id = tasks.job.id + place
        waits = tasks.job.spec.after + (tasks.own[place] if tasks.own else ())
        waits += tuple([After(each.kind, each.job_id + place) for each in tasks.beside])
        if tasks.at_once and job_id - tasks.job.array_id > tasks.at_once:
            waits += (after(job_id - tasks.at_once),)
        spec = JobSpec("t", Ask(Whole(1)), name="sweep", after=waits)
        events.append(JobSubmitted(tasks.at_ms, tasks.job._replace(id=job_id, spec=spec, array_index=index)))
    if tasks.held:
        events += [JobHeld(tasks.at_ms, tasks.job.id + place) for place in range(len(tasks.indices))]
    return events


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("at_once", [0, 2, 9])
@pytest.mark.parametrize(
    ("own", "beside"),
    [((), ()), (((after(1),), (), (FIRST, after(2)), ()), ()), ((), (After(AfterKind.COMPLETED, 1),))],
)
@pytest.mark.parametrize("spec", [ALONE, SPEC])
@pytest.mark.parametrize("begin_ms", [0, 90_000])
def test_tasks_together_come_to_what_they_do_singly(
    held: bool,
    at_once: int,
    own: tuple[tuple[After, ...], ...],
    beside: tuple[After, ...],
    spec: JobSpec,
    begin_ms: int,
) -> None:
    job = Job(12, spec, 7, 60_000, 0, begin_ms, array_id=10, array_index=4)
    tasks = TasksSubmitted(7, job, (4, 6, 8, 11), own, beside, at_once, held)
    states = []
    for events in ([tasks], singly(tasks)):
        here = Yard("default", nodes(1))
        here.submit(8)
        here.submit(8)
        here.step()
        for event in events:
            here.apply(event)
        here.step()
        states.append((canonical(here.state), derived(here.state)))

    assert states[1] == states[0]
    assert ["10_4", "10_6", "10_8", "10_11"] == [job.label for job in tasks.jobs()]


@pytest.mark.parametrize("policy", sorted(PRESETS))
@pytest.mark.parametrize("before", [0, 1, 3])
def test_they_do_in_every_order_and_leave_as_much_to_decide(policy: str, before: int) -> None:
    """`before`: jobs that keep the GPUs busy and the queue from being empty."""
    tasks = TasksSubmitted(0, Job(12, ALONE, 0, array_id=10), tuple(range(20)))
    found = []
    for events in ([tasks], singly(tasks)):
        here = Yard(policy, nodes(1))
        for _ in range(before):
            here.submit(8)
        here.step()
        change_seq = here.state.change_seq
        for event in events:
            here.apply(event)
        changed = here.state.change_seq - change_seq
        here.step()
        order = list(list_ids_in_order(here.state.queue))
        found.append((changed, order, canonical(here.state), derived(here.state)))

    assert found[1] == found[0]


@pytest.mark.parametrize("kind", [AfterKind.STARTED, AfterKind.ENDED, AfterKind.COMPLETED, AfterKind.FAILED])
@pytest.mark.parametrize("gone", [(), (1,), (20,)])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("begin_ms", [0, 1, 90_000])
def test_they_do_where_each_waits_for_a_task_of_another_array(
    kind: AfterKind, gone: tuple[int, ...], held: bool, begin_ms: int
) -> None:
    """`gone`: of those that they wait for, the ones that ended before; later all of them end."""
    others = TasksSubmitted(1, Job(1, ALONE, 1, array_id=0), tuple(range(20)), held=True)
    job = Job(41, ALONE, 2, 60_000, 0, begin_ms, array_id=40)
    tasks = TasksSubmitted(2, job, tuple(range(20)), beside=(After(kind, 1),), held=held)
    states = []
    for events in ([tasks], singly(tasks)):
        here = Yard("default", nodes(1))
        for event in (others, *[JobCancelled(1, job_id) for job_id in gone]):
            here.apply(event)
        change_seq = here.state.change_seq
        for event in events:
            here.apply(event)
        states.append([here.state.change_seq - change_seq if not held else 0])
        for job_id in sorted(set(range(1, 21)).difference(gone)):
            here.apply(JobCancelled(3, job_id))
            states[-1] += [canonical(here.state), derived(here.state)]

    assert states[1] == states[0]


def test_no_task_has_an_id_that_was_given_out_before() -> None:
    here = Yard("fifo", nodes(1))
    here.submit(1)
    with pytest.raises(InvalidEvent):
        apply(here.state, TasksSubmitted(0, Job(1, ALONE, 0, array_id=1), (0, 1)))


def test_the_next_begin_time_is_found_without_a_look_at_every_held_task() -> None:
    """Each step of the leader asks for it while it keeps everybody from writing, however many tasks a user holds."""
    state = Yard("fifo", nodes(1)).state
    held = TasksSubmitted(1, Job(11, ALONE, 1, begin_ms=500, array_id=10), tuple(range(3000)), held=True)
    later = [JobSubmitted(1, Job(5000 + n, ALONE, 1, begin_ms=9000 - n)) for n in range(3)]
    for event in (held, *later, JobCancelled(2, 5002)):
        apply(state, event)
    assert 8999 == state.wake_ms()
    calls = 0

    def count(_frame: object, _what: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        state.wake_ms()
    finally:
        sys.setprofile(None)
    assert calls < 100
    apply(state, JobReleased(3, 20))
    assert 500 == state.wake_ms(), "a task that is released waits for its begin time again"
