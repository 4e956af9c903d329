"""The server process: sockets, HTTP and signals around a `Yard`, in the foreground or in the background."""

import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from gpuyard import interpreter, log_lines
from gpuyard.api.connecting.ports import PortTaken, listen_at
from gpuyard.api.edge.peers import (
    Authenticator,
    AuthMiddleware,
    BrowserAuthenticator,
    LocalAuthenticator,
    Origins,
    TokenAuthenticator,
)
from gpuyard.api.edge.rates import Rates
from gpuyard.api.server.app import build, make_quick
from gpuyard.api.server.connections import BACKLOG, Acceptor, ConnectionCounts, PeerProtocol, look_after
from gpuyard.config.values import Access
from gpuyard.control.access.people import Person
from gpuyard.control.options import Options, check_address, check_shared
from gpuyard.control.places import DataDir
from gpuyard.control.readiness import READY_S, is_up
from gpuyard.control.serve import Yard
from gpuyard.engines.machine import processes
from gpuyard.errors import BadInput, YardError, error_text, find_hint
from gpuyard.garbage import give_back_large
from gpuyard.store import StoreFull
from gpuyard.wire.replies.people import ReadyReply

LOG_BYTES_MAX = 16 * 1024 * 1024
LOGS_KEPT = 4
"""Beside the one that is written."""


class ServerLog(logging.StreamHandler):
    """The log of a server in the background: standard error, which is a file that does not grow forever.

    The file is put aside when it has reached its size, and the last few are kept: `yard.log.1` is the newest of them.
    An operator who prefers logrotate may move the file: the server begins a new one at its next line, or at once after
    SIGHUP. Standard output and standard error of the process go along, so that a traceback of a library is in the log.
    """

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self.reopen()
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        """A line, to the file that has the name now."""
        try:
            ours, named = os.fstat(2), _stat(self._path)
            if named is None or (named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino):
                self.reopen()
            elif ours.st_size >= self._bytes_max:
                self._put_aside()
                self.reopen()
        except OSError:
            # A full disk, or a folder that is gone: the line goes where the lines before it went.
            pass
        super().emit(record)

    def reopen(self) -> None:
        """Open the file, new or as it is; output of the whole process goes there."""
        out = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        for target in (1, 2):
            os.dup2(out, target)
        os.close(out)

    def _put_aside(self) -> None:
        for number in range(LOGS_KEPT - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(_aside(self._path, number), _aside(self._path, number + 1))
        os.replace(self._path, _aside(self._path, 1))


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


VARIABLE = "NOTIFY_SOCKET"


class ServiceManager:
    """systemd, if it started this process and wants to know when it is ready (`Type=notify`)."""

    def __init__(self) -> None:
        # Jobs are started from here, and the word is not theirs to give.
        self._address = os.environ.pop(VARIABLE, "")

    def tell(self, words: str) -> None:
        """`READY=1`, `STOPPING=1`."""
        if not self._address:
            return
        # An address that begins with @ is a name and no file.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as speaking:
            speaking.sendto(words.encode(), address)

    def tell_ready(self, readiness: Callable[[], tuple[bool, ReadyReply]], ended: threading.Event) -> None:
        """Say it once the nodes have been looked at: before, a yard refuses jobs, for it knows of no node.

        A server that cannot look is told of too after a while: it answers, and `/readyz` says what is wrong with it.
        """
        until_s = time.monotonic() + READY_S
        while self._address and not ended.wait(_READY_LOOK_S):
            if is_up(readiness()[1]) or time.monotonic() > until_s:
                self.tell("READY=1")
                return


_log = logging.getLogger(__name__)
_READY_LOOK_S = 0.05

PORTS_TRIED = 100
"""From the usual port on, if none was asked for."""
AGAIN = "Free some space there, and start the yard again."
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
SWITCH_S = 0.001
"""The loop decides in one thread while requests are served in another: they take turns more often than by default."""


def serve(options: Options, ready: Callable[[Yard], None]) -> None:
    """Run until a signal ends it. `ready` is called once connections are accepted."""
    try:
        _serve(options, ready)
    except StoreFull as error:
        # Its own hint is for servers that run.
        raise YardError(error.message, AGAIN) from error
    except OSError as error:
        if not find_hint(error):
            raise
        full = error.errno in _NO_ROOM
        raise YardError(
            f"a yard on {options.data} cannot run: {error_text(error)}", AGAIN if full else find_hint(error)
        ) from error


def _serve(options: Options, ready: Callable[[Yard], None]) -> None:
    sys.setswitchinterval(SWITCH_S)
    processes.go_first()
    _heed_signals()
    give_back_large()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The HTTP server catches them while it runs and raises them again when it ends: once is enough.
        signal.signal(number, lambda *_: None)
    manager = ServiceManager()
    check_address(options)
    check_shared(options)
    tls = _tls(options)
    # Before the port: a second `yard up` says that the yard runs, not that its port is taken.
    DataDir(options.data).instance(options.port, options.shared).check_free()
    listener = _listener(options)
    with contextlib.closing(listener):
        port = listener.getsockname()[1]
        taken = options.port if options.any_port and port != options.port else 0
        options = replace(options, port=port, port_taken=taken)
        yard = Yard(options)
        with contextlib.closing(yard):
            yard.instance.write({"port": options.port, "store": yard.store.place})
            path = yard.instance.socket
            with contextlib.closing(_unix(path, yard.reserve.give_file)) as local:
                yard.start()
                tidy()
                ended = threading.Event()
                telling = threading.Thread(
                    target=manager.tell_ready, args=(yard.readiness, ended), name="ready"
                )

                def started() -> None:
                    ready(yard)
                    telling.start()

                _Server(yard, started, listener, tls).run(sockets=[local])
                ended.set()
                if telling.ident:
                    telling.join()
                manager.tell("STOPPING=1")
                _log.info("stops; jobs go on")
            if yard.store.damage is not None:
                raise yard.store.damage


def _heed_signals() -> None:
    """Heed the signals that a server needs, however it was started: the ends of its children, and those that end it.

    Others stay as they are: `nohup yard up` is to outlive its terminal.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def tidy() -> None:
    """Keep what is there now: the collector need not look at it again and again.

    Every thread waits while it collects, so it does that often and of little; of everything as seldom as before.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000, 1, 10_000)


class _Server(uvicorn.Server):
    """uvicorn, which lets watchers go when it stops and says when it has started."""

    def __init__(
        self, yard: Yard, started: Callable[[], None], tcp: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        app = build(yard)
        gate = gate_of(yard, app)
        config = uvicorn.Config(
            gate,
            http=PeerProtocol,
            ws="none",
            loop="uvloop",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=3,
        )
        self._crowd = ConnectionCounts(processes.raise_file_limit())
        super().__init__(config)
        self._looks: asyncio.Task[None] | None = None
        self._app_state = app.state
        self._started = started
        self._tcp = tcp
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as usual, open a door at the socket and one at the port, with TLS or without, then call `ready`."""
        await super().startup([])
        if self.started:
            acceptors: list[Any] = [Acceptor(local, self._crowd, self._protocol) for local in sockets or ()]
            acceptors.append(Acceptor(self._tcp, self._crowd, self._protocol, self._tls))
            self.servers.extend(acceptors)
            loop = asyncio.get_running_loop()
            self._looks = loop.create_task(look_after(self.server_state.connections))
            self._started()

    def _protocol(self) -> PeerProtocol:
        return PeerProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End streams first, which would keep the server from ending."""
        pulse = getattr(self._app_state, "pulse", None)
        if pulse is not None:
            pulse.close_soon()
        super().handle_exit(sig, frame)


def _owner(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_uid, found.st_gid


def gate_of(yard: Yard, app: Any) -> AuthMiddleware:
    """The application behind its gate and its limits: with `--auth` for tokens, else for users of this machine."""

    def for_browsers(door: Authenticator) -> Authenticator:
        return BrowserAuthenticator(door, yard.browsers, yard.store.yard)

    if yard.token_service is None:

        def placed(person: Person) -> Person:
            # The directory is another one after `yard apply`.
            return yard.people.directory.placed(person)

        door: Authenticator = LocalAuthenticator(yard.token, _owner(yard.data.token_file), placed)
        local = None
        if yard.fleet.access is not None:
            # The limits of yard.yaml; without any, a user only waits while others ask.
            local = Rates(yard.people.access.limits)
            yard.people.when_renewed(lambda access: local.renew(access.limits))
        # Without `--auth` it listens at this machine alone (`check_address`).
        return AuthMiddleware(app, for_browsers(door), make_quick(yard), local, Origins(yard.options.host))
    by_token = TokenAuthenticator(yard.token_service)
    rates = Rates(yard.people.access.limits)

    def renewed(access: Access) -> None:
        by_token.forget()
        rates.renew(access.limits)

    yard.people.when_renewed(renewed)
    return AuthMiddleware(app, for_browsers(by_token), make_quick(yard), rates)


def _tls(options: Options) -> ssl.SSLContext | None:
    """The certificate, read once, before anything else is done."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(
            f"{options.tls_cert} and {options.tls_key} are no certificate and its key: {_tls_trouble(options, error)}",
            "Both are PEM files, and the key has no password.",
        ) from error
    return context


def _tls_trouble(options: Options, error: OSError) -> str:
    """The file at fault, which the library's message does not name; else that message."""
    for path in (options.tls_cert, options.tls_key):
        if path is not None and not os.access(path, os.R_OK):
            return f"{path} {'cannot be read' if path.exists() else 'is not there'}"
    return str(error)


def _listener(options: Options) -> socket.socket:
    """The port that was asked for; else the usual one or the first free one after it."""
    ports = range(options.port, options.port + PORTS_TRIED) if options.any_port else (options.port,)
    for port in ports:
        try:
            return listen_at(options.host, port, BACKLOG)
        except PortTaken:
            if port == ports[-1]:
                raise
    raise AssertionError("there is always a port to try")


def _unix(path: Path, give_file: Callable[[], bool]) -> socket.socket:
    """The socket in the data folder. The lock is ours by now, so an old one is a dead server's.

    `give_file` gives an inode back to the disk. Where none is left a job may take it first: then another is given.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    while True:
        path.unlink(missing_ok=True)
        try:
            listener.bind(str(path))
            break
        except OSError as error:
            full = error.errno in _NO_ROOM
            if full and give_file():
                continue
            listener.close()
            raise YardError(
                f"{path} cannot be a socket: {error.strerror or error}",
                AGAIN if full else "Linux takes paths of up to 107 bytes: choose a shorter --data.",
            ) from error
    # A server of root serves every user, and the kernel identifies each.
    os.chmod(path, 0o666 if os.geteuid() == 0 else 0o600)
    return listener


def detach(options: Options, log: Path) -> int:
    """Run in the background: gives the server's pid, or raises what kept it from starting."""
    _heed_signals()
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        with os.fdopen(read, "rb") as news:
            text = news.read()
        os.wait()
        if not text:
            raise YardError("the server ended before it was ready", f"Its log: {log}")
        note = json.loads(text)
        if note["error"]:
            error = YardError(note["error"], note["hint"])
            error.exit_code = note["code"]
            raise error
        return int(note["pid"])
    # From here on in the child; nothing of it may reach the parent's code.
    try:
        os.close(read)
        os.setsid()
        if os.fork():
            os._exit(0)
        _to_background(log)
        _serve_detached(options, write)
    finally:
        os._exit(1)


def _to_background(log: Path) -> None:
    interpreter.leave_folder()
    os.umask(0o022)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    written = ServerLog(log)
    # Programs that rotate logs send this signal; a server without a terminal gets it from nothing else.
    signal.signal(signal.SIGHUP, lambda *_: written.reopen())
    start_log(written)


def _serve_detached(options: Options, write: int) -> None:
    def tell(pid: int, error: str = "", hint: str = "", code: int = 0) -> None:
        with contextlib.suppress(OSError):
            note = {"pid": pid, "error": error, "hint": hint, "code": code}
            os.write(write, json.dumps(note).encode())
            os.close(write)

    try:
        serve(options, lambda _yard: tell(os.getpid()))
    except YardError as error:
        _log.error("%s", error.message)
        tell(0, error.message, error.hint, error.exit_code)
        os._exit(error.exit_code)
    except BaseException as error:
        _log.exception("the server failed")
        tell(0, f"the server failed: {error_text(error)}", "Its log has the details.", 1)
        os._exit(1)
    logging.shutdown()
    os._exit(0)


def start_log(handler: "logging.StreamHandler[Any]") -> None:
    """Log a line for each thing that happened."""
    log_lines.start_log(handler, os.environ.get("YARD_LOG", "INFO"))
    # It says once more what is said here already.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
