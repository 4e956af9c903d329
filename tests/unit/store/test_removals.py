"""Recipes go when no job needs them any more, and never before; what was removed is told."""

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from gpuyard.model import Event, Job, JobSubmitted
from gpuyard.store import HISTORY_ROWS, HistoryRow, Removal, Store, Submission, open_store
from rigs.stores import SPEC, accepted

OLD, NEW = b'{"script": "#!/bin/sh\\nold", "env": {"TOKEN": "tr0ub4dor"}}', b'{"script": "#!/bin/sh\\nnew"}'
BY = Removal(5_000, "retention")


def name(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def submitted(store: Store, body: bytes) -> int:
    spec = replace(SPEC, recipe=name(body))

    def make(first_id: int) -> list[Event]:
        return [JobSubmitted(1, Job(first_id, spec, 1))]

    (one,) = accepted(store, Submission(make, 1, {name(body): body}))
    return one.first_id


def ended(store: Store, job_id: int, body: bytes, ended_ms: int) -> None:
    detail = {"spec": {"recipe": name(body)}}
    row = HistoryRow(
        job_id, "n", "t", "u", "batch", "COMPLETED", 0, 1, 2, ended_ms, attempts=1, detail=detail
    )
    store.bound.put({HISTORY_ROWS: [row]})


def noted(store: Store) -> None:
    store.removals.note_ends(
        {job.recipe: job.ended_ms for job in store.removals.ended_until(1 << 62, (0, 0), 100)}
    )


def removed(store: Store, before_ms: int, *needed: bytes, seq: int | None = None) -> list[str]:
    at = store.head() if seq is None else seq
    found = store.removals.remove_recipes(before_ms, (0, ""), 100, {name(body) for body in needed}, at, BY)
    return [recipe.hash for recipe in found if not recipe.needed]


def test_a_recipe_goes_when_the_last_of_its_jobs_ended_long_ago(store: Store) -> None:
    jobs = [submitted(store, body) for body in (OLD, OLD, NEW)]
    ended(store, jobs[0], OLD, 1_000)
    ended(store, jobs[2], NEW, 900)
    noted(store)
    assert [] == removed(store, 900), "not that old"
    assert [name(NEW)] == removed(store, 1_001, OLD), "its other job is live"
    assert (OLD, None) == (store.blob(name(OLD)), store.blob(name(NEW)))
    assert (None, BY) == (store.removals.recipe_removal(name(OLD)), store.removals.recipe_removal(name(NEW)))
    ended(store, jobs[1], OLD, 2_000)
    noted(store)
    assert [] == removed(store, 2_000), "its later job ended later"
    assert [name(OLD)] == removed(store, 2_001)
    assert [] == removed(store, 9_999), "once"


def test_a_recipe_that_is_submitted_at_this_moment_stays(store: Store) -> None:
    ended(store, submitted(store, OLD), OLD, 1_000)
    noted(store)
    looked = store.head()
    submitted(store, OLD)
    assert [] == removed(store, 9_999, seq=looked)
    assert OLD == store.blob(name(OLD))


def test_a_recipe_that_comes_again_is_there_again(store: Store) -> None:
    ended(store, submitted(store, OLD), OLD, 1_000)
    noted(store)
    removed(store, 9_999)
    again = submitted(store, OLD)
    assert (OLD, None) == (store.blob(name(OLD)), store.removals.recipe_removal(name(OLD)))
    ended(store, again, OLD, 8_000)
    noted(store)
    assert [name(OLD)] == removed(store, 9_999)
    assert BY == store.removals.recipe_removal(name(OLD))


def stripped(store: Store, before_ms: int, *needed: bytes, removal: Removal | None = BY) -> list[int]:
    names = {name(body) for body in needed}
    return [
        each.size
        for each in store.removals.strip_recipes(before_ms, (0, ""), 100, names, store.head(), removal)
    ]


def test_an_environment_goes_before_the_rest_of_its_recipe(store: Store) -> None:
    for body in (OLD, NEW):
        ended(store, submitted(store, body), body, 1_000)
    noted(store)
    assert [] == stripped(store, 1_000), "not that old"
    assert 2 == len(stripped(store, 1_001, OLD, NEW))
    assert OLD == store.blob(name(OLD)), "a live job has it"
    assert [0, len(json.dumps({"TOKEN": "tr0ub4dor"}))] == sorted(stripped(store, 1_001, removal=None))
    assert [0, len(json.dumps({"TOKEN": "tr0ub4dor"}))] == sorted(stripped(store, 1_001))
    assert [] == stripped(store, 1_001), "once"
    left = json.loads(store.removals.bare_recipe(name(OLD)) or b"")
    assert (None, {}, "#!/bin/sh\nold") == (store.blob(name(OLD)), left["env"], left["script"])
    assert (BY._asdict(), NEW) == (left["env_removed"], store.blob(name(NEW)))

    again = submitted(store, OLD)
    assert OLD == store.blob(name(OLD)), "whoever submits it again brings it along"
    ended(store, again, OLD, 2_000)
    noted(store)
    assert [len(json.dumps({"TOKEN": "tr0ub4dor"}))] == stripped(store, 2_001)
    assert {name(OLD), name(NEW)} == set(removed(store, 2_001))
    assert (None, BY) == (store.removals.bare_recipe(name(OLD)), store.removals.recipe_removal(name(OLD)))
    with store._backend.reading() as conn:
        assert 0 == conn.exec_driver_sql("SELECT count(*) FROM blobs").scalar_one()


def test_what_is_only_looked_at_stays(store: Store) -> None:
    ended(store, submitted(store, OLD), OLD, 1_000)
    noted(store)
    (found,) = store.removals.remove_recipes(9_999, (0, ""), 100, (), store.head(), None)
    assert (len(OLD), False, OLD) == (found.size, found.needed, store.blob(name(OLD)))


def test_the_history_says_what_was_removed(store: Store) -> None:
    for job_id, ended_ms in ((1, 10), (2, 20), (3, 20), (4, 30)):
        ended(store, job_id, OLD, ended_ms)
    first = store.removals.ended_until(30, (0, 0), 2)
    rest = store.removals.ended_until(30, first[-1].mark, 2)
    assert ([1, 2], [3]) == ([job.id for job in first], [job.id for job in rest])
    store.removals.note_removed(first, "logs", BY)
    store.removals.note_removed(first[:1], "folders", Removal(6_000, "ana"))
    told = [store.history.find(job_id).detail.get("removed") for job_id in (1, 2, 3)]  # type: ignore[union-attr]
    logs = {"at_ms": 5_000, "by": "retention"}
    assert [{"logs": logs, "folders": {"at_ms": 6_000, "by": "ana"}}, {"logs": logs}, None] == told


def test_marks_are_remembered(store: Store) -> None:
    assert {} == store.removals.marks()
    store.removals.put_marks({"logs": (1, 2)})
    store.removals.put_marks({"logs": (3, 4), "scripts": (5, 6)})
    assert {"logs": (3, 4), "scripts": (5, 6)} == store.removals.marks()


def test_a_secret_that_was_removed_is_not_left_in_the_file(tmp_path: Path) -> None:
    """SQLite keeps what was deleted until it needs the room."""
    path = tmp_path / "yard.db"
    with open_store(path) as store:
        ended(store, submitted(store, OLD), OLD, 1_000)
        noted(store)
        assert b"tr0ub4dor" in b"".join(each.read_bytes() for each in tmp_path.iterdir())
        stripped(store, 9_999)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    assert b"tr0ub4dor" not in path.read_bytes()
