"""The unit that `yard service install` writes: systemd takes it, and it ends the server alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.cli.commands.yard import service
from gpuyard.errors import BadInput, YardError
from harness.patience import patient
from rigs.components import Missing, skip_or_fail
from rigs.components import install as install_package


def run(*words: object, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "gpuyard.cli", "service", *map(str, words)],
        capture_output=True, text=True, timeout=patient(60), check=False, env=os.environ | env,
    )  # fmt: skip


def lines(text: str) -> set[str]:
    return {line for line in text.splitlines() if "=" in line and not line.startswith("#")}


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        try:
            install_package("systemd")
        except Missing as refusal:
            skip_or_fail(str(refusal))
    for words in (["--user"], [], ["--", "--port", "7500", "--data", "/srv/my data/100%"]):
        name = f"gpuyard-{len(words)}.service"
        (tmp_path / name).write_text(run("install", "--print", *words).stdout)
        done = subprocess.run(
            ["systemd-analyze", "--man=no", "verify", str(tmp_path / name)],
            capture_output=True, text=True, timeout=patient(60), check=False,
        )  # fmt: skip
        assert (0, []) == (done.returncode, [line for line in done.stderr.splitlines() if name in line])


def test_the_unit_stops_the_server_and_not_the_jobs() -> None:
    text = service.unit(["--port", "1"], user=False, name="gpuyard", own_data=True)
    wanted = {"KillMode=process", "OOMPolicy=continue", "Restart=on-failure", "Delegate=yes", "Type=notify"}
    assert wanted <= lines(text)
    assert "StateDirectory=gpuyard" in lines(text)
    assert "StateDirectory=gpuyard" not in lines(service.unit([], user=True, name="gpuyard", own_data=False))


def test_words_are_quoted_as_systemd_reads_them_and_paths_are_whole(tmp_path: Path) -> None:
    data, words = service._checked(
        ["--data", "a b", "--config=yard.yaml", "--store", "postgresql://u@h/%d$x"]
    )

    assert data == Path.cwd() / "a b"
    assert [f"--config={Path.cwd()}/yard.yaml"] == [word for word in words if "config" in word]
    command = next(
        line
        for line in service.unit(words, user=False, name="x", own_data=False).splitlines()
        if "up" in line
    )
    assert f'--data "{Path.cwd()}/a b"' in command
    assert "%%d$$x" in command


def test_a_password_in_the_unit_is_warned_of(tmp_path: Path) -> None:
    for url, warned in (("postgresql://u:secret@h/d", True), ("postgresql://u@h:5432/d", False)):
        done = run("install", "--print", "--", "--store", url)
        assert (0, warned) == (done.returncode, "~/.pgpass" in done.stderr)


def test_it_is_written_below_a_root_and_removed_there(tmp_path: Path) -> None:
    done = run("install", "--root", tmp_path, "--", "--port", 7500)
    path = tmp_path / "etc/systemd/system/gpuyard.service"

    assert (0, True) == (done.returncode, path.is_file())
    assert "up --port 7500" in path.read_text()
    assert 0o644 == path.stat().st_mode & 0o777
    assert (0, False) == (run("uninstall", "--root", tmp_path).returncode, path.exists())
    assert 2 == run("uninstall", "--root", tmp_path).returncode


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["install", "--print", "--", "--prot", "5"], "there is no option --prot; did you mean '--port'?"),
        (["install", "--print", "--", "-d"], "in the foreground"),
        (["install", "--root", "/nowhere", "--name", "a/b"], "is not a name of a service"),
    ],
)
def test_what_could_not_start_is_refused_before_it_is_written(words: list[str], says: str) -> None:
    done = run(*words)
    assert (2, "") == (done.returncode, done.stdout)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd runs here")
def test_without_systemd_it_says_so_and_changes_nothing(tmp_path: Path) -> None:
    for words in (["install"], ["status"], ["uninstall"], ["install", "--user"]):
        done = run(*words, XDG_CONFIG_HOME=str(tmp_path))
        assert (1, "") == (done.returncode, done.stdout)
        assert "systemd does not run" in done.stderr
        assert "yard up -d" in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_systemctl_is_asked_to_load_enable_and_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for systemctl that writes down what it is asked."""
    asked = tmp_path / "asked"
    stand_in = tmp_path / "bin" / "systemctl"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("YARD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(service, "_check_systemd", lambda _user: None)

    service.install([], user=True)
    path = tmp_path / "config/systemd/user/gpuyard.service"
    assert path.is_file()
    service.uninstall(user=True)
    assert not path.exists()

    words = [line.removeprefix("--user ") for line in asked.read_text().splitlines() if "show" not in line]
    assert [
        "daemon-reload",
        "enable gpuyard",
        "restart gpuyard",
        "disable --now gpuyard",
        "daemon-reload",
    ] == words
    stand_in.write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    with pytest.raises(YardError, match="daemon-reload` failed: no bus"):
        service.install([], user=True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BadInput, match="only root"):
        service.install([])


def test_a_service_of_the_machine_that_others_cannot_run_says_where_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "python3").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(home / "python3"))
    service.install([], print_=True)
    assert "install gpuyard where everybody may read" in capsys.readouterr().err
    service.install([], print_=True, user=True)
    assert "" == capsys.readouterr().err
