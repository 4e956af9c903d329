"""A process beside the server: started when it is asked, again when it has gone, bounded, and ended with its server."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuyard import interpreter
from gpuyard.engines.machine.beside_process import BesideProcess, Child, Ends, begin, fork, start
from harness.patience import patient, until

BEGIN = "from gpuyard.engines.machine.beside_process import begin; import os, socket, subprocess, time\n"
ECHO = f"""{BEGIN}
print("on no line", flush=True)
line = socket.socket(fileno=begin(0)[0])
print("on no line either", flush=True)
subprocess.run(["/bin/echo", "nor this"])
greeting = line.recv(100)
while said := line.recv(100):
    line.send(greeting + said)
"""
Socket = tuple[socket.socket]


def one_socket() -> Ends[Socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(patient(30))
    return Ends((ours,), (theirs,))


def started(program: str) -> Child[Socket]:
    return start(interpreter.command("-c", program), one_socket())


class Stopping(Exception):
    pass


@pytest.fixture
def echo() -> Iterator[BesideProcess[Socket]]:
    made: BesideProcess[Socket] = BesideProcess(
        "the echo", lambda: started(ECHO), lambda line: line[0].send(b"hello "), Stopping
    )
    yield made
    made.close()


def ask(process: BesideProcess[Socket], said: bytes) -> bytes:
    with process.asking() as (line,):
        line.send(said)
        if not (answer := line.recv(100)):
            raise EOFError
        return answer


def test_it_is_started_when_it_is_asked_and_again_when_it_has_gone(echo: BesideProcess[Socket]) -> None:
    assert 0 == echo.pid
    assert b"hello one" == ask(echo, b"one"), "nothing that was printed is on the line"
    first = echo.pid
    assert b"hello two" == ask(echo, b"two")
    assert first == echo.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: 0 == echo.pid)
    assert b"hello three" == ask(echo, b"three")
    assert echo.pid not in (0, first)
    last = echo.pid
    echo.close()
    assert not Path(f"/proc/{last}").exists()
    with pytest.raises(Stopping):
        ask(echo, b"four")
    assert 0 == echo.pid


def test_one_that_does_not_answer_is_ended_and_named(
    echo: BesideProcess[Socket], caplog: pytest.LogCaptureFixture
) -> None:
    ask(echo, b"one")
    assert echo.line(1.0) is not None, "no question is under way"
    stopped = echo.pid
    with hanging(echo):
        until(lambda: echo.line(0.01) is None)
        assert "" == caplog.text, "it has all the time it wants"
        echo.answer_s = 0.0
        until(lambda: echo.line(0.01) is not None)
    assert "the echo has not answered for 0 s, and is ended" in caplog.text
    assert echo.pid not in (0, stopped)


def test_it_ends_though_a_question_hangs(echo: BesideProcess[Socket]) -> None:
    ask(echo, b"one")
    stopped = echo.pid
    echo.end_s = 0.1
    with hanging(echo):
        until(lambda: echo.line(0.01) is None)
        echo.close()
        assert not Path(f"/proc/{stopped}").exists()


@contextmanager
def hanging(echo: BesideProcess[Socket]) -> Iterator[None]:
    """A question is asked of a process that is stopped, and has no answer."""
    os.kill(echo.pid, signal.SIGSTOP)
    told: list[Exception] = []

    def hang() -> None:
        try:
            ask(echo, b"two")
        except (EOFError, ConnectionError) as error:
            told.append(error)

    asking = threading.Thread(target=hang)
    asking.start()
    yield
    asking.join()
    assert 1 == len(told)


def test_a_program_that_is_not_there_leaves_no_line_open() -> None:
    ends = one_socket()
    with pytest.raises(FileNotFoundError):
        start(["/nowhere/python"], ends)
    assert [-1, -1] == [end.fileno() for end in (*ends.ours, *ends.theirs)]


def test_how_one_went_is_said_in_words() -> None:
    one, other = started("raise SystemExit(3)"), started(f"{BEGIN}begin(0); time.sleep(600)")
    assert "ended with code 3" == one.fate()
    other.kill()
    assert "was killed by SIGKILL" == other.fate()
    for child in (one, other):
        child.end()
        child.end()
        assert not child.alive


def test_one_that_does_not_go_with_its_line_is_killed() -> None:
    stays = started(f"{BEGIN}line = begin(0); os.write(line[0], b'.'); time.sleep(600)")
    assert b"." == stays.line[0].recv(1)
    stays.end(0.1)
    assert "was killed by SIGKILL" == stays.fate()


def test_one_that_hangs_in_the_kernel_is_left_to_it() -> None:
    told: list[int | None] = [None]
    ours, theirs = socket.socketpair()
    with subprocess.Popen(["/bin/sleep", "600"]) as process, theirs:
        child = Child(process.pid, lambda: told[0], (ours,))
        child.end(killed_s=0.1)
        assert b"" == theirs.recv(1)
        assert child.alive, "it has not ended, as far as the kernel tells"
    assert -signal.SIGKILL == process.returncode
    told[0] = process.returncode
    assert "was killed by SIGKILL" == child.fate()


def test_how_a_fork_ended_is_told_to_each_thread() -> None:
    """The kernel tells it once."""
    child = fork(lambda: os._exit(3), one_socket())
    codes: list[int | None] = []
    threads = [threading.Thread(target=lambda: codes.append(child.wait(patient(30)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child.end()
    assert [3] * 8 == codes


def test_a_fork_has_none_of_the_servers_files_and_says_what_went_wrong(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        line = socket.socket(fileno=begin(0)[0])
        line.send(b" ".join([os.readlink(f"/proc/self/fd/{fd}").encode() for fd in (0, 1)]))
        line.send(b"%d" % len(os.listdir("/proc/self/fd")))
        raise ZeroDivisionError("in a fork")

    with (tmp_path / "secret").open("w"):
        child = fork(main, one_socket())
        assert b"/dev/null /dev/null" == child.line[0].recv(100)
        # With standard error, its two ends of the line, and the folder that is listed.
        assert b"6" == child.line[0].recv(100)
    assert "ended with code 1" == child.fate()
    child.end()
    assert "ZeroDivisionError: in a fork" in capfd.readouterr().err


SERVER = """
import os, socket, sys, time
from gpuyard import interpreter
from gpuyard.engines.machine.beside_process import Ends, start
ours, theirs = socket.socketpair()
print(start(interpreter.command("-c", sys.argv[1]), Ends((ours,), (theirs,))).pid, flush=True)
ours.recv(1)
os.write(1, b"asked\\n")
time.sleep(600)
"""
WAITS = f"{BEGIN}line = socket.socket(fileno=begin(5)[0]); line.send(b'.'); line.recv(1)"


def test_it_ends_with_its_server_and_not_by_the_keyboard_that_means_that() -> None:
    words = [sys.executable, "-c", SERVER, WAITS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        assert "asked\n" == server.stdout.readline()
        assert os.getpriority(os.PRIO_PROCESS, pid) == 5 + max(0, os.getpriority(os.PRIO_PROCESS, 0))
        os.kill(pid, signal.SIGINT)
        until(lambda: "SigPnd:\t0000000000000000" in Path(f"/proc/{pid}/status").read_text())
        assert "Z" != Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        server.kill()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_line_of_two_ends_has_standard_output_too() -> None:
    (asked, theirs), (told, its) = socket.socketpair(), socket.socketpair()
    program = f"{BEGIN}a, b = begin(None); os.write(b, os.read(a, 10)[::-1])"
    child = start(interpreter.command("-c", program), Ends((asked, told), (theirs, its)))
    asked.send(b"abc")
    assert b"cba" == told.recv(10)
    child.end(patient(30))
    assert "ended with code 0" == child.fate()
