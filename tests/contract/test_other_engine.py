"""The contract suite on an engine that a package of its own brings along (tests/rigs/boxes.py)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.test_promises import *  # noqa: F403 (the suite, run on the rig of this module)
from rigs.boxes import BoxesRig, found, install


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[BoxesRig]:
    package = tmp_path / "site"
    package.mkdir()
    with found(install(package)) as kind:
        made = BoxesRig(tmp_path, kind)
        yield made
        made.close()
