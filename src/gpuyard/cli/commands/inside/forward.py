"""`yard forward`: a port of this machine that leads to a port inside a job."""

import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from gpuyard.api.client import Client, NoServer, Refused, StreamClosed
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.connection.visits import NotThere, Visit, read_frame
from gpuyard.cli.line.options import Argument, JobArgument
from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.errors import BadInput, YardError

_READ_BYTES = 65536
PATIENCE_S = 60.0
"""How long to look for a yard that is gone."""
_PAUSE_S = 0.5

PortsArgument = Annotated[
    str,
    Argument(metavar="PORT[:REMOTE]", help="The port here, and the job's port if that differs."),
]


def forward(job: JobArgument, ports: PortsArgument) -> None:
    """Forward a port of this machine to a port of a running job, until Ctrl-C or the job's end.

    `yard forward 12 8888`, or `yard forward 12 9000:8888` for port 9000 here. Only programs on this machine reach the
    port.
    """
    here, remote = _ports(ports)
    with open_client() as yard:
        try:
            with listen_here(here) as listener:
                say = f"http://127.0.0.1:{listener.getsockname()[1]} is port {remote} of job {job}; Ctrl-C ends this"
                serve(yard, job, listener, remote, lambda: print(say, file=sys.stderr, flush=True))
        except KeyboardInterrupt:
            print(file=sys.stderr)


def _ports(text: str) -> tuple[int, int]:
    here, _, there = text.partition(":")
    words = [here, there or here]
    if any(not word.isdecimal() or not 0 < int(word) < 65536 for word in words):
        raise BadInput(f"{text!r} is not a port, nor two of them", "For example: 8888, or 9000:8888")
    return int(here), int(words[1])


def listen_here(port: int) -> socket.socket:
    """A port of this machine alone."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise BadInput(
            f"port {port} of this machine cannot be used: {error.strerror}",
            "Choose another one here: yard forward JOB OTHER:PORT",
        ) from error
    return listener


def serve(yard: Client, job: str, listener: socket.socket, remote: int, begun: Callable[[], None]) -> None:
    """Pass connections on until the job ends: `NotThere` says that it has."""
    lost_s: float | None = None
    while True:
        try:
            with Visit(yard, job, {"do": "stay"}) as stay:
                stay.begin()
                if lost_s is None:
                    begun()
                lost_s = None
                _accept(yard, job, listener, remote, stay)
        except (OSError, NoServer) as error:
            now_s = time.monotonic()
            if lost_s is None:
                lost_s = now_s
                print("yard: the yard is away; this looks for it", file=sys.stderr)
            if now_s - lost_s > PATIENCE_S:
                raise NoServer(f"the yard is gone, and the way into job {job} with it") from error
            time.sleep(_PAUSE_S)


def _accept(yard: Client, job: str, listener: socket.socket, remote: int, stay: Visit) -> None:
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(stay.socket.fileno(), select.POLLIN)
    while True:
        happened = {fd for fd, _ in poll.poll()}
        if stay.socket.fileno() in happened or stay.socket.ready:
            for message in stay.socket.receive():
                read_frame(message)
        if listener.fileno() in happened:
            connection, _ = listener.accept()
            threading.Thread(
                target=_passed_on, args=(yard.again(), job, connection, remote), daemon=True
            ).start()


def _passed_on(yard: Client, job: str, connection: socket.socket, remote: int) -> None:
    """One connection, in threads of its own: neither way waits for the other."""
    with yard, connection:
        try:
            with Visit(yard, job, {"do": "forward", "port": remote}) as visit:
                visit.begin()
                threading.Thread(target=_sent, args=(connection, visit), daemon=True).start()
                for kind, content in visit.messages():
                    if kind == b"d":
                        connection.sendall(content)
                    elif kind == b"x":
                        return
        except (NotThere, NoServer, Refused, StreamClosed) as error:
            print(f"yard: {visible_text(error.message)}", file=sys.stderr)
        except OSError:
            # One side has hung up, as connections do.
            return


def _sent(connection: socket.socket, visit: Visit) -> None:
    with suppress(OSError, YardError):
        while piece := connection.recv(_READ_BYTES):
            visit.socket.send(b"d" + piece)
        visit.socket.send(b"z")
