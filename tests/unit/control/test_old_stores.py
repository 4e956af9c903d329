"""Stores as earlier releases left them, kept as text: opened, brought up to date, and read as they were read then."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpuyard.control.replica.replica import Replica
from gpuyard.core.state.dump import dump, load
from gpuyard.store import StoreDamaged, open_store
from rigs.dumps import differences

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SNAPSHOT_SEQ, SEQ = 31, 38


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store of the release whose tables have number 4, with what that release read in it beside it."""
    found = tmp_path / "yard.db"
    with closing(sqlite3.connect(found)) as old, old:
        old.executescript((GOLDEN / "store-0004.sql").read_text(encoding="utf-8"))
    old.close()
    return found


def test_a_snapshot_and_a_cut_log_amount_to_what_they_amounted_to(place: Path) -> None:
    earlier = json.loads((GOLDEN / "store-0004.json").read_text(encoding="utf-8"))
    with open_store(place) as store:
        found = store.snapshots.latest()
        assert found is not None
        assert (SNAPSHOT_SEQ, SNAPSHOT_SEQ + 1) == (found.seq, store.read(SNAPSHOT_SEQ, 1)[0][0])
        with pytest.raises(StoreDamaged):
            store.read(0)
        replica = Replica(store)

        assert SEQ == replica.seq
        assert [] == list(differences(earlier, dump(replica.state)))
        # What this release saves of it is read again by this release.
        assert dump(replica.state) == dump(load(dump(replica.state)))


def test_the_jobs_of_such_a_store_are_in_the_states_that_they_were_in(place: Path) -> None:
    with open_store(place) as store:
        jobs = {record.job.spec.name: record for record in Replica(store).state.jobs.values()}

        assert {"slice", "share", "later"} == {name for name, each in jobs.items() if each.grants}
        assert {"waits", "held", "after"} == {name for name, each in jobs.items() if not each.grants}
        assert jobs["held"].held
        assert [piece.profile for grant in jobs["slice"].grants for piece in grant.slices] == ["1g.10gb"]
        assert [(3, 2), (0, 1)] == [
            (row.exit_code, row.attempts) for row in map(store.history.find, (2, 1)) if row is not None
        ]
