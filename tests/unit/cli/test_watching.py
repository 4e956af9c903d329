"""`--watch`: a list is read again when something has happened, and as before where nobody tells."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gpuyard.api.client import NoServer, Refused
from gpuyard.cli.connection import followed, watching
from gpuyard.cli.connection.followed import Stream
from harness import patience

SOON_S = 300.0


class Event:
    """Tells at once, as written down, and keeps how long was waited."""

    def __init__(self, told: list[bool]) -> None:
        self._told = told
        self.waits: list[float] = []

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        if not self._told:
            raise KeyboardInterrupt
        return self._told.pop(0)

    def clear(self) -> None:
        pass


class Told:
    """News that were written down before."""

    apart_s, ages_s = 1.0, 10.0

    def __init__(self, told: list[bool], *, live: bool = True) -> None:
        self.told: Any = Event(told)
        self.live = live
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("os.get_terminal_size", lambda *_fd: (80, 24))
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)
    monkeypatch.setattr(watching.time, "sleep", lambda _s: None)


def pictures(news: Told, every_s: int = 2) -> int:
    shown: list[int] = []
    watching.watched(lambda: shown.append(1), every_s, news)
    assert "close" == news.calls[-1]
    return len(shown)


@pytest.mark.usefixtures("terminal")
def test_a_list_that_is_told_of_changes_is_read_again_seldom_while_there_are_none() -> None:
    news = Told([False, False, True, False, False])

    assert 6 == pictures(news)
    # The picture after news comes as soon as without a stream: what follows from them may come without an event.
    assert [1.0, 9.0, 9.0, 1.0, 9.0, 9.0] == news.told.waits


@pytest.mark.usefixtures("terminal")
def test_a_list_that_nobody_tells_of_changes_is_read_as_often_as_was_asked_for() -> None:
    news = Told([False, False, False], live=False)

    assert 4 == pictures(news, 5)
    assert [4.0] * 4 == news.told.waits


class Server:
    """What each connection gives, one after the other."""

    def __init__(self, *streams: Any) -> None:
        self.streams = list(streams)
        self.ended = threading.Event()

    def __call__(self, **_options: Any) -> "Server":
        return self

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def hang_up(self) -> None:
        self.ended.set()

    def wakes(self) -> Iterator[tuple[str, Any]]:
        found = self.streams.pop(0) if self.streams else ()
        if isinstance(found, Exception):
            raise found
        yield from found
        if not self.streams:
            self.ended.wait(SOON_S)


START = ("start", {"seq": 7, "wakes": True})


def streamed(monkeypatch: pytest.MonkeyPatch, *streams: Any) -> tuple[Stream, list[bool]]:
    news: list[bool] = []
    monkeypatch.setattr(followed, "Client", Server(*streams))
    monkeypatch.setattr(followed, "AGAIN_S", 0.01)
    stream = Stream(lambda: news.append(stream.live))
    stream.start()
    return stream, news


def until(news: list[bool], count: int) -> None:
    patience.until(lambda: len(news) >= count)


def test_a_stream_that_is_lost_is_found_again_and_tells_so(monkeypatch: pytest.MonkeyPatch) -> None:
    away = NoServer("no yard answers", "")
    stream, news = streamed(monkeypatch, [START, ("seq", {"seq": 8})], away, [START])
    until(news, 5)
    stream.close()

    # It was there, told, was lost, not found, and is there again.
    assert [True, True, False, False, True] == news[:5]
    assert not stream._thread.is_alive()


@pytest.mark.parametrize("answer", [[("start", {"seq": 7, "run": "ab"})], Refused(403, {}), Refused(404, {})])
def test_a_server_without_such_a_stream_is_asked_once(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    stream, news = streamed(monkeypatch, answer, [START])
    stream._thread.join(SOON_S)

    assert not stream._thread.is_alive()
    assert not stream.live
    assert [] == news
