"""Users of one machine who mean harm to one another: what they cannot do to a yard that is not theirs."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from gpuyard.api.client import Refused
from harness.patience import patient, until
from rigs.others import OTHER, act, meanwhile, needs_root, refused

from .conftest import Box, cpu_s

SECRET = "5ec7e7" * 8


@pytest.fixture
def den() -> Iterator[Path]:
    """A folder into which other users may go."""
    with tempfile.TemporaryDirectory(prefix="yard-den-") as folder:
        os.chmod(folder, 0o711)
        yield Path(folder)


@pytest.fixture(scope="module")
def roots() -> Iterator[Box]:
    """A yard of root that other users of this machine can reach."""
    with tempfile.TemporaryDirectory(prefix="yard-of-test-") as folder:
        os.chmod(folder, 0o711)
        box = Box(Path(folder) / "yard")
        box.up()
        yield box
        done = box("down", "--jobs")
        assert 0 == done.code, done.err


@needs_root
def test_nobody_else_opens_the_lock(roots: Box) -> None:
    pid_file = roots.data / "yard.pid"
    assert "PermissionError" == act(OTHER, lambda: refused(lambda: os.open(pid_file, os.O_RDONLY)))
    assert act(OTHER, lambda: len(roots.client().nodes())) == 1, "the socket is for everybody"


def stale(box: Box, pid: int, port: int = 1) -> int:
    """Leave what a killed server of root leaves, and have somebody hold its lock; the descriptor that does."""
    box.data.mkdir(mode=0o711)
    (box.data / "token").write_text(SECRET)
    (box.data / "token").chmod(0o600)
    note = {"pid": pid, "ticks": 1, "boot": "an earlier one", "port": port}
    (box.data / "yard.pid").write_text(json.dumps(note))
    fd = os.open(box.data / "yard.pid", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def test_a_number_that_was_given_away_again_is_not_signalled(tmp_path: Path) -> None:
    """A process is who started when its yard did; another that got the number goes on."""
    box = Box(tmp_path / "yard")
    with subprocess.Popen(["sleep", "60"]) as innocent:
        fd = stale(box, innocent.pid)
        try:
            done = box("down")
            assert (1, True) == (done.code, "is locked, but no running yard has written it" in done.err)
            assert None is innocent.poll()
            done = box("up", "-d", "--port", 0)
            assert (3, True) == (done.code, "fuser" in done.err)
        finally:
            os.close(fd)
            innocent.send_signal(signal.SIGKILL)
    assert "no yard is running on" in box("down").err


def listener(port: socket.socket, heard: Path) -> None:
    """Somebody who answers at a port and writes down what they are sent."""
    while True:
        connection, _ = port.accept()
        with connection:
            with heard.open("ab") as file:
                file.write(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")


@needs_root
def test_the_owners_token_goes_to_nobody_who_listens_where_the_yard_did(den: Path) -> None:
    box, heard = Box(den / "yard"), den / "heard"
    heard.touch()
    heard.chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as port, ExitStack() as undo:
        number = port.getsockname()[1]
        undo.callback(os.close, stale(box, os.getpid(), number))
        # The number of the socket's user is the one of the process that makes it.
        port.close()
        undo.enter_context(
            meanwhile(OTHER, lambda: listener(socket.create_server(("127.0.0.1", number)), heard))
        )
        url = f"http://127.0.0.1:{number}"
        until(lambda: "no yard answers" not in box("nodes", YARD_URL=url).err)
        assert 2 == box("nodes", YARD_URL=url).code
        said = heard.read_bytes()
        assert b"GET /api/v1/nodes" in said
        assert (False, False) == (SECRET.encode() in said, b"uthorization" in said)

        done = box("nodes", YARD_URL=url, YARD_TOKEN=SECRET)
        assert (1, True) == (done.code, f"user {OTHER} of this machine listens on port {number}" in done.err)
        assert SECRET.encode() not in heard.read_bytes()


def test_the_owner_is_known_by_the_socket_where_the_url_is_their_own_yards(box: Box) -> None:
    url = f"http://localhost:{box.note()['port']}"
    done = box("nodes", YARD_URL=url)
    assert (0, "") == (done.code, done.err)


def test_files_of_a_job_are_as_private_as_its_owners_shell_makes_them(box: Box, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["submit", "--stdout", out, "--", "sh", "-c", f"umask; touch {tmp_path}/made"]
    done = subprocess.run(
        box.command(*words), env=box.environment, capture_output=True, text=True, check=True, umask=0o077, cwd=tmp_path
    )  # fmt: skip
    box.wait(int(done.stdout), "COMPLETED")
    assert "0077\n" == out.read_text()
    assert [0o600, 0o600] == [path.stat().st_mode & 0o777 for path in (out, tmp_path / "made")]


@needs_root
def test_a_server_of_root_takes_no_folder_that_somebody_else_could_change(den: Path) -> None:
    (den / "theirs").mkdir()
    (den / "mixed").mkdir()
    (den / "mixed" / "yard.db").touch()
    for path in (den / "theirs", den / "mixed" / "yard.db"):
        os.chown(path, OTHER, OTHER)
        box = Box(path.parent if path.suffix else path)
        done = box("up", "-d", "--port", 0, "--emulate", "1 x H100")
        assert (1, True) == (done.code, f"{path} is user {OTHER}'s" in done.err), done.err
        assert not (box.data / "token").exists()


@needs_root
def test_a_server_of_root_takes_no_folder_that_somebody_else_could_replace(den: Path) -> None:
    """Its owner renames what is in it, and puts a folder with links to root's files in its place."""
    for name, uid, mode in (("theirs", OTHER, 0o755), ("open", 0, 0o777)):
        above = den / name
        (above / "between").mkdir(parents=True)
        os.chown(above, uid, uid)
        above.chmod(mode)
        box = Box(above / "between" / "yard")
        done = box("up", "-d", "--port", 0, "--emulate", "1 x H100")
        assert (1, True) == (done.code, f"{above} " in done.err and "in the place of" in done.err), done.err
        assert not (box.data / "token").exists()


def processes_below(pid: int) -> int:
    """How many processes a server has started itself."""
    found = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(OSError):
            found += len(Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def test_sixty_who_follow_a_named_log_leave_the_machine_to_others(box: Box, tmp_path: Path) -> None:
    """Each look at the file was a new Python: sixty followers took all the CPU there was."""
    out = tmp_path / "out"
    loop = "while :; do echo line; sleep 0.2; done"
    job = box.submit("--stdout", out, "--", "sh", "-c", loop)
    box.wait(job, "RUNNING")
    pid = box.note()["pid"]
    with ExitStack() as undo:
        followers = []
        for _ in range(60):
            link = undo.enter_context(socket.socket(socket.AF_UNIX))
            link.connect(str(box.data / "yard.sock"))
            link.sendall(b"GET /api/v1/jobs/%d/logs?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n" % job)
            followers.append(link)
        for link in followers:
            link.settimeout(patient(20))
            heard = b""
            while b"event: log" not in heard:
                piece = link.recv(65536)
                assert piece, heard
                heard += piece
        most, began_s, began_cpu_s = 0, time.monotonic(), cpu_s(pid)
        while time.monotonic() < began_s + 2:
            most = max(most, processes_below(pid))
            time.sleep(0.005)
        took = (cpu_s(pid) - began_cpu_s) / (time.monotonic() - began_s)
        for link in followers:
            assert b"line" in link.recv(65536)
    box("cancel", job)
    # One reader, beside the spawner, the estimates and whatever else a server has for itself.
    assert (True, True) == (most <= 5, took < 1.5), (most, took)


@needs_root
def test_what_is_kept_of_ended_jobs_goes_when_root_says_so(roots: Box, den: Path) -> None:
    own, lines = den / "own", den / "lines"
    own.mkdir()
    os.chown(own, OTHER, OTHER)
    env, command = {"TOKEN": SECRET}, ["sh", "-c", "echo written"]

    def theirs(**more: str) -> int:
        with roots.client() as yard:
            return yard.submit(command=command, env=env, cwd=str(own), **more)["id"]

    plain, named = act(OTHER, theirs), act(OTHER, lambda: theirs(stdout="named.out"))
    script = den / "tasks.sh"
    script.write_text(f"#!/bin/sh\necho $YARD_JOB_ID >>{lines}\n[ $SLURM_ARRAY_TASK_ID = 0 ] || sleep 300\n")
    array = roots.submit("--array", "0-1", script)
    for job in (plain, named, f"{array}_0"):
        roots.wait(job, "COMPLETED")
    roots.wait(f"{array}_1", "RUNNING")
    until(lambda: len(os.listdir(roots.data / "engine" / "logs")) >= 3)

    assert "may not" in act(OTHER, lambda: refused_words(lambda: roots.client().prune(older_than_s=0)))
    done = roots("prune", "--older-than", "0s", "--dry-run")
    assert ("", True) == (done.err, "WOULD REMOVE" in done.out), done.out
    assert "written\n" == roots("logs", plain).out
    done = roots("prune", "--older-than", "0s", "-o", "json")
    counts = {kind: each["count"] for kind, each in json.loads(done.out)["removed"].items()}
    # The plain job and the named one differ in their output, so they have two recipes; the array's is in use.
    assert ("", 2, True) == (done.err, counts["scripts"], counts["logs"] >= 3 <= counts["folders"]), done.out

    today = time.strftime("%Y-%m-%d", time.gmtime())
    for what, asked in (
        ("log", "logs"),
        ("log", "logs -f"),
        ("script", "show --env"),
        ("script", "show --script"),
    ):
        done = roots(*asked.split(), plain)
        told = f"the {what} of job {plain} was removed on {today} by root, with `yard prune`"
        assert (2, True) == (done.code, told in done.err), done.err
    for words in (["show", plain], ["why", plain], ["history"]):
        done = roots(*words)
        assert (0, "") == (done.code, done.err)
    assert "removed" in roots("show", plain).out
    assert "written\n" == (own / "named.out").read_text()
    left = [
        path for path in (roots.data / "engine" / "jobs").iterdir() if path.name in (str(plain), str(named))
    ]
    assert [] == left

    # Of an array whose other task has ended, the live one is as it was: it runs again by its script.
    assert 0 == roots("requeue", f"{array}_1").code
    until(lambda: lines.read_text().split().count(f"{array}_1") == 2)
    roots("cancel", array)
    assert "Traceback" not in (roots.data / "yard.log").read_text()


def refused_words(what: Callable[[], object]) -> str:
    """What a yard says instead."""
    try:
        what()
    except Refused as error:
        return str(error)
    return ""
