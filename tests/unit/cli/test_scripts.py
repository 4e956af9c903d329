"""What `yard submit` and `yard run` make of their first word: slips are refused with the line to type instead."""

from pathlib import Path

import pytest

from .conftest import Yard


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where somebody types; no yard is there, so what is not refused ends with another exit code."""
    monkeypatch.setenv("YARD_DATA", str(tmp_path / "none"))
    for name, content in {
        "train.py": b"print(1)\n",
        "plain.sh": b"echo hi\n",
        "job.sbatch": b"#SBATCH --gres=gpu:1\necho hi\n",
        "words.txt": b"a text\n",
        "empty.sh": b"",
        "blank.sh": b" \n\n",
        "model.bin": b"\x00\x01\x02",
        "dos.sh": b"#!/bin/sh\r\ntrue\r\n",
        "ok.sh": b"#!/bin/sh\ntrue\n",
        "runs.sh": b"#!/bin/sh\ntrue\n",
        "runs": b"true\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755 if name.startswith("runs") else 0o644)
    program = tmp_path / "prog"
    program.write_bytes(b"\x7fELF\x00\x00")
    program.chmod(0o755)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "says", "line"),
    [
        (["train.py"], "train.py: does not begin with #!", "yard submit -g 1 -- python3 train.py"),
        (["-g", "2", "-t", "2h", "train.py", "--lr", "1"], "does not begin with #!",
         "yard submit -g 2 -t 2h -- python3 train.py --lr 1"),
        (["plain.sh"], "plain.sh: does not begin with #!", "yard submit -g 1 -- bash plain.sh"),
        (["job.sbatch"], "job.sbatch: does not begin with #!", "Make its first line #!/bin/bash, or type: yard"),
        (["words.txt"], "words.txt: does not begin with #!", "yard submit -g 1 -- PROGRAM words.txt"),
        (["./train.py"], "train.py: does not begin with #!", "yard submit -g 1 -- python3 ./train.py"),
        (["absent.py"], "absent.py: no such file", "yard submit -g 1 -- absent.py"),
        (["absent.sh"], "absent.sh: no such file", "If it will be there when the job starts: yard submit"),
        (["absent.anything"], "absent.anything: no such file", "yard submit -g 1 -- absent.anything"),
        (["/no/such/program"], "/no/such/program: no such file", "yard submit -g 1 -- /no/such/program"),
        (["trian"], "trian: no such file or command", "If the nodes of the yard have that command: yard submit"),
        (["SEED=1", "true"], "SEED=1: no such file or command", "yard submit -g 1 --env SEED=1 -- true"),
        (["data"], "data: is a folder, which cannot run", "yard submit -g 1 -- COMMAND"),
        (["empty.sh"], "empty.sh: is empty", ""),
        (["blank.sh"], "blank.sh: is empty", ""),
        (["model.bin"], "model.bin: holds data, and is not a program", "chmod +x model.bin"),
        (["prog"], "prog: is a program that is not on the PATH", "yard submit -g 1 -- ./prog"),
        (["dos.sh"], "dos.sh:1: ends with a Windows line break", "sed -i 's/\\r$//' dos.sh"),
        (["absent.yaml"], "absent.yaml: no such file", ""),
        (["--", "train.py", "--lr", "1"], "train.py: does not begin with #!",
         "yard submit -g 1 -- python3 train.py --lr 1"),
        (["--", "prog"], "prog: is a program that is not on the PATH", "yard submit -g 1 -- ./prog"),
        (["--", "./ok.sh"], "ok.sh: is a script that may not be run", "leave out the `--`"),
        (["--", "runs.sh"], "runs.sh: is a script in the job's folder", "yard submit -g 1 -- ./runs.sh"),
        (["--chdir", "data", "--", "../runs"], "runs: does not begin with #!", "-- PROGRAM ../runs"),
        (["--chdir", "none/such", "--", "true"], "none/such: the job is to run there: No such file or directory",
         "Make the folder first: mkdir -p "),
        (["--chdir", "plain.sh", "--", "true"], "plain.sh: is a file, and a job runs in a folder", ""),
    ],
)  # fmt: skip
def test_a_slip_is_refused_with_the_line_to_type(
    yard: Yard, folder: Path, words: list[str], says: str, line: str
) -> None:
    for verb in ("submit", "run"):
        if verb == "run" and words[0].endswith(".yaml"):
            continue
        done = yard(verb, *words)
        assert (2, "") == (done.code, done.out)
        assert says in done.err
        assert line.replace("yard submit", f"yard {verb}") in done.err


NO_SERVER = 4


@pytest.mark.parametrize(
    "words", [["true"], ["./prog"], ["--", "absent.py"], ["python3", "train.py"], ["--", "./prog"]]
)
def test_a_command_is_taken(yard: Yard, folder: Path, words: list[str]) -> None:
    assert NO_SERVER == yard("submit", *words).code


@pytest.mark.parametrize(
    ("verb", "words", "noted"),
    [
        ("submit", ["--array", "0-9", "--", "./sweep.sh", "1"], "note: ./sweep.sh: no such file yet"),
        ("run", ["--", "/no/such/program"], "note: /no/such/program: no such file yet"),
        ("submit", ["--chdir", "data", "--", "./prog"], "note: ./prog: no such file yet"),
        ("submit", ["--after", "1", "--", "./made-by-1.sh"], ""),
        ("submit", ["--", "./prog"], ""),
        ("submit", ["--", "of-the-nodes"], ""),
    ],
)
def test_a_path_that_is_not_there_yet_is_noted(
    yard: Yard, folder: Path, verb: str, words: list[str], noted: str
) -> None:
    done = yard(verb, "-g", "1", *words)
    assert NO_SERVER == done.code
    assert noted in done.err
    assert bool(noted) == ("no such file" in done.err)


def test_a_file_that_may_not_be_read_is_named(
    yard: Yard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    done = yard("submit", "plain.sh")
    assert (2, "") == (done.code, done.out)
    assert "plain.sh: Permission denied" in done.err


def test_a_folder_that_another_job_may_make_is_not_asked_for(yard: Yard, folder: Path) -> None:
    assert NO_SERVER == yard("submit", "--after", "1", "--chdir", "made-by-1", "--", "true").code


def test_the_folder_of_a_file_of_jobs_is_asked_for(yard: Yard, folder: Path) -> None:
    (folder / "job.yaml").write_text("command: [true]\ncwd: /no/such/folder\n", encoding="utf-8")
    done = yard("submit", "job.yaml")
    assert (2, "") == (done.code, done.out)
    assert "/no/such/folder: the job is to run there: No such file or directory" in done.err


def test_the_files_of_another_machine_are_not_judged(
    yard: Yard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("YARD_TOKEN", "yard_x")
    for words in (["--chdir", "/no/such", "--", "true"], ["--", "train.py"]):
        assert NO_SERVER == yard("submit", *words).code
