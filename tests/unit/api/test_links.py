"""The server's end of a WebSocket, where nobody takes what its client sends."""

import asyncio
import socket
from contextlib import suppress

import pytest

from gpuyard.api.connecting.websocket import BINARY, make_frame
from gpuyard.api.edge import upgrades
from gpuyard.api.edge.upgrades import Link
from harness.patience import patient


async def _served(leaves: bool) -> bool:
    """Whether the server notes that the client has gone; `leaves`: it has."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    theirs.settimeout(0.2)
    with theirs:
        link = Link(reader, writer, lambda message: message, upgrades.LinkLimits(stuck_s=0.05))
        with suppress(TimeoutError):
            while True:
                await asyncio.to_thread(theirs.sendall, make_frame(BINARY, bytes(65536), mask=b"mask"))
        if leaves:
            theirs.close()
        try:
            await asyncio.wait_for(link.gone.wait(), patient(10) if leaves else 1.0)
        except TimeoutError:
            return False
        finally:
            await link.close()
        return True


@pytest.mark.parametrize("leaves", [True, False])
def test_a_client_that_goes_is_noted_though_nobody_takes_what_it_sent(
    leaves: bool,
) -> None:
    """Its command, which reads nothing, ran on for as long as the job, with the connections of both."""
    assert leaves is asyncio.run(_served(leaves))
