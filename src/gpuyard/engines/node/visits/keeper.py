"""Terminals of an attempt: a small process beside its tasks keeps them, whatever becomes of the yard's server.

The keeper holds the master sides of the terminals, the job's own and those of shells beside it, and serves a socket in
the attempt's folder (`frames.py`). What a terminal showed last is kept, so that a client that comes back sees where it
was.

Runs beside the job, on this machine and on the nodes of a cluster: only the standard library, nothing newer than
Python 3.6.
"""

import json
import os
import select
import signal
import socket
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..kernel.processes import Fork, signal_all
from ..kernel.terminals import ROWS_AND_COLUMNS, open_pty, say, set_size, take
from . import inside, visitors
from .frames import (
    DATA,
    END,
    ERROR,
    EXIT,
    FRAME_BYTES_MAX,
    HEAD,
    HELLO,
    OWN,
    SIGNAL,
    SIZE,
    SOCKET,
    make_frame,
    make_json_frame,
)

_READ_BYTES = 65536
_SCROLL_BYTES = 256 * 1024
"""What is kept of what a terminal showed."""
_UNSENT_BYTES_MAX = 256 * 1024
_INPUT_BYTES_MAX = 64 * 1024
_LEFT_S = 300.0
"""A shell that no client has been at for so long is hung up."""
_REDRAW_S = 0.05
_LAST_S = 5.0
"""At the end, how long clients may take to fetch the rest."""
_SESSIONS_MAX = 64
_HANG_UP = b"h"


def listen() -> socket.socket:
    """The socket, in the current folder, for its owner alone."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    draft = "{}.{}".format(SOCKET, os.getpid())
    mask = os.umask(0o177)
    try:
        listener.bind(draft)
    finally:
        os.umask(mask)
    listener.listen(64)
    # It has its name once it answers.
    os.rename(draft, SOCKET)
    return listener


def _size_of(asked: Dict[str, Any]) -> Optional[Tuple[int, int]]:
    rows, columns = asked.get("rows"), asked.get("columns")
    if type(rows) is int and type(columns) is int and 0 < rows < 10000 and 0 < columns < 10000:
        return rows, columns
    return None


class Session:
    """One terminal."""

    def __init__(self, name: str, pty: Tuple[int, int], pid: int = 0, log: int = -1) -> None:
        self.name, self.pid, self.log = name, pid, log
        self.master, self.slave = pty
        """The slave stays open: a program that closes it for a while has not ended."""
        os.set_blocking(self.master, False)
        self.scroll = bytearray()
        self.offset = 0
        """How many bytes it has shown in all."""
        self.unread = bytearray()
        """What was typed and not taken yet."""
        self.size = ROWS_AND_COLUMNS
        self.code: Optional[int] = None
        """Its exit code, once it has ended."""
        self.left_at = time.monotonic()
        self.redraw_at = self.kill_at = float("inf")

    def resize(self, size: Optional[Tuple[int, int]]) -> None:
        """Give it the size of the client that asked last."""
        if size is not None:
            self.size = size
            set_size(self.master, size[0], size[1])

    def redraw(self) -> None:
        """Have a full-screen program draw itself again: only a size that has changed makes it."""
        rows, columns = self.size
        set_size(self.master, max(1, rows - 1), columns)
        self.redraw_at = time.monotonic() + _REDRAW_S

    def read(self) -> bytes:
        """What it shows now; empty: nothing."""
        try:
            piece = os.read(self.master, _READ_BYTES)
        except OSError:
            return b""
        if piece:
            self.offset += len(piece)
            self.scroll += piece
            if len(self.scroll) > 2 * _SCROLL_BYTES:
                del self.scroll[:-_SCROLL_BYTES]
            _written(self.log, piece)
        return piece

    def since(self, seen: Optional[int]) -> bytes:
        """What it has shown after so many bytes, as far as that is kept; None: what it showed last."""
        first = self.offset - len(self.scroll)
        if seen is not None and first <= seen <= self.offset:
            return bytes(self.scroll[seen - first :])
        kept = bytes(self.scroll[-_SCROLL_BYTES:])
        # A line or an escape sequence that is cut in two is worse than none.
        return kept if first == 0 and len(kept) == len(self.scroll) else kept.partition(b"\n")[2]

    def type(self) -> None:
        """Pass on what was typed."""
        if self.unread:
            try:
                del self.unread[: os.write(self.master, self.unread)]
            except BlockingIOError:
                pass
            except OSError:
                self.unread.clear()


def _written(fd: int, piece: bytes) -> None:
    """Keep a piece in the log; a disk that is full keeps no terminal from going on."""
    rest = memoryview(piece)
    while fd >= 0 and rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except OSError:
            return


class Client:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.session: Optional[Session] = None
        self.come = bytearray()
        self.greeted = False
        """Whether its first frame has come. What follows it stays in the connection, which may be handed over."""
        self.unsent = bytearray()
        self.took_at = time.monotonic()
        self.closing = False
        """Whether it goes once all is sent."""

    def send(self, data: bytes) -> None:
        """Send now or later."""
        if not self.unsent:
            self.took_at = time.monotonic()
        self.unsent += data

    def flush(self) -> bool:
        """Send what can be sent; whether the connection is still needed."""
        while self.unsent:
            try:
                sent = self.connection.send(self.unsent)
            except BlockingIOError:
                return True
            except OSError:
                # It has gone: that is met where what it typed before is read.
                sent = len(self.unsent)
            del self.unsent[:sent]
            self.took_at = time.monotonic()
        return not self.closing

    def frames(self) -> Optional[List[Tuple[bytes, bytes]]]:
        """Frames that have come; None: the client is gone."""
        try:
            try:
                piece = self.connection.recv(self._wanted())
            except ConnectionResetError:
                # It left without reading all that it was shown; what it typed before is still here.
                piece = self.connection.recv(self._wanted())
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not piece:
            return None
        self.come += piece
        found = []
        while len(self.come) >= HEAD.size:
            kind, length = HEAD.unpack_from(self.come)
            if length > FRAME_BYTES_MAX:
                return None
            if len(self.come) < HEAD.size + length:
                break
            found.append((kind, bytes(self.come[HEAD.size : HEAD.size + length])))
            del self.come[: HEAD.size + length]
            self.greeted = True
        return found

    def _wanted(self) -> int:
        first = HEAD.unpack_from(self.come)[1] if len(self.come) >= HEAD.size else 0
        return _READ_BYTES if self.greeted else HEAD.size + first - len(self.come)


class Coming:
    """A shell on its way into a container, and the client that wants it."""

    def __init__(
        self, ours: socket.socket, client: Client, asked: Dict[str, Any], name: str, pid: int
    ) -> None:
        self.ours, self.client, self.asked, self.name, self.pid = ours, client, asked, name, pid


class TerminalKeeper:
    """The keeper's whole life: in a process of its own, until the attempt has ended."""

    def __init__(
        self,
        listener: socket.socket,
        control: int,
        fork: Fork,
        env: Dict[str, str],
        own: Optional[Session] = None,
        owner: Optional[Tuple[int, int]] = None,
        container: str = "",
        limits: visitors.VisitLimits = visitors.LIMITS,
        enter: Callable[[str], Dict[str, str]] = inside.enter,
    ) -> None:
        """`control` is a pipe through which a line comes at the attempt's end, with its exit code, or nothing at all.

        `owner`: user and group of the job's processes, where the keeper's are others. `container`: the file that names
        the first process of the container in which the job runs, and with it its clients; `enter` goes into it.
        """
        self.limits, self.enter = limits, enter
        self.container, self.owner = container, owner
        self.listener, self.control, self.fork, self.env = listener, control, fork, env
        self.signals = visitors.Signals(fork)
        self.sessions: Dict[str, Session] = {OWN: own} if own is not None else {}
        self.clients: Dict[int, Client] = {}
        self.coming: Dict[int, Coming] = {}
        """Shells on their way into a container, by the socket through which their terminals come."""
        self.shells, self.told, self.ending_at = 0, b"", float("inf")
        self.wakes, self.waker = os.pipe()
        for fd in (self.wakes, self.waker):
            os.set_blocking(fd, False)

    def run(self) -> None:
        """Serve until the end."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.waker)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.listener.setblocking(False)
        self._reap()
        while not self._done():
            self._turn()
        for client in list(self.clients.values()):
            client.connection.close()

    def _done(self) -> bool:
        if self.ending_at == float("inf"):
            return False
        return time.monotonic() >= self.ending_at or not any([each.unsent for each in self.clients.values()])

    def _turn(self) -> None:
        """Wait for something, and see to it."""
        poll = select.poll()
        poll.register(self.wakes, select.POLLIN)
        if self.ending_at == float("inf"):
            poll.register(self.control, select.POLLIN)
            poll.register(self.listener, select.POLLIN)
        full = {id(each.session) for each in self.clients.values() if len(each.unsent) > _UNSENT_BYTES_MAX}
        for session in self.sessions.values():
            wanted = (select.POLLIN if id(session) not in full else 0) | (
                select.POLLOUT if session.unread else 0
            )
            if wanted:
                poll.register(session.master, wanted)
        for fd in self.coming:
            poll.register(fd, select.POLLIN)
        # What is sent to a shell that is still on its way stays in the connection.
        coming = {id(each.client) for each in self.coming.values()}
        for fd, client in self.clients.items():
            unread = client.session.unread if client.session is not None else b""
            room = len(unread) < _INPUT_BYTES_MAX and id(client) not in coming
            poll.register(fd, (select.POLLIN if room else 0) | (select.POLLOUT if client.unsent else 0))
        left_s = self._left_s()
        happened = dict(poll.poll(None if left_s is None else max(0, int(1000 * left_s) + 1)))
        if self.wakes in happened:
            os.read(self.wakes, 4096)
            self._reap()
        if self.control in happened:
            self._hear()
        for session in list(self.sessions.values()):
            if session.master in happened:
                session.type()
                if id(session) not in full:
                    self._show(session)
        for fd in [fd for fd in happened if fd in self.coming]:
            self._come(self.coming.pop(fd))
        if self.listener.fileno() in happened:
            self._accept()
        for fd in [fd for fd in happened if fd in self.clients]:
            self._serve(self.clients[fd], happened[fd])
        self._keep_time()

    def _left_s(self) -> Optional[float]:
        """How long until something is due; None: nothing is."""
        due = [self.ending_at]
        due += [min(each.redraw_at, each.kill_at) for each in self.sessions.values()]
        due += [
            each.left_at + _LEFT_S for each in self.sessions.values() if each.pid and not self._watched(each)
        ]
        due += [each.took_at + self.limits.stalled_s for each in self.clients.values() if each.unsent]
        first = min(due)
        return None if first == float("inf") else first - time.monotonic()

    def _watched(self, session: Session) -> bool:
        return any([client.session is session for client in self.clients.values()])

    def _keep_time(self) -> None:
        now = time.monotonic()
        for session in list(self.sessions.values()):
            if now >= session.redraw_at:
                session.redraw_at = float("inf")
                session.resize(session.size)
            if session.pid and not self._watched(session) and now >= session.left_at + _LEFT_S:
                session.left_at = now
                signal_all([session.pid], signal.SIGHUP, group=True)
            if session.pid and now >= session.kill_at:
                session.kill_at = float("inf")
                signal_all([session.pid], signal.SIGKILL, group=True)
        for client in list(self.clients.values()):
            if client.unsent and now >= client.took_at + self.limits.stalled_s:
                self._drop(client)

    # ---- the sessions

    def _show(self, session: Session) -> bool:
        """Pass on what it shows; whether there was something."""
        piece = session.read()
        if piece:
            for client in list(self.clients.values()):
                if client.session is session:
                    client.send(make_frame(DATA, piece))
                    self._flush(client)
        return bool(piece)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.signals.reaped(pid)
            for coming in [each for each in self.coming.values() if each.pid == pid]:
                self._come(self.coming.pop(coming.ours.fileno()))
            for session in list(self.sessions.values()):
                if session.pid == pid:
                    session.pid = 0
                    session.code = (
                        128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                    )
                    self._ended(session)

    def _ended(self, session: Session) -> None:
        """Show the rest, and tell the clients how it ended. Processes in the background may have it open still."""
        shown = session.offset
        while self._show(session) and session.offset - shown < _SCROLL_BYTES:
            pass
        del self.sessions[session.name]
        self.signals.forget(session.master)
        os.close(session.master)
        os.close(session.slave)
        for client in list(self.clients.values()):
            if client.session is session:
                client.session = None
                client.closing = True
                client.send(make_json_frame(EXIT, {"code": session.code}))
                self._flush(client)

    def _hang_up(self, session: Session) -> None:
        """A shell is to go, heed it or not."""
        if session.pid:
            session.kill_at = time.monotonic() + self.limits.heeded_s
            signal_all([session.pid], signal.SIGHUP, group=True)

    def _hear(self) -> None:
        """Shells are to go; or the attempt is about to end; or its supervisor is gone, and with it the attempt."""
        piece = os.read(self.control, 4096)
        self.told += piece.replace(_HANG_UP, b"")
        if piece and b"\n" not in piece:
            shells = [each.pid for each in self.sessions.values() if each.pid]
            signal_all(shells, signal.SIGHUP, group=True)
            return
        self.ending_at = time.monotonic() + _LAST_S
        own = self.sessions.get(OWN)
        if own is not None:
            own.code = int(self.told) if self.told.strip().isdigit() else None
            self._ended(own)

    # ---- the clients

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self.listener.accept()
            self.clients[connection.fileno()] = Client(connection)

    def _drop(self, client: Client) -> None:
        self.clients.pop(client.connection.fileno(), None)
        client.connection.close()
        if client.session is not None:
            client.session.left_at = time.monotonic()

    def _flush(self, client: Client) -> None:
        if not client.flush():
            self._drop(client)

    def _serve(self, client: Client, happened: int) -> None:
        if happened & select.POLLOUT:
            self._flush(client)
        if not happened & ~select.POLLOUT or client.connection.fileno() < 0:
            return
        found = client.frames()
        for kind, content in found or ():
            if client.connection.fileno() < 0:
                return
            try:
                self._heed(client, kind, content)
            except Exception as error:  # what fails here fails one visit, and neither the job nor the others
                self._refuse(
                    client, "the request cannot be served: {}".format(getattr(error, "strerror", "") or error)
                )
                return
        if found is None:
            self._drop(client)

    def _heed(self, client: Client, kind: bytes, content: bytes) -> None:
        session = client.session
        if kind == HELLO and session is None and not client.closing:
            self._begin(client, json.loads(content.decode()))
        elif session is None:
            return
        elif kind == DATA:
            session.unread += content
            session.type()
        elif kind == END:
            self._hang_up(session)
        elif kind == SIZE:
            session.resize(_size_of(json.loads(content.decode())))
        elif kind == SIGNAL:
            self.signals.send(session.master, int(content))

    def _refuse(self, client: Client, why: str) -> None:
        client.closing = True
        client.send(make_frame(ERROR, why.encode("utf-8", "replace")))
        self._flush(client)

    def _begin(self, client: Client, asked: Dict[str, Any]) -> None:
        """Do what a new client asks for."""
        what = asked["do"]
        if what == "attach":
            self._attach(client, asked, str(asked.get("session") or OWN))
        elif what == "shell":
            self._shell(client, asked)
        elif what == "stay":
            # The connection ends when the attempt does: that is all that is wanted.
            client.send(make_json_frame(HELLO, {}))
            self._flush(client)
        elif what in ("forward", "read", "write", "run", "signal"):
            # The parent of the job's processes, and this one: the job's user may not be able to see them.
            self._hand_over(client, dict(asked, family=(os.getppid(), os.getpid())))
        else:
            self._refuse(client, "there is no {!r} here".format(str(what)[:40]))

    def _hand_over(self, client: Client, asked: Dict[str, Any]) -> None:
        """Give the connection to a process of the job's own, which reaches what the job's user reaches, and no more."""
        link, env = client.connection, self.env

        def complain(text: str) -> None:
            link.setblocking(True)
            link.sendall(make_frame(ERROR, text.encode("utf-8", "replace")))

        def work() -> None:
            visitors.close_inherited(self, link)
            seen = env
            # The network of a container is that of its node.
            if self.container and asked["do"] not in ("forward", "signal"):
                try:
                    seen = self.enter(self.container)
                except inside.NotThere as why:
                    complain(str(why))
                    os._exit(1)
            visitors.serve(link, asked, seen, complain, self.limits)

        self.fork(work, complain)
        del self.clients[link.fileno()]
        link.close()

    def _attach(self, client: Client, asked: Dict[str, Any], name: str) -> None:
        session = self.sessions.get(name)
        if session is None:
            self._refuse(client, "there is no such terminal any more")
            return
        client.session = session
        before = session.size
        session.resize(_size_of(asked))
        seen = asked.get("seen")
        shown = session.since(seen if type(seen) is int else None)
        client.send(make_json_frame(HELLO, {"session": name, "offset": session.offset - len(shown)}))
        for at in range(0, len(shown), _READ_BYTES):
            client.send(make_frame(DATA, shown[at : at + _READ_BYTES]))
        if session.offset and session.size == before:
            session.redraw()
        self._flush(client)

    def _shell(self, client: Client, asked: Dict[str, Any]) -> None:
        if len(self.sessions) + len(self.coming) >= _SESSIONS_MAX:
            self._refuse(client, "there are {} terminals already".format(_SESSIONS_MAX))
            return
        self.shells += 1
        name = "shell-{}".format(self.shells)
        words = [str(word) for word in asked.get("argv") or ()]
        told = {str(name): str(value) for name, value in dict(asked.get("env") or {}).items()}
        if self.container:

            def let_go(link: socket.socket) -> None:
                visitors.close_inherited(self, link)

            ours, pid = inside.start(
                self.fork, self.container, words, told, _size_of(asked), let_go, self.enter
            )
            self.coming[ours.fileno()] = Coming(ours, client, asked, name, pid)
            return
        argv = words or [self.env.get("SHELL") or "/bin/sh"]
        pty = open_pty(self.owner)

        def complain(text: str) -> None:
            say(pty[1], text)

        def work() -> None:
            take(pty[1])
            try:
                os.execvpe(argv[0], argv, dict(self.env, **told))
            except OSError as error:
                complain("cannot run {}: {}".format(argv[0], error.strerror))
                os._exit(127)

        try:
            pid = self.fork(work, complain)
        except BaseException:
            for fd in pty:
                os.close(fd)
            raise
        self.sessions[name] = Session(name, pty, pid)
        self._attach(client, asked, name)

    def _come(self, coming: Coming) -> None:
        """A shell has entered the container, or could not. Nobody else knows its name, by which it would be found."""
        client, name = coming.client, coming.name
        pty, why = inside.receive_terminal(coming.ours)
        left = client.connection.fileno() < 0
        if pty is not None:
            self.sessions[name] = Session(name, pty, coming.pid)
        if pty is not None and not left:
            self._attach(client, coming.asked, name)
        elif pty is not None:
            self._hang_up(self.sessions[name])
        elif not left:
            self._refuse(client, why)


class KeeperHandle:
    """A keeper, as its supervisor sees it."""

    def __init__(self, pid: int, control: int) -> None:
        self.pid, self.control = pid, control

    def hang_up(self) -> None:
        """Have it hang up the shells beside the job: they heed no TERM."""
        self._tell(_HANG_UP)

    def end(self, code: int) -> None:
        """Tell it that the attempt has ended, and how. It ends by itself, once its clients have the rest."""
        self._tell("{}\n".format(code).encode())

    def _tell(self, what: bytes) -> None:
        try:
            os.write(self.control, what)
        except OSError:
            # It is gone already.
            pass


def keep(
    fork: Fork,
    env: Dict[str, str],
    owner: Optional[Tuple[int, int]],
    own: Optional[Session],
    container: str = "",
    limits: visitors.VisitLimits = visitors.LIMITS,
    enter: Callable[[str], Dict[str, str]] = inside.enter,
) -> KeeperHandle:
    """Fork a keeper that serves the current folder; `own` is the job's own terminal, if it has one."""
    control, tell = os.pipe()
    try:
        with listen() as listener:
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    os.close(tell)
                    TerminalKeeper(listener, control, fork, env, own, owner, container, limits, enter).run()
                    code = 0
                finally:
                    os._exit(code)
    except OSError:
        os.close(tell)
        if os.path.exists(SOCKET):
            # By this name it would be taken for the socket of a keeper that has just ended.
            os.unlink(SOCKET)
        raise
    finally:
        os.close(control)
    for fd in (own.master, own.slave, own.log) if own is not None else ():
        if fd >= 0:
            os.close(fd)
    return KeeperHandle(pid, tell)
