"""`yard apply` and `yard rollback` where the preview of a change fails."""

from typing import Any

import pytest

from gpuyard.cli.commands.config import apply
from gpuyard.errors import YardError
from gpuyard.wire import endpoints
from harness.answering import CUT, Problem, Stream

from .conftest import EXAMPLE, Yard

TOO_LONG = {"detail": "the preview took longer than 10 min", "hint": "Ask for fewer --days."}
DIFFERENCE = {"version": 3, "same": False, "restores": None, "changes": [], "notes": [], "obstacles": []}


PROGRESS = ("progress", {"side": "before", "done": 1, "jobs": 2})


class Server:
    """A yard whose preview fails in a given way, and what was put in force there."""

    def __init__(self, answering_yard: Any) -> None:
        self.failure: Any = None
        self.put: list[int] = []
        answering_yard(
            {
                endpoints.CONFIG: {"version": 3},
                endpoints.DIFF: DIFFERENCE,
                endpoints.PREVIEW: lambda _: self.failure or Stream(iter([PROGRESS, ("error", TOO_LONG)])),
                endpoints.APPLY: self._apply,
                endpoints.ROLLBACK: self._apply,
            }
        )

    def _apply(self, wanted: dict[str, Any]) -> dict[str, Any]:
        self.put.append(wanted["against"])
        return {"version": wanted["against"] + 1}


@pytest.fixture
def server(answering_yard: Any) -> Server:
    return Server(answering_yard)


COMMANDS = [("apply", "-f", str(EXAMPLE)), ("rollback", "2")]
FAILURES = [
    (None, "the preview took longer than 10 min"),
    (Problem(503, "another preview is being made"), "another preview is being made"),
    (CUT, "the connection to the yard broke: "),
]


@pytest.mark.parametrize(("failure", "said"), FAILURES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_decided_change_goes_on_without_its_preview(
    yard: Yard, server: Server, command: tuple[str, ...], failure: Any, said: str
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
