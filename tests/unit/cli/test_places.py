"""Which yard answers, told where people would take it for another."""

from pathlib import Path

import pytest

from gpuyard.api.connecting.ports import listening
from gpuyard.cli.connection.places import whose_yard
from gpuyard.control.places import SYSTEM_DATA

from .conftest import Yard


def test_the_yard_of_the_machine_is_named_where_the_users_own_is_down(tmp_path: Path) -> None:
    of_machine = f"{SYSTEM_DATA}/yard.sock"
    assert "" == whose_yard(of_machine, tmp_path), "a user without a yard means the one of the machine"
    (tmp_path / "yard.db").touch()
    said = whose_yard(of_machine, tmp_path)
    assert said.startswith(f"the yard of {SYSTEM_DATA} answers; yours, in {tmp_path}, is down")
    assert "" == whose_yard(f"{tmp_path}/yard.sock", tmp_path)


def test_the_yard_of_the_machine_is_the_users_own_where_yard_data_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in every job of it, whose environment has YARD_DATA."""
    monkeypatch.setattr("gpuyard.control.places.SYSTEM_DATA", tmp_path)
    (tmp_path / "yard.db").touch()
    assert "" == whose_yard(f"{tmp_path}/yard.sock", tmp_path)


def test_a_start_that_cannot_be_is_refused_at_once_and_leaves_nothing(yard: Yard, tmp_path: Path) -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = yard("up", "-d", "--data", str(tmp_path / "new"), "--port", str(port))
    assert f"port {port} cannot be used" in said.err
    assert [] == list(tmp_path.iterdir())

    (tmp_path / "loop").symlink_to("loop")
    said = yard("up", "-d", "--data", str(tmp_path / "loop" / "x"))
    assert f"{tmp_path}/loop/x cannot hold a yard's data" in said.err
