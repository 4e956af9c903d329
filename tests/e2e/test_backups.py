"""A store that is set back or cannot be written: jobs still run, once, and nobody reads what is not theirs."""

import shutil
import signal
from pathlib import Path

import pytest

from harness.patience import patient, until
from rigs.kills import Server
from rigs.postgres import PostgresServer


def submit(server: Server, words: str, name: str) -> tuple[int, dict[str, object]]:
    body = {"command": ["/bin/sh", "-c", words], "name": name, "gpus": 1, "tenant": "t"}
    return server.call("POST", "/api/v1/jobs", body)


def end(server: Server) -> None:
    assert server.process is not None
    server.kill(signal.SIGTERM)
    server.process.wait(timeout=patient(60))


@pytest.mark.rig
def test_ids_that_were_given_out_after_a_backup_are_not_given_out_again(tmp_path: Path) -> None:
    server, runs = Server(tmp_path / "yard"), tmp_path / "runs"
    runs.touch()
    server.start()
    end(server)
    shutil.copy(server.data / "yard.db", tmp_path / "backup.db")
    server.start()
    status, old = submit(server, f"echo SECRET; echo old >> {runs}", "old")
    assert 201 == status
    until(lambda: runs.read_text() == "old\n")
    end(server)
    for name in ("yard.db-wal", "yard.db-shm"):
        (server.data / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.db", server.data / "yard.db")
    with pytest.raises(AssertionError, match="the server ended"):
        server.start()
    assert "--older-log" in server.story()
    server.words = [*server.words, "--older-log"]
    server.start()
    try:
        status, new = submit(server, f"echo fresh; echo new >> {runs}", "new")
        assert 201 == status
        assert int(str(old["id"])) < int(str(new["id"]))
        until(lambda: runs.read_text() == "old\nnew\n")
        until(lambda: server.call("GET", f"/api/v1/jobs/{new['id']}")[1]["state"] == "COMPLETED")
        assert b"fresh\n" == server.call("GET", f"/api/v1/jobs/{new['id']}/logs")[1]
    finally:
        end(server)


def test_a_store_that_became_read_only_refuses_new_work_and_keeps_what_it_has(
    tmp_path: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    server, runs, began = Server(tmp_path / "yard", postgres_url), tmp_path / "runs", tmp_path / "began"
    server.start()
    try:
        status, job = submit(server, f"touch {began}; sleep 4; echo ran >> {runs}", "before")
        assert 201 == status
        until(began.exists)
        try:
            postgres_server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            postgres_server.execute("SELECT pg_reload_conf()")
            until(lambda: submit(server, "true", "refused")[0] == 503)
            status, refusal = submit(server, "true", "refused")
            assert 503 == status
            assert "read" in str(refusal["detail"]), refusal
            assert "before" == server.call("GET", f"/api/v1/jobs/{job['id']}")[1]["name"]
            until(runs.exists)
        finally:
            postgres_server.execute("ALTER SYSTEM RESET default_transaction_read_only")
            postgres_server.execute("SELECT pg_reload_conf()")
        until(lambda: submit(server, f"echo again >> {runs}", "after")[0] == 201)
        until(lambda: runs.read_text().splitlines()[:1] == ["ran"] and "again" in runs.read_text(), 40)
        assert 1 == runs.read_text().count("ran")
        until(lambda: server.call("GET", f"/api/v1/jobs/{job['id']}")[1]["state"] == "COMPLETED", 40)
    finally:
        end(server)
