"""Slips of the hand: each is told at once and in words, not by a job that fails later or an answer without a reason."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Box


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("submit", "trian.sh"), "yard: trian.sh: no such file\nIf it will be there when the job starts: yard"),
        (("run", "trian.sbatch"), "yard: trian.sbatch: no such file\n"),
        (("submit", "/tmp"), "yard: /tmp: is a folder"),
        (("submit", "marked.sh"), "yard: marked.sh:1: begins with a byte order mark"),
        (("submit", "--array", "", "--", "true"), "yard: --array names no task\n"),
        (("submit", "-n", "x" * 200, "--", "true"), "yard: name: it should have at most 128 characters\n"),
        (("config", "versions"), "yard config: VERSION takes a whole number, not 'versions'\n"),
        (("rollback",), "yard: there is no version before the first\n"),
        (("up", "-d", "--data", "other", "--port", 0, "--tls-cert", "no.pem", "--tls-key", "no.pem"),
         "yard: /"),
        (("run", "jobs.yaml"), "yard: jobs.yaml holds jobs, and `yard run` runs commands\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(box: Box, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    (tmp_path / "marked.sh").write_bytes(b"\xef\xbb\xbf#!/bin/sh\ntrue\n")
    (tmp_path / "jobs.yaml").write_text("command: [echo]\n")

    done = box(*words, cwd=tmp_path)

    assert (2, "") == (done.code, done.out)
    assert done.err.startswith(says)


def test_a_command_that_is_only_there_later_goes_after_the_dashes(box: Box) -> None:
    assert 0 == box("submit", "--hold", "--", "later.sh").code


def test_directives_that_come_through_a_pipe_are_heeded(box: Box) -> None:
    script = "#!/bin/sh\n#SBATCH --gres=gpu:2 --job-name=piped --mail-user=me\necho $1\n"

    done = box("submit", "-", "a-word", stdin=script)

    assert "--mail-user is not served" in done.err
    job = box.wait(done.out.strip(), "COMPLETED")
    assert ("piped", 2) == (job["name"], job["gpus"])
    assert "a-word\n" == box("logs", job["id"]).out


def test_yaml_and_plain_scripts_come_through_a_pipe_too(box: Box) -> None:
    for text, says in (("command: [echo, yaml]\n", "yaml\n"), ("#!/bin/sh\necho $1\n", "word\n")):
        number = box("submit", *(["-"] if says == "yaml\n" else ["-", "word"]), stdin=text).out.strip()
        box.wait(number, "COMPLETED")
        assert says == box("logs", number).out
    assert "must begin with a line such as #!/bin/bash" in box("submit", "-", stdin="echo hi\n").err


def test_of_several_jobs_the_refused_one_is_named_and_what_became_of_the_others(
    box: Box, tmp_path: Path
) -> None:
    one = "name: {}\ncommand: [echo]\nhold: true\n"
    file = tmp_path / "jobs.yaml"
    file.write_text("---\n".join([one.format("a"), one.format("b") + "class: nosuch\n", one.format("c")]))

    done = box("submit", file)

    assert (2, 1) == (done.code, len(done.out.split()))
    assert "yard: job 2 of 3 (b): unknown class 'nosuch'" in done.err
    assert "the 1 before it is submitted, the 1 after it not" in done.err


def test_a_folder_that_is_gone_is_named(box: Box, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = " ".join(box.command("submit", "--", "true"))

    done = subprocess.run(
        ["sh", "-c", f"rmdir {gone}; exec {command}"],
        cwd=gone, env=box.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith("yard: the current folder no longer exists")


def test_a_program_that_is_not_there_is_named_wherever_one_looks(box: Box, tmp_path: Path) -> None:
    done = box("run", "--", "no-such-program")
    assert 127 == done.code
    assert "ended with FAILED: cannot run no-such-program: No such file or directory" in done.err

    number = box.submit("--", "no-such-program")
    box.wait(number, "FAILED")
    why = box("why", number).out
    assert re.search(r" had run for \d+ s: cannot run no-such-program: No such file", why), why

    (tmp_path / "file").touch()
    array = box.submit("--array", "0-1", "--stdout", tmp_path / "file/x", "--", "true")
    box.wait(f"{array}_1", "FAILED")
    assert "exit code 126  cannot open standard input and output" in box("show", array).out


def test_a_failure_of_the_program_itself_is_left_to_the_program(box: Box) -> None:
    done = box("run", "--", "sh", "-c", "exit 3")
    assert (3, "") == (done.code, done.err)


@pytest.mark.rig
def test_whoever_follows_a_job_sees_its_end_though_the_server_was_killed(bare: Box) -> None:
    bare.up()
    with subprocess.Popen(
        bare.command("run", "--", "sh", "-c", "echo a; sleep 6; echo b; exit 7"),
        env=bare.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert "a\n" == run.stdout.readline()
        os.kill(bare.note()["pid"], signal.SIGKILL)
        bare.up()
        assert "b\n" == run.stdout.read()
    assert 7 == run.returncode


def test_a_yard_whose_pid_is_not_told_is_not_said_to_be_down(bare: Box) -> None:
    bare.up()
    file = bare.data / "yard.pid"
    note = file.read_text()
    file.write_text("")

    done = bare("down")

    file.write_text(note)
    assert (1, "") == (done.code, done.out)
    assert "is locked, but no running yard" in done.err
