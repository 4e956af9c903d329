"""Those who may not read a job learn why it ended, and no names of files."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from starlette.requests import Request

from gpuyard.api.edge.peers import PERSON
from gpuyard.api.handlers.jobs import without_paths
from gpuyard.api.server.app import _health
from gpuyard.control.access.people import Person
from gpuyard.wire import endpoints
from harness.patience import until
from rigs.teams import Team, team

SECRET = "/nowhere/merger with ACME/plan"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (
            f"cannot enter folder {SECRET}: No such file or directory",
            "cannot enter folder (a path): No such file or directory",
        ),
        ("cannot open '/a b/c': denied", "cannot open '(a path): denied"),
        ("cannot run /usr/bin/x", "cannot run (a path)"),
        ("preempted for job 7 of research/ana", "preempted for job 7 of research/ana"),
        ("exit code 1", "exit code 1"),
    ],
)
def test_paths_are_left_out(said: str, left: str) -> None:
    assert left == without_paths(said)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("discretion")) as made:
        yield made


def test_a_viewer_sees_that_a_job_failed_and_its_owner_sees_where(yard: Team) -> None:
    asked = {"command": ["true"], "cwd": SECRET, "tenant": "research"}
    number = yard.call("POST", "/api/v1/jobs", yard.tokens["ulla"], asked).json["id"]
    path = f"/api/v1/jobs/{number}"
    yard.until(lambda: yard.call("GET", path, yard.tokens["ulla"]).json["state"] == "FAILED")
    for place in (path, "/api/v1/jobs", "/api/v1/history"):
        seen = {
            who: yard.call("GET", place, yard.tokens[who]).body for who in ("ulla", "tara", "carl", "vera")
        }
        assert (True, True, False, False) == tuple(b"merger with ACME" in body for body in seen.values()), (
            place
        )
        assert b"cannot enter folder (a path): No such file" in seen["vera"]


def tells(yard: Team, so: Callable[[], bool], words: str) -> bool:
    """Whether an administrator is told it once it is so, by the socket: a store without space may know no tokens."""

    def told() -> str:
        answer = yard.call("GET", "/readyz", peer=(os.geteuid(), os.getegid()))
        return str(answer.json.get("error", answer.body))

    return until(lambda: so() and words in told(), say=told)


def test_a_yard_without_space_is_not_ready(tmp_path: Path) -> None:
    """Nobody has written since the disk filled up."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=400", "tmpfs", str(small)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with team(small) as yard:
            yard.until(lambda: yard.call("GET", "/readyz").status == 200)
            fill = ["dd", "if=/dev/zero", f"of={small}/filler", "bs=64k", "oflag=append", "conv=notrunc"]

            def full() -> bool:
                # What the server gives up meanwhile is filled as well.
                subprocess.run(fill, capture_output=True, check=False)
                return yard.call("GET", "/readyz").status == 503

            few = {"ready": False, "role": "leader", "reason": "space"}
            for token in ("", yard.tokens["ulla"]):
                yard.until(lambda token=token: full() and few == yard.call("GET", "/readyz", token).json)
            assert tells(yard, full, f"no space is left for {small / 'data'}")
            (small / "filler").unlink()
            yard.until(lambda: yard.call("GET", "/readyz").status == 200)
            many = small / "many"
            many.mkdir()

            def crowded() -> bool:
                with contextlib.suppress(OSError):
                    for number in range(len(list(many.iterdir())), 400):
                        (many / str(number)).touch()
                return yard.call("GET", "/readyz").status == 503

            assert tells(yard, crowded, "no inode left")
            shutil.rmtree(many)
            yard.until(lambda: yard.call("GET", "/readyz").status == 200)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize("has_tokens", [True, False])
def test_strangers_and_ordinary_users_see_no_path_of_a_yard_that_is_not_ready(has_tokens: bool) -> None:
    how = {
        "ready": False, "role": "follower", "reason": "store", "store": "/srv/merger/yard.db",
        "error": "/srv/merger/yard.db is gone", "troubles": ["/srv/merger"], "notes": ["/srv/merger"], "leader": "host",
    }  # fmt: skip
    yard: Any = MagicMock(token_service=object() if has_tokens else None, readiness=lambda: (False, how))
    ready = _health(yard)[endpoints.READY]

    def seen(person: Person | None) -> dict[str, Any]:
        scope = {"type": "http", "method": "GET", "path": "/readyz", "headers": [], PERSON: person}
        answer = asyncio.run(ready(Request(scope)))
        assert 503 == answer.status_code
        found: dict[str, Any] = json.loads(answer.body)
        return found

    for who in (None, Person(1001, 1001, "ana", False)):
        assert {"ready": False, "role": "follower", "reason": "store"} == seen(who)
    assert how == seen(Person(0, 0, "root", True))
