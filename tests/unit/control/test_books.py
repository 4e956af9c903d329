"""Books follow the log and nothing but the log."""

from collections.abc import Callable

import pytest

from gpuyard.control.books import Books, Draft
from gpuyard.core.dump import canonical
from gpuyard.model import Ask, Job, JobSpec, JobSubmitted, Node, NodeAdded, Requested, Ticked, Verb, Whole
from gpuyard.sim.memory_store import MemoryStore
from gpuyard.store import Commit, Fenced, StoreFull, Submission

NODE = Node("n0", "main", "p", "H100", 8, 64_000, 1 << 18)


def submit(store: MemoryStore, gpus: int = 1) -> int:
    spec = JobSpec("a", Ask(Whole(gpus)))
    (answer,) = store.submit([Submission(lambda i: [JobSubmitted(5, Job(i, spec, 5))])], 5)
    assert not isinstance(answer, Exception)
    return answer.first_id


def test_what_others_wrote_is_folded_before_anything_is_judged() -> None:
    store = MemoryStore()
    books = Books(store)  # type: ignore[arg-type]
    job_id = submit(store)
    seen: list[int] = []
    books.commit(None, lambda draft: seen.extend(draft.state.jobs))
    assert [job_id] == seen
    assert store.head() == books.seq


def test_a_write_that_fails_leaves_no_trace_in_the_books(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    books = Books(store)  # type: ignore[arg-type]
    books.commit(None, lambda draft: draft.add(NodeAdded(1, NODE)))
    before = canonical(books.state)

    def full(epoch: int | None, after_seq: int, make: Callable[[list[object]], Commit]) -> list[int]:
        make([])
        raise StoreFull("no space left")

    monkeypatch.setattr(store, "commit", full)
    with pytest.raises(StoreFull):
        books.commit(None, lambda draft: draft.add(NodeAdded(2, _named("n1"))))
    books.catch_up()
    assert before == canonical(books.state)


def _named(name: str) -> Node:
    return Node(name, "main", "p", "H100", 8, 64_000, 1 << 18)


def test_an_old_leader_is_refused_and_its_draft_forgotten() -> None:
    store = MemoryStore()
    books = Books(store)  # type: ignore[arg-type]
    epoch = store.elect("one").epoch
    store.elect("two")
    with pytest.raises(Fenced):
        books.commit(epoch, lambda draft: draft.add(Ticked(9)))
    assert 0 == store.head() == books.seq


def test_a_job_that_ends_gets_its_row_in_the_same_commit() -> None:
    store = MemoryStore()
    books = Books(store)  # type: ignore[arg-type]
    job_id = submit(store)
    books.commit(None, lambda draft: draft.add(Requested(7, job_id, Verb.CANCEL, "ada")))
    row = store.rows[job_id]
    assert ("CANCELLED", 7, "cancelled by ada") == (row.state, row.ended_ms, row.why)


def test_an_event_that_no_longer_holds_is_passed_over() -> None:
    store = MemoryStore()
    books = Books(store)  # type: ignore[arg-type]

    def make(draft: Draft) -> None:
        assert draft.offer(NodeAdded(1, NODE))
        assert not draft.offer(NodeAdded(1, NODE))

    books.commit(None, make)
    assert 1 == store.head()


def test_books_opened_from_a_snapshot_are_the_books_that_made_it() -> None:
    store = MemoryStore()
    books = Books(store)  # type: ignore[arg-type]
    books.commit(None, lambda draft: draft.add(NodeAdded(1, NODE)))
    submit(store)
    books.catch_up()
    assert books.save(6, every=1)
    submit(store, 2)
    books.catch_up()
    assert canonical(books.state) == canonical(Books(store).state)  # type: ignore[arg-type]
