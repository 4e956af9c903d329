"""The operators' pages, typed into a shell on a yard with jobs: backup, restore, log, upgrade, PostgreSQL, restarts."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from rigs.kills import free_port
from rigs.pages import filled, shape, steps

from .conftest import Box, until

OLD_STORE = Path(__file__).resolve().parents[1] / "golden" / "store-0001.sql"
GPUS = "--emulate '8 x A100-80GB'"
DATABASE = "postgresql://yard@db.example.org/yard"


class Operator:
    """Someone at a shell, who types what a page says."""

    def __init__(
        self, box: Box, folder: Path, places: Mapping[str, str], shown: Mapping[str, str] | None = None
    ) -> None:
        """`places` stand for what the page names; `shown` for what is printed of them, where that differs."""
        self._box = box
        self._folder = folder
        backup = folder / "backup"
        backup.mkdir()
        self._places = {"/var/lib/gpuyard": str(box.data), "/backup": str(backup), **places}
        self._shown = self._places | dict(shown or {})
        yard = folder / "bin" / "yard"
        yard.parent.mkdir()
        yard.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpuyard.cli "$@"\n', encoding="utf-8")
        yard.chmod(0o755)
        self._env = box.environment
        self._env["PATH"] = f"{yard.parent}:{self._env['PATH']}"

    def types(self, page: str, section: str = "") -> None:
        """Type every command; each must end well and print what the page says."""
        for command, expected in steps(page, section):
            self.enter(filled(command, self._places), [filled(line, self._shown) for line in expected])

    def enter(self, command: str, expected: list[str]) -> None:
        # Output to files: a server in the background would keep a pipe open.
        with (self._folder / "printed").open("w+b") as out:
            done = subprocess.run(
                ["bash", "-ec", command], stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=60,
                check=False, env=self._env, cwd=self._folder,
            )  # fmt: skip
            out.seek(0)
            printed = out.read().decode()
        assert 0 == done.returncode, f"$ {command}\n{printed}"
        seen = {shape(line) for line in printed.splitlines()}
        assert [] == [line for line in expected if shape(line) not in seen], f"$ {command}\n{printed}"


def waits(folder: Path) -> str:
    """Shell words that end once the test says so."""
    return f"while [ ! -e {folder / 'go'} ]; do sleep 0.1; done"


def told(box: Box, *words: str) -> Any:
    done = box(*words, "-o", "json")
    assert 0 == done.code, done.err
    return json.loads(done.out)


def everything(box: Box) -> list[object]:
    """What people see of the past, once the books are filled and know what it cost."""
    until(lambda: None not in [job["cost_usd"] for job in told(box, "history")], 60)
    return [told(box, "history"), told(box, "audit")]


@pytest.mark.rig
def test_a_backup_is_made_of_a_running_yard_and_restored(bare: Box, tmp_path: Path) -> None:
    bare.config.write_text(
        "version: 1\nclusters: {box: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}}\n"
    )
    operator = Operator(bare, tmp_path, {"yard up -d": "yard up -d --port 0"})
    assert 0 == bare("up", "-d", "--port", 0, "--config", bare.config).code
    ran = tmp_path / "ran"
    assert 0 == bare("run", "--", "true").code
    running = bare.submit("-n", "goes-on", "--", "sh", "-c", f"{waits(tmp_path)}; echo one >> {ran}; exit 5")
    bare.wait(running, "RUNNING")

    operator.types("backup.md", "Back up")
    before = everything(bare)
    # The engine sees an epoch that the backup does not know; the restored yard leads at once all the same.
    assert 0 == bare("down").code
    assert 0 == bare("up", "-d", "--port", 0).code
    until_told = f"until [ -e {tmp_path}/stop ]; do sleep 0.1; done"
    later = bare.submit("-n", "later", "--", "sh", "-c", until_told)
    bare.wait(later, "RUNNING")
    operator.types("backup.md", "Restore")

    assert before == everything(bare)
    (tmp_path / "go").touch()
    assert 5 == bare.wait(running, "FAILED")["exit_code"]
    assert "one\n" == ran.read_text()
    again = bare.submit("-n", "again", "--", "true")
    assert later < again
    (tmp_path / "stop").touch()
    bare.wait(again, "COMPLETED")
    log = (bare.data / "yard.log").read_text()
    assert "deposed" not in log

    # The log that is moved away, from the page about the service.
    operator.types("service.md", "The log")
    until((bare.data / "yard.log").exists)
    assert log == (tmp_path / "backup" / "yard.log.old").read_text()
    assert 0 == bare("run", "--", "true").code
    assert 0 == bare("down").code
    assert "stops; jobs go on" in (bare.data / "yard.log").read_text()


@pytest.mark.rig
def test_a_store_of_the_first_release_is_opened_by_this_one(bare: Box, tmp_path: Path) -> None:
    bare.data.mkdir(mode=0o711)
    with closing(sqlite3.connect(bare.data / "yard.db")) as old, old:
        old.executescript(OLD_STORE.read_text(encoding="utf-8"))
    old.close()
    bare.up()
    rows = {row["label"]: (row["state"], row["exit_code"]) for row in told(bare, "history")}  # type: ignore[attr-defined]
    assert ("COMPLETED", 0) == rows["1"] == rows["3_2"]
    assert ("FAILED", 7) == rows["2"]
    assert "PENDING" == bare.wait(7, "PENDING")["state"]
    assert 8 == bare.submit("--tenant", "research", "--", "true")
    bare.wait(8, "COMPLETED")
    pip = "true"  # What runs here is the newer release already, and the older one too.
    places = {"pip install --upgrade": pip, "pip install --force-reinstall": pip}
    operator = Operator(bare, tmp_path, {**places, "yard up -d": f"yard up -d --port 0 {GPUS}"})
    operator.types("upgrade.md")
    assert {"1", "2", "3_0", "3_1", "3_2", "8"} == {row["label"] for row in told(bare, "history")}  # type: ignore[attr-defined]


class Submitter(threading.Thread):
    """Submits without a pause, as a script would that calls `yard submit`, and keeps the ids that were printed."""

    def __init__(self, box: Box, ran: Path) -> None:
        super().__init__(daemon=True)
        self._box, self._ran = box, ran
        self.ids: list[int] = []
        self.troubles: list[str] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            done = self._box("submit", "--no-export", "--", "sh", "-c", f"echo $YARD_JOB_ID >> {self._ran}")
            if done.code:
                self.troubles.append(done.err)
            else:
                self.ids.append(int(done.out))


def test_a_yard_moves_to_postgresql_and_its_servers_are_restarted_one_by_one(
    bare: Box, tmp_path: Path, postgres_url: str
) -> None:
    ports = {"7447": str(free_port()), "7448": str(free_port())}
    operator = Operator(
        bare,
        tmp_path,
        {DATABASE: f"'{postgres_url}'", "--store": f"{GPUS} --store", **ports},
        {DATABASE: make_url(postgres_url).render_as_string()},
    )
    try:
        bare.up()
        assert 0 == bare("run", "--", "true").code
        ran = tmp_path / "ran"
        running = bare.submit(
            "--", "sh", "-c", f"{waits(tmp_path)}; echo moved >> {tmp_path / 'moved'}; exit 9"
        )
        bare.wait(running, "RUNNING")
        before = everything(bare)

        operator.types("postgresql.md", "Move a yard there")
        assert before == everything(bare)
        operator.types("postgresql.md", "More servers")

        submitter = Submitter(bare, ran)
        submitter.start()
        operator.types("postgresql.md", "Restart them one by one")
        time.sleep(1)
        submitter.over.set()
        submitter.join()
        assert [] == submitter.troubles
        assert len(submitter.ids) > 5
        # Ids go on, none is given out twice, and whatever was acknowledged ran once.
        assert list(range(running + 1, running + 1 + len(submitter.ids))) == submitter.ids
        until(lambda: ran.exists() and len(ran.read_text().split()) >= len(submitter.ids), 60)
        assert Counter(map(str, submitter.ids)) == Counter(ran.read_text().split())
        (tmp_path / "go").touch()
        assert 9 == bare.wait(running, "FAILED")["exit_code"]
        assert "moved\n" == (tmp_path / "moved").read_text()
        refused = bare("down", "--port", 1)
        assert (2, True) == (refused.code, "listens at port 1" in refused.err)
    finally:
        # While the store is still there: it goes before the fixture of the yard does.
        down = bare("down", "--jobs")
    assert 0 == down.code, down.err


def test_a_service_manager_is_told_when_the_server_is_ready_and_jobs_are_not(
    bare: Box, tmp_path: Path
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind(address)
        hears.settimeout(30)
        server = subprocess.Popen(
            bare.command("up", "--port", 0, "--emulate", "1 x A100-80GB"),
            env=bare.environment | {"NOTIFY_SOCKET": address},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert b"READY=1" == hears.recv(100)
            done = bare("run", "--", "sh", "-c", "echo socket=$NOTIFY_SOCKET")
            assert (0, "socket=\n") == (done.code, done.out)
            os.kill(server.pid, signal.SIGTERM)
            assert b"STOPPING=1" == hears.recv(100)
            assert 0 == server.wait(30)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
