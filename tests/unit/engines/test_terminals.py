"""The keeper of terminals: several clients at one terminal, those that come back, and those that take nothing."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.machine import files
from gpuyard.engines.node import copying, terminal, visitors

WAIT_S = 10.0


_links: list[socket.socket] = []
"""Connections of one test."""


class Looker:
    """A client of a keeper."""

    def __init__(self, folder: Path, **asked: Any) -> None:
        found = terminal.reach(str(folder))
        assert found is not None
        self.link = found
        _links.append(found)
        self.link.settimeout(WAIT_S)
        self.send(terminal.HELLO, json.dumps({"do": "attach", **asked}).encode())
        self.shown = b""

    def send(self, kind: bytes, content: bytes) -> None:
        self.link.sendall(terminal.frame(kind, content))

    def next(self) -> tuple[bytes, bytes]:
        kind, size = terminal.HEAD.unpack(self._exactly(terminal.HEAD.size))
        return kind, self._exactly(size)

    def until(self, text: bytes) -> bytes:
        """What is shown, up to this text."""
        while text not in self.shown:
            kind, content = self.next()
            if kind == terminal.DATA:
                self.shown += content
        before, found, self.shown = self.shown.partition(text)
        return before + found

    def end(self) -> Any:
        """How the session ended."""
        while True:
            kind, content = self.next()
            if kind == terminal.DATA:
                self.shown += content
            if kind in (terminal.EXIT, terminal.ERROR):
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


@contextmanager
def kept(folder: Path, *argv: str, container: str = "") -> Iterator[terminal.KeeperHandle]:
    """A keeper with a program at its terminal, which has no supervisor."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        pty = terminal.open_pty()
        log = os.open("stdout", os.O_WRONLY | os.O_CREAT, 0o600)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            terminal.take(pty[1])
            os.execvpe(argv[0], list(argv), {**os.environ, "PS1": "$ "})
        own = terminal.Session(terminal.OWN, pty, log=log)
        keeper = terminal.keep(
            plainly, {"SHELL": "/bin/sh", "PATH": os.environ["PATH"]}, None, own, container
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
        one.send(terminal.DATA, b"first\n")
        assert b"first\r\nfirst\r\n" == one.until(b"first\r\nfirst\r\n") == two.until(b"first\r\nfirst\r\n")
        one.link.close()
        two.send(terminal.DATA, b"second\n")
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
        one.send(terminal.DATA, b"stty size\n")
        one.until(b"31 101")
        one.send(terminal.SIZE, json.dumps({"rows": 41, "columns": 111}).encode())
        one.send(terminal.DATA, b"stty size\n")
        one.until(b"41 111")


def test_a_shell_beside_it_is_found_again_by_its_name_and_ends_with_its_code(tmp_path: Path) -> None:
    with kept(tmp_path, "cat"):
        one = Looker(tmp_path, do="shell")
        name = json.loads(one.next()[1])["session"]
        one.send(terminal.DATA, b"x=42\n")
        one.link.close()
        again = Looker(tmp_path, session=name)
        again.send(terminal.DATA, b"echo x=$x; exit 9\n")
        again.until(b"x=42\r\n")
        assert {"code": 9} == json.loads(again.end())
        assert "no such terminal" in Looker(tmp_path, session=name).end()


def test_a_client_that_takes_nothing_holds_up_no_job_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_STALLED_S", 0.3)
    with kept(tmp_path, "sh", "-c", "read x; yes | head -c 4000000; echo done; sleep 60"):
        stuck = Looker(tmp_path, seen=0)
        stuck.send(terminal.DATA, b"\n")
        until = time.monotonic() + WAIT_S
        while not (tmp_path / "stdout").read_bytes().endswith(b"done\r\n"):
            assert time.monotonic() < until
            time.sleep(0.02)
        # What it showed last is there, from the beginning of a line on.
        late = Looker(tmp_path)
        assert late.until(b"done\r\n").startswith(b"y\r\n")
        with pytest.raises((EOFError, OSError)):
            stuck.until(b"done\r\n")


def test_a_request_that_makes_no_sense_is_refused_and_the_keeper_stays(tmp_path: Path) -> None:
    with kept(tmp_path, "cat"):
        assert "no 'dance' here" in Looker(tmp_path, do="dance").end()
        assert "cannot be served" in Looker(tmp_path, do="shell", env=[1]).end()
        raw = terminal.reach(str(tmp_path))
        assert raw is not None
        _links.append(raw)
        raw.sendall(terminal.HEAD.pack(terminal.DATA, 1 << 30))
        raw.settimeout(WAIT_S)
        assert b"" == raw.recv(1)
        Looker(tmp_path, seen=0).next()


def test_a_container_that_is_not_there_yet_is_said_to_a_shell_and_a_copy(tmp_path: Path) -> None:
    with kept(tmp_path, "cat", container=str(tmp_path / "pid-0")):
        says = "its container is not there: it has not started yet, or has ended"
        assert says == Looker(tmp_path, do="shell").end()
        assert says == Looker(tmp_path, do="read", path="/etc/hostname").end()
        (tmp_path / "pid-0").write_text(str(os.getpid()))
        assert "its container has ended" == Looker(tmp_path, do="shell").end()
        Looker(tmp_path, seen=0).next()


def test_the_socket_is_for_its_owner_alone_and_its_path_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with kept(folder, "cat"):
        assert 0o600 == os.stat(folder / terminal.SOCKET).st_mode & 0o777
        Looker(folder, seen=0).next()
    assert terminal.reach(str(folder)) is None
    assert files.KEEPER == terminal.WISH


def test_a_link_in_a_jobs_folder_leads_to_no_other_socket(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.mkdir()
    link.mkdir()
    (link / terminal.SOCKET).symlink_to(there / terminal.SOCKET)
    with kept(there, "cat"):
        assert terminal.reach(str(link)) is None
        assert terminal.reach(str(there), os.geteuid() + 1) is None


def copied(source: Path, target: Path) -> list[str]:
    """Copy as a job and a client do; gives what was left out."""
    left_out: list[str] = []
    taker = copying.Taker(str(target))
    for head, place in copying.entries(str(source), left_out.append):
        taker.head(json.dumps(head).encode())
        for piece in copying.pieces(head, place):
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
            terminal.frame(terminal.HELLO, b'{"do": "forward"}') + terminal.frame(terminal.DATA, b"early")
        )
        client, found = terminal.Client(here), []
        while not found:
            found = client.frames() or []
        assert [(terminal.HELLO, b'{"do": "forward"}')] == found
        assert terminal.frame(terminal.DATA, b"early") == here.recv(100)


def test_what_a_client_typed_last_counts_though_it_left_without_reading() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"shown and not read")
        there.sendall(terminal.frame(terminal.DATA, b"typed"))
        there.close()
        client = terminal.Client(here)
        client.greeted = True
        assert [(terminal.DATA, b"typed")] == client.frames()
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
    with pytest.raises(copying.Trouble, match=f"{port} is no port"):
        visitors._connected(port)
