"""A link to a keeper ends with a word, whatever the keeper does."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from gpuyard.engines.contract import LinkEnd, LinkFrame
from gpuyard.engines.machine.keeper_link import KeeperLink
from gpuyard.engines.node.visits import frames

SHOWN = frames.make_frame(frames.DATA, b"shown")


def heard(does: Callable[[socket.socket], None]) -> list[LinkFrame]:
    """All that a link says to its end, while the keeper does something and goes."""
    keeper, ours = socket.socketpair()

    async def main() -> list[LinkFrame]:
        link = KeeperLink(ours)
        with keeper:
            does(keeper)
        found = [await link.receive()]
        while found[-1].end is None:
            found.append(await link.receive())
        await link.send(frames.DATA, b"for nobody")
        await link.close()
        return found

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "last"),
    [
        (SHOWN + frames.make_frame(frames.EXIT, b'{"code": 3}'), (frames.EXIT, b'{"code": 3}', LinkEnd.DONE)),
        (SHOWN + frames.make_frame(frames.ERROR, b"no"), (frames.ERROR, b"no", LinkEnd.REFUSED)),
        (SHOWN, (b"", b"", LinkEnd.LOST)),
        (SHOWN + SHOWN[:7], (b"", b"", LinkEnd.LOST)),
    ],
)
def test_the_last_frame_says_how_it_ended(said: bytes, last: LinkFrame) -> None:
    assert [(frames.DATA, b"shown", None), last] == heard(lambda keeper: keeper.sendall(said))


def test_a_keeper_that_goes_without_reading_is_lost() -> None:
    keeper, ours = socket.socketpair()

    async def main() -> LinkFrame:
        link = KeeperLink(ours)
        await link.send(frames.HELLO, b"{}")
        keeper.close()
        return await link.receive()

    assert LinkEnd.LOST is asyncio.run(main()).end


@pytest.mark.parametrize("drop", [False, True])
def test_what_was_sent_arrives_unless_it_is_dropped(drop: bool) -> None:
    keeper, ours = socket.socketpair()
    size = 4 << 20

    async def main() -> None:
        link = KeeperLink(ours)
        sending = asyncio.ensure_future(link.send(frames.DATA, b"x" * size))
        await asyncio.sleep(0.05)
        sending.cancel()
        closing = asyncio.ensure_future(link.close(drop=drop))
        read = 0
        while piece := await asyncio.to_thread(keeper.recv, 1 << 16):
            read += len(piece)
        await closing
        assert (read < size) == drop, read

    with keeper:
        asyncio.run(main())
