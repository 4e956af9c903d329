"""Terminals of jobs, at a real one: a shell on a GPU, keys, sizes, going and coming back, a server that is killed."""

import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.conftest import Box
from gpuyard.engines.machine.processes import FIRST
from harness.patience import patient, until
from rigs.terminal import Pseudo

CONFIG = """\
version: 1
clusters:
  here: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}
"""
SHELL = ("bash", "--norc", "--noprofile")
PROMPT = "ready> "


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A yard that runs, for all tests of this file."""
    box = Box(tmp_path_factory.mktemp("terminals") / "yard", CONFIG)
    box.up()
    yield box
    done = box("down", "--jobs")
    assert 0 == done.code, done.err


def at(box: Box, *words: object) -> Pseudo:
    """A command at a terminal, and a prompt of its own for shells."""
    return Pseudo(box.command(*words), {**box.environment, "PS1": PROMPT}, box.data.parent)


def newest(box: Box) -> str:
    with box.client() as client:
        return str(client.jobs(limit=1).jobs[0]["label"])


def test_a_shell_on_a_gpu_has_the_keys_and_the_size_of_this_terminal(yard: Box) -> None:
    with at(yard, "run", "-g", 1, "--", *SHELL) as shell:
        shell.until(PROMPT)
        shell.type("tty && stty size; echo gpus=$CUDA_VISIBLE_DEVICES; echo to''ld\r")
        told = shell.until("told\r\n")
        shell.resize(41, 91)
        shell.type("stty size; echo sho''wn\r")
        assert "41 91" in shell.until("shown\r\n")
        shell.type("echo be''gun; sleep 100; echo slept\r")
        shell.until("begun\r\n")
        time.sleep(0.1)
        shell.type("\x03")
        shell.until("^C")
        shell.type("echo code=$?\r")
        shell.until("code=130")
        job = newest(yard)
        shell.type("x=kept\r~.")
        assert 0 == shell.code()
        assert f"yard attach {job} comes back to it" in shell.shown.decode()
    for part in ("/dev/pts/", "30 100", "gpus=GPU-"):
        assert part in told

    assert "RUNNING" == yard.wait(job, "RUNNING")["state"]
    with at(yard, "attach", job) as again:
        again.until("code=130")
        again.type("echo x=$x; exit 7\r")
        again.until("x=kept")
        assert 7 == again.code()
    assert "FAILED" == yard.wait(job, "FAILED")["state"]
    assert "gpus=GPU-" in yard("logs", job).out


def test_keys_never_overtake_the_size_of_the_terminal_at_which_they_were_typed(yard: Box) -> None:
    # Without the signal, which may come late: the client finds the size by itself.
    deaf = (
        "import os, signal, sys; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH]); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-c", deaf, *yard.command("run", "-g", 1, "--", *SHELL)]
    with Pseudo(command, {**yard.environment, "PS1": PROMPT}, yard.data.parent) as shell:
        shell.until(PROMPT)
        shell.resize(43, 93)
        shell.type("stty size; echo sho''wn\r")
        assert "43 93" in shell.until("shown\r\n")
        shell.type("exit\r")
        assert 0 == shell.code()


def test_a_job_that_runs_again_has_the_size_that_the_terminal_has_now(yard: Box) -> None:
    with at(yard, "run", "-g", 1, "--", *SHELL) as shell:
        shell.until(PROMPT)
        shell.resize(45, 95)
        shell.type("stty size; echo sho''wn\r")
        assert "45 95" in shell.until("shown\r\n")
        shell.until(PROMPT)
        assert 0 == yard("requeue", newest(yard)).code
        shell.until(PROMPT)
        shell.type("stty size; echo once''more\r")
        assert "45 95" in shell.until("oncemore\r\n")
        shell.type("exit\r")
        assert 0 == shell.code()


def test_a_command_that_ends_at_once_shows_all_that_it_wrote(yard: Box) -> None:
    with at(yard, "run", "-q", "-g", 0, "--", "sh", "-c", "seq 1 5000; exit 3") as run:
        assert 3 == run.code()
    lines = run.shown.decode().replace("\r", "").splitlines()
    assert [str(number) for number in range(1, 5001)] == [line for line in lines if line.isdigit()]


@pytest.mark.rig
def test_a_shell_survives_a_server_that_is_killed_under_it(yard: Box) -> None:
    with at(yard, "run", "-g", 1, "--", *SHELL) as shell, at(yard, "run", "-g", 0, "--", "cat") as other:
        shell.until(PROMPT)
        shell.type("x=before; echo s''et\r")
        shell.until("set\r\n")
        other.type("there\r")
        other.until("there\r\nthere\r\n")
        os.kill(yard.note()["pid"], signal.SIGKILL)
        shell.until("the yard is away; job")
        other.until("the yard is away; job")
        shell.type("lost\r")
        yard.up()
        shell.until("the yard is back")
        shell.until(PROMPT)
        shell.type("echo x=$x\r")
        shell.until("x=before")
        shell.type("exit 5\r")
        assert 5 == shell.code()
        other.until("the yard is back")
        other.type("\x04")
        assert 0 == other.code()
    assert "lost" not in yard("logs", newest(yard)).out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may go before others")
def test_the_server_goes_before_the_users_and_no_job_or_shell_does(yard: Box) -> None:
    server = yard.note()["pid"]
    assert FIRST == os.getpriority(os.PRIO_PROCESS, server)
    shows = "nice; sed s/.*nice/session/ /proc/self/autogroup"
    job = yard.submit("-g", 1, "--", "sh", "-c", f"{shows}; sleep 600")
    yard.wait(job, "RUNNING")
    with at(yard, "shell", job, "--", "sh", "-c", shows) as shell:
        assert 0 == shell.code()
        beside = shell.shown.decode().split("\r\n")
    sessions = ["session 0"] if Path("/proc/self/autogroup").exists() else []
    assert ["0", *sessions] == [line for line in beside if line == "0" or line.startswith("session")]
    assert ["0", *sessions] == yard("logs", job).out.splitlines()
    yard("cancel", job)


def test_a_shell_beside_a_job_is_inside_of_it_and_ends_with_it(yard: Box, tmp_path: Path) -> None:
    job = yard.submit("-g", 1, "--env", "WHERE=inside", "--env", f"PS1={PROMPT}", "--", "sleep", 600)
    yard.wait(job, "RUNNING")
    with at(yard, "shell", job, "--", *SHELL) as shell:
        shell.until(PROMPT)
        shell.type(f"echo where=$WHERE job=$YARD_JOB_ID; cat /proc/self/cgroup > {tmp_path}/mine\r")
        shell.until(f"where=inside job={job}")
        shell.type("cat /proc/$(pgrep -n -f '^sleep 600')/cgroup > " + f"{tmp_path}/its; echo re''ad\r")
        shell.until("read\r\n")
        assert (tmp_path / "its").read_text() == (tmp_path / "mine").read_text()
        shell.type("exit 4\r")
        assert 4 == shell.code()
    with at(yard, "shell", job, "--", *SHELL) as shell:
        shell.until(PROMPT)
        assert 0 == yard("cancel", job).code
        yard.wait(job, "CANCELLED")
        assert 0 != shell.code()
    done = at(yard, "shell", job)
    with done:
        assert 2 == done.code()
        assert "has ended" in done.shown.decode()
    trail = [line for line in yard("audit").out.splitlines() if f"job {job}: shell" in line]
    assert 1 == len(trail), "two of the same in ten minutes are one line, and one that was refused is none"
    assert "enter" in trail[0].split()


@pytest.mark.rig
def test_srun_and_salloc_have_terminals_and_steps_in_them_too(yard: Box) -> None:
    with at(yard, "slurm", "srun", "--gpus=1", "--pty", *SHELL) as shell:
        shell.until(PROMPT)
        shell.type("tty; echo gpus=$SLURM_GPUS; exit 6\r")
        shell.until("/dev/pts/")
        shell.until("gpus=1")
        assert 6 == shell.code()
    with at(yard, "slurm", "salloc", "--gpus=2", *SHELL) as shell:
        shell.until(PROMPT)
        shell.type("srun -n1 --pty bash --norc --noprofile\r")
        shell.until(PROMPT)
        shell.type("tty; echo step=$SLURM_STEP_ID\r")
        shell.until("/dev/pts/")
        shell.until("step=0")
        shell.type("sleep 100\r")
        time.sleep(0.3)
        shell.type("\x03")
        shell.until("^C")
        shell.type("exit 0\r")
        shell.until(PROMPT)
        shell.type("exit 0\r")
        shell.until("salloc: Relinquishing job allocation")
        assert 0 == shell.code()
    done = yard("slurm", "srun", "--pty", "true")
    assert (1, "srun: error: --pty needs a terminal") == (done.code, done.err[:35])
    assert 2 == yard("slurm", "salloc", "--gpus=1").code


SERVER = """
import http.server, os
open("served", "w").write(os.environ["YARD_JOB_ID"])
http.server.ThreadingHTTPServer(("127.0.0.1", {port}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def fetched(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=patient(10)) as answer:
        return bytes(answer.read())


def test_a_port_of_a_job_is_a_port_here_and_files_go_in_and_out(yard: Box, tmp_path: Path) -> None:
    there, here, local = free_port(), free_port(), tmp_path / "local"
    (local / "sub").mkdir(parents=True)
    (local / "sub" / "big").write_bytes(os.urandom(3_000_000))
    work = tmp_path / "work"
    work.mkdir()
    job = yard.submit("-g", 1, "--chdir", work, "--", sys.executable, "-c", SERVER.format(port=there))
    until((work / "served").exists)

    done = yard("cp", local, f"{job}:.")
    assert (0, "") == (done.code, done.err)
    assert (local / "sub" / "big").read_bytes() == (work / "local" / "sub" / "big").read_bytes()
    assert 0 == yard("cp", f"{job}:local/sub/big", tmp_path / "back").code
    assert (local / "sub" / "big").read_bytes() == (tmp_path / "back").read_bytes()
    for place in (tmp_path / "some", work / "some" / "a"):
        place.mkdir(parents=True)
    for name in ("a", "b", "n" * 255):
        (tmp_path / "some" / name).write_text(name)
    partly = yard("cp", tmp_path / "some", f"{job}:.")
    assert 1 == partly.code
    assert (
        "yard: 1 file was not copied: ./some/a: Is a directory\nThe others were copied: 2 files.\n"
        == partly.err
    )
    assert {"a", "b", "n" * 255} == set(os.listdir(work / "some"))
    (tmp_path / "back-again" / "some" / "b").mkdir(parents=True)
    partly = yard("cp", f"{job}:some", tmp_path / "back-again")
    assert (1, True) == (
        partly.code,
        "some/b: Is a directory\nThe others were copied: 1 file.\n" in partly.err,
    )
    refused = yard("cp", f"{job}:nothing", tmp_path)
    assert (2, "yard: nothing: No such file or directory\n") == (refused.code, refused.err)
    with (tmp_path / "long").open("wb") as file:
        file.truncate(32 << 20)
    refused = yard("cp", tmp_path / "long", f"{job}:/proc")
    assert (2, "yard: /proc/long: No such file or directory\n") == (refused.code, refused.err)

    with at(yard, "forward", job, f"{here}:{there}") as forward:
        forward.until(f"http://127.0.0.1:{here} is port {there} of job {job}")
        assert str(job).encode() == fetched(here, "served")
        with ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda _: fetched(here, "local/sub/big"), range(4)))
        assert [(local / "sub" / "big").read_bytes()] * 4 == got
        yard("cancel", job)
        assert 2 == forward.code()
        assert f"job {job} has ended" in forward.shown.decode()


JUPYTER = """\
#!{python}
import http.server, json, os, sys, time
port = [int(word.split("=")[1]) for word in sys.argv if word.startswith("--port=")][0]
open("used", "a").close()
class Lab(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if os.environ["JUPYTER_TOKEN"] not in self.headers.get("Authorization", "") + self.path:
            self.send_error(403)
            return
        used = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(os.stat("used").st_mtime))
        body = [{{"execution_state": "idle", "last_activity": used}}] if "kernels" in self.path else []
        body = json.dumps(body).encode() if "api" in self.path else b"the lab"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Lab).serve_forever()
"""


@pytest.mark.rig
def test_a_notebook_is_reached_by_its_address_and_stopped_when_it_is_idle(yard: Box, tmp_path: Path) -> None:
    missing = yard("notebook", "-g", 1, PATH="/usr/bin:/bin")
    assert (1, True) == (missing.code, "pip install jupyterlab" in missing.err)

    lab = tmp_path / "bin" / "jupyter-lab"
    lab.parent.mkdir()
    lab.write_text(JUPYTER.format(python=sys.executable), encoding="utf-8")
    lab.chmod(0o755)
    environment = yard.environment | {"PATH": f"{lab.parent}:{os.environ['PATH']}"}
    command = yard.command("notebook", "-g", 1, "--idle", "4s", "--port", 0, "--chdir", tmp_path)
    with Pseudo(command, environment, tmp_path) as notebook:
        notebook.until("http://127.0.0.1:")
        address = notebook.until("\r\n").strip()
        assert b"the lab" == fetched(int(address.partition("/")[0]), address.partition("/")[2])
        with pytest.raises(urllib.error.HTTPError):
            fetched(int(address.partition("/")[0]), "lab?token=guessed")
        os.utime(tmp_path / "used")
        notebook.until("yard: the notebook is idle, and stops in 1 s unless it is used")
        notebook.until("yard: the notebook was idle for 4 s and is stopped")
        assert 0 == notebook.code()
    ended = yard.wait(newest(yard), "COMPLETED")
    with yard.client() as client:
        assert address.rpartition("=")[2] not in str(client.job(ended["id"]))


def test_what_cannot_be_is_said(yard: Box) -> None:
    job = yard.submit("-g", 0, "--", "sleep", 600)
    yard.wait(job, "RUNNING")
    with at(yard, "attach", job) as attach:
        assert 1 == attach.code()
        assert f"yard shell {job} opens a shell beside it" in attach.shown.decode()
    yard("cancel", job)
    done = yard("run", "-i", "--", "true")
    assert 2 == done.code
    assert "needs a terminal" in done.err


def ask(port: int, path: str, *headers: str) -> str:
    """The first line of the answer to a request for a WebSocket."""
    key = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        *key,
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall("\r\n".join([*lines, *headers, "", ""]).encode())
        return link.recv(4096).decode().partition("\r\n")[0]


def test_the_socket_refuses_wrong_tokens_and_pages_of_other_sites(yard: Box) -> None:
    job = yard.submit("-g", 0, "--", "sleep", 600)
    yard.wait(job, "RUNNING")
    port, token = yard.note()["port"], (yard.data / "token").read_text(encoding="utf-8").strip()
    path, right = f"/api/v1/jobs/{job}/terminal", f"Authorization: Bearer {token}"
    found = {
        "none": ask(port, path),
        "wrong": ask(port, path, "Authorization: Bearer wrong"),
        "page": ask(port, path, right, "Origin: https://evil.example"),
        "other": ask(port, path.replace(str(job), "999999"), right),
        "right": ask(port, path, right),
    }
    yard("cancel", job)
    assert {
        "none": "HTTP/1.1 401 Unauthorized",
        "wrong": "HTTP/1.1 401 Unauthorized",
        "page": "HTTP/1.1 403 Forbidden",
        "other": "HTTP/1.1 404 Not Found",
        "right": "HTTP/1.1 101 Switching Protocols",
    } == found
