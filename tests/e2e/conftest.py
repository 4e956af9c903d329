"""A real `yard` on this machine: its own folder, a free port, emulated GPUs, commands as processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gpuyard.api.client import Client
from harness.patience import patient, until
from rigs.components import Missing, skip_or_fail
from rigs.described import DescribedClient
from rigs.kills import Server, processes_with
from rigs.terminal import Terminal

COMMAND_S = 60
IN_ONE_PROCESS = """
import contextlib, io, json, sys
from gpuyard.cli import run
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


class Box:
    """One yard and the commands that speak to it."""

    made: ClassVar[list["Box"]] = []
    """Those of this file, whose processes do not outlive it."""

    def __init__(self, data: Path, config: str = "") -> None:
        self.made.append(self)
        self.data = data
        self.config = data.parent / "yard.yaml"
        self._config = config
        if config:
            self.config.write_text(config, encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """As in a shell that knows only this yard."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("YARD_") and k != "COLUMNS"}
        return kept | {"YARD_DATA": str(self.data)}

    def command(self, *words: object) -> list[str]:
        """The command line of `yard`."""
        return [sys.executable, "-m", "gpuyard.cli", *map(str, words)]

    def __call__(self, *words: object, stdin: str = "", cwd: Path | None = None, **env: str) -> Done:
        """Run a command to its end."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, input=stdin, timeout=patient(COMMAND_S), check=False,
            env=self.environment | env, cwd=cwd or self.data.parent,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def together(self, *lines: Sequence[object]) -> list[Done]:
        """Run commands to their ends, one after the other in one process: the start of Python costs more than most."""
        done = subprocess.run(
            [sys.executable, "-c", IN_ONE_PROCESS],
            capture_output=True, text=True, timeout=patient(COMMAND_S), check=True,
            input=json.dumps([[str(word) for word in words] for words in lines]),
            env=self.environment, cwd=self.data.parent,
        )  # fmt: skip
        found = [Done(*json.loads(line)) for line in done.stdout.splitlines()]
        assert len(lines) == len(found), done.stderr
        return found

    def up(self) -> Done:
        """Start it in the background."""
        fleet = ("--config", self.config) if self._config else ("--emulate", "8 x A100-80GB")
        done = self("up", "-d", "--port", 0, *fleet)
        assert 0 == done.code, done.err
        return done

    def kill(self) -> None:
        """End at once what a test that failed has left of it: the server, its helpers and the jobs."""

        def left() -> list[int]:
            found = processes_with(f"YARD_DATA={self.data}\0", f"YARD_ATTEMPT_DIR={self.data}/")
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return found

        until(lambda: not left())

    def note(self) -> dict[str, Any]:
        """What the server says about itself."""
        found: dict[str, Any] = json.loads((self.data / "yard.pid").read_text(encoding="utf-8"))
        return found

    def client(self) -> Client:
        """The Python client, over the socket. It fails for an answer that the API's description does not have."""
        return DescribedClient(data=self.data)

    def wait(self, job_id: object, *states: str, s: float = 20.0) -> dict[str, Any]:
        """The job, once it is in one of these states."""
        with self.client() as client:
            job: dict[str, Any] = {}

            def there() -> bool:
                job.update(client.job(str(job_id), explain=False))
                return job["state"] in states

            until(there, s, lambda: f"job {job_id} is {job['state']}, not {states}: {job}")
            return job

    def submit(self, *words: object) -> int:
        """Submit a job; its id."""
        done = self("submit", *words)
        notes = [line for line in done.err.splitlines() if "asks for no GPUs" in line]
        assert (0, notes) == (done.code, done.err.splitlines())
        return int(done.out)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    """Chromium, for the tests of the console."""
    from rigs.console.browser import browser  # noqa: PLC0415 (only where it is asked for)

    with browser() as made:
        yield made


def cpu_s(pid: int) -> float:
    """What a process and its children that have ended took of the CPU."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def terminal_of(folder: Path, environment: dict[str, str], **size: int) -> Terminal:
    """A terminal, where there can be one."""
    try:
        return Terminal(folder, environment, **size)
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """A test that failed leaves no yard, no job and no server of a siege running."""
    yield
    while Box.made:
        Box.made.pop().kill()
    while Server.started:
        Server.started.pop().end()


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A yard that runs, for all tests of a file; ended with all its jobs."""
    box = Box(tmp_path_factory.mktemp("e2e") / "yard")
    box.up()
    yield box
    done = box("down", "--jobs")
    assert 0 == done.code, done.err


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Box]:
    """A yard that the test starts, and that is ended in any case."""
    box = Box(tmp_path / "yard")
    yield box
    box("down", "--jobs")
