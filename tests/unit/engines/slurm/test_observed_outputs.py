"""What jobs of an observed Slurm write: the file that Slurm names, read as the job's user and nobody else."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.engines.contract import Permanent
from gpuyard.engines.slurm.calls.commands import Refusal
from gpuyard.engines.slurm.observed import ObservedSlurm, output_files

SUBMITTED_MS = 1_794_855_600_000
LINE = (
    "JobId=17 JobName={name} UserId=ana(1001) GroupId=ana(1001) JobState=RUNNING "
    "SubmitTime=2026-11-16T19:00:00 EligibleTime=2026-11-16T19:00:00 Command=/home/ana/a b.sh WorkDir=/home/ana "
    "StdErr={err} StdIn=/dev/null StdOut={out} Power= "
)


class Slurm:
    """Slurm's commands, as far as they are asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[tuple[str, ...]] = []

    def run(self, *words: str, timeout_s: float = 0.0) -> str:
        self.asked.append(words)
        if not self.text:
            raise Refusal("slurm_load_jobs error: Invalid job id specified")
        return self.text


@pytest.fixture
def user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def output(tmp_path: Path) -> Iterator[tuple[ObservedSlurm, Slurm, Path]]:
    path = tmp_path / "out put.txt"
    path.write_bytes(b"one\ntwo\n")
    slurm = Slurm(LINE.format(name="train", out=path, err=path))
    made = ObservedSlurm("old", slurm)  # type: ignore[arg-type]
    yield made, slurm, path
    made.close()


def test_the_file_that_slurm_names_is_read_and_remembered(
    output: tuple[ObservedSlurm, Slurm, Path], user: str
) -> None:
    engine, slurm, _path = output
    key = f"17@{SUBMITTED_MS}"
    assert b"one\ntwo\n" == engine.output(key, user, "stdout", "", 100).content
    assert b"two\n" == engine.output(key, user, "stdout", "4", 100).content
    assert b"" == engine.output(key, user, "stderr", "", 100).content, "it is in the same file"
    assert [("scontrol", "-o", "show", "job", "17")] == slurm.asked
    # Slurm has forgotten the job; what it said is still known.
    slurm.text = ""
    assert b"one" == engine.output(key, user, "stdout", "", 3).content
    with pytest.raises(Permanent, match="Slurm no longer says where job 18 wrote"):
        engine.output("18@5", user, "stdout", "", 3)


def test_an_id_that_slurm_gave_again_is_not_taken_for_the_job(
    output: tuple[ObservedSlurm, Slurm, Path], user: str
) -> None:
    engine, _slurm, _path = output
    with pytest.raises(Permanent, match="does not say where job 17 writes"):
        engine.output(f"17@{SUBMITTED_MS - 86_400_000}", user, "stdout", "", 100)


def test_a_job_whose_name_forges_its_user_is_read_as_its_own(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root reads as others")
    secret = tmp_path / "secret"
    secret.write_text("root's own")
    secret.chmod(0o600)
    tmp_path.chmod(0o755)
    slurm = Slurm(LINE.format(name=f"x UserId=root(0) StdOut={secret}", out=secret, err=secret))
    engine = ObservedSlurm("old", slurm)  # type: ignore[arg-type]
    assert b"" == engine.output(f"17@{SUBMITTED_MS}", "nobody", "stdout", "", 100).content
    assert b"root's own" == engine.output(f"17@{SUBMITTED_MS}", "root", "stdout", "", 100).content
    engine.close()


def test_a_user_who_is_not_here_and_a_yard_that_is_not_roots(
    output: tuple[ObservedSlurm, Slurm, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _slurm, _path = output
    with pytest.raises(Permanent, match="this machine has no user nobody-here"):
        engine.output(f"17@{SUBMITTED_MS}", "nobody-here", "stdout", "", 100)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(Permanent, match="only a yard of root, or of root, may read"):
        engine.output(f"17@{SUBMITTED_MS}", "root", "stdout", "", 100)


def test_paths_with_spaces_and_without_errors() -> None:
    text = LINE.format(name="a", out="/home/ana/my out", err="/home/ana/my err")
    assert {"stdout": "/home/ana/my out", "stderr": "/home/ana/my err"} == output_files(text, SUBMITTED_MS)
    assert {} == output_files("JobId=1 SubmitTime=Unknown StdOut=/x", SUBMITTED_MS)
