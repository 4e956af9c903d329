"""The token: whoever has it acts as the owner, so what is no token lets nobody in."""

import socket
from pathlib import Path

import pytest

from gpuyard.control.notes import read_by_all
from gpuyard.control.places import DataDir, resolve_store
from gpuyard.errors import YardError


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    place = DataDir(tmp_path)
    first = place.token()
    assert first == place.token()
    assert (64, 0o600) == (len(first), place.token_file.stat().st_mode & 0o777)


@pytest.mark.parametrize(
    "content", ["", "\n", "short", "x" * 31, "with spaces and so on, long enough by far"]
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    place = DataDir(tmp_path)
    place.token_file.write_text(content)
    place.token_file.chmod(0o600)
    with pytest.raises(YardError, match="holds no token"):
        place.token()


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    place = DataDir(tmp_path)
    place.token()
    place.token_file.chmod(0o644)
    with pytest.raises(YardError, match="can be read by others"):
        place.token()


def test_servers_are_found_by_users_who_may_not_list_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of root's lets others pass: they find each of several servers, and none that was killed."""

    def no_listing(path: object) -> list[str]:
        raise PermissionError(path)

    bound = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    try:
        for each, name in zip(bound, ("yard-7448", "yard-7449", "other"), strict=True):
            each.bind(str(tmp_path / f"{name}.sock"))
            each.listen()
        monkeypatch.setattr("gpuyard.control.places.os.listdir", no_listing)
        found = [each.socket.name for each in DataDir(tmp_path).instances()]
        assert ["yard-7448.sock", "yard-7449.sock"] == found
        bound[0].close()
        assert ["yard-7449.sock"] == [each.socket.name for each in DataDir(tmp_path).instances()]
    finally:
        for each in bound:
            each.close()


URL = "postgresql://yard:s3cret@db.example.org/yard"


def test_a_stores_url_need_not_stand_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine can read it there, with its password."""
    monkeypatch.delenv("YARD_STORE", raising=False)
    assert ["", URL] == [resolve_store(""), resolve_store(URL)]
    file = tmp_path / "store"
    file.write_text(f"{URL}\n")
    file.chmod(0o600)
    assert URL == resolve_store(f"@{file}")
    monkeypatch.setenv("YARD_STORE", f"@{file}")
    assert [URL, "yard.db"] == [resolve_store(""), resolve_store("yard.db")]
    file.chmod(0o640)
    with pytest.raises(YardError, match="can be read by others"):
        resolve_store("")
    with pytest.raises(YardError, match="cannot be read"):
        resolve_store(f"@{tmp_path}/nothing")
    file.chmod(0o600)
    file.write_text("")
    with pytest.raises(YardError, match="names no store"):
        resolve_store("")


def test_a_key_that_everybody_can_read_is_named(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.touch(0o640)
    assert "" == read_by_all(None) == read_by_all(key)
    key.chmod(0o644)
    assert f"chmod o= {key}" in read_by_all(key)
