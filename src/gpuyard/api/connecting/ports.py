"""A port to listen at, or why there is none. Light, so that a start that cannot be is refused at once."""

import errno
import socket

from gpuyard.errors import BadInput, YardError


class PortTaken(YardError):
    """Another program listens there, or this user may not."""


_ADDRESSES = "Give one of its addresses, 127.0.0.1 for this machine alone, or 0.0.0.0 for all of them."


def listen_at(host: str, port: int, backlog: int = 1) -> socket.socket:
    """A socket that listens there."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(
            f"--host {host} is not an address of this machine: {error.strerror}", _ADDRESSES
        ) from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # Only listening makes a port ours for sure: two processes may bind one at the same moment.
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise BadInput(f"--host {host} is not an address of this machine", _ADDRESSES) from error
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise PortTaken(
            f"port {port} cannot be used: {error.strerror}",
            "Leave --port out, and the yard finds a free one; or choose another, or --port 0 for any.",
        ) from error
    return listener
