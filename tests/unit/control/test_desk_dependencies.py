"""Jobs that wait for others, as people ask for them at the desk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.control.dependencies import Dependency
from gpuyard.control.labels import label_of
from gpuyard.control.refusals import Unacceptable
from gpuyard.model import After, AfterKind, Outcome
from rigs.desk import ANA, Rig, rig


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def after(kind: str, job: object = None) -> tuple[Dependency, ...]:
    return (Dependency(kind, None if job is None else label_of(str(job))),)


def pending(desk: Rig, job_id: int) -> tuple[After, ...]:
    desk.books.catch_up()
    return desk.books.state.jobs[job_id].pending


def test_a_job_waits_for_another_and_for_all_tasks_of_an_array(desk: Rig) -> None:
    one, array = desk.submit(), desk.submit(array=(0, 1))
    waits = desk.submit(dependencies=(*after("afterok", one), *after("afterany", array)))
    assert (
        After(AfterKind.COMPLETED, one),
        After(AfterKind.ENDED, array + 1),
        After(AfterKind.ENDED, array + 2),
    ) == pending(desk, waits)


def test_one_that_has_ended_as_wanted_is_not_waited_for(desk: Rig) -> None:
    one = desk.submit()
    desk.start(one)
    desk.end(one)
    assert () == pending(desk, desk.submit(dependencies=after("afterok", one)))


def test_one_that_has_ended_otherwise_is_refused_and_nothing_is_written(desk: Rig) -> None:
    array = desk.submit(array=(0, 1))
    desk.start(array + 2)
    desk.end(array + 2, Outcome.FAILED)
    head = desk.books.store.head()
    with pytest.raises(Unacceptable, match=f"job {array}_1 has ended as FAILED"):
        desk.submit(dependencies=after("afterok", array))
    with pytest.raises(Unacceptable, match="there is no job 99 to wait for"):
        desk.submit(dependencies=after("afterany", 99))
    assert head == desk.books.store.head()


def test_tasks_wait_for_the_corresponding_ones(desk: Rig) -> None:
    first = desk.submit(array=(1, 2))
    second = desk.submit(array=(1, 2), dependencies=after("aftercorr", first))
    assert (After(AfterKind.COMPLETED, first + 1),) == pending(desk, second + 1)
    assert (After(AfterKind.COMPLETED, first + 2),) == pending(desk, second + 2)


def test_a_singleton_waits_for_those_of_its_name_and_user(desk: Rig) -> None:
    mine, other = desk.submit(name="daily"), desk.submit(name="hourly")
    desk.submit(ANA, name="daily", tenant="ana")
    last = desk.submit(name="daily", dependencies=after("singleton"))
    assert (After(AfterKind.ENDED, mine),) == pending(desk, last)
    assert other not in [each.job_id for each in pending(desk, last)]


def test_an_array_runs_only_so_many_at_a_time(desk: Rig) -> None:
    array = desk.submit(array=(0, 1, 2, 3, 4), array_limit=2)
    desk.books.catch_up()
    state = desk.books.state
    most = 0
    for _ in range(20):
        waiting = [r for r in state.jobs.values() if r.phase is None and r.id not in state.deferred]
        for record in waiting:
            desk.start(record.id, 1 << record.id - array)
        most = max(most, len(state.running))
        if not state.running:
            break
        desk.end(min(state.running))
    assert 2 == most
    assert {} == state.jobs
    assert 5 == len(desk.books.store.array_history(array))
