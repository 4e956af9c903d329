"""Parts of the world that tests of several packages need."""

import pytest

pytest_plugins = ("rigs.postgres", "rigs.slurm", "rigs.oidc")

_CLUSTERS = {"slurm_cluster", "slurm_of_eight"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs a Slurm cluster can be chosen by that: `make test-slurm`."""
    for item in items:
        asked = _CLUSTERS & set(getattr(item, "fixturenames", ()))
        if asked or item.path.parts[-3:-1] == ("tests", "slurm"):
            item.add_marker(pytest.mark.slurm)
