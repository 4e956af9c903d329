"""A command beside a job without a terminal: bytes as they are, errors apart, its code, signals, a client that goes."""

import json
import mmap
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpuyard.engines.node.attempt.tasks import TaskEntry, fork_beside
from gpuyard.engines.node.kernel.processes import read_stat
from gpuyard.engines.node.visits import frames, visitors
from harness import patience

WAIT_S = 10.0


class Ran:
    """A command, and its client."""

    limits = visitors.LIMITS

    def __init__(self, *argv: str, **env: str) -> None:
        self.link, theirs = socket.socketpair()
        self.link.settimeout(patience.patient(WAIT_S))
        self.out = self.errors = b""
        self.pid = self.fork(theirs, list(argv), {"PATH": os.environ["PATH"], **env})
        theirs.close()

    def fork(self, theirs: socket.socket, argv: list[str], env: dict[str, str]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                self.link.close()
                visitors.Command(theirs, argv, env, self.limits).run()
            finally:
                os._exit(0)
        return pid

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self.link.sendall(frames.make_frame(kind, content))

    def until(self, text: bytes) -> None:
        while text not in self.out:
            assert self.turn() is None

    def code(self) -> int:
        while (code := self.turn()) is None:
            pass
        self.link.close()
        os.waitpid(self.pid, 0)
        return code

    def turn(self) -> int | None:
        kind, size = frames.HEAD.unpack(self._exactly(frames.HEAD.size))
        content = self._exactly(size)
        if kind == frames.DATA:
            self.out += content
        elif kind == frames.ERRORS:
            self.errors += content
        return json.loads(content)["code"] if kind == frames.EXIT else None

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            piece = self.link.recv(size - len(got))
            assert piece
            got += piece
        return got


class Served(Ran):
    """The same, forked and served as a keeper of terminals does it."""

    def fork(self, theirs: socket.socket, argv: list[str], env: dict[str, str]) -> int:
        def work() -> None:
            self.link.close()
            visitors.serve(theirs, self.asked(argv), env, lambda _why: None)

        return fork_beside(TaskEntry({"cwd": "/"}), work, lambda _why: None)

    def asked(self, argv: list[str]) -> dict[str, object]:
        return {"do": "run", "argv": argv}


class Forwarded(Served):
    """A port in the place of a command."""

    def asked(self, argv: list[str]) -> dict[str, object]:
        return {"do": "forward", "port": int(argv[0])}


class Stalled(Ran):
    """A command whose client has no room left, and by whose clock an hour passes from each look to the next."""

    def fork(self, theirs: socket.socket, argv: list[str], env: dict[str, str]) -> int:
        self.looks = mmap.mmap(-1, 1)
        pid = os.fork()
        if pid == 0:
            try:
                self.link.close()
                theirs.setblocking(False)
                with suppress(BlockingIOError):
                    while theirs.send(frames.make_json_frame(frames.HELLO, {})):
                        pass
                limits = self.limits._replace(kept_bytes=1)
                visitors.Command(theirs, argv, env, limits, self._now).run()
            finally:
                os._exit(0)
        return pid

    def _now(self) -> float:
        self.looks[0] += self.looks[0] < 255
        return 3600.0 * self.looks[0]


def test_bytes_go_in_and_out_as_they_are_until_they_end() -> None:
    ran, content = Ran("cat"), bytes(range(256)) * 4096
    for at in range(0, len(content), 65536):
        ran.send(frames.DATA, content[at : at + 65536])
        # More than the pipes hold: what comes out is taken while more goes in.
        while len(ran.out) + 65536 < at:
            ran.turn()
    ran.send(frames.END)
    assert (0, content, b"") == (ran.code(), ran.out, ran.errors)


def test_errors_come_apart_and_the_code_is_the_commands() -> None:
    ran = Ran("sh", "-c", "echo out; echo wrong >&2; exit 7")
    assert (7, b"out\n", b"wrong\n") == (ran.code(), ran.out, ran.errors)
    gone = Ran("no-such-program")
    assert (127, b"yard: cannot run no-such-program: no such program\n") == (gone.code(), gone.errors)
    folder = Ran("/")
    assert (126, b"yard: cannot run /: Permission denied\n") == (folder.code(), folder.errors)


def test_a_command_may_leave_its_input_unread() -> None:
    ran = Served("sh", "-c", "exec <&-; echo closed; sleep 60")
    ran.until(b"closed\n")
    ran.send(frames.DATA, bytes(100_000))
    ran.send(frames.SIGNAL, str(int(signal.SIGTERM)).encode())
    assert (143, b"closed\n") == (ran.code(), ran.out)
    heeds = Served("grep", "SigIgn", "/proc/self/status")
    assert 0 == heeds.code()
    # Signals 32 and 33 are the C library's own.
    assert 0 == int(heeds.out.split()[1], 16) & ~(0b11 << 31), "the command itself ends of SIGPIPE"


def test_a_command_may_end_before_its_input_does() -> None:
    ran = Served("head", "-c", "1")
    for _ in range(10):
        ran.send(frames.DATA, b"x" * 10_000)
    assert (0, b"x") == (ran.code(), ran.out)


def taken_after_the_end(ran: Ran) -> None:
    """A client sends on after it was told of the end, more than a connection holds, and reads to the end of that."""
    while ran.turn() is None:
        pass
    for _ in range(20):
        ran.send(frames.DATA, bytes(100_000))
    assert b"" == ran.link.recv(1)
    ran.link.close()
    os.waitpid(ran.pid, 0)


def test_what_is_sent_to_a_command_that_has_ended_is_taken_until_its_client_goes() -> None:
    taken_after_the_end(Served("true"))


def test_what_is_sent_to_a_port_that_has_hung_up_is_taken_until_its_client_goes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ran = Forwarded(str(listener.getsockname()[1]))
        there, _address = listener.accept()
        with there:
            there.sendall(b"too large")
            there.shutdown(socket.SHUT_WR)
            taken_after_the_end(ran)
    assert b"too large" == ran.out


def test_a_signal_reaches_the_command_and_what_it_started() -> None:
    ran = Ran("sh", "-c", "trap 'echo heard; exit 9' USR1; echo ready; sleep 60 & wait")
    ran.until(b"ready\n")
    ran.send(frames.SIGNAL, str(int(signal.SIGUSR1)).encode())
    assert (9, b"ready\nheard\n") == (ran.code(), ran.out)
    killed = Ran("sleep", "60")
    killed.send(frames.SIGNAL, b"0")
    killed.send(frames.SIGNAL, b"-9")
    killed.send(frames.SIGNAL, str(int(signal.SIGTERM)).encode())
    assert 143 == killed.code()


def test_nothing_that_a_command_wrote_is_lost_while_its_client_takes_nothing() -> None:
    ran = Stalled("sh", "-c", "echo out; echo wrong >&2; exit 3")
    # While it runs nothing happens that the visitor would look at.
    patience.until(lambda: ran.looks[0] > 5, WAIT_S)
    assert (3, b"out\n", b"wrong\n") == (ran.code(), ran.out, ran.errors)


def test_a_signal_that_is_sent_before_the_command_runs_is_not_lost() -> None:
    """A process that handles the signal itself forks the command: until the command runs, the child has its handler."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        for _ in range(20):
            ran = Ran("sleep", "60")
            ran.send(frames.SIGNAL, str(int(signal.SIGTERM)).encode())
            assert 143 == ran.code()
    finally:
        signal.signal(signal.SIGTERM, before)


class Hasty(Ran):
    """One that is waited for only for a moment."""

    limits = visitors.VisitLimits(quiet_s=0.2, hung_up_s=0.2)


def test_what_a_command_leaves_running_holds_nobody_up() -> None:
    ran = Hasty("sh", "-c", "sleep 60 & echo $!; exit 3")
    assert 3 == ran.code()
    os.kill(int(ran.out), signal.SIGKILL)


@pytest.mark.parametrize("heeds", [True, False])
def test_a_command_ends_when_its_client_goes(tmp_path: Path, heeds: bool) -> None:
    note = tmp_path / "hung-up"
    trap = f"trap 'echo hup > {note}; exit' HUP" if heeds else "trap '' HUP"
    ran = Hasty("sh", "-c", f"{trap}; echo $$; while :; do sleep 0.05; done")
    ran.until(b"\n")
    ran.link.close()
    os.waitpid(ran.pid, 0)
    patience.until(lambda: (stat := read_stat(int(ran.out))) is None or stat.state == "Z")
    assert heeds == note.exists()


@pytest.fixture
def job() -> Iterator[tuple[int, int]]:
    """A supervisor of a script with a child below it, both of which say which signal they got."""
    read, write = os.pipe()
    inner = "trap 'echo step >&2; exit' USR1; echo up >&2; while :; do sleep 0.05; done"
    outer = "trap 'echo batch >&2' USR1; sh -c \"$INNER\" & wait; wait; echo over >&2"
    above = os.fork()
    if above == 0:
        if os.fork() == 0:
            os.setsid()
            os.dup2(write, 2)
            os.execvpe("sh", ["sh", "-c", outer], {**os.environ, "INNER": inner})
        os.wait()
        os._exit(0)
    os.close(write)
    assert b"up\n" == os.read(read, 100)
    yield above, read
    os.close(read)
    os.waitpid(above, 0)


@pytest.mark.parametrize(
    ("whom", "told"),
    [("steps", {b"step", b"over"}), ("all", {b"batch", b"step", b"over"}), ("batch", {b"batch"})],
)
def test_a_signal_for_the_job_reaches_the_script_or_what_it_started_or_both(
    job: tuple[int, int], whom: str, told: set[bytes]
) -> None:
    above, read = job
    here, there = socket.socketpair()
    with here, there:
        visitors.send_signal(there, {"number": int(signal.SIGUSR1), "whom": whom, "family": (above, -1)})
        assert b"processes" in here.recv(1000)
        got: set[bytes] = set()
        while not told <= got:
            got |= set(os.read(read, 100).split())
        assert told == got & {b"step", b"batch", b"over"}
        if whom == "batch":
            visitors.send_signal(there, {"number": int(signal.SIGKILL), "whom": "all", "family": (above, -1)})
