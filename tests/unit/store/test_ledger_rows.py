"""The books as a projection: filled live, filled anew, and from the checkpoint of a closed month, byte for byte."""

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from pydantic_core import to_json

from gpuyard.control.duties.projections import PIECE_EVENTS, Filler
from gpuyard.control.projections.fleet import Fleet
from gpuyard.control.projections.following import Rows
from gpuyard.control.projections.ledger import Ledger
from gpuyard.ledger.jobs import JobBook
from gpuyard.ledger.rows import NO_BLOCKS, Blocks, parted
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    Event,
    Grant,
    MonthClosed,
    NodeAdded,
    NodeDown,
    NodeUp,
    Outcome,
    Ticked,
)
from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.units import DAY_MS
from gpuyard.store import Store, open_store
from gpuyard.testing.values import node
from harness.steered import Steered
from rigs.stores import LEASE_S, accepted, array, submission

NOVEMBER_MS = 20_758 * DAY_MS
CLOSED_MS = 20_789 * DAY_MS
NOW_MS = CLOSED_MS + 20 * DAY_MS


def elected(store: Store) -> int:
    lease = store.elect("test")
    assert lease is not None
    lease.release()
    return lease.epoch


def fill(store: Store, epoch: int, batch: int, piece: int = PIECE_EVENTS) -> dict[str, str]:
    """The rows of the books, byte for byte."""
    filler = Filler(store, [Ledger()], lambda: NOW_MS, batch=batch, piece=piece)
    while filler.step(epoch):
        pass
    assert {} == filler.errors
    found: dict[str, str] = {}
    while page := store.projections.rows("ledger", after=max(found, default=""), limit=100):
        found.update(page)
    return found


def write_jobs(store: Store, begin_ms: int, seed: int, count: int = 40) -> int:
    """Jobs of one GPU on two nodes, one of which is lost for a while; when the last of them ended."""
    chance, at_ms, events = random.Random(seed), begin_ms, list[Event]()
    first = accepted(store, submission(count))[0].first_id
    for place, job_id in enumerate(range(first, first + count)):
        grant = Grant(place % 2, 1 << place // 2 % 8, 1000, 1000, 1024, 1)
        events.append(AttemptStarted(at_ms, job_id, 1, (grant,)))
        events.append(AttemptConfirmed(at_ms + 500, job_id, 1))
        at_ms += chance.randrange(1_000, DAY_MS)
        events += [NodeDown(at_ms, 0, "lost"), NodeUp(at_ms + 77, 0)] if place == 9 else []
        events.append(AttemptEnded(at_ms + 100, job_id, 1, Outcome.COMPLETED))
    store.append(events)
    return at_ms


def test_jobs_are_written_as_their_rows_are_and_in_pieces_alike(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = elected(store)
    store.append([NodeAdded(NOVEMBER_MS, node("a")), NodeAdded(NOVEMBER_MS, node("b"))])
    write_jobs(store, NOVEMBER_MS + 5, seed=3)
    filled = fill(store, epoch, batch=1000)
    texts = [text for key, block in filled.items() if key.startswith("j/") for text in parted(block).values()]
    jobs = [JobBook.of(json.loads(text)) for text in texts]

    assert [to_json(job.row()).decode() for job in jobs] == texts
    days = {len(job.costs) for job in jobs}
    assert {1} < days, "some ran over midnight"

    other = Filler(store, [Fleet(), Ledger()], lambda: NOW_MS, batch=23, piece=5)
    other.rebuild("ledger")
    assert filled == fill(store, epoch, batch=23, piece=5)
    other.rebuild("ledger")
    while other.step(epoch):
        pass
    assert filled == fill(store, epoch, batch=23, piece=5), "beside another projection"


def test_live_anew_and_from_a_closed_month_the_books_are_the_same_bytes(place: str, store: Store) -> None:
    epoch = elected(store)
    store.append([NodeAdded(NOVEMBER_MS, node("a")), NodeAdded(NOVEMBER_MS, node("b"))])
    write_jobs(store, NOVEMBER_MS + 5, seed=1)
    fill(store, epoch, batch=7)
    store.append([MonthClosed(CLOSED_MS, "2026-11", "ana"), Ticked(CLOSED_MS + 1)])
    closed = store.head() - 1
    fill(store, epoch, batch=1000)
    assert closed in [at.seq for at in store.projections.checkpoints("ledger")]
    write_jobs(store, CLOSED_MS + 5, seed=2)
    live = fill(store, epoch, batch=11)

    # Another process has the events from the log alone.
    with open_store(place, lease_s=LEASE_S) as other:
        Filler(other, [Ledger()], lambda: NOW_MS).rebuild("ledger")
        assert [] == other.recent(0, 500)
        assert live == fill(other, epoch, batch=500)
    # The log is cut where the month was closed: the books lack nothing of it.
    store.snapshots.save(closed, {}, NOW_MS)
    assert closed == store.forget_log(NOW_MS + 90 * DAY_MS, ["ledger"])
    Filler(store, [Ledger()], lambda: NOW_MS).rebuild("ledger")
    assert live == fill(store, epoch, batch=500)

    entries = [json.loads(text) for key, text in live.items() if key.startswith("d/")]
    whole = sum(sum(entry[:9]) for entry in entries)
    assert whole == sum(entry[10] for entry in entries) > 0
    assert json.loads(live["m/2026-11"])["until_day"] * DAY_MS <= CLOSED_MS


def test_eight_jobs_are_one_row_and_rows_of_new_jobs_are_not_looked_up() -> None:
    asked, kept = list[str](), dict[str, str | None]()

    def look_up(key: str) -> str | None:
        asked.append(key)
        return kept.get(key)

    blocks = Blocks(rows := Rows(look_up), NO_BLOCKS)
    for job_id in (9, 8, 16, FIRST_EXTERNAL_ID, 17):
        blocks.put(job_id, f"[{job_id}]")
    blocks.drop(17)
    blocks.flush()
    kept |= rows.changed
    assert {
        "j/1": {"8": [8], "9": [9]},
        "j/2": {"16": [16]},
        f"j/{FIRST_EXTERNAL_ID // 8}": {str(FIRST_EXTERNAL_ID): [FIRST_EXTERNAL_ID]},
    } == {key: json.loads(text or "") for key, text in kept.items()}
    assert [] == asked

    # Another process knows what the rows say, and looks up what it changes.
    other = Blocks(rows := Rows(look_up), blocks.last)
    assert ("[9]", None, None) == (other.get(9), other.get(17), other.get(24))
    other.drop(16)
    other.put(10, "[10]")
    other.put(24, "[24]")
    other.flush()
    assert {"j/1": '{"8":[8],\n"9":[9],\n"10":[10]}', "j/2": None, "j/3": '{"24":[24]}'} == rows.changed
    assert ["j/1", "j/2"] == sorted(set(asked))


def test_rows_that_are_wanted_one_after_the_other_are_looked_up_together() -> None:
    """Tasks of an array that are cancelled: a query for every eight of them took a fifth of the time."""
    kept = {f"j/{number}": f'{{"{8 * number}":[{number}]}}' for number in range(200)}
    asked: list[list[str]] = []

    def look_up_many(keys: Sequence[str]) -> dict[str, str]:
        asked.append([*keys])
        return {key: kept[key] for key in keys}

    def one(key: str) -> str:
        return look_up_many([key])[key]

    blocks = Blocks(Rows(one, look_up_many=look_up_many), (199, -1))
    assert [f"[{number}]" for number in range(200)] == [blocks.get(8 * number) for number in range(200)]
    assert sorted(kept) == sorted([key for keys in asked for key in keys])
    assert len(asked) < 12
    # Jobs here and there take a row each.
    asked.clear()
    others = Blocks(Rows(one, look_up_many=look_up_many), (199, -1))
    assert ["[7]", "[90]", "[3]"] == [others.get(8 * number) for number in (7, 90, 3)]
    assert [["j/7"], ["j/90"], ["j/3"]] == asked


def test_a_checkpoint_of_the_version_before_is_lifted() -> None:
    part = [3, 7000, 7000, 1, [7000], [0], 1000, 1024, [[5, "p"]]]
    costs, times = [[20_758, "p", 63_000, 0]], [0, 0, 63_000, 0]
    before = {
        "head": "{}",
        "j/1": ["o"],
        "j/2": ["o", 1, "", 9, 5, 9, [], [], [[1, [part], [[5, 9]]]], times, costs],
        "j/30": ["o", 2, "R", 9, 5, 9, [part], [[6, 9]], [], times, costs],
    }
    after = {
        1: ["o"],
        2: ["o", 1, [[1, [[7000, [[5, "p"]]]], [[5, 9]]]], times, costs],
        30: [
            "o", 2, [], times, costs, "R", 9, 5, 9, [[*part[:5], [], *part[6:]]], [[6, 9]], 0,
        ],
    }  # fmt: skip
    old = {
        key: row if key == "head" else json.dumps(row, separators=(",", ":")) for key, row in before.items()
    }

    lifted = Ledger().upgrade(3, old)
    assert lifted is not None
    assert {"head", "j/0", "j/3"} == set(lifted)
    assert {"blocks": [3, -1]} == json.loads(lifted["head"])
    jobs = {**parted(lifted["j/0"]), **parted(lifted["j/3"])}
    assert after == {job_id: json.loads(text) for job_id, text in jobs.items()}
    assert jobs == {job_id: JobBook.of(row).text() for job_id, row in after.items()}
    assert lifted == Ledger().upgrade(
        5,
        {
            "head": old["head"],
            **{f"j/{job_id}": json.dumps(row[:11], separators=(",", ":")) for job_id, row in after.items()},
        },
    )
    assert None is Ledger().upgrade(2, old)


def test_a_process_that_reads_ahead_gives_the_same_books(
    place: str, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    epoch = elected(store)
    store.append([NodeAdded(NOVEMBER_MS, node("a")), NodeAdded(NOVEMBER_MS, node("b"))])
    accepted(store, array(30))
    write_jobs(store, NOVEMBER_MS + 5, seed=1)
    store.append([MonthClosed(CLOSED_MS, "2026-11", "ana"), Ticked(CLOSED_MS + 1)])
    write_jobs(store, CLOSED_MS + 5, seed=2)
    # More than a pipe holds: a process that reads ahead is not through before it is read from.
    store.append([NodeAdded(NOW_MS - 1, node(letter * 8000)) for letter in "cdefghijklmnopqrstuvwxyz"])
    live = fill(store, epoch, batch=1000)

    small = {"batch": 23, "piece": 16, "ahead": place, "ahead_from": 20}
    with open_store(place, lease_s=LEASE_S) as other:
        unread: Any = Steered(other, read=None)
        filler = Filler(unread, [Ledger()], lambda: NOW_MS, **small)
        filler.rebuild("ledger")
        while other.projections.cursors()["ledger"].seq < store.head() - 20:
            assert filler.step(epoch)
        assert {} == filler.errors, "all of it came from the process: the log cannot be read here"
        filler.close()
    with open_store(place, lease_s=LEASE_S) as other:
        # One that is killed half-way is told of, and the rest is read without it.
        filler = Filler(other, [Ledger()], lambda: NOW_MS, **small)
        filler.rebuild("ledger")
        while other.projections.cursors()["ledger"].seq < 60:
            assert filler.step(epoch)
        assert filler._ahead is not None
        filler._ahead._child.kill()
        with suppress(EOFError, OSError):
            while True:
                filler._ahead._events.recv_bytes()
        while filler.step(epoch):
            pass
        filler.close()
        assert "the process that reads the log ahead was killed by SIGKILL: the server itself" in caplog.text
        assert live == fill(other, epoch, batch=500)
