"""A yard whose store is damaged: it accepts nothing, says so, and does not start."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpuyard.api.client import Refused
from harness.patience import until

from .conftest import Box

pytestmark = pytest.mark.rig


def _damage(path: Path, *names: str) -> None:
    """Overwrite the first page of tables and indexes."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        rows = connection.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        for name in names:
            file.seek((dict(rows)[name] - 1) * page_bytes)
            file.write(b"\xa5" * page_bytes)


def test_a_damaged_store_is_refused_at_the_start_and_nothing_enters_it_later(bare: Box) -> None:
    bare.up()
    kept = bare.submit("--hold", "--", "true")
    _damage(bare.data / "yard.db", "idempotency", "sqlite_autoindex_idempotency_1", "idempotency_at_ms")
    said: list[Refused] = []
    with bare.client() as client:

        def refused() -> bool:
            try:
                client.submit(command=["true"], hold=True)
            except Refused as refusal:
                said.append(refusal)
            return bool(said)

        # What the server has read before is in its memory still.
        until(refused)
        assert "something is wrong with the contents of" in str(said[0])
        assert "restore a backup" in said[0].hint
        ready, how = client.ready()
        assert (False, "damaged") == (ready, how["reason"])
        assert "restore a backup" in str(how["error"])
    assert str(kept) in bare("queue").out, "what is known can be looked at"
    assert "the server is not ready (damaged): something is wrong" in bare("status").err

    os.kill(bare.note()["pid"], signal.SIGKILL)
    done = bare("up", "-d", "--port", 0, "--emulate", "8 x A100-80GB")
    assert 5 == done.code, done
    assert "something is wrong with the contents of" in done.err
    assert "restore a backup" in done.err
    assert 4 == bare("queue").code, "it does not run"
