"""Followers of logs: what they are told, and what they may take of the server's time together."""

import asyncio
import json
import time
from typing import Any

import pytest

from gpuyard.api.edge.throttle import BURST_S, SHARE, Throttle
from gpuyard.api.handlers.streams import PIECE_BYTES_MAX, _Place, _Streams
from gpuyard.control.replica.labels import Label
from gpuyard.engines.contract import LogPiece

FOLLOWERS = 30
LOOK_S = 0.002


class Log:
    """A yard with one job, whose log grows with every look."""

    def __init__(self, look_s: float = 0.0, pieces: tuple[bytes, ...] = ()) -> None:
        self.look_s = look_s
        self.pieces = list(pieces)
        self.looks = 0
        self.attempts = self.views = self

    def brief(self, _label: Label) -> dict[str, Any]:
        until_s = time.thread_time() + self.look_s
        while time.thread_time() < until_s:
            pass
        self.looks += 1
        ended_ms = None if self.look_s or len(self.pieces) > 1 else 1
        told = {"id": 1, "label": "1", "state": "COMPLETED", "exit_code": 0, "reason": "", "attempts": 1}
        return told | {"submitted_ms": 0, "ended_ms": ended_ms}

    def at(self, _view: object, _attempt: int) -> tuple[object, str]:
        return self, "y-1-1"

    def log(self, _key: str, _stream: str, cursor: str, limit: int) -> LogPiece:
        text = b"line\n" if self.look_s else self.pieces.pop(0) if self.pieces else b""
        assert len(text) <= limit
        return LogPiece(text, str(int(cursor) + len(text)))


class AsyncNotifier:
    """No news: followers look by themselves."""

    closed = False
    waits = 0

    async def next(self, timeout_s: float) -> None:
        self.waits += 1
        await asyncio.sleep(timeout_s / 10)


def follow(log: Log, pulse: AsyncNotifier) -> Any:
    yard: Any = log
    return _Streams(yard)._follow(pulse, Label(1), "eve", ("stdout", 1, _Place("0", 0)))  # type: ignore[arg-type]


class Words(Log):
    """One whose engine names places by words."""

    def log(self, _key: str, _stream: str, cursor: str, limit: int) -> LogPiece:
        at = ["", "w:one", "w:two"].index("" if cursor == "0" else cursor)
        return LogPiece([b"one\n", b"two\n", b""][at], ["w:one", "w:two", "w:two"][at])


@pytest.mark.parametrize(
    ("begin", "told"),
    [
        (_Place("0", 0), [(0, "w:one", "one\n"), (4, "w:two", "two\n")]),
        (_Place("w:one", None), [(None, "w:two", "two\n")]),
    ],
)
def test_events_name_the_engines_cursor_and_the_offset_as_long_as_it_is_counted(
    begin: _Place, told: list[tuple[int | None, str, str]]
) -> None:
    async def main() -> list[str]:
        yard: Any = Words()
        pieces = _Streams(yard)._follow(AsyncNotifier(), Label(1), "eve", ("stdout", 1, begin))  # type: ignore[arg-type]
        return [event.decode() async for event in pieces]

    events = asyncio.run(main())
    found = [json.loads(each.split("data: ")[1]) for each in events if each.startswith("event: log")]
    assert told == [(each.get("offset"), each["cursor"], each["text"]) for each in found]


def test_all_followers_of_a_user_take_one_users_share_while_another_asks() -> None:
    async def main() -> tuple[int, float]:
        log, throttle = Log(LOOK_S), Throttle()

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start"})
            async for _event in follow(log, AsyncNotifier()):
                pass

        async def sent(_message: Any) -> None:
            pass

        async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
            pass

        async def eve() -> None:
            await throttle.user("eve", app, {"method": "GET"}, None, sent)

        follows = [asyncio.create_task(eve()) for _ in range(FOLLOWERS)]
        began_s = time.monotonic()
        while time.monotonic() - began_s < 1.5:
            await throttle.user("ann", nothing, {"method": "GET"}, None, sent)
            await asyncio.sleep(0.05)
        took_s = time.monotonic() - began_s
        for task in follows:
            task.cancel()
        await asyncio.gather(*follows, return_exceptions=True)
        return log.looks, took_s

    looks, took_s = asyncio.run(main())
    assert FOLLOWERS <= looks <= (BURST_S + SHARE * took_s) / LOOK_S + 2 * FOLLOWERS


@pytest.mark.parametrize(
    ("pieces", "waits"),
    [((b"a\n", b"b\n", b""), 2), ((b"x" * PIECE_BYTES_MAX, b"b\n", b""), 1), ((b"a\n",), 0)],
)
def test_a_follower_looks_again_at_once_only_where_there_is_more(
    pieces: tuple[bytes, ...], waits: int
) -> None:
    pulse = AsyncNotifier()

    async def main() -> list[str]:
        return [event.decode() async for event in follow(Log(pieces=pieces), pulse)]

    events = asyncio.run(main())
    assert b"".join(pieces).decode() == "".join(
        [json.loads(event.split("data: ")[1])["text"] for event in events if event.startswith("event: log")]
    )
    assert "event: end" == events[-1].split("\n")[0]
    assert waits == pulse.waits
