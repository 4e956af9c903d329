"""Which yard answers, told where people would take it for another."""

from pathlib import Path

import pytest

from gpuyard.api.connecting.ports import listen_at
from gpuyard.cli.connection.places import _say_whose, open_client, whose_yard
from gpuyard.control.notes import another_yard
from gpuyard.control.places import SYSTEM_DATA, DataDir

from .conftest import Yard


def test_the_yard_of_the_machine_is_named_where_the_users_own_is_down(tmp_path: Path) -> None:
    of_machine = f"{SYSTEM_DATA}/yard.sock"
    assert "" == whose_yard(of_machine, tmp_path), "a user without a yard means the one of the machine"
    (tmp_path / "yard.db").touch()
    assert whose_yard(of_machine, tmp_path).startswith("the machine's yard answers; yours is down")
    assert "" == whose_yard(f"{tmp_path}/yard.sock", tmp_path, machine=tmp_path)


@pytest.mark.parametrize("terminal", [True, False])
def test_whose_yard_answers_is_a_line_for_terminals_and_not_for_logs(
    terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("YARD_DATA", str(tmp_path))
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("YARD_URL", f"{SYSTEM_DATA}/yard.sock")
    (tmp_path / "yard.db").touch()
    _say_whose.cache_clear()
    open_client()
    said = capsys.readouterr().err.splitlines()
    assert (
        ["note: the machine's yard answers; yours is down: `yard up -d` starts it"] if terminal else []
    ) == said


def test_the_yard_of_the_machine_is_the_users_own_where_yard_data_names_it(
    tmp_path: Path,
) -> None:
    """As in every job of it, whose environment has YARD_DATA."""
    (tmp_path / "yard.db").touch()
    assert "" == whose_yard(f"{tmp_path}/yard.sock", tmp_path, machine=tmp_path)


def test_a_start_that_cannot_be_is_refused_at_once_and_leaves_nothing(yard: Yard, tmp_path: Path) -> None:
    with listen_at("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = yard("up", "-d", "--data", str(tmp_path / "new"), "--port", str(port))
    assert f"port {port} cannot be used" in said.err
    assert [] == list(tmp_path.iterdir())

    (tmp_path / "loop").symlink_to("loop")
    said = yard("up", "-d", "--data", str(tmp_path / "loop" / "x"))
    assert f"{tmp_path}/loop/x cannot hold a yard's data" in said.err


def test_the_machines_yard_is_named_where_it_may_have_the_port(
    tmp_path: Path,
) -> None:
    machine, own = tmp_path / "machine", tmp_path / "own"
    machine.mkdir()
    assert "another user's yard" == another_yard(DataDir(own), machine), "nothing answers there"
    for name in ("yard.pid", "yard.sock"):
        (machine / name).touch()
    assert f"the machine's yard, in {machine}" == another_yard(DataDir(own), machine)
    assert "another user's yard" == another_yard(DataDir(machine), machine)
