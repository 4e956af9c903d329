"""Keys at a terminal: which of them are for the job, and which for `yard`."""

import pytest

from gpuyard.cli.terminal.escapes import Escapes


@pytest.mark.parametrize(
    ("typed", "passed", "detached"),
    [
        ("ls\r", "ls\r", False),
        ("~.", "", True),
        ("ls\r~.rest", "ls\r", True),
        ("a~.", "a~.", False),
        ("\r~/bin\r", "\r~/bin\r", False),
        ("~~.", "~.", False),
        ("\r~\r~.", "\r~\r", True),
        ("\x03~.", "\x03~.", False),
    ],
)
def test_a_tilde_at_the_beginning_of_a_line_is_for_yard(typed: str, passed: str, detached: bool) -> None:
    for size in (1, len(typed)):
        keys = Escapes()
        found = b"".join([keys.sift(typed[at : at + size].encode()) for at in range(0, len(typed), size)])
        assert (passed, detached) == (found.decode(), keys.detached)


def test_help_is_shown_here_and_the_job_sees_nothing_of_it() -> None:
    keys = Escapes()
    assert b"" == keys.sift(b"~?")
    assert b"detach" in keys.help
