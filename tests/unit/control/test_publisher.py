"""A list waits a moment for what others have done, and without end for what its own user has done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpuyard.control.admission.entering import make_events
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.reading.model import Model
from gpuyard.control.reading.publisher import PATIENCE_S, STALE_S, Publisher, own_write_s
from gpuyard.control.replica.replica import Replica
from gpuyard.model import Ask, JobCancelled, JobSpec, Whole
from gpuyard.store import Submission
from gpuyard.testing import MemoryStore

TASKS = 5_000


class Clock:
    """Every look at it takes a moment, as the work between two looks would."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


class Reader:
    """Replica with one job, published, and another user's array that nobody has read yet."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore()
        self.replica = Replica(self.store)  # type: ignore[arg-type]
        self.publisher = Publisher(self.replica, now_s=self.clock)
        self.submit(1)
        assert 1 == self.publisher.latest().jobs.count
        self.clock.now_s += 0.5
        self.submit(TASKS)
        self.clock.step_s = PATIENCE_S / 3

    def submit(self, tasks: int, user: str = "") -> None:
        spec, job = JobSpec("a", Ask(Whole(1)), user=user), Wanted(array=tuple(range(tasks)))
        self.store.submit([Submission(lambda i: make_events(job, spec, i, 5, {}), job.ids)], 5)

    def listed(self) -> int:
        return self.publisher.latest(listing=True).jobs.count


@pytest.fixture
def reader() -> Reader:
    return Reader()


@contextmanager
def wrote_at(second: float) -> Iterator[None]:
    token = own_write_s.set(second)
    try:
        yield
    finally:
        own_write_s.reset(token)


def test_a_list_does_not_wait_for_another_users_array(reader: Reader) -> None:
    with wrote_at(99.0):
        assert 1 == reader.listed()


def test_the_next_lists_go_on_with_the_work(reader: Reader) -> None:
    with wrote_at(99.0):
        found = [reader.listed() for _ in range(20)]

    assert {1, TASKS + 1} == set(found)
    assert sorted(found) == found
    assert found.index(TASKS + 1) < 15


def test_a_list_shows_what_its_user_has_written(reader: Reader) -> None:
    with wrote_at(100.2):
        assert TASKS + 1 == reader.listed()


def test_a_list_of_ones_own_jobs_shows_them_without_another_users_array(reader: Reader) -> None:
    publisher = reader.publisher
    reader.submit(2, "me")
    with wrote_at(100.6):
        mine = publisher.latest(listing=True, user="me")
        ids = publisher.own("me", 10)
        assert ids is not None
        assert 2 == len(ids) == len([*mine.own(ids)]) == len([i for _, i in mine.ids() if i in ids])
        assert 1 + 2 == mine.jobs.count

        reader.replica.commit(None, lambda draft: draft.add(JobCancelled(6, ids[0])))
        for _ in range(2):
            again = publisher.latest(listing=True, user="me")
            assert ids[1:] == publisher.own("me", 10)
            assert ids[1:] == [row.id for _, row in again.line() if row.id in ids]
        assert 1 + 1 == again.jobs.count

        reader.clock.step_s = 0.0
        whole = publisher.latest()
    assert TASKS + 1 + 1 == whole.jobs.count
    assert ids[1:] == publisher.own("me", 10)


def test_followers_are_told_of_jobs_that_a_list_showed_before(reader: Reader) -> None:
    publisher, window = reader.publisher, reader.publisher.window
    version, _model, _ = window.start("")
    reader.submit(2, "me")
    with wrote_at(100.6):
        publisher.latest(listing=True, user="me")
        assert version == window.start("")[0]
        reader.clock.step_s = 0.0
        whole = publisher.latest()

    assert whole.version == window.start("")[0] == version + 1
    assert TASKS + 2 == sum([len(ids) for _version, _seq, ids in window._entries])


def test_a_list_of_an_unknown_reader_shows_everything(reader: Reader) -> None:
    assert TASKS + 1 == reader.listed()


def test_a_list_is_never_older_than_a_second(reader: Reader) -> None:
    reader.clock.now_s = 100.0 + STALE_S + 0.1
    with wrote_at(99.0):
        assert TASKS + 1 == reader.listed()


def test_a_seldom_list_of_ones_own_jobs_does_not_wait_for_another_users_array(reader: Reader) -> None:
    """Nobody had read for more than a second: the list made a row of each task of others before it answered."""
    reader.submit(2, "me")
    reader.clock.now_s = 100.0 + STALE_S + 2
    with wrote_at(99.0):
        mine = reader.publisher.latest(listing=True, user="me")

    assert 1 + 2 == mine.jobs.count
    assert 2 == len(reader.publisher.own("me", 10) or ())


def test_what_was_written_is_published_a_moment_at_a_time(reader: Reader) -> None:
    publisher, held = reader.publisher, []
    publish = publisher._publish

    def counted(enough: Callable[[], bool]) -> Model | None:
        before = len(publisher._made)
        found = publish(enough)
        held.append((TASKS if found is not None else len(publisher._made)) - before)
        return found

    publisher._publish = counted  # type: ignore[method-assign]
    publisher.keep_up()

    assert TASKS + 1 == reader.publisher._model.jobs.count  # type: ignore[union-attr]
    assert len(held) > 5
    assert max(held) <= TASKS / 5, held
    with wrote_at(100.2):
        assert TASKS + 1 == reader.listed()


def test_nothing_is_published_for_nobody() -> None:
    replica = Replica(MemoryStore())  # type: ignore[arg-type]
    publisher = Publisher(replica)
    publisher.keep_up()
    assert publisher._model is None


def test_what_is_touched_amid_the_work_is_published_as_it_is_then(reader: Reader) -> None:
    with wrote_at(99.0):
        while reader.replica.seq < reader.store.head():
            reader.listed()
        reader.listed()
        assert reader.publisher._made
        made = min(reader.publisher._made)
        reader.clock.step_s = 0.0
        reader.replica.state.jobs[made].held = True
        assert reader.replica.state.touched is not None
        reader.replica.state.touched.add(made)
        model = reader.publisher.latest(listing=True)

    assert TASKS + 1 == model.jobs.count
    row = model.jobs.get(made)
    assert row is not None
    assert row.record.held
