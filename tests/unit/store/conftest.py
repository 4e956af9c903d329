"""Every test of the store runs on both databases unless it says otherwise."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.store import Store, open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be opened, more than once."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return str(tmp_path / "yard.db")


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    """An empty store."""
    with open_store(place, busy_s=5, lease_s=1) as opened:
        yield opened
