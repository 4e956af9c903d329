"""The contract suite on an engine over a world of its own, with streams and no files (tests/rigs/outside)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.test_promises import *  # noqa: F403 (the suite, run on the rig of this module)
from rigs.outside.kind import registered
from rigs.outside.rig import OutsideRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[OutsideRig]:
    with registered():
        made = OutsideRig(tmp_path)
        yield made
        made.close()
