"""`yard status`: what it says below the queue."""

from typing import Any

import pytest

from gpuyard.cli.commands.yard import status
from gpuyard.wire.endpoints import READY
from harness.answering import Reply


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ({"ready": True, "reason": None, "duties": []}, ""),
        (
            {"ready": False, "reason": "damaged", "error": "the store is damaged", "duties": []},
            "note: the server is not ready (damaged): the store is damaged\n",
        ),
        ({"ready": False, "reason": "starting"}, "note: the server is not ready (starting)\n"),
        ({"ready": True, "reason": "duty waits"}, "note: a duty of the server fails: waits\n"),
        (
            {"ready": True, "reason": "duty waits", "duties": ["waits: no"]},
            "note: a duty of the server fails: waits: no\n",
        ),
    ],
)
def test_what_keeps_the_server_from_its_work_is_said(
    says: dict[str, Any], expected: str, answering_yard: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answering_yard({READY: Reply(200 if says["ready"] else 503, says)})
    status.say_what_fails()
    assert expected == capsys.readouterr().err
