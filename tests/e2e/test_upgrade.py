"""`pip install --upgrade` under a yard that runs: nobody is kept from a job that runs, and no job ends."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box
from e2e.test_terminals import CONFIG, PROMPT, SERVER, SHELL, fetched, free_port
from harness.patience import until
from rigs.terminal import Pseudo
from rigs.visits.wheels import SOURCE, Environment, wheel

BEFORE = os.environ.get("GPUYARD_BEFORE", "")
"""A checkout of an earlier release, to upgrade from; else this one is its own earlier release."""
_MARK = "\nEARLIER = True\n"
_LATER = """
import sys
if hasattr(sys.modules.get("gpuyard.engines.local.attempt.supervisor"), "EARLIER"):
    raise ImportError("this is of a later release than the supervisor that wants it")
"""
VISITED = (
    *[f"containers/{name}" for name in ("image", "podman", "runtimes")],
    *[f"visits/{name}" for name in ("copying", "frames", "inside", "keeper", "visitors")],
)

pytestmark = pytest.mark.rig


class Installed(Box):
    """A yard whose programs are those of an environment."""

    def __init__(self, data: Path, environment: Environment) -> None:
        super().__init__(data, CONFIG)
        self.python = environment.python

    def command(self, *words: object) -> list[str]:
        return [str(self.python), "-m", "gpuyard.cli", *map(str, words)]

    def at(self, *words: object) -> Pseudo:
        """A command at a terminal."""
        return Pseudo(self.command(*words), {**self.environment, "PS1": PROMPT}, self.data.parent)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    made = Environment(tmp_path / "venv")
    source = Path(BEFORE, "src", "gpuyard") if BEFORE else SOURCE
    marks = {} if BEFORE else {"engines/local/attempt/supervisor.py": _MARK}
    made.install(wheel(tmp_path, "9999.1", marks, source))
    return made


@pytest.fixture
def yard(tmp_path: Path, environment: Environment) -> Iterator[Installed]:
    box = Installed(tmp_path / "yard", environment)
    box.up()
    yield box
    assert 0 == box("down", "--jobs").code


def visit_all(yard: Installed, shell_job: str, job: int, there: int, work: Path) -> None:
    with yard.at("attach", shell_job) as again:
        again.type("echo x=$((x + 1))\r")
        again.until("x=43")
        again.type("~.")
        assert 0 == again.code()
    with yard.at("shell", job, "--", "sh", "-c", "echo in=$YARD_JOB_ID; exit 6") as shell:
        shell.until(f"in={job}")
        assert 6 == shell.code()
    assert 0 == yard("cp", f"{job}:{work}/served", work / "back").code
    assert 0 == yard("cp", work / "back", f"{job}:{work}/again").code
    assert str(job) == (work / "again").read_text()
    here = free_port()
    with yard.at("forward", job, f"{here}:{there}") as forward:
        forward.until(f"is port {there} of job {job}")
        assert str(job).encode() == fetched(here, "served")


def test_an_upgrade_leaves_running_jobs_as_they_are_and_everybody_comes_in(
    yard: Installed, environment: Environment, tmp_path: Path
) -> None:
    there, work = free_port(), tmp_path / "work"
    work.mkdir()
    job = yard.submit("-g", 1, "--chdir", work, "--", sys.executable, "-c", SERVER.format(port=there))
    with yard.at("run", "-g", 1, "--", *SHELL) as shell:
        shell.until(PROMPT)
        shell.type("x=42; echo s''et\r~.")
        assert 0 == shell.code()
    until((work / "served").exists)
    own = str(job + 1)

    # A module of the later release says so where it comes to lie beside those of the earlier one.
    environment.install(wheel(tmp_path, "9999.2", {f"engines/node/{name}.py": _LATER for name in VISITED}))
    assert "9999.2" == environment.version()
    visit_all(yard, own, job, there, work)
    assert 0 == yard("down").code
    yard.up()
    visit_all(yard, own, job, there, work)

    assert [("RUNNING", 1)] * 2 == [
        (found["state"], found["attempts"]) for found in (yard.wait(each, "RUNNING") for each in (own, job))
    ]
