"""Parts of the world that tests of several packages need."""

from pathlib import Path

import pytest

pytest_plugins = ("rigs.postgres", "rigs.slurm", "rigs.oidc")

_CLUSTERS = {"slurm_cluster", "slurm_of_eight"}

_LONG = ("e2e", "slurm", "contract", "property")
"""Folders with files that take minutes. They come first: at the end one worker would wait for the other's last file."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs a Slurm cluster can be chosen by that: `make test-slurm`."""
    for item in items:
        asked = _CLUSTERS & set(getattr(item, "fixturenames", ()))
        if asked or item.path.parts[-3:-1] == ("tests", "slurm"):
            item.add_marker(pytest.mark.slurm)
    items.sort(key=lambda item: _LONG.index(folder) if (folder := _folder(item)) in _LONG else len(_LONG))


def _folder(item: pytest.Item) -> str:
    """The folder below tests/ that an item is in."""
    return item.path.relative_to(Path(__file__).parent).parts[0]
