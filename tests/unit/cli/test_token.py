"""`yard token create --to FILE`: the secret is in the file, or no token is there."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from harness.patience import patient
from unit.api.test_client import http, serve

from .conftest import Yard, command, environment


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("folder", "is not a plain file"),
        ("pipe", "is not a plain file"),
        ("link", "is a link: name the file that it leads to"),
    ],
)
def test_what_is_no_plain_file_is_not_replaced(yard: Yard, tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("none")
    before = {each.name: each.lstat().st_ino for each in tmp_path.iterdir()}
    done = yard("token", "create", "--user", "ana", "--to", tmp_path / name)
    assert (2, f"yard: {tmp_path / name} {why}") == (done.code, done.err.splitlines()[0])
    assert "No token was made." in done.err
    assert before == {each.name: each.lstat().st_ino for each in tmp_path.iterdir()}


def test_a_token_whose_secret_could_not_be_written_is_revoked(tmp_path: Path) -> None:
    secret = "yard_abcdefghij_" + "0f" * 32
    made = {"id": "abcdefghij", "secret": secret, "expires_ms": 0, "role": "user", "tenant": ""}
    asked = serve(tmp_path / "s", [http(201, made), http(200, {"revoked": ["abcdefghij"]})])
    done = subprocess.run(
        command("token", "create", "--user", "ana", "--to", "secret"),
        cwd=tmp_path,
        env=environment() | {"YARD_URL": f"unix:{tmp_path / 's'}"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (1, "") == (done.returncode, done.stdout)
    said = [
        "yard: secret cannot be written: File too large",
        "The token abcdefghij is revoked. Name another file with --to.",
    ]
    assert said == done.stderr.splitlines()
    assert ["s"] == [each.name for each in tmp_path.iterdir()]
    asked.join(patient(30))
    assert not asked.is_alive(), "the token was not revoked"
