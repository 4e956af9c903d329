"""`yard checkpoint --write`: a file is replaced in one step, or stays as it was."""

import resource
import subprocess
from pathlib import Path

import pytest

from harness.patience import patient, until

from .conftest import Yard, command, environment


@pytest.fixture(autouse=True)
def _in_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("YARD_JOB_ID", "YARD_CHECKPOINT_FILE"):
        monkeypatch.delenv(name, raising=False)


def _written(
    folder: Path, *words: str, stdin: bytes | None = None, limit: int | None = None
) -> tuple[int, str]:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        command("checkpoint", "--write", "saved", *words),
        input=stdin or b"",
        cwd=folder,
        env=environment(),
        preexec_fn=limited,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stderr.decode()


def test_words_or_standard_input_replace_a_file_which_keeps_its_mode(yard: Yard, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    assert 0 == yard("checkpoint", "--write", saved, "step", 7).code
    assert "step 7\n" == saved.read_text()
    saved.chmod(0o640)
    content = bytes(range(256)) * 10_000
    assert (0, "") == _written(tmp_path, stdin=content)
    assert (content, 0o640) == (saved.read_bytes(), saved.stat().st_mode & 0o777)
    (tmp_path / "link").symlink_to(saved)
    assert 0 == yard("checkpoint", "--write", "link", "--", "-1").code
    assert (True, "-1\n") == ((tmp_path / "link").is_symlink(), saved.read_text())
    assert {"saved", "link"} == {path.name for path in tmp_path.iterdir()}, "no draft is left"


def test_a_write_that_fails_leaves_what_was_saved(tmp_path: Path) -> None:
    (tmp_path / "saved").write_text("7\n")
    code, said = _written(tmp_path, stdin=b"x" * 100_000, limit=50_000)
    assert (1, "yard: --write saved: File too large") == (code, said.splitlines()[0])
    code, said = _written(tmp_path)
    assert (2, "yard: there was nothing to write: saved stays as it was\n") == (code, said)
    assert ["7\n"] == [path.read_text() for path in tmp_path.iterdir()]


def test_what_cannot_be_replaced_is_refused(yard: Yard, tmp_path: Path) -> None:
    done = yard("checkpoint", "--write", tmp_path, "7")
    assert (2, True) == (done.code, f"--write {tmp_path}: this is not a plain file" in done.err)
    done = yard("checkpoint", "--write", "no/such", "7")
    assert (1, True) == (done.code, "--write no/such: the folder is not there\nmkdir -p no\n" in done.err)


def test_words_without_a_letter_are_nothing_to_go_back_to(yard: Yard, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_text("7\n")
    done = yard("checkpoint", "--write", saved, "")
    assert (2, True) == (done.code, "there was nothing to write" in done.err)
    assert "7\n" == saved.read_text()


def test_closed_standard_input_is_called_so(tmp_path: Path) -> None:
    words = ["sh", "-c", 'exec "$@" <&-', "sh", *command("checkpoint", "--write", "saved")]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (2, True) == (done.returncode, "standard input is closed" in done.stderr)


def test_a_stop_in_the_middle_leaves_what_was_saved_and_no_draft(tmp_path: Path) -> None:
    (tmp_path / "saved").write_text("7\n")
    with subprocess.Popen(
        command("checkpoint", "--write", "saved"),
        stdin=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(),
    ) as run:
        until(lambda: len([*tmp_path.iterdir()]) == 2)
        run.terminate()
        assert 143 == run.wait(patient(30))
    assert ["7\n"] == [path.read_text() for path in tmp_path.iterdir()]


def test_a_job_that_saves_elsewhere_is_told_that_the_yard_was_not(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_JOB_ID", "7")
    monkeypatch.setenv("YARD_URL", f"unix:{tmp_path}/none.sock")
    monkeypatch.setenv("YARD_CHECKPOINT_FILE", str(tmp_path / "own"))
    done = yard("checkpoint", "--write", tmp_path / "own", "7")
    assert (0, "") == (done.code, done.err)
    done = yard("checkpoint", "--write", "other", "7")
    assert (0, "7\n") == (done.code, (tmp_path / "other").read_text())
    assert done.err.startswith("note: other is written, and the yard could not be told: ")


def test_one_job_is_named_by_its_id_or_by_where_the_command_runs(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARD_URL", f"unix:{tmp_path}/none.sock")
    assert "no job was named, and this command does not run in one" in yard("checkpoint").err
    assert "a checkpoint belongs to one job" in yard("checkpoint", "7", "8").err
    monkeypatch.setenv("YARD_JOB_ID", "7")
    assert (4, 4) == (yard("checkpoint").code, yard("checkpoint", "7").code)
