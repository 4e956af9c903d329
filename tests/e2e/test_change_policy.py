"""An administrator changes a quota with a preview and goes back, in a terminal; and what may go wrong on the way."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuyard.api.client import Refused
from harness.patience import patient, until

from .conftest import Box

CONFIG = """\
version: 1
clusters:
  box: {gpus: 8 x A100-80GB, emulate: true}
tenants:
  research: {limit: 1}
  product: {guarantee: 2}
"""
RAISED = CONFIG.replace("limit: 1", "limit: 2")


@contextmanager
def of_two_tenants(folder: Path) -> Iterator[Box]:
    """A yard of two tenants, with `raised.yaml` beside its file."""
    box = Box(folder / "yard", CONFIG)
    (folder / "raised.yaml").write_text(RAISED, encoding="utf-8")
    box.up()
    yield box
    box("down", "--jobs")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Box]:
    with of_two_tenants(tmp_path) as box:
        yield box


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """The same for tests that change nothing of it and submit no job."""
    with of_two_tenants(tmp_path_factory.mktemp("kept")) as box:
        yield box


class Terminal:
    """A terminal of 100 columns in which someone types."""

    def __init__(self, box: Box) -> None:
        self._name = f"yard-{os.getpid()}-{time.monotonic_ns()}"
        installed = Path(sys.executable).parent
        path = f"{installed}:{os.environ['PATH']}"
        words = ("new-session", "-d", "-x", "100", "-y", "50", "-c", box.data.parent)
        self._tmux(*words, f"YARD_DATA={box.data} PATH={shlex.quote(path)} PS1='$ ' bash --norc --noprofile")

    def _tmux(self, *words: object) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, "-f", "/dev/null", *map(str, words)],
            capture_output=True, text=True, check=True, timeout=patient(20),
        )  # fmt: skip
        return done.stdout

    def types(self, line: str) -> None:
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")

    def shows(self, pattern: str, s: float = 30.0) -> str:
        """What stands on the screen, once it matches."""
        shown = [""]

        def there() -> object:
            shown.append(self._tmux("capture-pane", "-p"))
            return re.search(pattern, shown[-1])

        until(there, s, lambda: f"{pattern!r} did not come:\n{shown[-1]}")
        return shown[-1]

    def clear(self) -> None:
        self.types("clear")
        self.shows(r"\A\$ *\n*\Z")

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    found = Terminal(request.getfixturevalue("kept" if "kept" in request.fixturenames else "yard"))
    yield found
    found.close()


def test_an_admin_changes_a_quota_with_a_preview_and_rolls_back(yard: Box, terminal: Terminal) -> None:
    for _ in range(3):
        yard.wait(yard.submit("--tenant", "research", "-g", 1, "--", "true"), "COMPLETED")
    first = yard.submit("--tenant", "research", "-g", 1, "--", "sleep", 300)
    second = yard.submit("--tenant", "research", "-g", 1, "--", "sleep", 300)
    yard.wait(first, "RUNNING")

    terminal.types("yard apply -f raised.yaml")
    seen = terminal.shows(r"Put version 2 in force\? \[y/N\]")
    assert "~ tenant research  limit  1 → 2" in seen
    assert re.search(r"over the last \w+( \w+)?: mean wait of research .*, utilisation", seen)
    assert "it stands on 5 jobs: too few to say much" in seen
    assert "PENDING" == yard.wait(second, "PENDING")["state"]
    terminal.types("y")
    terminal.shows("version 2 is in force")
    yard.wait(second, "RUNNING")

    terminal.clear()
    terminal.types("yard rollback")
    seen = terminal.shows(r"Put version 3 in force\? \[y/N\]")
    assert "this would be version 3, the settings of version 1" in seen
    assert "~ tenant research  limit  2 → 1" in seen
    assert "what runs goes on" in seen
    terminal.types("y")
    terminal.shows("version 3 is in force")

    third = yard.submit("--tenant", "research", "-g", 1, "--", "sleep", 300)
    until(lambda: "its tenant is at its limit" in yard("queue").out)
    assert ["RUNNING", "RUNNING", "PENDING"] == [
        yard.wait(job, "RUNNING", "PENDING")["state"] for job in (first, second, third)
    ]
    terminal.clear()
    terminal.types("yard config --list")
    seen = terminal.shows("start")
    assert ["3", "2", "1"] == re.findall(r"^ +(\d) ", seen, re.MULTILINE)
    assert "rollback to 1" in seen


def test_no_is_an_answer(kept: Box, terminal: Terminal) -> None:
    terminal.types("yard apply -f raised.yaml --no-preview; echo code $?")
    terminal.shows(r"\[y/N\]")
    terminal.types("n")

    assert "nothing was changed" in terminal.shows("code 1")
    assert CONFIG == kept("config").out


@pytest.mark.rig
def test_a_restart_with_the_old_file_keeps_what_was_applied(yard: Box) -> None:
    applied = yard("apply", "-f", "raised.yaml", "--yes")
    assert 0 == yard("down").code
    again = yard.up()

    assert (0, RAISED) == (applied.code, yard("config").out)
    assert "version 2 of the configuration" in again.err
    assert "2" in yard("tenants").out.split("research")[1].split("\n")[0]


@pytest.mark.rig
def test_a_restart_without_the_file_keeps_the_machine_as_it_was(yard: Box) -> None:
    job = yard.submit("--tenant", "product", "-g", 2, "--", "sleep", 600)
    yard.wait(job, "RUNNING")
    assert 0 == yard("down").code

    again = yard("up", "-d", "--port", 0)

    assert "no yard.yaml was given: cluster box as at the last start, from " in again.err
    assert "another: `yard up --config FILE`" in again.err
    (node,) = json.loads(yard("nodes", "-o", "json").out)
    assert ("UP", "box", 8, [str(job)]) == (node["state"], node["cluster"], node["gpus"], node["jobs"])
    assert CONFIG == yard("config").out


def test_a_diff_has_the_exit_codes_of_diff(kept: Box) -> None:
    same, differs = kept("diff", "-f", kept.config), kept("diff", "-f", "raised.yaml")
    piped = kept("diff", "-f", "-", "-o", "csv", stdin=RAISED)
    broken = kept("diff", "-f", "-", stdin=RAISED.replace("limit: 2", "limt: 2"))

    assert (0, "nothing would change: version 1 is in force\n") == (same.code, same.out)
    assert (1, "  ~ tenant research  limit  1 → 2\n") == (differs.code, differs.out.partition("\n")[2])
    assert "changed,tenant,research,limit,1,2\n" == piped.out.partition("\n")[2]
    assert 2 == broken.code
    assert "standard input:5:14: unknown key 'limt' in tenant 'research'; did you mean 'limit'" in broken.err


def test_a_pipe_is_not_asked_and_dry_run_changes_nothing(kept: Box) -> None:
    asked = kept("apply", "-f", "raised.yaml")
    looked = kept("apply", "-f", "raised.yaml", "--dry-run")

    assert (2, "") == (asked.code, asked.out)
    assert "add --yes" in asked.err
    assert 0 == looked.code
    assert "no job was recorded" in looked.out
    assert CONFIG == kept("config").out
    first = kept("rollback", "--yes")
    assert "there is no version before the first" in first.err


@pytest.mark.rig
def test_a_tenant_whose_job_runs_is_not_removed(yard: Box) -> None:
    job_id = yard.submit("--tenant", "product", "--", "sleep", 300)
    without = CONFIG.replace("  product: {guarantee: 2}\n", "")
    done = yard("apply", "-f", "-", "--yes", "--no-preview", stdin=without)

    assert 2 == done.code
    assert f"tenant product cannot be removed: job {job_id} is its own and live" in done.err
    assert CONFIG == yard("config").out


@pytest.mark.rig
def test_two_admins_do_not_overwrite_each_other(yard: Box) -> None:
    with yard.client() as one, yard.client() as two:
        looked = one.config_diff(yaml=RAISED)
        two.apply(yaml=CONFIG.replace("limit: 1", "limit: 5"), against=looked["version"])
        with pytest.raises(Refused, match=r"version 2 is in force, by .*, not 1: it changed since"):
            one.apply(yaml=RAISED, against=looked["version"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only a server of root serves other users")
def test_only_administrators_may_look_and_change() -> None:
    with tempfile.TemporaryDirectory(prefix="yard-of-test-") as folder:
        os.chmod(folder, 0o711)
        box = Box(Path(folder) / "yard", CONFIG)
        box.up()
        try:
            assert [403] * 7 == _as_nobody(box)
            assert CONFIG == box("config").out
        finally:
            box("down", "--jobs")


def _as_nobody(box: Box) -> list[int]:
    """How another user is answered, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            client, seen = box.client(), []
            for call in (
                client.config, client.config_versions, lambda: client.config(1),
                lambda: client.config_diff(yaml=RAISED), lambda: list(client.config_preview(yaml=RAISED)),
                lambda: client.apply(yaml=RAISED), lambda: client.rollback(version=1),
            ):  # fmt: skip
                try:
                    call()
                    seen.append(200)
                except Refused as refused:
                    seen.append(refused.status)
            os.write(write, json.dumps(seen).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as news:
        found: list[int] = json.loads(news.read() or b"[]")
    os.waitpid(child, 0)
    return found


@pytest.mark.parametrize("delay_s", [0.0, 0.03])
@pytest.mark.rig
def test_a_kill_leaves_the_old_or_the_new(yard: Box, delay_s: float) -> None:
    """Whatever the moment: number, text and quotas are those of one version (tests/unit chooses the moments)."""
    server = yard.note()["pid"]
    with yard.client() as client:
        client.config()
    words = yard.command("apply", "-f", "raised.yaml", "--yes", "--no-preview")
    with subprocess.Popen(
        words, env=yard.environment, cwd=yard.data.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        # About when the request comes in.
        time.sleep(0.25 + delay_s)
        os.kill(server, signal.SIGKILL)
        running.kill()
    assert 0 == yard("up", "-d", "--port", 0).code
    with yard.client() as client:
        live = client.config()
        limit = next(row["limit"] for row in client.tenants() if row["tenant"] == "research")

    assert (live["version"], live["yaml"], limit) in [
        (1, CONFIG, {"total": 1.0}),
        (2, RAISED, {"total": 2.0}),
    ]
