"""`yard apply` and `yard rollback` where the preview of a change fails."""

from collections.abc import Iterator
from typing import Any, Self

import pytest

from gpuyard.api.connecting.calling import Refused
from gpuyard.cli.commands.config import apply
from gpuyard.errors import YardError

from .conftest import EXAMPLE, Yard

TOO_LONG = {"detail": "the preview took longer than 10 min", "hint": "Ask for fewer --days."}
DIFFERENCE = {"version": 3, "same": False, "restores": None, "changes": [], "notes": [], "obstacles": []}


class Server:
    """A yard whose preview fails in a given way, and what was put in force there."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.put: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def config(self) -> dict[str, Any]:
        return {"version": 3}

    def config_diff(self, **_wanted: Any) -> dict[str, Any]:
        return DIFFERENCE

    def config_preview(self, **_wanted: Any) -> Iterator[tuple[str, Any]]:
        yield "progress", {"side": "before", "done": 1, "jobs": 2}
        if self.failure is not None:
            raise self.failure
        yield "error", TOO_LONG

    def apply(self, *, against: int, **_wanted: Any) -> dict[str, Any]:
        self.put.append(against)
        return {"version": against + 1}

    rollback = apply


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(apply, "client", lambda: server)
    return server


COMMANDS = [("apply", "-f", str(EXAMPLE)), ("rollback", "2")]
FAILURES = [
    (None, "the preview took longer than 10 min"),
    (Refused(503, {"detail": "another preview is being made"}), "another preview is being made"),
    (TimeoutError("timed out"), "the connection to the yard broke: timed out"),
]


@pytest.mark.parametrize(("failure", "said"), FAILURES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_decided_change_goes_on_without_its_preview(
    yard: Yard, server: Server, command: tuple[str, ...], failure: Exception | None, said: str
) -> None:
    server.failure = failure
    done = yard(*command, "--yes")

    assert (0, [3]) == (done.code, server.put)
    assert "version 4 is in force" in done.out
    assert f"note: there is no preview: {said}" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_look_without_a_preview_says_how_to_do_without(
    yard: Yard, server: Server, command: tuple[str, ...]
) -> None:
    done = yard(*command, "--dry-run", "--yes")

    assert (1, []) == (done.code, server.put)
    assert "there is no preview: the preview took longer than 10 min" in done.err
    assert "Ask for fewer --days. Without a preview: --no-preview. Nothing was changed." in done.err


def test_an_undecided_change_ends_where_its_preview_fails(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with pytest.raises(YardError, match="there is no preview: the preview took longer") as caught:
        apply.rollback(2)

    assert [] == server.put
    assert "--no-preview" in caught.value.hint
