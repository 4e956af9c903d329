"""The keeper of terminals: several clients at one terminal, those that come back, and those that take nothing."""

import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.node.attempt import fence
from gpuyard.engines.node.kernel import terminals
from gpuyard.engines.node.kernel.processes import Fork, read_stat
from gpuyard.engines.node.visits import copying, frames, inside, visitors
from gpuyard.engines.node.visits.keeper import Client, KeeperHandle, Session, keep
from gpuyard.engines.node.visits.visitors import VisitLimits
from harness import patience
from rigs.others import OTHER, THIRD, act, needs_root

WAIT_S = 10.0


_links: list[socket.socket] = []
"""Connections of one test."""


class Looker:
    """A client of a keeper."""

    def __init__(self, folder: Path, **asked: Any) -> None:
        found = frames.reach_keeper(str(folder))
        assert found is not None
        self.link = found
        _links.append(found)
        self.link.settimeout(patience.patient(WAIT_S))
        self.send(frames.HELLO, json.dumps({"do": "attach", **asked}).encode())
        self.shown = b""

    def send(self, kind: bytes, content: bytes) -> None:
        self.link.sendall(frames.make_frame(kind, content))

    def next(self) -> tuple[bytes, bytes]:
        kind, size = frames.HEAD.unpack(self._exactly(frames.HEAD.size))
        return kind, self._exactly(size)

    def until(self, text: bytes) -> bytes:
        """What is shown, up to this text."""
        while text not in self.shown:
            kind, content = self.next()
            if kind == frames.DATA:
                self.shown += content
        before, found, self.shown = self.shown.partition(text)
        return before + found

    def end(self) -> Any:
        """How the session ended."""
        while True:
            kind, content = self.next()
            if kind == frames.DATA:
                self.shown += content
            if kind in (frames.EXIT, frames.ERROR):
                return content.decode()

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            piece = self.link.recv(size - len(got))
            if not piece:
                raise EOFError
            got += piece
        return got


def plainly(work: Callable[[], None], _complain: Callable[[str], None]) -> int:
    """Fork as a process of this very user."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        work()
        os._exit(1)
    return pid


def stopped(work: Callable[[], None], complain: Callable[[str], None]) -> int:
    """The same; its user stops it before it does anything."""

    def wait() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        work()

    return plainly(wait, complain)


@contextmanager
def kept(
    folder: Path,
    *argv: str,
    container: str = "",
    fork: Fork = plainly,
    enter: Callable[[str], dict[str, str]] = inside.enter,
    **limits: float,
) -> Iterator[KeeperHandle]:
    """A keeper with a program at its terminal, which has no supervisor."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        pty = terminals.open_pty()
        log = os.open("stdout", os.O_WRONLY | os.O_CREAT, 0o600)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            terminals.take(pty[1])
            os.execvpe(argv[0], list(argv), {**os.environ, "PS1": "$ "})
        own = Session(frames.OWN, pty, log=log)
        keeper = keep(
            fork,
            {"SHELL": "/bin/sh", "PATH": os.environ["PATH"]},
            None,
            own,
            container,
            VisitLimits(**limits),
            enter,
        )
    finally:
        os.chdir(before)
    try:
        yield keeper
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        keeper.end(3)
        os.close(keeper.control)
        os.waitpid(keeper.pid, 0)


@pytest.fixture(autouse=True)
def hung_up() -> Iterator[None]:
    """Every connection is closed at the end of a test."""
    yield
    while _links:
        _links.pop().close()


def test_two_clients_see_the_same_and_one_that_comes_back_sees_what_it_missed(tmp_path: Path) -> None:
    with kept(tmp_path, "cat"):
        one, two = Looker(tmp_path, seen=0), Looker(tmp_path, seen=0)
        hello = json.loads(one.next()[1])
        one.send(frames.DATA, b"first\n")
        assert b"first\r\nfirst\r\n" == one.until(b"first\r\nfirst\r\n") == two.until(b"first\r\nfirst\r\n")
        one.link.close()
        two.send(frames.DATA, b"second\n")
        two.until(b"second\r\nsecond\r\n")
        again = Looker(tmp_path, seen=len(b"first\r\nfirst\r\n"))
        told = json.loads(again.next()[1])
        assert b"second\r\nsecond\r\n" == again.until(b"second\r\nsecond\r\n")
    assert ({"session": "job", "offset": 0}, 14) == (hello, told["offset"])
    assert {"code": 3} == json.loads(again.end())
    assert b"first\r\nfirst\r\nsecond\r\nsecond\r\n" == (tmp_path / "stdout").read_bytes()


def test_a_terminal_has_the_size_of_the_client_that_asked_last(tmp_path: Path) -> None:
    with kept(tmp_path, "sh"):
        one = Looker(tmp_path, seen=0, rows=31, columns=101)
        one.send(frames.DATA, b"stty size\n")
        one.until(b"31 101")
        one.send(frames.SIZE, json.dumps({"rows": 41, "columns": 111}).encode())
        one.send(frames.DATA, b"stty size\n")
        one.until(b"41 111")


def test_a_shell_beside_it_is_found_again_by_its_name_and_ends_with_its_code(tmp_path: Path) -> None:
    with kept(tmp_path, "cat"):
        one = Looker(tmp_path, do="shell")
        name = json.loads(one.next()[1])["session"]
        one.send(frames.DATA, b"x=42\n")
        one.link.close()
        again = Looker(tmp_path, session=name)
        again.send(frames.DATA, b"echo x=$x; exit 9\n")
        again.until(b"x=42\r\n")
        assert {"code": 9} == json.loads(again.end())
        assert "no such terminal" in Looker(tmp_path, session=name).end()


def test_a_client_that_takes_nothing_holds_up_no_job_for_long(
    tmp_path: Path,
) -> None:
    # It holds for the one that looks late, too.
    stalled_s = patience.patient(0.5)
    with kept(
        tmp_path, "sh", "-c", "read x; yes | head -c 4000000; echo done; sleep 60", stalled_s=stalled_s
    ):
        stuck = Looker(tmp_path, seen=0)
        stuck.send(frames.DATA, b"\n")
        patience.until(lambda: (tmp_path / "stdout").read_bytes().endswith(b"done\r\n"), WAIT_S)
        # What it showed last is there, from the beginning of a line on.
        late = Looker(tmp_path)
        assert late.until(b"done\r\n").startswith(b"y\r\n")
        with pytest.raises((EOFError, OSError)):
            stuck.until(b"done\r\n")


def test_a_request_that_makes_no_sense_is_refused_and_the_keeper_stays(tmp_path: Path) -> None:
    with kept(tmp_path, "cat"):
        assert "no 'dance' here" in Looker(tmp_path, do="dance").end()
        assert "cannot be served" in Looker(tmp_path, do="shell", env=[1]).end()
        raw = frames.reach_keeper(str(tmp_path))
        assert raw is not None
        _links.append(raw)
        raw.sendall(frames.HEAD.pack(frames.DATA, 1 << 30))
        raw.settimeout(120)
        assert b"" == raw.recv(1)
        Looker(tmp_path, seen=0).next()


def test_a_container_that_is_not_there_yet_is_said_to_a_shell_and_a_copy(tmp_path: Path) -> None:
    with kept(tmp_path, "cat", container=str(tmp_path / "pid-0")):
        says = "its container does not run: it has not started yet, or has ended"
        assert says == Looker(tmp_path, do="shell").end()
        assert says == Looker(tmp_path, do="read", path="/etc/hostname").end()
        (tmp_path / "pid-0").write_text(str(os.getpid()))
        assert "its container has ended" == Looker(tmp_path, do="shell").end()
        Looker(tmp_path, seen=0).next()


def in_place(_pidfile: str) -> dict[str, str]:
    """Go into a container that is where one is already."""
    return dict(os.environ)


def below(keeper: int) -> list[int]:
    return list(map(int, Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()))


def stopped_and_let_go(pid: int) -> None:
    """One that is let go on before it has stopped would stop for ever."""
    patience.until(lambda: (stat := read_stat(pid)) and stat.state == "T", WAIT_S)
    os.kill(pid, signal.SIGCONT)


def test_what_is_sent_to_a_shell_on_its_way_waits_outside_the_keeper(
    tmp_path: Path,
) -> None:
    with kept(tmp_path, "cat", container="here", fork=stopped, enter=in_place) as keeper:
        one = Looker(tmp_path, do="shell", argv=["sh"])
        one.send(frames.DATA, b"echo fi''rst\n")
        (shell,) = patience.until(lambda: below(keeper.pid), WAIT_S)
        try:
            taken = sent_on(tmp_path, one)
        finally:
            stopped_and_let_go(shell)
        one.send(frames.DATA, b"stty size; exit 6\n")
        one.until(b"first\r\n")
        one.until(b"41 111\r\n")
        assert {"code": 6} == json.loads(one.end())
    assert not taken, "the keeper took what was sent"


def test_a_shell_that_is_to_go_goes_and_is_forgotten_also_if_it_ignores_that(
    tmp_path: Path,
) -> None:
    with kept(tmp_path, "cat", heeded_s=0.1) as keeper:
        one = Looker(tmp_path, do="shell", argv=["sh", "-c", "trap '' HUP; echo up; exec sleep 600"])
        name = json.loads(one.next()[1])["session"]
        one.until(b"up\r\n")
        assert below(keeper.pid)
        one.send(frames.END, b"")
        assert {"code": 128 + signal.SIGKILL} == json.loads(one.end())
        assert "no such terminal" in Looker(tmp_path, session=name).end()
        assert not below(keeper.pid)


def test_a_shell_whose_client_has_left_before_it_is_in_the_container_goes(
    tmp_path: Path,
) -> None:
    with kept(tmp_path, "cat", container="here", fork=stopped, enter=in_place) as keeper:
        one = Looker(tmp_path, do="shell", argv=["sleep", "600"])
        (shell,) = patience.until(lambda: below(keeper.pid), WAIT_S)
        try:
            one.link.close()
            # A client that comes later is answered after the keeper has seen that this one is gone.
            assert "no 'dance' here" in Looker(tmp_path, do="dance").end()
        finally:
            stopped_and_let_go(shell)
        patience.until(lambda: not below(keeper.pid), WAIT_S)


def sent_on(folder: Path, client: Looker) -> bool:
    """Fill a connection of a client again and again; whether the keeper has taken something of it."""
    sizes = frames.make_frame(frames.SIZE, json.dumps({"rows": 41, "columns": 111}).encode())
    taken = False
    for again in range(5):
        client.link.setblocking(False)
        with suppress(BlockingIOError):
            for _ in range(20_000):
                client.link.send(sizes)
                taken = taken or again > 0
        client.link.setblocking(True)
        # Who asks after it is answered after the keeper has looked at all that was there.
        assert "no 'dance' here" in Looker(folder, do="dance").end()
    client.link.settimeout(patience.patient(WAIT_S))
    return taken


def test_the_socket_is_for_its_owner_alone_and_its_path_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with kept(folder, "cat"):
        assert 0o600 == os.stat(folder / frames.SOCKET).st_mode & 0o777
        Looker(folder, seen=0).next()
    assert frames.reach_keeper(str(folder)) is None


def test_a_keeper_that_cannot_be_forked_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fork", refuse)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            keep(plainly, {}, None, None)
    assert (before, []) == (len(os.listdir("/proc/self/fd")), os.listdir(tmp_path))


def test_a_link_in_a_jobs_folder_leads_to_no_other_socket(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.mkdir()
    link.mkdir()
    (link / frames.SOCKET).symlink_to(there / frames.SOCKET)
    with kept(there, "cat"):
        assert frames.reach_keeper(str(link)) is None
        assert frames.reach_keeper(str(there), os.geteuid() + 1) is None


def test_what_one_client_does_keeps_nothing_of_another_open(tmp_path: Path) -> None:
    """A process that serves one held the connections and terminals of all that were there when it began."""
    before = {*sockets_of(os.getpid())}
    with kept(tmp_path, "sleep", "60") as keeper:
        shell = Looker(tmp_path, do="shell", argv=["sh", "-c", "read line; exit 4"])
        assert frames.HELLO == shell.next()[0]
        run = Looker(tmp_path, do="run", argv=["sleep", "600"])
        assert frames.HELLO == run.next()[0]
        (visitor,) = [pid for pid in below(keeper.pid) if {*sockets_of(pid)} - before]
        assert 1 == len({*sockets_of(visitor)} - before)
        assert [] == [path for path in opened_by(visitor) if "ptmx" in path or "pts" in path]
        run.link.close()
        patience.until(lambda: not {*sockets_of(visitor)} - before)


def test_a_shell_in_a_container_keeps_nothing_of_another_client_open(tmp_path: Path) -> None:
    """The process beside it held every connection and terminal of the keeper for as long as the shell ran."""
    before = {*sockets_of(os.getpid())}
    with kept(tmp_path, "sleep", "60", container="here", enter=in_place) as keeper:
        Looker(tmp_path, seen=0).next()
        known = {*below(keeper.pid)}
        shell = Looker(tmp_path, do="shell", argv=["sh", "-c", "echo up; read line; exit 4"])
        shell.until(b"up\r\n")
        (beside,) = {*below(keeper.pid)} - known
        assert set() == {*sockets_of(beside)} - before
        assert [] == [path for path in opened_by(beside) if "ptmx" in path or "pts" in path]
        shell.send(frames.DATA, b"\n")
        assert {"code": 4} == json.loads(shell.end())


def opened_by(pid: int) -> list[str]:
    """What a process has open, by name."""
    found = []
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            # Of this very process one was for the list, and is closed by now.
            with suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def sockets_of(pid: int) -> list[str]:
    return [path for path in opened_by(pid) if path.startswith("socket:")]


def test_a_forward_to_a_port_that_takes_nothing_ends_with_its_client(
    tmp_path: Path,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        kept(tmp_path, "sleep", "60", hung_up_s=0.1) as keeper,
    ):
        client = Looker(tmp_path, do="forward", port=deaf.getsockname()[1])
        assert frames.HELLO == client.next()[0]
        (visitor,) = [pid for pid in below(keeper.pid) if sockets_of(pid)]
        client.link.settimeout(0.5)
        with suppress(TimeoutError):
            while True:
                client.send(frames.DATA, bytes(65536))
        client.link.close()
        patience.until(lambda: not sockets_of(visitor))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_foreground_of_a_terminal(tmp_path: Path, number: signal.Signals) -> None:
    with kept(
        tmp_path, "sh", "-c", f"trap 'echo to''ld' {number.value}; echo up; sleep 0.05; read x; read x"
    ):
        one = Looker(tmp_path, seen=0)
        one.until(b"up\r\n")
        one.send(frames.SIGNAL, str(number.value).encode())
        one.until(b"told\r\n")
        one.send(frames.SIGNAL, b"0")
        one.send(frames.SIGNAL, b"-9")
        one.send(frames.SIGNAL, b"999")
        one.send(frames.DATA, b"shown\n")
        one.until(b"shown\r\n")


def test_however_many_signals_a_client_sends_one_process_sends_them(tmp_path: Path) -> None:
    waits = "trap 'echo one' USR1; trap 'echo two' USR2; echo up; while :; do sleep 0.05; done"
    with kept(tmp_path, "sh", "-c", waits, fork=stopped) as keeper:
        one = Looker(tmp_path, seen=0)
        one.until(b"up\r\n")
        for number in [signal.SIGUSR1, signal.SIGUSR2] * 500:
            one.send(frames.SIGNAL, str(int(number)).encode())
        # What is asked for after them is answered after them.
        assert "no 'dance' here" in Looker(tmp_path, do="dance").end()
        (first,) = below(keeper.pid)
        stopped_and_let_go(first)
        one.until(b"one\r\n")
        (second,) = patience.until(lambda: [pid for pid in below(keeper.pid) if pid != first], WAIT_S)
        stopped_and_let_go(second)
        one.until(b"two\r\n")
        patience.until(lambda: not below(keeper.pid), WAIT_S)


class Recycled:
    """In a view of processes of its own: a terminal whose foreground has ended, and whose number somebody else has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self) -> dict[str, object]:
        """What becomes of somebody else's process when clients signal the foreground of the terminal."""
        # Numbers are given out again in a namespace alone, whatever else happens on the machine.
        libc = ctypes.CDLL(None, use_errno=True)
        assert 0 == libc.unshare(0x20000000), os.strerror(ctypes.get_errno())
        ears, mouth = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(mouth, json.dumps(self._inside()).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(mouth)
        os.waitpid(pid, 0)
        with os.fdopen(ears) as told:
            found: dict[str, object] = json.load(told)
        return found

    def _inside(self) -> dict[str, object]:
        fence.unshare()
        fence.mount("proc", "/proc", "proc", 0, "")
        os.chdir(self.folder)
        pty = terminals.open_pty((OTHER, OTHER))
        leader = self._leader(pty[1])
        own = Session(frames.OWN, pty, log=os.open("stdout", os.O_WRONLY | os.O_CREAT, 0o600))
        keeper = keep(self._as_user, {}, (OTHER, OTHER), own)
        group = self._ended_foreground(leader)
        victim = self._somebody(group)
        one = Looker(self.folder, seen=0)
        for number in (signal.SIGINT, signal.SIGKILL):
            one.send(frames.SIGNAL, str(int(number)).encode())
        # What is asked for after them is answered after them.
        Looker(self.folder, seen=0).next()
        # What the kernel does not send is sent by a process of its own, which ends then.
        patience.until(lambda: not self._senders(keeper.pid))
        # A process that has been killed does not stop any more.
        os.kill(victim, signal.SIGSTOP)
        lives = os.WIFSTOPPED(os.waitpid(victim, os.WUNTRACED)[1])
        os.kill(keeper.pid, 9)
        return {"same number": victim == group, "lives": lives}

    @staticmethod
    def _senders(keeper: int) -> list[int]:
        below = map(int, Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split())
        return [pid for pid in below if (stat := read_stat(pid)) is not None and stat.state != "Z"]

    @staticmethod
    def _as_user(work: Callable[[], None], _complain: Callable[[str], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                os.setresgid(OTHER, OTHER, OTHER)
                os.setresuid(OTHER, OTHER, OTHER)
                work()
            finally:
                os._exit(1)
        return pid

    def _leader(self, slave: int) -> int:
        """The first process at the terminal: it puts another one into the foreground, which ends, and says which."""
        pid = os.fork()
        if pid == 0:
            os.setsid()
            terminals.take(slave)
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            child = os.fork()
            if child == 0:
                os.setpgid(0, 0)
                os.tcsetpgrp(0, os.getpid())
                os._exit(0)
            os.waitpid(child, 0)
            (self.folder / "group.new").write_text(str(child))
            (self.folder / "group.new").rename(self.folder / "group")
            time.sleep(60)
            os._exit(0)
        return pid

    def _ended_foreground(self, leader: int) -> int:
        patience.until((self.folder / "group").exists, WAIT_S, lambda: leader)
        return int((self.folder / "group").read_text())

    @staticmethod
    def _somebody(number: int) -> int:
        """A process of somebody else, with this number."""
        for _ in range(20):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
            pid = os.fork()
            if pid == 0:
                os.setsid()
                os.setresuid(THIRD, THIRD, THIRD)
                time.sleep(60)
                os._exit(0)
            if pid == number:
                break
        return pid


@needs_root
def test_a_signal_reaches_nobody_who_has_the_number_of_a_foreground_that_ended(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert {"same number": True, "lives": True} == act(0, Recycled(tmp_path).run)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may pass through."""
    made = Path(tempfile.mkdtemp(prefix="yard-copy-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def copied(source: Path, target: Path, failed: Callable[[str, str], None] | None = None) -> list[str]:
    """Copy as a job and a client do; gives what was left out."""

    def fail(path: str, why: str) -> None:
        raise AssertionError((path, why))

    left_out: list[str] = []
    taker = copying.Taker(str(target), failed)
    for head, file in copying.list_entries(str(source), left_out.append, failed or fail):
        taker.head(json.dumps(head).encode())
        for piece in copying.read_pieces(head, file):
            taker.data(piece)
    taker.close(whole=True)
    return left_out


def test_files_and_folders_arrive_as_cp_puts_them(tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "deep" / "empty").mkdir(parents=True)
    (source / "run.sh").write_bytes(b"#!/bin/sh")
    (source / "run.sh").chmod(0o750)
    (source / "deep" / "big").write_bytes(bytes(range(256)) * 1000)
    (source / "link").symlink_to("run.sh")
    (source / "loop").symlink_to("deep")
    os.mkfifo(source / "pipe")
    there = tmp_path / "there"
    there.mkdir()

    assert {"pipe", "loop"} == {os.path.basename(each) for each in copied(source, there)}
    assert [] == copied(source / "run.sh", tmp_path / "named.sh")
    copied(source, tmp_path / "other")

    for root in (there / "data", tmp_path / "other"):
        assert bytes(range(256)) * 1000 == (root / "deep" / "big").read_bytes()
        assert b"#!/bin/sh" == (root / "link").read_bytes()
        assert (root / "deep" / "empty").is_dir()
    assert 0o750 == (tmp_path / "named.sh").stat().st_mode & 0o777


def test_a_name_as_long_as_names_can_be_is_copied(tmp_path: Path) -> None:
    source, there = tmp_path / "data", tmp_path / "there"
    for folder in (source, there):
        folder.mkdir()
    for name in ("n" * 255, "ü" * 127):
        (source / name).write_bytes(b"long")
        copied(source / name, there)
        assert b"long" == (there / name).read_bytes()
    copied(source, there)
    assert {"n" * 255, "ü" * 127} == set(os.listdir(there / "data"))


def test_a_copy_is_written_into_no_file_that_somebody_laid_there(tmp_path: Path) -> None:
    """In a folder of many users the owner of such a file could read on."""
    source, there = tmp_path / "data", tmp_path / "there"
    source.write_bytes(b"secret")
    there.mkdir()
    laid = there / f".{os.getpid()}.yard.part"
    laid.touch()
    copied(source, there)

    assert (b"", b"secret") == (laid.read_bytes(), (there / "data").read_bytes())


@needs_root
def test_what_cannot_be_read_or_written_is_told_and_the_rest_is_copied(open_folder: Path) -> None:
    """As an ordinary user: root may read everything."""
    source, there = open_folder / "data", open_folder / "there"
    for folder in (source / "closed", source / "open", there / "data" / "shut", there / "data" / "taken"):
        folder.mkdir(parents=True)
    for name in ("a", "closed/b", "open/c", "secret", "taken", "z"):
        (source / name).write_bytes(name.encode())
    (source / "shut").mkdir()
    (source / "shut" / "d").write_bytes(b"d")
    (source / "secret").chmod(0)
    (source / "closed").chmod(0)
    for path in (there, there / "data", there / "data" / "taken"):
        os.chown(path, OTHER, OTHER)

    def copy() -> list[tuple[str, str]]:
        failed: list[tuple[str, str]] = []
        copied(source, there, lambda path, why: failed.append((os.path.relpath(path, open_folder), why)))
        return sorted(failed)

    assert [
        ["data/closed", "Permission denied"],
        ["data/secret", "Permission denied"],
        ["there/data/shut/d", "Permission denied"],
        ["there/data/taken", "Is a directory"],
    ] == act(OTHER, copy)
    found = {str(path.relative_to(there / "data")) for path in there.rglob("*") if path.is_file()}
    assert {"a", "open/c", "z"} == found


def test_a_file_that_becomes_shorter_is_told_and_the_rest_is_copied(tmp_path: Path) -> None:
    source, there = tmp_path / "data", tmp_path / "there"
    for folder in (source, there):
        folder.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(bytes(100))
    failed: list[tuple[str, str]] = []
    taker = copying.Taker(str(there), lambda *told: failed.append(told))
    for head, file in copying.list_entries(str(source), print, print):
        taker.head(json.dumps(head).encode())
        if head["path"] == "data/a":
            (source / "a").write_bytes(b"x")
        for piece in copying.read_pieces(head, file):
            taker.data(piece)
    taker.close(whole=True)
    assert [(f"{there}/data/a", "it became shorter while it was copied")] == failed
    assert ["b"] == os.listdir(there / "data")


@pytest.mark.parametrize(
    "head", [b"", b"7", b"{}", b'{"path": 7, "mode": 0, "folder": false, "size": 0}',
             b'{"path": "a", "mode": "x", "folder": false, "size": 0}',
             b'{"path": "a", "mode": 0, "folder": false, "size": -1}'],
)  # fmt: skip
def test_a_head_that_is_none_is_refused_in_words(tmp_path: Path, head: bytes) -> None:
    with pytest.raises(copying.Trouble, match="is not a head of a file"):
        copying.Taker(str(tmp_path)).head(head)


@pytest.mark.parametrize("path", ["../evil", "/evil", "a/../../evil", "", "a//b", "out/evil", "."])
def test_a_head_leads_nowhere_but_into_the_place_that_was_named(tmp_path: Path, path: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "out").symlink_to(tmp_path)
    taker = copying.Taker(str(inside))
    with pytest.raises(copying.Trouble):
        taker.head(json.dumps({"path": path, "mode": 0o644, "folder": False, "size": 0}).encode())
    assert ["inside"] == os.listdir(tmp_path)


def test_a_file_that_is_not_whole_is_not_left_there(tmp_path: Path) -> None:
    taker = copying.Taker(str(tmp_path))
    taker.head(json.dumps({"path": "half", "mode": 0o644, "folder": False, "size": 10}).encode())
    taker.data(b"12345")
    with pytest.raises(copying.Trouble):
        taker.data(b"1234567890")
    taker.close(whole=False)
    assert [] == os.listdir(tmp_path)


def test_what_comes_with_the_first_frame_is_left_to_whoever_takes_the_connection_over() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(
            frames.make_frame(frames.HELLO, b'{"do": "forward"}') + frames.make_frame(frames.DATA, b"early")
        )
        client, found = Client(here), []
        while not found:
            found = client.frames() or []
        assert [(frames.HELLO, b'{"do": "forward"}')] == found
        assert frames.make_frame(frames.DATA, b"early") == here.recv(100)


def test_what_a_client_typed_last_counts_though_it_left_without_reading() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"shown and not read")
        there.sendall(frames.make_frame(frames.DATA, b"typed"))
        there.close()
        client = Client(here)
        client.greeted = True
        assert [(frames.DATA, b"typed")] == client.frames()
        assert client.frames() is None


def test_what_a_client_typed_last_counts_though_something_is_shown_to_it_after_it_left() -> None:
    here, there = socket.socketpair()
    with here:
        there.sendall(frames.make_frame(frames.DATA, b"typed"))
        there.close()
        client = Client(here)
        client.greeted = True
        client.send(frames.make_frame(frames.DATA, b"shown"))
        assert client.flush(), "the keeper lets it go before it has read what was typed"
        assert [(frames.DATA, b"typed")] == client.frames()
        assert client.frames() is None


def test_a_port_is_reached_without_more_of_python_than_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is the job's user by then, who need not be able to read the Python of the server."""

    def unreadable(*_: object) -> None:
        raise LookupError("unknown encoding: idna")

    monkeypatch.setattr(socket, "getaddrinfo", unreadable)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with visitors._connected(listener.getsockname()[1]) as reached:
            there, address = listener.accept()
            with there:
                assert address == reached.getsockname()


@pytest.mark.parametrize("port", [0, -1, 65536, 1 << 70])
def test_a_number_that_is_no_port_is_told_so(port: int) -> None:
    with pytest.raises(copying.Trouble, match=f"{port} is not a port"):
        visitors._connected(port)
