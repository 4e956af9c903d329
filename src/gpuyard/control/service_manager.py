"""The word to systemd that a server is ready, or stops (`Type=notify`): a line to the socket that it names.

Anything else that starts servers names no socket and is told nothing.
"""

import os
import socket

VARIABLE = "NOTIFY_SOCKET"


class ServiceManager:
    """The service manager that started this process and wants to know when it is ready."""

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
