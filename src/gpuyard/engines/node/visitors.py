"""What a client does inside a job besides being at a terminal: it speaks to a port there, or copies files.

Each in a process of its own, as the job's user, with the client's connection: what it may not do there, the client may
not do. Runs beside the job: only the standard library, nothing newer than Python 3.6.
"""

import json
import os
import socket
import threading
from typing import Any, Callable, Dict, Iterator, List, Tuple

from . import copying
from .terminal import DATA, END, EXIT, FILE, FRAME_BYTES_MAX, HEAD, HELLO, frame, said

_READ_BYTES = 65536
_CONNECT_S = 10.0


class Gone(Exception):
    """The client has gone, or speaks of something else."""


Complain = Callable[[str], None]


def serve(link: socket.socket, asked: Dict[str, Any], env: Dict[str, str], complain: Complain) -> None:
    """Do what is asked for, to its end."""
    link.setblocking(True)
    try:
        if asked["do"] == "forward":
            _forward(link, int(asked["port"]))
        elif asked["do"] == "read":
            _read(link, copying.placed(str(asked["path"]), env.get("HOME")))
        else:
            _write(link, copying.placed(str(asked["path"]), env.get("HOME")))
    except Gone:
        pass
    except copying.Trouble as trouble:
        complain(str(trouble))
    except OSError as error:
        named = "{}: ".format(error.filename) if error.filename else ""
        complain("{}{}".format(named, error.strerror or error))
    os._exit(0)


def _exactly(link: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = link.recv(min(_READ_BYTES, size - len(got)))
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


# ---- a port


def _connected(port: int) -> socket.socket:
    if not 0 < port < 65536:
        raise copying.Trouble("{} is no port".format(port))
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


def _forward(link: socket.socket, port: int) -> None:
    """Pass bytes on both ways, until both sides have ended."""
    there = _connected(port)
    there.settimeout(None)
    link.sendall(said(HELLO, {}))

    def out() -> None:
        try:
            for kind, content in _frames(link):
                if kind == DATA:
                    there.sendall(content)
                elif kind == END:
                    there.shutdown(socket.SHUT_WR)
        except (OSError, Gone):
            # The client has gone, or what it speaks to: nothing is left to pass on.
            os._exit(0)

    # Neither way waits for the other.
    threading.Thread(target=out, daemon=True).start()
    piece = there.recv(_READ_BYTES)
    while piece:
        link.sendall(frame(DATA, piece))
        piece = there.recv(_READ_BYTES)
    link.sendall(said(EXIT, {"code": 0}))


# ---- files


def _read(link: socket.socket, path: str) -> None:
    left_out: List[str] = []
    link.sendall(said(HELLO, {}))
    for head, place in copying.entries(path, left_out.append):
        link.sendall(frame(FILE, json.dumps(head).encode()))
        for piece in copying.pieces(head, place):
            link.sendall(frame(DATA, piece))
    link.sendall(said(EXIT, {"code": 0, "left_out": left_out[:100], "left_out_count": len(left_out)}))


def _write(link: socket.socket, path: str) -> None:
    taker = copying.Taker(path)
    link.sendall(said(HELLO, {}))
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
    link.sendall(said(EXIT, {"code": 0, "files": taker.files, "bytes": taker.bytes}))
