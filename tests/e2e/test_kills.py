"""kill -9 of the server while clients submit: the short form here, the full one in `make soak`."""

from pathlib import Path

import pytest

from rigs.kills import Server, Siege


def survive(data: Path, store: str, submissions: int, kills: int, seed: int) -> None:
    siege = Siege(Server(data, store), submissions, kills, seed)
    try:
        siege.run()
        counted = siege.check()
    finally:
        if siege.server.process is not None and siege.server.process.poll() is None:
            siege.server.kill()
    print(f"{counted['acknowledged']} acknowledged, {counted['ran']} ran, {counted['kills']} kills")
    print(f"{counted['changed']} changed")
    assert kills == counted["kills"]
    assert counted["changed"], "no job was changed meanwhile"


@pytest.mark.rig
def test_nothing_acknowledged_is_lost_on_sqlite(tmp_path: Path) -> None:
    survive(tmp_path / "yard", "", 80, 5, 1)


def test_nothing_acknowledged_is_lost_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    survive(tmp_path / "yard", postgres_url, 60, 4, 2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [11, 12])
def test_fifty_kills_in_two_thousand_submissions_on_sqlite(tmp_path: Path, seed: int) -> None:
    survive(tmp_path / "yard", "", 2000, 50, seed)


@pytest.mark.soak
def test_fifty_kills_in_two_thousand_submissions_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    survive(tmp_path / "yard", postgres_url, 2000, 50, 21)
