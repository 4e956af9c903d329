"""The server's end of a WebSocket takes little memory and time, whatever a client sends and does not read."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvloop

from gpuyard.api.connecting import websocket
from gpuyard.api.connecting.websocket import BINARY, CLOSE, NORMAL, PING, PONG, Unframer, make_frame
from gpuyard.api.edge import upgrades
from gpuyard.api.edge.throttle import Throttle
from gpuyard.api.edge.upgrades import Link
from gpuyard.api.handlers.terminals import _Visit
from gpuyard.api.messages.frames import Asked
from gpuyard.control.replica.labels import Label
from gpuyard.engines.machine.keeper_link import KeeperLink
from gpuyard.engines.node.visits import frames
from harness.steered import steered

MASK = b"\1\2\3\4"
MUCH = 16 << 20
LITTLE = 1 << 20
"""What a server may hold for a client: buffers of the stream, and a piece on its way."""
STILL = 1000
"""Turns of the event loop in which nothing has moved: then nothing does any more."""


def masked(kind: int, content: bytes) -> bytes:
    return make_frame(kind, content, mask=MASK)


@asynccontextmanager
async def linked(**limits: float) -> AsyncIterator[tuple[Link, socket.socket, asyncio.StreamWriter]]:
    """A link, the client's end of its connection, and the server's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=theirs)
    link = Link(reader, writer, lambda message: message, upgrades.LinkLimits(**limits))
    try:
        with ours:
            yield link, ours, writer
    finally:
        if not writer.is_closing():
            await link.close()


async def pushed(ours: socket.socket, data: bytes, most: int) -> int:
    """Send this over and over, until nobody takes more or so much is taken; how much was."""
    sent = turns = 0
    while sent < most and turns < STILL:
        try:
            took = ours.send(data[sent % len(data) :])
        except BlockingIOError:
            took = 0
        sent, turns = sent + took, 0 if took else turns + 1
        await asyncio.sleep(0)
    return sent


async def all_of(ours: socket.socket) -> bytes:
    """What comes, to the end of the connection."""
    come = []
    while data := await asyncio.get_running_loop().sock_recv(ours, 1 << 16):
        come.append(data)
    return b"".join(come)


def test_a_client_that_pings_and_reads_nothing_fills_no_memory() -> None:
    async def main() -> None:
        async with linked() as (_link, ours, writer):
            sent = await pushed(ours, masked(PING, bytes(125)), MUCH)

            assert MUCH > sent
            assert LITTLE > writer.transport.get_write_buffer_size()

            # Nothing is lost: once it reads, each of them is answered.
            unframer, pongs, whole = Unframer(masked=False), 0, sent // len(masked(PING, bytes(125)))
            while pongs < whole:
                found = list(unframer.take(await asyncio.get_running_loop().sock_recv(ours, 1 << 16)))
                assert {(PONG, bytes(125))} >= set(found)
                pongs += len(found)

    asyncio.run(main())


@pytest.mark.parametrize("told", [False, True])
def test_a_client_that_takes_nothing_is_hung_up_on(told: bool) -> None:
    async def main() -> None:
        async with linked(stalled_s=0.01, last_s=0.01) as (link, ours, writer):
            sending = asyncio.ensure_future(link.send(bytes(MUCH)))
            while not writer.transport.get_write_buffer_size():
                await asyncio.sleep(0)
            if told:
                await link.tell("{}", 1008, "the token was revoked")
            await link.close()
            assert MUCH > len(await all_of(ours))
            await asyncio.wait({sending})

    asyncio.run(main())


def test_a_client_that_takes_all_at_last_is_sent_all_of_it() -> None:
    async def main() -> None:
        async with linked() as (link, ours, _writer):
            sending = asyncio.ensure_future(link.send(bytes(MUCH)))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(link.close())
            come = await all_of(ours)
            await asyncio.wait({sending, closing})
            assert come == make_frame(BINARY, bytes(MUCH)) + make_frame(
                CLOSE, websocket.closing_content(NORMAL)
            )

    asyncio.run(main())


def test_many_small_frames_leave_turns_to_others() -> None:
    count = 5000

    async def main() -> int:
        async with linked(stretch_s=0.0) as (link, ours, _writer):
            data = masked(PONG, b"") * count + masked(BINARY, b"last")
            assert len(data) == ours.send(data)
            received, turns = asyncio.ensure_future(link.receive()), 0
            while not received.done():
                await asyncio.sleep(0)
                turns += 1
            assert b"last" == received.result()
            return turns

    assert count < asyncio.run(main())


def test_many_small_frames_out_of_a_job_leave_turns_to_others() -> None:
    """What a user's own process in a job sends is the user's."""
    count = 5000

    async def main() -> int:
        async with linked(stretch_s=0.0) as (link, _ours, _writer):
            keeper, held = socket.socketpair()
            with keeper:
                keeper.sendall(frames.make_frame(frames.DATA, b".") * count)
            job, nobody = KeeperLink(held), cast(Any, None)
            forward = Asked(do="forward", port=1)
            quiet = steered(link, send=sent)
            visit = _Visit(nobody, quiet, nobody, nobody, Label(1, by_number=True), forward, nobody)
            down, turns = asyncio.ensure_future(visit._down(job)), 0
            while not down.done():
                await asyncio.sleep(0)
                turns += 1
            await job.close(drop=True)
            return turns

    async def sent(_content: bytes | str) -> None:
        pass

    assert count < asyncio.run(main())


def test_what_a_client_sends_is_charged_to_its_user() -> None:
    async def main() -> None:
        charging = Throttle(lambda: 0.0)  # On a clock that stands still nothing is paid off.

        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            async with linked() as (link, ours, _writer):
                began_s = time.thread_time()
                reading = asyncio.ensure_future(link.receive())
                sending = asyncio.ensure_future(
                    asyncio.get_running_loop().sock_sendall(
                        ours, masked(PONG, b"") * 100_000 + masked(BINARY, b"")
                    )
                )
                await asyncio.wait({reading, sending})
                took.append(time.thread_time() - began_s)

        took: list[float] = []
        await charging.user("ann", app, {"method": "GET"}, None, None)
        # The rest is what the client's end took.
        assert took[0] / 4 < charging._accounts["ann"].debt_s

    asyncio.run(main())


def test_a_last_word_to_a_client_that_has_closed_the_connection_is_no_fault() -> None:
    async def main() -> None:
        async with linked() as (link, ours, writer):
            ours.close()
            await link.gone.wait()
            writer.transport.abort()
            await writer.wait_closed()
            await link.tell("the job has ended", NORMAL, "over")
            await link.close()
            assert link.fault is None
            assert writer.is_closing()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
