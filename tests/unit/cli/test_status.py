"""`yard status`: what it says below the queue."""

from typing import Any, Self

import pytest

from gpuyard.cli.commands.yard import status


class Yard:
    """A yard whose server says this of itself."""

    def __init__(self, **says: Any) -> None:
        self._says = says

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ready(self) -> tuple[bool, dict[str, Any]]:
        return bool(self._says["ready"]), self._says


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
    says: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "client", lambda: Yard(**says))
    status.say_what_fails()
    assert expected == capsys.readouterr().err
