"""What a client does inside a job without a terminal: it speaks to a port there, copies files, runs a command.

Each in a process of its own, as the job's user, with the client's connection: what it may not do there, the client may
not do. Runs beside the job: only the standard library, nothing newer than Python 3.6.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Set, Tuple

from ..kernel.processes import (
    NOT_FOUND,
    NOT_RUN,
    Fork,
    error_text,
    find_descendants,
    list_pids,
    read_stat,
    reset_signals,
    signal_all,
    signal_below,
    unblock_signals,
)
from . import copying
from .frames import (
    DATA,
    END,
    ERRORS,
    EXIT,
    FILE,
    FRAME_BYTES_MAX,
    HEAD,
    HELLO,
    SIGNAL,
    make_frame,
    make_json_frame,
)

_READ_BYTES = 65536
_CONNECT_S = 10.0
_TIOCSIG, _TIOCGSID = 0x40045436, 0x5429
_BY_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
"""Signals that the kernel sends to the foreground of a terminal for the process that has its master side."""
_INT = struct.Struct("i")


class VisitLimits(NamedTuple):
    """How long the keeper of terminals and its visitors wait for others, and what they keep for them."""

    quiet_s: float = 1.0
    """After a command has ended, how long processes that it left may be silent before it is told."""
    hung_up_s: float = 3.0
    """How long a command may take to end whose client has gone, before it is killed."""
    stalled_s: float = 10.0
    """A client that takes nothing for so long is let go, and the job is not held up any longer."""
    heeded_s: float = 3.0
    """A shell that is to go and has not by then, for it ignores that, is killed."""
    kept_bytes: int = 256 * 1024
    """What waits on its way into a command or out of it: then nothing more is read."""


LIMITS = VisitLimits()


class Gone(Exception):
    """The client has gone, or speaks of something else."""


Complain = Callable[[str], None]


def close_inherited(keeper: Any, link: socket.socket) -> None:
    """In a process that the keeper has just forked: what others have at the keeper ends when they are done with it."""
    signal.set_wakeup_fd(-1)
    links = [client.connection for client in keeper.clients.values() if client.connection is not link]
    for each in [keeper.listener] + links + [coming.ours for coming in keeper.coming.values()]:
        each.close()
    fds = [keeper.control, keeper.wakes, keeper.waker]
    for session in keeper.sessions.values():
        fds += [fd for fd in (session.master, session.slave, session.log) if fd >= 0]
    for fd in fds:
        os.close(fd)


def serve(
    link: socket.socket,
    asked: Dict[str, Any],
    env: Dict[str, str],
    complain: Complain,
    limits: VisitLimits = LIMITS,
) -> None:
    """Do what is asked for, to its end."""
    # What takes no more, a client, a port or a command, is met as an error. A command heeds the signal again.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    link.setblocking(True)
    try:
        if asked["do"] == "forward":
            _forward(link, int(asked["port"]), complain, limits.hung_up_s)
        elif asked["do"] == "run":
            Command(link, _words(asked, env), _environment(asked, env), limits).run()
        elif asked["do"] == "signal":
            send_signal(link, asked)
        elif asked["do"] == "read":
            _read(link, copying.resolve_path(str(asked["path"]), env.get("HOME")))
        else:
            _write(link, copying.resolve_path(str(asked["path"]), env.get("HOME")))
    except Gone:
        pass
    except copying.Trouble as trouble:
        complain(str(trouble))
    except OSError as error:
        named = "{}: ".format(error.filename) if error.filename else ""
        complain("{}{}".format(named, error.strerror or error))
    _outlast(link)
    os._exit(0)


def _outlast(link: socket.socket) -> None:
    """Take what the client still sends, until it goes: refused, it would be told of that before it has read all that
    is on its way to it.
    """
    try:
        link.shutdown(socket.SHUT_WR)
        while link.recv(_READ_BYTES):
            pass
    except OSError:
        pass


def _words(asked: Dict[str, Any], env: Dict[str, str]) -> List[str]:
    """The command; left out, the shell of a person there, which reads what it is to do."""
    shell = env.get("SHELL", "")
    argv = [str(word) for word in asked.get("argv") or ()]
    return argv or [shell if os.access(shell, os.X_OK) else "/bin/sh"]


def _environment(asked: Dict[str, Any], env: Dict[str, str]) -> Dict[str, str]:
    return dict(env, **{str(name): str(value) for name, value in dict(asked.get("env") or {}).items()})


def _exactly(link: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        try:
            piece = link.recv(min(_READ_BYTES, size - len(got)))
        except OSError:
            piece = b""
        if not piece:
            raise Gone
        got += piece
    return bytes(got)


def _frames(link: socket.socket) -> Iterator[Tuple[bytes, bytes]]:
    while True:
        kind, size = HEAD.unpack(_exactly(link, HEAD.size))
        if size > FRAME_BYTES_MAX:
            raise Gone
        yield kind, _exactly(link, size)


# ---- a signal


class Signals:
    """Signals for whatever is in the foreground of a terminal.

    A terminal goes on naming a group that has ended, and the number of that group is given to somebody else. So the
    kernel sends what it sends for terminals, by the group itself, and a process of the job's user sends anything else:
    one at a time for all that has come, so that a client makes no second one, however much it sends.
    """

    def __init__(self, fork: Fork) -> None:
        self._fork = fork
        self._sender = 0
        self._unsent: Set[Tuple[int, int]] = set()
        """By terminal and number: as from the kernel, one that is not delivered yet comes once."""

    def send(self, master: int, number: int) -> None:
        """Send one, at once or after those before it."""
        if number in _BY_TERMINAL:
            fcntl.ioctl(master, _TIOCSIG, number)
        elif 0 < number < signal.NSIG:
            self._unsent.add((master, number))
            self._next()

    def reaped(self, pid: int) -> None:
        """A process has ended, perhaps the one that sends."""
        if pid == self._sender:
            self._sender = 0
            # Without room for a process they wait for the next one that is sent.
            with suppress(OSError):
                self._next()

    def forget(self, master: int) -> None:
        """A terminal is closed."""
        self._unsent = {each for each in self._unsent if each[0] != master}

    def _next(self) -> None:
        if self._sender == 0 and self._unsent:
            meant = sorted(self._unsent)
            self._sender = self._fork(lambda: _signal_groups(meant), lambda _why: None)
            self._unsent.clear()


def _signal_groups(meant: List[Tuple[int, int]]) -> None:
    """As the job's user: send signals, and end."""
    for master, number in meant:
        with suppress(OSError):
            _signal_group(master, number)
    os._exit(0)


def _signal_group(master: int, number: int) -> None:
    """Send a signal to the group in the foreground, if it is one of the terminal's session."""
    group, (session,) = os.tcgetpgrp(master), _INT.unpack(fcntl.ioctl(master, _TIOCGSID, bytes(_INT.size)))
    for pid in list_pids():
        try:
            if (os.getpgid(pid), os.getsid(pid)) == (group, session):
                os.killpg(group, number)
                return
        except ProcessLookupError:
            continue


# ---- a port


def _connected(port: int) -> socket.socket:
    if not 0 < port < 65536:
        raise copying.Trouble("{} is not a port".format(port))
    last = OSError()
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        # Without a look at names: for that more of Python would be loaded, which the user may not be able to read.
        made = socket.socket(family, socket.SOCK_STREAM)
        made.settimeout(_CONNECT_S)
        try:
            made.connect((host, port))
            return made
        except OSError as error:
            made.close()
            last = error if host != "::1" or not last.errno else last
    if isinstance(last, ConnectionRefusedError):
        raise copying.Trouble("nothing listens at port {} there".format(port))
    raise last


def _forward(link: socket.socket, port: int, complain: Complain, hung_up_s: float) -> None:
    """Pass bytes on both ways, until the client has gone."""
    there = _connected(port)
    there.settimeout(None)
    link.sendall(make_json_frame(HELLO, {}))

    def back() -> None:
        with suppress(OSError):
            try:
                for piece in iter(lambda: there.recv(_READ_BYTES), b""):
                    link.sendall(make_frame(DATA, piece))
                link.sendall(make_json_frame(EXIT, {"code": 0}))
            except OSError as error:
                complain(error_text(error))
            link.shutdown(socket.SHUT_WR)
            there.shutdown(socket.SHUT_RDWR)

    # Neither way waits for the other.
    threading.Thread(target=back, daemon=True).start()
    for kind, content in _frames(link):
        # What takes no more may have answered: that is still on its way to the client.
        with suppress(OSError):
            if kind == DATA:
                _pass(content, there, link, hung_up_s)
            elif kind == END:
                there.shutdown(socket.SHUT_WR)


def _pass(content: bytes, there: socket.socket, link: socket.socket, hung_up_s: float) -> None:
    """Send all of it on, unless the port takes nothing and the client has gone."""
    poll, gone = select.poll(), select.poll()
    poll.register(there, select.POLLOUT)
    gone.register(link, 0)
    rest = memoryview(content)
    while rest:
        if poll.poll(int(1000 * hung_up_s)):
            with suppress(BlockingIOError):
                rest = rest[there.send(rest, socket.MSG_DONTWAIT) :]
        elif gone.poll(0):
            raise Gone


# ---- files


def _read(link: socket.socket, path: str) -> None:
    left_out: List[str] = []
    failed = copying.Failed()
    link.sendall(make_json_frame(HELLO, {}))
    for head, file in copying.list_entries(path, left_out.append, failed):
        link.sendall(make_frame(FILE, json.dumps(head).encode()))
        for piece in copying.read_pieces(head, file):
            link.sendall(make_frame(DATA, piece))
    told = {"left_out": left_out[: copying.NAMED_MAX], "left_out_count": len(left_out)}
    link.sendall(make_json_frame(EXIT, dict(failed.told(), code=0, **told)))


def _write(link: socket.socket, path: str) -> None:
    failed = copying.Failed()
    taker = copying.Taker(path, failed)
    link.sendall(make_json_frame(HELLO, {}))
    whole = False
    try:
        for kind, content in _frames(link):
            if kind == FILE:
                taker.head(content)
            elif kind == DATA:
                taker.data(content)
            elif kind == END:
                whole = True
                break
    finally:
        taker.close(whole)
    link.sendall(make_json_frame(EXIT, dict(failed.told(), code=0, files=taker.files, bytes=taker.bytes)))


# ---- a command

_LOOK_MS = 100
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)

BATCH, STEPS, ALL = "batch", "steps", "all"
"""Whom a signal is for: the first process of each task, the processes below those, or both."""


class Command:
    """One command without a terminal, from its start to its end.

    What the client sends goes to the command as it is; what the command writes goes back as it is, errors apart. A
    signal reaches the command's whole group.
    """

    def __init__(
        self,
        link: socket.socket,
        argv: List[str],
        env: Dict[str, str],
        limits: VisitLimits = LIMITS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link, self.limits, self.now_s = link, limits, now_s
        link.setblocking(False)
        self.come, self.unsent, self.unread = bytearray(), bytearray(), bytearray()
        """Of frames that have begun; for the client; for the command."""
        self.whole = False
        """Whether all is here that the command is to read."""
        self.hung_up_at: Optional[float] = None
        """When the client went."""
        self.code: Optional[int] = None
        """The exit code, once the command has ended."""
        self.wakes, waker = os.pipe()
        for fd in (self.wakes, waker):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        (stdin, self.stdin), out, errors = os.pipe(), os.pipe(), os.pipe()
        self.outputs = {out[0]: DATA, errors[0]: ERRORS}
        # A signal that is sent at once would be lost in a child that is not the command yet: it waits until then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, env, [stdin, out[1], errors[1]])
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _lead(self.pid)
        for fd in (stdin, out[1], errors[1]):
            os.close(fd)
        os.set_blocking(self.stdin, False)

    def run(self) -> None:
        """Pass on both ways until the command has ended and all that it wrote is sent."""
        self.unsent += make_json_frame(HELLO, {})
        self._send()
        quiet_at = float("inf")
        while self.code is None or self.outputs:
            is_quiet = self._turn()
            now = self.now_s()
            if self.code is None:
                self._reap()
            if self.hung_up_at is not None:
                if self.code is not None:
                    return
                if now >= self.hung_up_at + self.limits.hung_up_s:
                    self._signal(signal.SIGKILL)
            if self.code is not None and (not is_quiet or quiet_at == float("inf")):
                quiet_at = now + self.limits.quiet_s
            if now >= quiet_at:
                # What it left running may hold its output open for good.
                break
        self.link.setblocking(True)
        self.link.sendall(bytes(self.unsent) + make_json_frame(EXIT, {"code": self.code}))

    def _turn(self) -> bool:
        """Wait for something, and see to it; whether the command was listened to and wrote nothing."""
        poll = select.poll()
        poll.register(self.wakes, select.POLLIN)
        if self.hung_up_at is None:
            room = len(self.unread) < self.limits.kept_bytes
            poll.register(self.link, (select.POLLIN if room else 0) | (select.POLLOUT if self.unsent else 0))
        listened = tuple(self.outputs) if len(self.unsent) < self.limits.kept_bytes else ()
        for fd in listened:
            poll.register(fd, select.POLLIN)
        if self.unread:
            poll.register(self.stdin, select.POLLOUT)
        waits = self.hung_up_at is None and self.code is None
        happened = dict(poll.poll(None if waits else _LOOK_MS))
        if self.wakes in happened:
            os.read(self.wakes, 4096)
        heard = any([self._take(fd) for fd in list(self.outputs) if fd in happened])
        link = happened.get(self.link.fileno(), 0)
        if link & select.POLLOUT:
            self._send()
        if link & ~select.POLLOUT:
            self._hear()
        if self.unread:
            self._feed()
        return bool(listened) and not heard

    def _reap(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _signal(self, number: int) -> None:
        """Send the command and what it started a signal: its number is its own until it is reaped."""
        if self.code is None:
            signal_all([self.pid], number, group=True)

    def _hang_up(self) -> None:
        """The client has gone: the command is told as a shell is."""
        if self.hung_up_at is None:
            self.hung_up_at = self.now_s()
            self.unsent.clear()
            self._signal(signal.SIGHUP)
            self._signal(signal.SIGCONT)

    # ---- out

    def _take(self, fd: int) -> bool:
        piece = os.read(fd, _READ_BYTES)
        if not piece:
            del self.outputs[fd]
            os.close(fd)
        elif self.hung_up_at is None:
            self.unsent += make_frame(self.outputs[fd], piece)
            self._send()
        return bool(piece)

    def _send(self) -> None:
        try:
            while self.unsent:
                del self.unsent[: self.link.send(self.unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._hang_up()

    # ---- in

    def _hear(self) -> None:
        try:
            piece = self.link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self.come += piece
        while len(self.come) >= HEAD.size:
            kind, length = HEAD.unpack_from(self.come)
            if length > FRAME_BYTES_MAX:
                piece = b""
                break
            if len(self.come) < HEAD.size + length:
                break
            content = bytes(self.come[HEAD.size : HEAD.size + length])
            del self.come[: HEAD.size + length]
            self._heed(kind, content)
        if not piece:
            self._hang_up()

    def _heed(self, kind: bytes, content: bytes) -> None:
        if kind == DATA and not self.whole:
            self.unread += content
        elif kind == END and not self.whole:
            self.whole = True
            self._feed()
        elif kind == SIGNAL and content.isdigit() and 0 < int(content) < signal.NSIG:
            self._signal(int(content))

    def _feed(self) -> None:
        """Pass on what is to be read; behind all of it the command finds the end."""
        try:
            while self.unread:
                del self.unread[: os.write(self.stdin, self.unread)]
        except BlockingIOError:
            return
        except OSError:
            # It reads no more.
            self.unread.clear()
            self.whole = True
        if self.whole and self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


def _become(argv: List[str], env: Dict[str, str], streams: List[int]) -> NoReturn:
    """Be the command, in a group of its own: a signal for it reaches what it starts, and nothing else."""
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        _lead(0)
        high = [os.dup(fd) for fd in streams]
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        signal.set_wakeup_fd(-1)
        reset_signals()
        unblock_signals()
        os.execvpe(argv[0], argv, env)
    except FileNotFoundError:
        _say("cannot run {}: no such program".format(argv[0]))
        os._exit(NOT_FOUND)
    except BaseException as error:  # a child must never go on as a second visitor
        _say("cannot run {}: {}".format(argv[0], getattr(error, "strerror", None) or error))
    finally:
        os._exit(NOT_RUN)


def _lead(pid: int) -> None:
    """Make a process the first of a group. Both sides do so: neither can be sure to come first."""
    try:
        os.setpgid(pid, pid)
    except OSError:
        # The other was first, and the program runs or has ended.
        pass


def _say(text: str) -> None:
    os.write(2, "yard: {}\n".format(text).encode("utf-8", "replace"))


def send_signal(link: socket.socket, asked: Dict[str, Any]) -> None:
    """Send the processes of the job a signal, as its user: none of anybody else is reached."""
    number, whom = int(asked["number"]), str(asked.get("whom", ALL))
    if not 0 < number < signal.NSIG:
        raise copying.Trouble("there is no signal {}".format(number))
    if whom not in (BATCH, STEPS, ALL):
        raise copying.Trouble("a signal goes to {}, {} or {}, not to {!r}".format(BATCH, STEPS, ALL, whom))
    above, keeper = asked["family"]
    # Visitors and shells are below the keeper, and none of the job's own.
    below = find_descendants({above}) - find_descendants({keeper}) - {keeper}
    stats = {pid: read_stat(pid) for pid in below}
    first = {pid for pid, stat in stats.items() if stat is not None and stat.parent == above}
    meant = {BATCH: first, STEPS: below - first, ALL: below}[whom]
    signal_below(above, sorted(meant), number)
    link.sendall(make_json_frame(HELLO, {}) + make_json_frame(EXIT, {"code": 0, "processes": len(meant)}))
