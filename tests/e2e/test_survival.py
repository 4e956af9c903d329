"""The server goes and comes back; jobs do not notice."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from gpuyard.api.client import Client, Refused
from gpuyard.control.places import PORT
from gpuyard.engines.local.attempt.cgroups import mount
from harness.patience import patient, until

from .conftest import Box


@pytest.mark.rig
def test_a_job_survives_kill_and_restart_with_its_true_exit_code(bare: Box, tmp_path: Path) -> None:
    bare.up()
    go, up = tmp_path / "go", tmp_path / "up"
    script = f"echo before; touch {up}; until [ -e {go} ]; do sleep 0.05; done; echo after; exit 5"
    job = bare.submit("-g", 1, "--", "sh", "-c", script)
    stop, stopped, begun = tmp_path / "stop", tmp_path / "stopped", tmp_path / "begun"
    script = f"touch {begun}; until [ -e {stop} ]; do sleep 0.05; done; touch {stopped}; exit 6"
    short = bare.submit("--", "sh", "-c", script)
    # As the jobs say: one whose start is decided counts as running before the engine has made its process.
    until(up.exists)
    until(begun.exists)
    bare.wait(job, "RUNNING")
    bare.wait(short, "RUNNING")
    os.kill(bare.note()["pid"], signal.SIGKILL)
    stop.touch()
    until(stopped.exists)
    assert 4 == bare("queue").code
    bare.up()

    assert 6 == bare.wait(short, "FAILED")["exit_code"]
    assert 1 == bare.wait(job, "RUNNING")["attempts"]
    go.touch()
    assert (5, 1) == (bare.wait(job, "FAILED")["exit_code"], bare.wait(job, "FAILED")["attempts"])
    assert "before\nafter\n" == bare("logs", job).out


@pytest.mark.rig
def test_down_leaves_jobs_running_and_down_jobs_does_not(bare: Box, tmp_path: Path) -> None:
    bare.up()
    beat, pid = tmp_path / "beat", tmp_path / "pid"
    job = bare.submit("--", "sh", "-c", f"echo $$ > {pid}; while :; do date +%s%N > {beat}; sleep 0.05; done")
    until(beat.exists)
    down = bare("down")
    assert (0, "the yard is down\n") == (down.code, down.out)
    before = beat.read_text()
    until(lambda: beat.read_text() != before)
    assert "no yard is running" in bare("down").err
    bare.up()
    assert "RUNNING" == bare.wait(job, "RUNNING")["state"]
    assert "1 job was cancelled" in bare("down", "--jobs").out
    until(lambda: not Path("/proc", pid.read_text().strip()).exists())


@pytest.mark.rig
def test_a_yard_started_from_a_process_that_heeds_no_signal_runs_and_stops(bare: Box) -> None:
    """`nohup`, cron and shells in the background ignore signals; a few programs block them too."""

    def deafen() -> None:
        numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, numbers)

    words = bare.command("up", "-d", "--port", 0, "--emulate", "2 x H200")
    started = subprocess.run(
        words, env=bare.environment, preexec_fn=deafen, capture_output=True, text=True, check=False
    )
    assert 0 == started.returncode, started.stderr
    assert 128 + signal.SIGINT == bare("run", "--", "sh", "-c", "kill -INT $$; echo alive").code
    asked = bare("run", "--", "sh", "-c", "grep -E '^(SigIgn|SigBlk)' /proc/self/status")
    blocked, ignored = [int(line.split()[1], 16) for line in asked.out.splitlines()]
    # Signals 32 and 33 are the C library's own: it lets nobody change them.
    assert (0, 0) == (blocked, ignored & ~(0b11 << 31))
    pid = bare.note()["pid"]
    os.kill(pid, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{pid}/exe").exists())


@pytest.mark.rig
def test_a_second_server_on_the_same_data_is_refused_with_the_pid(bare: Box) -> None:
    bare.up()
    for words in (("up", "--port", 0), ("up", "-d", "--port", 0)):
        done = bare(*words)
        assert 3 == done.code
        assert f"a yard is running on {bare.data} already, with pid {bare.note()['pid']}" in done.err


@pytest.mark.rig
def test_a_client_that_is_cut_off_submits_once(bare: Box) -> None:
    """The server is killed while a client submits; what was acknowledged is there once, under the id it was told."""
    bare.up()
    accepted: dict[str, int] = {}

    def submits() -> None:
        with Client(data=bare.data, patience_s=30) as client:
            for number in range(60):
                name = f"n{number}"
                accepted[name] = client.submit(command=["true"], name=name, hold=True)["id"]

    worker = threading.Thread(target=submits)
    worker.start()
    until(lambda: len(accepted) > 10)
    os.kill(bare.note()["pid"], signal.SIGKILL)
    bare.up()
    worker.join(40)
    rows = json.loads(bare("queue", "-o", "json").out)

    assert 60 == len(accepted)
    assert accepted == {row["name"]: row["id"] for row in rows}


@pytest.mark.rig
def test_a_repeated_key_gives_the_first_answer_and_another_request_is_refused(bare: Box) -> None:
    bare.up()
    with bare.client() as client:
        first = client.submit(command=["true"], hold=True, key="k-1")
        assert first == client.submit(command=["true"], hold=True, key="k-1")
        with pytest.raises(Refused, match="was used before for another request") as refused:
            client.submit(command=["false"], hold=True, key="k-1")
        assert 409 == refused.value.status
        assert 1 == len(client.queue()["rows"])


def test_a_full_disk_refuses_new_work_keeps_what_it_has_and_says_so(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    box = Box(small / "yard")
    try:
        box.up()
        kept = box.submit("--hold", "--", "true")
        _fill(small / "filler")
        done = box("submit", "--hold", "--env", f"BIG={'x' * 100_000}", "--", "true")
        assert 1 == done.code
        assert "no space" in done.err
        assert "Free some space" in done.err
        assert "nothing needs to be restarted" in done.err
        assert str(kept) in box("queue").out
        # So small a disk has no room to be kept for cancels.
        down = box("down", "--jobs")
        assert 1 == down.code
        assert "no space" in down.err
        assert "1 job not stopped, and the yard is still up" in down.err
        (small / "filler").unlink()
        assert kept + 1 == box.submit("--hold", "--", "true")
    finally:
        box("down", "--jobs")
        subprocess.run(["umount", "-l", small], check=False)


FILLS = """\
trap "" XFSZ
folder=$(dirname "$YARD_CHECKPOINT_FILE")
for writer in 1 2 3; do
    while :; do head -c 30000 /dev/zero >>"$folder/fill$writer" || sleep 0.001; done 2>/dev/null &
done
wait
"""
"""Takes every block as soon as it is free."""


@pytest.mark.rig
def test_a_job_that_fills_the_disk_can_be_cancelled_and_the_yard_goes_on(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128m", "none", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    box = Box(small / "yard")
    servers: list[subprocess.Popen[bytes]] = []
    try:
        box.up()
        waits = box.submit("--hold", "--", "true")
        job = box.submit("-g", 1, "--", "sh", "-c", FILLS)
        until(lambda: 0 == os.statvfs(small).f_bavail)
        with box.client() as client:
            until(lambda: not client.ready()[0])
            assert "no space is left" in client.ready()[1]["error"]
            # Of others nothing new is taken in, again and again, and what is kept is not used up by it.
            for _ in range(50):
                with pytest.raises(Refused, match=r"no space is left .* nothing new is taken in") as refused:
                    client.submit(command=["true"], env={"BIG": "x" * 100_000})
                assert 503 == refused.value.status
            with pytest.raises(Refused, match=r"no space (is )?left"):
                client.ask("release", waits)
        # Killed while the disk is full, and started again: what is running goes on, and is cancelled.
        os.kill(box.note()["pid"], signal.SIGKILL)
        _again(box, servers)
        assert 0 == os.statvfs(small).f_bavail
        assert 0 == box("cancel", job).code
        servers[-1].kill()
        servers[-1].wait()
        _again(box, servers)
        assert "CANCELLED" == box.wait(job, "CANCELLED")["state"]

        for path in (small / "yard" / "engine").rglob("fill*"):
            path.unlink()
        assert 0 == box("release", waits).code
        assert "COMPLETED" == box.wait(waits, "COMPLETED")["state"]
        assert "COMPLETED" == box.wait(box.submit("--", "true"), "COMPLETED")["state"]
    finally:
        for path in (small / "yard" / "engine").rglob("fill*"):
            path.unlink()
        box("down", "--jobs")
        for server in servers:
            server.kill()
            server.wait()
        subprocess.run(["umount", "-l", small], check=False)


def _again(box: Box, servers: list[subprocess.Popen[bytes]]) -> None:
    """Start it in the foreground: `yard up -d` waits until it is ready, and on a full disk it is not."""
    command = box.command("up", "--port", 0, "--emulate", "8 x A100-80GB")
    servers.append(
        subprocess.Popen(command, env=box.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    )
    # What fills the disk goes on meanwhile, and has the cores as well.
    until(lambda: box("queue").code == 0, 180)


def _fill(path: Path) -> None:
    """Write until nothing more goes in."""
    with open(path, "wb", buffering=0) as filler:
        for size in (65536, 512, 1):
            with suppress(OSError):
                while filler.write(b"x" * size):
                    pass


@pytest.mark.rig
def test_a_second_users_yard_finds_a_free_port_and_a_taken_one_is_refused(bare: Box) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Where the port is taken on this machine already, that is just as good.
        with suppress(OSError):
            other.bind(("127.0.0.1", PORT))
            other.listen()
        refused = bare("up", "-d", "--port", PORT, "--emulate", "1 x A100-80GB")
        assert (1, "") == (refused.code, refused.out)
        assert f"port {PORT} cannot be used: Address already in use" in refused.err
        assert "Leave --port out" in refused.err

        done = bare("up", "-d", "--emulate", "1 x A100-80GB")
        port = int(bare.note()["port"])
        assert 0 == done.code, done.err
        assert PORT < port
        assert f"http://127.0.0.1:{port}," in done.out
        assert (
            f"note: port {PORT} is taken, perhaps by another user's yard: this one listens at {port}"
            in done.err
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=patient(20)) as answer:
            assert b"yard top" in answer.read()
        ran = bare("run", "-g", 1, "--", "echo", "mine")
        assert (0, "mine\n") == (ran.code, ran.out)


@pytest.mark.rig
def test_a_machine_that_cannot_set_limits_is_not_tried_in_a_rush(bare: Box) -> None:
    done = bare("up", "-d", "--port", 0, "--emulate", "1 x A100-80GB")
    assert 0 == done.code, done.err
    shown = bare("run", "-g", 1, "--", "cat", "/proc/self/cgroup").out.splitlines()
    of_job = [line.removeprefix("0::/") for line in shown if line.startswith("0::/")]
    group = Path(mount() or "/none", *of_job).parent
    if not (group / "cgroup.max.descendants").exists() or "gpuyard" not in group.name:
        pytest.skip("this machine gives jobs no cgroups of their own")
    runs = bare.submit("-g", 0, "--", "sh", "-c", "echo begun; exec sleep 600")
    # A job is RUNNING before its cgroup is there, and this one's must be.
    until(lambda: "begun" in bare("logs", runs).out)
    (group / "cgroup.max.descendants").write_text("0")
    began_s = time.monotonic()
    try:
        jobs = [bare.submit("-g", 1, "--", "true") for _ in range(20)]
        until(lambda: "left out for a while: cannot set limits" in bare("nodes").out)
        # A rush would be hundreds of tries by then.
        time.sleep(5)
        with bare.client() as client:
            tries = [each for job in jobs for each in client.job(job)["tries"]]
        took_s = time.monotonic() - began_s
        until(lambda: "left out for a while: cannot set limits" in bare("why", jobs[0]).out)
    finally:
        (group / "cgroup.max.descendants").write_text("max")
    # One at a time, for there is one GPU: three that made the machine suspect, then one after five seconds at least.
    assert 3 <= len(tries) <= 4 + took_s / 5, tries
    for each in tries:
        assert ("NODE_FAIL", True) == (each["outcome"], each["why"].startswith("cannot set limits")), each
    for job in jobs:
        assert 0 == bare.wait(job, "COMPLETED", s=120)["exit_code"]
    assert "RUNNING" == bare.wait(runs, "RUNNING")["state"]
