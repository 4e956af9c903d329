"""Projections that follow the log: live, filled anew, by processes that die, from a log that was cut.

The projection is `gpu_time.GpuTime`, which `src` knows nothing of.
"""

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from gpuyard.control.duties.forgetting import LOG_KEPT_MS, forget
from gpuyard.control.duties.projections import CHECKPOINT_MS, LIVE_FACTS, Filler
from gpuyard.control.projections import Projection, Rows
from gpuyard.control.projections.following import expand_event
from gpuyard.control.projections.ledger import Ledger
from gpuyard.ledger import rows as ledger_rows
from gpuyard.model import (
    AttemptEnded,
    AttemptStarted,
    Event,
    JobCancelled,
    JobHeld,
    JobSubmitted,
    Outcome,
)
from gpuyard.model.units import DAY_MS
from gpuyard.store import Cursor, Fenced, Store, open_store
from gpuyard.store.copying import copy_store
from harness.steered import Steered
from rigs.gpu_time import GpuTime
from rigs.stores import SPEC, accepted, array, submission, ticks

NAME = GpuTime.name
NOW_MS = 1_790_000_000_000
KILLED = """
import os, signal, sys
from gpuyard.control.duties.projections import Filler
from gpuyard.store import open_store
from gpuyard.store.tables import following
sys.path.insert(0, sys.argv[4])
from rigs.gpu_time import GpuTime

left = int(sys.argv[3])

def dies(call):
    def counted(*given, **named):
        global left
        left -= 1
        if not left and sys.argv[2] != "after":
            os.kill(os.getpid(), signal.SIGKILL)
        done = call(*given, **named)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return counted

if sys.argv[2] == "within":
    # The rows of the batch are written, its cursor is not, and nothing is committed.
    following.Following._stands = dies(following.Following._stands)
else:
    following.Following.put = dies(following.Following.put)
store = open_store(sys.argv[1], lease_s=1)
filler = Filler(store, [GpuTime()], lambda: 1, batch=20)
while filler.step(store.counters().epoch):
    pass
"""


@pytest.fixture
def epoch(store: Store) -> int:
    return elected(store)


def elected(store: Store) -> int:
    """The epoch of the last leader: nobody else is elected."""
    lease = store.elect("test")
    assert lease is not None
    lease.release()
    return lease.epoch


def write_log(store: Store, seed: int = 1, jobs: int = 60) -> dict[str, Any]:
    """Jobs and an array, started, ended and cancelled in some order; the GPU time of their tenant, as it should be."""
    chance, events, total, at_ms = random.Random(seed), list[Event](), {}, 1000
    first = accepted(store, submission(jobs), array(30))[0].first_id
    for job_id in chance.sample(range(first, first + jobs), jobs - 10):
        if chance.random() < 0.2:
            events.append(JobCancelled(at_ms, job_id))
            continue
        ran_ms, outcome = chance.randrange(1, 10**6), chance.choice([Outcome.COMPLETED, Outcome.FAILED])
        events.append(AttemptStarted(at_ms, job_id, 1, ()))
        at_ms += ran_ms
        events.append(AttemptEnded(at_ms, job_id, 1, outcome))
        total[outcome.value] = total.get(outcome.value, 0) + 1
        total["ms"] = total.get("ms", 0) + ran_ms
    store.append(events)
    return total


def fill(store: Store, epoch: int, batch: int = 20, projection: Projection | None = None) -> Filler:
    filler = Filler(store, [projection or GpuTime()], lambda: NOW_MS, batch=batch)
    while filler.step(epoch):
        pass
    assert {} == filler.errors
    return filler


def rows(store: Store, name: str = NAME) -> dict[str, str]:
    """All of them, byte for byte."""
    found: dict[str, str] = {}
    while page := store.projections.rows(name, after=max(found, default=""), limit=50):
        found.update(page)
    return found


def rebuilt(store: Store, epoch: int, batch: int = 20) -> dict[str, str]:
    """Filled anew from what the log has."""
    Filler(store, [GpuTime()], lambda: NOW_MS).rebuild(NAME)
    fill(store, epoch, batch)
    return rows(store)


def cut(store: Store, at_seq: int, following: list[str]) -> int:
    """Cut the log at an event, as a server does in time."""
    store.snapshots.save(at_seq, {}, NOW_MS)
    return store.forget_log(NOW_MS + 90 * DAY_MS, following)


def test_live_and_filled_anew_it_is_the_same_byte_by_byte(store: Store, epoch: int) -> None:
    totals = []
    for seed in range(3):
        totals.append(write_log(store, seed))
        fill(store, epoch, batch=7 + seed)
    live = rows(store)
    told = json.loads(live[f"tenant/{SPEC.tenant}"])
    assert sum(each["ms"] for each in totals) == told["ms"]
    assert {"COMPLETED", "FAILED"} == told["ends"].keys()
    assert sum(each["FAILED"] for each in totals) == told["ends"]["FAILED"]
    # Ten jobs of each round wait still, and its array, which is in the log as one line.
    assert 3 * (10 + 30) == len(live) - 1
    assert store.head() == store.projections.cursors()[NAME].seq
    for batch in (1000, 13):
        assert live == rebuilt(store, epoch, batch)


def test_the_books_of_one_leader_are_those_of_many_and_forget_what_they_need_not_know(
    store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_rows, "SHELF_MAX", 5)
    write_log(store)
    one = Filler(store, [Ledger()], lambda: NOW_MS, batch=7)
    while one.step(epoch):
        pass
    live = rows(store, Ledger.name)
    assert {"head", "j/0"} <= live.keys()
    one.rebuild(Ledger.name)
    while Filler(store, [Ledger()], lambda: NOW_MS, batch=11).step(epoch):
        pass
    assert live == rows(store, Ledger.name)


@pytest.mark.parametrize("where", ["before", "within", "after"])
def test_a_process_that_is_killed_repeats_nothing_and_skips_nothing(
    where: str, store: Store, place: str, epoch: int
) -> None:
    write_log(store)
    command = [sys.executable, "-c", KILLED, place, where, "3", str(Path(__file__).parents[2])]
    deaths = 0
    while subprocess.run(command, check=False).returncode == -9:
        deaths += 1
        command[5] = "2"
        assert 0 <= store.projections.cursors()[NAME].seq < store.head() or where == "after"
        if where != "after" and deaths == 2:
            break
    assert deaths >= 2
    fill(store, epoch)
    live = rows(store)
    assert live == rebuilt(store, epoch, 1000)
    assert f"tenant/{SPEC.tenant}" in live


def test_a_snapshot_is_of_one_moment_however_the_rows_move_on(store: Store, epoch: int) -> None:
    """A report that read them again until they stood still read them six times while they moved all the time."""
    write_log(store)
    fill(store, epoch)
    then = store.projections.cursors(), rows(store)
    with store.projections.snapshot() as seen:
        assert then[0] == seen.cursors()
        write_log(store, seed=2)
        fill(store, epoch)
        assert then == (seen.cursors(), dict(seen.between(NAME, "", "~")))
        assert then[1] == seen.at(NAME, [*then[1]])
    assert then[0] != store.projections.cursors()
    assert then[1] != rows(store)


def test_on_a_log_that_was_cut_it_is_filled_from_its_checkpoint(store: Store, epoch: int) -> None:
    write_log(store, 1)
    fill(store, epoch)
    saved = store.projections.cursors()[NAME].seq
    assert [saved] == [at.seq for at in store.projections.checkpoints(NAME)]
    write_log(store, 2)
    fill(store, epoch)
    live = rows(store)

    assert saved == cut(store, saved, [NAME])
    assert saved + 1 == store.first_seq()
    assert live == rebuilt(store, epoch)
    assert 0 == store.projections.cursors()[NAME].began_seq


def test_the_log_is_not_cut_where_no_checkpoint_covers_it(store: Store, epoch: int) -> None:
    write_log(store, 1)
    assert 0 == cut(store, store.head(), [NAME]), "it has not been filled yet, and wants to see all of it"
    fill(store, epoch)
    saved = store.projections.cursors()[NAME].seq
    write_log(store, 2)
    fill(store, epoch)
    live = rows(store)
    store.snapshots.save(saved, {}, NOW_MS)
    assert saved == cut(store, store.head(), [NAME]), "only up to its checkpoint"
    with store._backend.writing() as conn:
        body = "x'00'" if conn.dialect.name == "sqlite" else "'\\x00'"
        conn.execute(text(f"UPDATE checkpoints SET body = {body}"))
    assert 0 == store.forget_log(NOW_MS + 90 * DAY_MS, [NAME]), "a damaged one covers nothing"
    assert live == rows(store)


def test_one_that_was_given_up_holds_the_log_no_longer_than_it_is_kept(store: Store, epoch: int) -> None:
    write_log(store, 1)
    fill(store, epoch)
    write_log(store, 2)
    fill(store, epoch)
    store.snapshots.save(store.head(), {}, NOW_MS - DAY_MS)
    assert 0 == store.forget_log(NOW_MS - 1, [])
    assert store.head() == store.forget_log(NOW_MS, [])
    # It comes back, and lacks nothing: it had seen all that is gone.
    live = rows(store)
    fill(store, epoch)
    assert live == rows(store)
    # Of what it had not seen it is told, and starts where the log does.
    write_log(store, 3)
    store.snapshots.save(store.head(), {}, NOW_MS)
    assert 0 < store.forget_log(NOW_MS, [])
    write_log(store, 4)
    fill(store, epoch)
    assert store.projections.cursors()[NAME].began_seq == store.first_seq() - 1 > 0


def test_a_new_version_is_filled_anew_from_a_checkpoint_that_it_understands(store: Store, epoch: int) -> None:
    class Second(GpuTime):
        version = 2

        def fold(self, rows: Rows, seq: int, event: Event) -> None:
            if not isinstance(event, JobSubmitted):
                super().fold(rows, seq, event)

    class Third(GpuTime):
        version = 3

        def upgrade(self, version: int, rows: Any) -> Any:
            return rows if version == 1 else None

    write_log(store, 1)
    fill(store, epoch)
    saved = store.head()
    write_log(store, 2)
    fill(store, epoch)
    live = rows(store)
    fill(store, epoch, projection=Second())
    assert (2, ["tenant/?"]) == (store.projections.cursors()[NAME].version, [*rows(store)])
    # With its own checkpoint the log may go; one of version 1 lies where the log begins.
    assert saved == cut(store, saved, [NAME])
    fill(store, epoch, projection=Third())
    assert live == rows(store)
    head = store.head()
    assert [(1, saved), (2, head), (3, head)] == [
        (at.version, at.seq) for at in store.projections.checkpoints(NAME)
    ]


def test_one_that_fails_stands_still_and_the_others_go_on(store: Store, epoch: int) -> None:
    class Broken(Projection):
        name = "broken"

        def fold(self, rows: Rows, seq: int, event: Event) -> None:
            rows[str(seq)] = seq
            if seq == 50:
                raise ValueError("beyond me")

    write_log(store)
    filler = Filler(store, [Broken(), GpuTime()], lambda: NOW_MS, batch=20)
    while filler.step(epoch):
        pass
    told = {each["name"]: each for each in filler.status()}
    assert (40, False, "event 50, JobSubmitted: beyond me") == tuple(
        told["broken"][key] for key in ("seq", "filled", "error")
    )
    assert (store.head(), True, "") == tuple(told[NAME][key] for key in ("seq", "filled", "error"))
    assert {str(seq) for seq in range(1, 41)} == rows(store, "broken").keys()
    assert 0 == cut(store, 45, ["broken"])


def test_only_the_leader_fills(store: Store, epoch: int) -> None:
    write_log(store)
    filler = Filler(store, [GpuTime()], lambda: NOW_MS)
    filler.step(epoch)
    with pytest.raises(Fenced):
        filler.step(epoch - 1)
    assert {} == rows(store)


def test_what_was_worked_out_before_a_rebuild_is_thrown_away(store: Store, epoch: int) -> None:
    write_log(store)
    fill(store, epoch)
    cursor = store.projections.cursors()[NAME]
    Filler(store, [GpuTime()], lambda: NOW_MS).rebuild(NAME)
    assert not store.projections.put(epoch, cursor, cursor._replace(seq=cursor.seq + 1), {"odd": "1"})
    fill(store, epoch)
    assert "odd" not in rows(store)


def test_a_checkpoint_is_made_once_a_week(store: Store, epoch: int) -> None:
    write_log(store)
    clock = [NOW_MS]
    filler = Filler(store, [GpuTime()], lambda: clock[0])
    while filler.step(epoch):
        pass
    made = []
    for late_ms in (0, 1, CHECKPOINT_MS, CHECKPOINT_MS + 1):
        clock[0] = NOW_MS + late_ms
        store.append(ticks(1))
        assert not filler.step(epoch), "a batch that is not full is the last one for now"
        made.append(len(store.projections.checkpoints(NAME)))
    assert [1, 1, 2, 2] == made


def test_a_copy_of_the_store_has_it_whole(store: Store, place: str, epoch: int, tmp_path: Path) -> None:
    write_log(store, 1)
    fill(store, epoch)
    live = rows(store)
    copy_store(place, tmp_path / "copy.db", NOW_MS // 1000)
    with open_store(tmp_path / "copy.db") as copy:
        there = elected(copy)
        fill(copy, there)
        assert (live, store.projections.cursors()) == (rows(copy), copy.projections.cursors())
        assert len(store.projections.checkpoints(NAME)) == len(copy.projections.checkpoints(NAME)) == 1
        write_log(copy, 2)
        fill(copy, there)
        live = rows(copy)
        assert live == rebuilt(copy, there)


def test_keys_and_pages(store: Store, epoch: int) -> None:
    store.projections.fill_anew(NAME, 1, 1)
    cursor = store.projections.cursors()[NAME]
    keys = ["a", "b", "b/é", "b/\U0001f600", "b0", "B/x", "b/"]
    assert store.projections.put(epoch, cursor, cursor._replace(seq=0), dict.fromkeys(keys, "1"))
    assert sorted(keys) == [key for key, _value in store.projections.rows(NAME)]
    assert ["b/", "b/é", "b/\U0001f600"] == [key for key, _value in store.projections.rows(NAME, "b/")]
    assert ["b/é"] == [key for key, _value in store.projections.rows(NAME, "b/", after="b/", limit=1)]


def test_rows_as_a_fold_sees_them() -> None:
    there = {"a": '{"x":1}'}
    found = Rows(there.get)
    found["b\0"] = {"z": 1, "a": [2]}
    del found["a"]
    assert ("a" in found, "b\0" in found, found.get("c", 7)) == (False, True, 7)
    assert {"b\ufffd": '{"a":[2],"z":1}', "a": None} == found.changed
    with pytest.raises(KeyError):
        found["a"]


def test_the_tasks_of_an_array_come_one_by_one() -> None:
    (made,) = array(3).make(7)
    held = made._replace(held=True)  # type: ignore[union-attr]
    assert [8, 8, 9, 9, 10, 10] == [
        fact.job.id if isinstance(fact, JobSubmitted) else fact.job_id  # type: ignore[union-attr]
        for fact in expand_event(held)
    ]
    assert [JobSubmitted, JobHeld] * 3 == [type(fact) for fact in expand_event(held)]


def test_the_server_that_leads_cuts_no_more_than_checkpoints_cover(store: Store, epoch: int) -> None:
    write_log(store, 1)
    fill(store, epoch)
    saved = store.head()
    store.snapshots.save(saved, {}, NOW_MS)
    write_log(store, 2)
    fill(store, epoch)
    store.snapshots.save(store.head(), {}, NOW_MS)
    for following, first in (([NAME], saved + 1), ([], store.head() + 1)):
        forget(store, following, NOW_MS + 2 * LOG_KEPT_MS)
        assert first == store.first_seq()


def test_a_projection_that_is_not_far_behind_holds_up_no_writer_for_long(store: Store, epoch: int) -> None:
    """Others wait for as long as the rows of a batch are written."""
    store.append(ticks(*range(3 * LIVE_FACTS)))
    many = list[int]()
    put = store.projections.put

    def counted(epoch: int, cursor: Cursor, moved: Cursor, rows: Mapping[str, str | None]) -> bool:
        many.append(len(rows))
        return put(epoch, cursor, moved, rows)

    watched: Any = Steered(store, projections=Steered(store.projections, put=counted))
    filler = Filler(watched, [Everything()], lambda: NOW_MS)
    while filler.step(epoch):
        pass

    assert 3 * LIVE_FACTS == sum(many)
    assert max(many) == LIVE_FACTS
    many.clear()
    filler = Filler(watched, [Everything()], lambda: NOW_MS, far_from=2 * LIVE_FACTS)
    filler.rebuild("everything")
    while filler.step(epoch):
        pass
    # Far behind, much is written at once: to be done soon counts more there.
    assert max(many) > LIVE_FACTS


class Everything(Projection):
    """A row for each event."""

    name, version = "everything", 1

    def fold(self, rows: Rows, seq: int, event: Event) -> None:
        rows[f"{seq:06}"] = event.at_ms
