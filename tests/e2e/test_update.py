"""A yard of an earlier release is taken over by this one, and given back: its store, and the jobs that run meanwhile.

`GPUYARD_BEFORE` names a checkout of an earlier release, with an environment of its own in `.venv` or able to run in
ours: `GPUYARD_BEFORE=../before .venv/bin/pytest -n 0 tests/e2e/test_update.py`. Without it going back one release is
tried with `RELEASE_BEFORE` out of the history of this checkout (`make test-rigs`), and the longer tests are skipped;
`test_operators.py` opens a store of the first release that is kept as text.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Box, Done
from e2e.slurm_yard import SlurmYard
from harness.patience import patient, until
from rigs.dumps import differences
from rigs.slurm.cluster import SlurmCluster

BEFORE = os.environ.get("GPUYARD_BEFORE", "")

RELEASE_BEFORE = "ac579f515d8a3e29d7765e97020b0960f54e48fe"
"""The commit of the release before this one; each release names the one before it here."""

ROOT = Path(__file__).parents[2]

only_named = pytest.mark.skipif(not BEFORE, reason="GPUYARD_BEFORE names no checkout of an earlier release")

CONFIG = """version: 1
clusters: {box: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}}
tenants:
  research: {weight: 2, guarantee: 4}
  nlp: {parent: research}
  interns: {weight: 1, limit: 6}
classes:
  batch: {priority: 0, preemptible: true, min_run: 1h, grace: 2s}
"""

CHANGED = CONFIG.replace("limit: 6", "limit: 5")

CUT = """
import sys, time
try:
    from gpuyard.control.replica.replica import Replica
except ImportError:  # an earlier release
    from gpuyard.control.books import Books as Replica
from gpuyard.store import open_store
with open_store(sys.argv[1]) as store:
    now_ms = int(time.time() * 1000)
    Replica(store).save(now_ms, every=1)
    print(store.forget_log(now_ms))
"""

DUMP = """
import json, sys
try:
    from gpuyard.control.replica.replica import Replica, dump
except ImportError:  # an earlier release
    from gpuyard.control.books import Books as Replica, dump
from gpuyard.store import open_store
with open_store(sys.argv[1]) as store:
    replica = Replica(store)
    latest = store.latest_snapshot if hasattr(store, "latest_snapshot") else store.snapshots.latest
    print(json.dumps([latest().seq, replica.seq, dump(replica.state)]))
"""

LIMIT_S = 100
"""Of the job that its limit ends: long enough for the yard to be taken over before."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the release before: the one that is named, or its sources out of the history of this one."""
    if BEFORE:
        return Path(BEFORE).resolve()
    if _git("cat-file", "-e", f"{RELEASE_BEFORE}^{{commit}}").returncode != 0:
        shallow = _git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        why = "a shallow clone (git fetch --unshallow gets it)" if shallow else "without git's history"
        pytest.skip(f"commit {RELEASE_BEFORE[:8]}, the release before, is not here: this checkout is {why}")
    folder = tmp_path_factory.mktemp("before")
    sources = _git("archive", RELEASE_BEFORE, "src")
    assert 0 == sources.returncode, sources.stderr
    subprocess.run(["tar", "-x", "-C", str(folder)], input=sources.stdout, check=True, timeout=patient(60))
    return folder


def _git(*words: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, timeout=patient(60), check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no git, and GPUYARD_BEFORE names no checkout of an earlier release")


class Release:
    """A checkout whose programs are run."""

    def __init__(self, checkout: Path | None = None) -> None:
        own = checkout / ".venv" / "bin" / "python" if checkout else None
        self._python = str(own) if own is not None and own.exists() else sys.executable
        self._variables = {"PYTHONPATH": str(checkout / "src")} if checkout is not None else {}

    def yard(self, box: Box, *words: object) -> Done:
        """A command of this release, in the shell of that box."""
        return self._run(box, "-m", "gpuyard.cli", *words)

    def program(self, box: Box, text: str, *words: object) -> Any:
        """What a few lines of Python print, as JSON."""
        done = self._run(box, "-c", text, *words)
        assert 0 == done.code, done.err
        return json.loads(done.out)

    def _run(self, box: Box, *words: object) -> Done:
        done = subprocess.run(
            [self._python, *map(str, words)], capture_output=True, text=True, timeout=patient(120), check=False,
            env=box.environment | self._variables, cwd=box.data.parent,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)


class Update:
    """One yard under two releases, and a folder in which its jobs write down what they did."""

    def __init__(self, earlier: Path, box: Box, effects: Path, store: str, *flags: object) -> None:
        self.box, self.effects, self.store = box, effects, store
        self._flags = flags
        self.before, self.now = Release(earlier), Release()

    def old(self, *words: object) -> str:
        """A command of the release before, which must end well."""
        done = self.before.yard(self.box, *words)
        assert 0 == done.code, done.err
        return done.out

    def up(self, release: Release) -> None:
        done = release.yard(self.box, "up", "-d", "--port", 0, "--config", self.box.config, *self._flags)
        assert 0 == done.code, done.err

    def told(self, *words: object) -> Any:
        """What the release before says, as JSON."""
        return json.loads(self.old(*words, "-o", "json"))

    def submit(self, name: str, command: str, *options: object, tenant: str = "research") -> int:
        """Submit a command of the shell to the release before; the job's id."""
        words = ("submit", "--no-export", "-n", name, "--tenant", tenant, *options)
        return int(self.old(*words, "--", "sh", "-c", command).split()[-1])

    def running(self, name: str, ends: str, *options: object, go: str = "go") -> int:
        """Submit a job that waits until it may end, and writes down that it began and how it ends."""
        path = self.effects / name
        waits = f"while [ ! -e {self.effects}/{go} ]; do sleep 0.1; done"
        words = f"echo start $YARD_ATTEMPT >>{path}; {waits}; echo {ends} >>{path}; {ends}"
        return self.submit(name, words, "-g", 1, *options)

    def written(self, name: str) -> list[str]:
        path = self.effects / name
        return path.read_text().splitlines() if path.exists() else []

    def state(self, job: object) -> str:
        found: str = self.told("show", job)["state"]
        return found

    def kill(self) -> None:
        """End the server without a word, as the machine's end would."""
        # A server of a yard on PostgreSQL has its port in the name.
        note = max(self.box.data.glob("yard*.pid"), key=lambda path: path.stat().st_mtime_ns)
        pid = json.loads(note.read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))

    def cut(self) -> None:
        """Save a snapshot of a yard that is down, and cut the log there, as the server does after 90 days."""
        assert self.before.program(self.box, CUT, self.store) > 0, "nothing was cut"

    def same_dump(self) -> None:
        """Whatever the release before reads in its store, this one reads too; what is new says nothing yet."""
        snapshot, seq, earlier = self.before.program(self.box, DUMP, self.store)
        assert snapshot < seq, "nothing came after the snapshot"
        found = self.now.program(self.box, DUMP, self.store)
        assert [snapshot, seq] == found[:2]
        assert [] == list(differences(earlier, found[2]))


def alive(pid: int) -> bool:
    try:
        return "Z" != Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def taken_over(yard: Update) -> None:
    """Four jobs that ran under the release before end under this one, as they themselves say, and no job is lost."""
    zero = yard.running("zero", "exit 0")
    seven = yard.running("seven", "exit 7")
    away = yard.running("away", "exit 5", go="go-away")
    limit = yard.running("limit", "exit 0", "--time", f"{LIMIT_S}s")
    over = time.monotonic() + LIMIT_S
    waiting = yard.submit("waiting", "true", "-g", 1, "--after", zero)
    held = yard.submit("held", "true", "-g", 1, "--hold")
    for name in ("zero", "seven", "away", "limit"):
        until(lambda name=name: yard.written(name), 60)  # type: ignore[misc]
    until(lambda: all(yard.state(job) == "RUNNING" for job in (zero, seven, away, limit)), 60)
    past = [yard.told("history"), yard.told("audit")]
    yard.kill()
    yard.same_dump()
    # One of them ends while no server is there.
    (yard.effects / "go-away").touch()
    until(lambda: len(yard.written("away")) == 2, 60)

    yard.up(yard.now)
    assert time.monotonic() < over, "the machine is too slow for this limit"
    assert {"RUNNING"} == {yard.box.wait(job, "RUNNING")["state"] for job in (zero, seven, limit)}
    seen = [json.loads(yard.box(what, "-o", "json").out) for what in ("history", "audit")]
    known = {row["id"] for row in past[0]}
    seen[0] = [row for row in seen[0] if row["id"] in known]
    assert [] == [each for each in differences(past, seen) if not each.endswith(" is new")]
    assert "PENDING" == yard.box.wait(waiting, "PENDING")["state"]
    ended = yard.box.wait(limit, "TIMEOUT", s=LIMIT_S + 60)
    assert ended["ended_ms"] - ended["started_ms"] >= LIMIT_S * 1000
    (yard.effects / "go").touch()
    assert 0 == yard.box.wait(zero, "COMPLETED", s=60)["exit_code"]
    assert 7 == yard.box.wait(seven, "FAILED", s=60)["exit_code"]
    assert 5 == yard.box.wait(away, "FAILED", s=60)["exit_code"]
    yard.box.wait(waiting, "COMPLETED", s=60)
    assert 0 == yard.box("release", held).code
    yard.box.wait(held, "COMPLETED", s=60)
    # Each ran once, and the one that its limit ended did not get to its end.
    assert ["start 1", "exit 0"] == yard.written("zero")
    assert ["start 1", "exit 7"] == yard.written("seven")
    assert ["start 1", "exit 5"] == yard.written("away")
    assert ["start 1"] == yard.written("limit")


@only_named
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_and_the_jobs_on_this_machine(
    earlier: Path, bare: Box, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else ""
    effects = tmp_path / "effects"
    effects.mkdir()
    box = Box(bare.data, CONFIG)
    yard = Update(
        earlier, box, effects, url or str(bare.data / "yard.db"), *(["--store", url] if url else [])
    )
    try:
        yard.up(yard.before)
        # A past with something of everything: ends, tries, an array, changes of the configuration, people.
        yard.submit("well", "true", tenant="interns")
        yard.submit("failed", "exit 3", "--retries", 1, tenant="interns")
        cancelled = yard.submit("cancelled", "sleep 600", tenant="interns")
        yard.submit("array", "true", "--array", "0-3%2", "-g", "0.25", tenant="research/nlp")
        yard.submit("slice", "sleep 600", "-g", "1g.10gb")
        yard.submit("share", "sleep 600", "-g", "0.5", "--time", "2h")
        yard.submit("waits", "true", "-g", "8", "--hold")
        yard.old("cancel", cancelled)
        until(lambda: len(yard.told("history")) == 7, 60)
        box.config.write_text(CHANGED)
        yard.old("apply", "--yes", "-f", box.config)
        yard.old("down")
        yard.cut()
        yard.up(yard.before)
        taken_over(yard)
    finally:
        # While the store is still there.
        down = bare("down", "--jobs")
    assert 0 == down.code, down.err


@pytest.mark.rig
def test_going_back_one_release(earlier: Path, bare: Box, tmp_path: Path) -> None:
    """The release before goes on where this one was, or refuses with words; the backup brings it back in any case."""
    effects = tmp_path / "effects"
    effects.mkdir()
    box = Box(bare.data, CONFIG)
    yard = Update(earlier, box, effects, str(bare.data / "yard.db"))
    backup = tmp_path / "before.db"
    yard.up(yard.before)
    known = yard.submit("known", "true")
    until(lambda: yard.state(known) == "COMPLETED", 60)
    yard.old("store", "copy", yard.store, backup)
    yard.old("down")

    yard.up(yard.now)
    with box.client() as client:
        ended = client.submit(command=["true"], tenant="research", env={})["id"]
    box.wait(ended, "COMPLETED", s=60)
    words = f"echo start >>{effects}/across; while [ ! -e {effects}/go ]; do sleep 0.1; done; exit 7"
    across = box.submit("--no-export", "--tenant", "research", "-g", 1, "--", "sh", "-c", words)
    until(lambda: yard.written("across"), 60)
    assert 0 == box("down").code

    back = yard.before.yard(box, "up", "-d", "--port", 0, "--config", box.config)
    if back.code == 0:
        assert "RUNNING" == yard.state(across)
        (effects / "go").touch()
        until(lambda: yard.state(across) == "FAILED", 60)
        assert (["start"], 7) == (yard.written("across"), yard.told("show", across)["exit_code"])
        assert {known, ended, across} == {row["id"] for row in yard.told("history")}
        yard.old("down")
    else:
        assert "newer" in back.err
        (effects / "go").touch()

    for path in bare.data.glob("yard.db*"):
        path.unlink()
    yard.old("store", "copy", backup, yard.store)
    restored = yard.before.yard(box, "up", "-d", "--port", 0, "--config", box.config, "--older-log")
    assert 0 == restored.code, restored.err
    assert [known] == [row["id"] for row in yard.told("history")]
    assert yard.submit("next", "true") > across, "an id was given out twice"


@only_named
def test_jobs_on_slurm(earlier: Path, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    slurm = SlurmYard(tmp_path, slurm_cluster)
    yard = Update(earlier, slurm.box, slurm.effects, str(slurm.box.data / "yard.db"))
    try:
        yard.up(yard.before)
        until(lambda: all(node["state"] == "UP" for node in yard.told("nodes")) and yard.told("nodes"), 60)
        yard.submit("well", "true", "-g", "1")
        until(lambda: yard.told("history"), 60)
        yard.old("down")
        yard.cut()
        yard.up(yard.before)
        taken_over(yard)
    finally:
        slurm.close()
