"""`--watch`: a list is read again when something has happened, and as before where nobody tells."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuyard.cli.connection import change_feed, watching
from gpuyard.wire.endpoints import CHANGES
from harness import patience
from harness.answering import CUT, Problem, Stream

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
    watching.keep_showing(lambda: shown.append(1), every_s, news)
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


START = ("start", {"seq": 7, "wakes": True})


def streamed(answering_yard: Any, *streams: Any) -> tuple[change_feed.Stream, list[bool]]:
    """A stream of a yard that gives each connection the next of these; the last one stays."""
    left = list(streams)

    def connected(_wanted: dict[str, Any]) -> Any:
        found = left.pop(0)
        return Stream(told(found)) if isinstance(found, list) else found

    def told(events: list[Any]) -> Iterator[Any]:
        yield from events
        if not left:
            yard.ended.wait(SOON_S)

    yard = answering_yard({CHANGES: connected})
    news: list[bool] = []
    stream = change_feed.Stream(lambda: news.append(stream.live), again_s=0.01)
    stream.start()
    return stream, news


def until(news: list[bool], count: int) -> None:
    patience.until(lambda: len(news) >= count)


def test_a_stream_that_is_lost_is_found_again_and_tells_so(answering_yard: Any) -> None:
    stream, news = streamed(answering_yard, [START, ("seq", {"seq": 8})], CUT, [START])
    until(news, 5)
    stream.close()

    # It was there, told, was lost, not found, and is there again.
    assert [True, True, False, False, True] == news[:5]
    assert not stream._thread.is_alive()


@pytest.mark.parametrize("answer", [[("start", {"seq": 7, "run": "ab"})], Problem(403, ""), Problem(404, "")])
def test_a_server_without_such_a_stream_is_asked_once(answering_yard: Any, answer: Any) -> None:
    stream, news = streamed(answering_yard, answer, [START])
    stream._thread.join(SOON_S)

    assert not stream._thread.is_alive()
    assert not stream.live
    assert [] == news
