"""A yard of root where other people work: what `yard up` says, and that jobs of root run."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.control.access import people
from gpuyard.control.options import Options
from gpuyard.control.places import DataDir
from gpuyard.control.serve import Yard
from gpuyard.engines.local.gpus.stand_in import COMMANDS
from rigs.teams import CONFIG as TEAM
from rigs.teams import team

FENCE = "jobs that root submits run as root: no fence keeps them from what other users of this machine have"
OTHERS = "other users cannot run `srun` and `yard` in their jobs: "
ANA = pwd.struct_passwd(("ana", "x", 1000, 1000, "", "/home/ana", "/bin/bash"))
CONFIG = "version: 1\nclusters: {box: {gpus: 2 x T4, emulate: true, allow_root: ROOT}}\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a yard of root is root's to start")


@pytest.fixture(autouse=True)
def looked_at_anew() -> Iterator[None]:
    people._has_other_people.cache_clear()
    yield
    people._has_other_people.cache_clear()


def notes(folder: Path, allow_root: str) -> list[str]:
    """All that a yard in a folder that only root enters has to say."""
    (folder / "closed").mkdir(mode=0o700)
    (folder / "yard.yaml").write_text(CONFIG.replace("ROOT", allow_root))
    data = folder / "closed" / "data"
    (DataDir(data).engine / COMMANDS).mkdir(parents=True)
    here = Yard(Options(data, config=folder / "yard.yaml", port=0))
    try:
        return list(here.notes)
    finally:
        here.close()


@pytest.mark.parametrize(("allow_root", "said"), [("false", 1), ("true", 0)])
def test_what_the_fence_does_not_promise_of_roots_jobs_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allow_root: str, said: int
) -> None:
    monkeypatch.setattr(pwd, "getpwall", lambda: [ANA])
    found = notes(tmp_path, allow_root)

    assert said == found.count(FENCE), found
    (hidden,) = [note for note in found if note.startswith(OTHERS)]
    assert "has mode 0700, on the way to " in hidden
    assert "-m venv /opt/" in hidden or "choose another folder for the data (--data)" in hidden


def test_nothing_of_others_is_said_where_nobody_else_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if people.asks_for_users():
        pytest.skip("this machine asks a directory for its users")
    monkeypatch.setattr(pwd, "getpwall", list)

    assert [] == [note for note in notes(tmp_path, "false") if note == FENCE or note.startswith(OTHERS)]


def test_a_job_of_root_runs_as_root_by_the_machines_own_socket_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every image of a cloud has another account: the first line after `make demo` was refused there."""
    monkeypatch.setattr(pwd, "getpwall", lambda: [ANA])
    out = tmp_path / "out"
    job = {"command": ["sh", "-c", f"id -u > {out}"], "tenant": "research", "cwd": str(tmp_path)}
    with team(tmp_path / "data", TEAM.replace(", allow_root: true", "")) as yard:
        taken = yard.call("POST", "/api/v1/jobs", body=job, peer=(0, 0))
        assert 201 == taken.status, taken.body
        yard.until(lambda: out.exists() and out.read_text() == "0\n")
