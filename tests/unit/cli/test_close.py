"""`yard cost close` names the months that it closes, and asks: there is no way back."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.cli.terminal.streams import confirm
from gpuyard.wire.endpoints import CLOSE_MONTH

from .conftest import Yard

MONTHS = ["2026-08", "2026-09", "2026-10"]


class Server:
    """A yard with three open months."""

    def __init__(self, answering_yard: Any) -> None:
        self.asked: list[bool] = []
        answering_yard({CLOSE_MONTH: self._close_month})

    def _close_month(self, wanted: dict[str, Any]) -> dict[str, Any]:
        assert "2026-10" == wanted["month"]
        self.asked.append("dry_run" in wanted)
        return {"months": MONTHS}


class Typed(io.StringIO):
    """What somebody types at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def server(answering_yard: Any, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return Server(answering_yard)


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_on_a_terminal_it_asks_about_every_month(
    yard: Yard, server: Server, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(answer and f"{answer}\n"))

    done = yard("cost", "close", "2026-10")

    assert "Close the books of 2026-08, 2026-09, 2026-10 for good?" in done.err
    if answer == "y":
        assert (0, [True, False]) == (done.code, server.asked)
        assert done.out.startswith("closed 2026-08, 2026-09, 2026-10; what is learned about them later ")
    else:
        assert (1, "", [True]) == (done.code, done.out, server.asked)
        assert "nothing was closed" in done.err


def test_after_ctrl_c_at_the_question_the_shell_begins_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", SimpleNamespace(readline=interrupt))
    with pytest.raises(KeyboardInterrupt):
        confirm("Go on?")
    assert "Go on? [y/N]: \n" == capsys.readouterr().err


def test_in_a_script_it_names_them_and_wants_yes(yard: Yard, server: Server) -> None:
    refused = yard("cost", "close", "2026-10")
    assert (2, [True]) == (refused.code, server.asked)
    assert "this closes the books of 2026-08, 2026-09, 2026-10 for good" in refused.err
    assert "--yes" in refused.err

    assert 0 == yard("cost", "close", "2026-10", "--yes").code
    assert [True, False] == server.asked


@pytest.mark.parametrize("month", ["", "2026-13", "10/2026"])
def test_what_is_no_month_is_refused_before_anybody_is_asked(yard: Yard, server: Server, month: str) -> None:
    assert 2 == yard("cost", "close", month).code
    assert [] == server.asked
