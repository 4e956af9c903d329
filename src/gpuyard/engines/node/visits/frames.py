"""How a client speaks to the keeper of an attempt: the socket in the attempt's folder, and the frames on it.

A connection asks for one thing (`HELLO`, as JSON) and then sends and receives frames: a letter, a length, and so many
bytes. The yard's server passes them on as they are.

Runs beside the job and in the server: only the standard library, nothing newer than Python 3.6.
"""

import json
import os
import socket
import stat
import struct
from typing import Any, Dict, Optional

SOCKET = "terminal"
"""In the attempt's folder."""

DATA, SIZE, SIGNAL, HELLO, EXIT, ERROR, END, FILE = b"d", b"w", b"s", b"h", b"x", b"e", b"z", b"f"
ERRORS = b"r"
"""Bytes both ways; rows and columns; a signal for the foreground; what is wanted, or what it came to; how it ended, in
an exit code or in words; no more bytes from here, or that a shell is to go; the head of a file (`copying.py`); bytes
of standard error, where they come apart (`visitors.py`)."""
HEAD = struct.Struct(">cI")
FRAME_BYTES_MAX = 1 << 20
OWN = "job"
"""The session that is the job itself."""


def make_frame(kind: bytes, content: bytes = b"") -> bytes:
    """A frame."""
    return HEAD.pack(kind, len(content)) + content


def make_json_frame(kind: bytes, value: Dict[str, Any]) -> bytes:
    """A frame of JSON."""
    return make_frame(kind, json.dumps(value).encode())


def reach_keeper(folder: str, uid: Optional[int] = None) -> Optional[socket.socket]:
    """A connection to the keeper of an attempt; None: there is none. Any length of path will do.

    `uid`: the user whose folder it is. A link there may lead to any socket of this machine, and is not followed.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    place = -1
    try:
        place = os.open(os.path.join(folder, SOCKET), os.O_PATH | os.O_NOFOLLOW)
        found = os.fstat(place)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != (os.geteuid() if uid is None else uid):
            raise FileNotFoundError
        connection.connect("/proc/self/fd/{}".format(place))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    finally:
        if place >= 0:
            os.close(place)
    return connection
