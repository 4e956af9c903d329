"""Tab in real shells: commands, options, jobs, nodes and tenants, and silence where nobody answers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.patience import patient
from rigs.components import Missing, install, skip_or_fail

from .conftest import Box

Tab = Callable[..., list[str]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH on which there is a `yard`."""
    folder = tmp_path_factory.mktemp("bin")
    yard = folder / "yard"
    yard.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpuyard.cli "$@"\n', encoding="utf-8")
    yard.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def job(box: Box) -> Iterator[int]:
    """A job that is there while the tests run."""
    job_id = box.submit("-g", 1, "--name", "trains", "--tenant", "lab/ana", "--", "sleep", "600")
    box.wait(job_id, "RUNNING")
    yield job_id
    box("cancel", job_id)


def need(program: str) -> None:
    """Have a shell, installed if it is not there."""
    if shutil.which(program) is None:
        try:
            install(program)
        except Missing as why:
            skip_or_fail(str(why))


def shell(
    box: Box, path: str, command: list[str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = box.environment | {"PATH": path, "TERM": "xterm", "HOME": str(box.data.parent)}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=patient(60), check=False,
        cwd=cwd or box.data.parent, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def bash(box: Box, path: str, line: str) -> list[str]:
    """What bash has to offer at the end of a line, with its own cutting of words."""
    script = f"""
        source <(yard completion bash)
        complete -p yard >/dev/null || exit 9
        COMP_LINE={line!r}; COMP_WORDS=($(echo "$COMP_LINE" | sed 's/=/ = /g'))
        case "$COMP_LINE" in *" ") COMP_WORDS+=("");; esac
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _yard; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = shell(box, path, ["bash", "--norc", "-c", script])
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.split()


def test_bash_completes_commands_options_and_choices(box: Box, path: str, job: int) -> None:
    assert ["queue"] == bash(box, path, "yard qu")
    assert {"cancel", "completion", "continue", "convert"} <= set(bash(box, path, "yard c"))
    assert ["--state"] == bash(box, path, "yard queue --st")
    assert ["table", "wide", "json", "yaml", "csv"] == bash(box, path, "yard queue -o ")
    assert ["json"] == bash(box, path, "yard history --output j")
    assert ["json"] == bash(box, path, "yard history --output=j")
    assert ["PENDING"] == bash(box, path, "yard queue --state P")
    assert {"simulate", "decide"} <= set(bash(box, path, "yard bench "))
    assert "--nodes" in bash(box, path, "yard bench decide --n")
    assert [] == bash(box, path, "yard nonsense --x")


def test_bash_completes_jobs_nodes_and_tenants_of_the_yard(box: Box, path: str, job: int) -> None:
    assert str(job) in bash(box, path, "yard cancel ")
    assert str(job) in bash(box, path, "yard logs -f ")
    with box.client() as client:
        (node,) = [each["name"] for each in client.nodes()]
    assert [node] == bash(box, path, "yard drain ")
    assert {"lab", "lab/ana"} <= set(bash(box, path, "yard queue --tenant la"))


def test_files_where_a_file_may_stand(box: Box, path: str) -> None:
    (box.data.parent / "train-me.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    assert ["train-me.sh"] == bash(box, path, "yard submit -g 1 train-m")
    assert ["train-me.sh"] == bash(box, path, "yard run -- sh train-m")


def test_without_a_yard_there_is_nothing_to_offer_and_nothing_to_read(
    box: Box, path: str, tmp_path: Path
) -> None:
    nobody = Box(tmp_path / "nobody")
    assert [] == bash(nobody, path, "yard cancel ")
    assert ["queue"] == bash(nobody, path, "yard qu")
    done = box("_complete", "bash", 2, "yard", "cancel", YARD_SERVER="127.0.0.1:1")
    assert (0, "", "") == (done.code, done.out, done.err)
    for words in ((), ("bash",), ("bash", "x", "yard"), ("bash", "99", "yard", "show")):
        done = box("_complete", *words)
        assert (0, "") == (done.code, done.err)


@pytest.mark.rig
def test_zsh_gets_words_with_their_meaning(box: Box, path: str, job: int) -> None:
    need("zsh")
    script = f"""
        _describe() {{ print -l -- "${{(@P)3}}" }}
        compdef() {{ }}
        source <(yard completion zsh)
        words=(yard cancel ''); CURRENT=3; _yard
        words=(yard queu); CURRENT=2; _yard
        words=(yard queue --output=y); CURRENT=3; _yard
        [[ -n "$functions[_yard]" ]] && print {job}
    """
    done = shell(box, path, ["zsh", "-f", "-c", script])
    assert (0, "") == (done.returncode, done.stderr)
    lines = done.stdout.splitlines()
    assert f"{job}:trains, RUNNING" in lines
    assert "queue:Show the jobs that run and wait, in order." in lines
    assert "--output=yaml" in lines


@pytest.mark.rig
def test_fish_completes_by_itself(box: Box, path: str, job: int) -> None:
    need("fish")
    script = 'yard completion fish | source; complete -C "yard canc"; complete -C "yard cancel "'
    done = shell(box, path, ["fish", "--no-config", "-c", script])
    assert (0, "") == (done.returncode, done.stderr)
    assert "cancel\tCancel jobs, by id or all that match." in done.stdout
    assert f"{job}\ttrains, RUNNING" in done.stdout
