"""Jobs that wait for others, as people ask for them at the service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.control.admission import dependencies
from gpuyard.control.admission.dependencies import Dependency
from gpuyard.control.refusals import Unacceptable
from gpuyard.control.replica.labels import parse_label
from gpuyard.model import After, AfterKind, Outcome
from gpuyard.store.codec import CODEC
from harness.steered import Steered, steering
from rigs.request_service import ANA, Rig, rig


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def after(kind: str, job: object = None) -> tuple[Dependency, ...]:
    return (Dependency(kind, None if job is None else parse_label(str(job))),)


def pending(service: Rig, job_id: int) -> tuple[After, ...]:
    service.replica.catch_up()
    return tuple(service.replica.state.jobs[job_id].pending)


def test_a_job_waits_for_another_and_for_all_tasks_of_an_array(service: Rig) -> None:
    one, array = service.submit(), service.submit(array=(0, 1))
    waits = service.submit(dependencies=(*after("afterok", one), *after("afterany", array)))
    assert (After(AfterKind.COMPLETED, one), After(AfterKind.ENDED, array, tasks=2)) == pending(
        service, waits
    )


def test_one_that_has_ended_as_wanted_is_not_waited_for(service: Rig) -> None:
    one = service.submit()
    service.start(one)
    service.end(one)
    assert () == pending(service, service.submit(dependencies=after("afterok", one)))


def test_one_that_has_ended_otherwise_is_refused_and_nothing_is_written(service: Rig) -> None:
    array = service.submit(array=(0, 1))
    service.start(array + 2)
    service.end(array + 2, Outcome.FAILED)
    head = service.replica.store.head()
    with pytest.raises(Unacceptable, match=f"job {array}_1 has ended as FAILED"):
        service.submit(dependencies=after("afterok", array))
    with pytest.raises(Unacceptable, match="there is no job 99 to wait for"):
        service.submit(dependencies=after("afterany", 99))
    assert head == service.replica.store.head()


def test_tasks_wait_for_the_corresponding_ones(service: Rig) -> None:
    first = service.submit(array=(1, 2))
    second = service.submit(array=(1, 2), dependencies=after("aftercorr", first))
    assert (After(AfterKind.COMPLETED, first + 1),) == pending(service, second + 1)
    assert (After(AfterKind.COMPLETED, first + 2),) == pending(service, second + 2)


def test_a_job_without_tasks_has_no_corresponding_one_and_is_refused(service: Rig) -> None:
    array = service.submit(array=(1, 2))
    head = service.replica.store.head()
    for named in (array, f"{array}_1", 999_999):
        with pytest.raises(Unacceptable, match=f"aftercorr:{named} is for arrays") as refused:
            service.submit(dependencies=after("aftercorr", named))
        assert "afterok" in refused.value.hint
    assert head == service.replica.store.head()


def test_a_singleton_waits_for_those_of_its_name_and_user(service: Rig) -> None:
    mine, other = service.submit(name="daily"), service.submit(name="hourly")
    service.submit(ANA, name="daily", tenant="ana")
    last = service.submit(name="daily", dependencies=after("singleton"))
    assert (After(AfterKind.ALONE, 0),) == pending(service, last)
    service.start(other)
    service.end(other)
    assert (After(AfterKind.ALONE, 0),) == pending(service, last)
    service.start(mine)
    service.end(mine)
    assert () == pending(service, last)


def test_an_array_runs_only_so_many_at_a_time(service: Rig) -> None:
    array = service.submit(array=(0, 1, 2, 3, 4), array_limit=2)
    service.replica.catch_up()
    state = service.replica.state
    most = 0
    for _ in range(20):
        waiting = [r for r in state.jobs.values() if r.phase is None and r.id not in state.deferred]
        for record in waiting:
            service.start(record.id, 1 << record.id - array)
        most = max(most, len(state.running))
        if not state.running:
            break
        service.end(min(state.running))
    assert 2 == most
    assert {} == state.jobs
    assert 5 == len(service.replica.store.history.of_array(array))


def test_what_a_dependency_on_an_array_takes_in_the_log_does_not_grow_with_its_tasks(service: Rig) -> None:
    array = service.submit(array=tuple(range(2000)))
    head = service.replica.store.head()
    last = service.submit(array=tuple(range(50)), dependencies=after("afterok", array))
    service.replica.catch_up()
    events = service.replica.store.read(head)
    # 2,000 dependencies of 50 bytes each were written with every task.
    assert 2_000 > sum([len(CODEC.encode(event).body) for _seq, event in events])
    assert [(After(AfterKind.COMPLETED, array, tasks=2000),)] * 2 == [
        pending(service, last + 1),
        pending(service, last + 50),
    ]


def test_tasks_that_wait_for_corresponding_ones_take_few_lines_and_each_waits_for_its_own(
    service: Rig,
) -> None:
    before = service.submit(array=tuple(range(1, 1501)))
    head = service.replica.store.head()
    regular = service.submit(array=tuple(range(1, 1501)), dependencies=after("aftercorr", before))
    assert 3 == service.replica.store.head() - head
    service.start(before + 2)
    service.end(before + 2)
    head = service.replica.store.head()
    # Task 2 has nothing left to wait for, and tasks from 600 on wait for those in another order.
    backwards = service.submit(array=(1, 2, *range(900, 599, -1)), dependencies=after("aftercorr", before))
    assert 2 + 3 >= service.replica.store.head() - head
    service.replica.catch_up()

    def ok(job_id: int) -> tuple[After, ...]:
        return (After(AfterKind.COMPLETED, job_id),)

    assert [ok(before + 1), ok(before + 777), ok(before + 1500)] == [
        pending(service, regular + 1),
        pending(service, regular + 777),
        pending(service, regular + 1500),
    ]
    assert [ok(before + 1), (), ok(before + 900), ok(before + 600)] == [
        pending(service, backwards + place) for place in (1, 2, 3, 303)
    ]


def test_a_dependency_that_is_named_a_thousand_times_is_looked_up_once(
    service: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = service.submit(array=tuple(range(300)))
    looked = []
    found = dependencies.find_live
    monkeypatch.setattr(dependencies, "find_live", lambda *args: looked.append(1) or found(*args))
    same = service.submit(dependencies=after("afterok", array) * 1000)
    tasks = tuple([each for index in range(300) for each in after("afterany", f"{array}_{index}")])
    each = service.submit(dependencies=tasks)
    assert 1 == len(pending(service, same))
    assert 300 == len(pending(service, each))
    assert 2 == len(looked)


def test_more_dependencies_than_the_log_should_hold_are_refused(
    service: Rig,
) -> None:
    jobs = [service.submit() for _ in range(40)]
    wanted = tuple([each for job in jobs for each in after("afterok", job)])
    tasks = dependencies.EDGES_MAX // len(jobs)
    service.submit(array=tuple(range(6)), dependencies=wanted)
    with pytest.raises(Unacceptable, match=f"{tasks + 1} tasks that each wait for 40 jobs are too many"):
        service.submit(array=tuple(range(tasks + 1)), dependencies=wanted)


def test_afternotok_wants_one_task_of_an_array_to_fail(service: Rig) -> None:
    array = service.submit(array=(0, 1, 2))
    for task, outcome in ((1, Outcome.COMPLETED), (2, Outcome.FAILED)):
        service.start(array + task)
        service.end(array + task, outcome)
    waits = service.submit(dependencies=after("afternotok", array))
    assert (After(AfterKind.ENDED, array, tasks=3),) == pending(service, waits)
    service.start(array + 3)
    service.end(array + 3)
    assert () == pending(service, waits)
    good = service.submit(array=(0,))
    service.start(good + 1)
    service.end(good + 1)
    with pytest.raises(Unacceptable, match=f"all tasks of job {good} have completed"):
        service.submit(dependencies=after("afternotok", good))


def test_the_corresponding_tasks_of_an_ended_array_are_looked_up_once(
    service: Rig,
) -> None:
    first = service.submit(array=(1, 2, 3))
    for task in (1, 2):
        service.start(first + task)
        service.end(first + task)
    asked = []
    history = service.replica.store.history
    ends = history.ends_of_array
    watched = Steered(history, ends_of_array=lambda job_id: asked.append(job_id) or ends(job_id))
    with steering(service.replica.store).doing(history=watched):
        second = service.submit(array=(1, 2, 3), dependencies=after("aftercorr", first))
    assert [(), (), (After(AfterKind.COMPLETED, first + 3),)] == [
        pending(service, second + n) for n in (1, 2, 3)
    ]
    assert [first] == asked
